"""A git repository as patchq uses it: all that can be done in one, and those that patchq makes.

No library stands between: for bulk data GitPython is 20 times too slow. A person's repository is for ``person``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchq.git.command import Outside
from patchq.git.diffs import Diffs
from patchq.git.mergetree import Merging
from patchq.system import fsio


class Git(Diffs, Merging):
    """Commands, refs, objects, diffs and merges in one bare repository."""


class Checkout(Git):
    """The same in a folder that holds its repository and its files."""

    def place(self) -> dict[str, str]:
        folder = self.folder.absolute()
        return {"GIT_DIR": str(folder / ".git"), "GIT_WORK_TREE": str(folder)}


class Foreign(Git):
    """Somebody else's repository, bare or not. Only for what reads names: its own configuration counts."""

    def place(self) -> dict[str, str]:
        folder = self.folder.absolute()
        dot = folder / ".git"
        if not dot.exists():
            return super().place()
        link = re.fullmatch(r"gitdir: (.+)\n*", dot.read_text("utf-8", "surrogateescape")) if dot.is_file() else None
        return {"GIT_DIR": str(folder / link[1] if link else dot), "GIT_WORK_TREE": str(folder)}


def borrow_objects(folder: Path, *others: Path) -> None:
    """Make the repository in ``folder`` read the objects in other folders, whatever their names hold, too."""
    quoted = (re.sub(rb'(["\\])', rb"\\\1", os.fsencode(other)).replace(b"\n", rb"\n") for other in others)
    (folder / "objects" / "info" / "alternates").write_bytes(b"".join(b'"%s"\n' % path for path in quoted))


def bare_repository(folder: Path, *others: Git) -> Git:
    """A repository that has the objects of others too; made if it isn't there."""
    for name in ("objects/info", "refs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    borrow_objects(folder, *((other.folder / "objects").resolve() for other in others))
    (folder / "config").write_bytes(_SCRATCH)
    return Git(folder)


def partial_repository(folder: Path) -> Git:
    """A repository for a history without its files; made if it isn't there, else with what git wrote into it."""
    return Git(folder) if (folder / "config").exists() else bare_repository(folder)


@contextmanager
def scratch(*others: Git) -> Iterator[Git]:
    """A repository that has the objects of others, and whose own are gone afterwards."""
    from patchq.git._reader import forget

    with fsio.temporary_folder() as folder:
        try:
            yield bare_repository(folder, *others)
        finally:
            forget(folder)


#: Of a repository that lasts no longer than a command. It is bare, whatever git may think of its place.
_SCRATCH = b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
_STORE_CONFIG = {
    # Packs are kept as they come: `gc` runs when apply asks for it, never behind its back.
    "gc.auto": "0",
    "core.logAllRefUpdates": "false",
    "core.autocrlf": "false",
    "core.looseCompression": "1",
    # Refs, indexes and loose objects too: zeroed by a power cut, they would be nobody's to mend.
    "core.fsync": "all",
}


def init_store(folder: Path) -> Git:
    """The bare repository that holds every upstream; made if it isn't there."""
    if not (folder / "HEAD").exists():
        fsio.make_folder(folder.parent)
        # Made beside and renamed: a store that is there is whole, whoever else makes it.
        with fsio.temporary_folder(f"{folder.name}.", folder.parent) as beside:
            new = beside / "new"
            Outside(folder.parent).run("init", "--quiet", "--bare", "--template=", str(new), env={"GIT_DIR": str(new)})
            (new / "info").mkdir()
            for key, value in _STORE_CONFIG.items():
                Git(new).run("config", "--local", key, value)
            for name in ("config", "HEAD"):
                fsio.sync_file(new / name)
            try:
                fsio.rename(new, folder)
            except OSError:
                if not (folder / "HEAD").exists():
                    raise
    elif b"fsync = " not in (fsio.read_or_none(folder / "config") or b""):  # made by an older patchq
        Git(folder).run("config", "--local", "core.fsync", _STORE_CONFIG["core.fsync"])
    return Git(folder)


def copy_tree(source: Git, commit: str, target: Path) -> None:
    """Write the files of a commit into an empty folder, without a worktree."""
    target.mkdir(parents=True)
    index = target.parent / (target.name + ".index")
    env = {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(target)}
    try:
        source.run("read-tree", commit, env=env)
        source.run("checkout-index", "--all", "--force", env=env)
    except BaseException:
        import shutil

        shutil.rmtree(target, ignore_errors=True)
        raise
    finally:
        index.unlink(missing_ok=True)
