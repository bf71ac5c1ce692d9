"""Repository classes, and functions that create repositories.

These classes run the git program, because GitPython is 20 times slower for bulk data. The module ``person`` reads the
user's own repository.
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
    """Bare repository, with methods for commands, refs, objects, diffs and merges."""


class Scratch(Git):
    """Temporary repository, whose objects need not survive a power cut."""


class Checkout(Git):
    """Repository with a worktree, in the worktree's ``.git`` folder."""

    def place(self) -> dict[str, str]:
        folder = self.folder.absolute()
        return {"GIT_DIR": str(folder / ".git"), "GIT_WORK_TREE": str(folder)}


class Foreign(Git):
    """Repository that patchq didn't create, with or without a worktree.

    The repository's own configuration is in effect. Therefore, run only commands that read refs and file names.
    """

    def place(self) -> dict[str, str]:
        folder = self.folder.absolute()
        dot = folder / ".git"
        if not dot.exists():
            return super().place()
        if dot.is_file():
            text = dot.read_text("utf-8", "surrogateescape")
            if link := re.fullmatch(r"gitdir: (.+)\n*", text):
                dot = folder / link[1]
        return {"GIT_DIR": str(dot), "GIT_WORK_TREE": str(folder)}


def borrow_objects(folder: Path, *others: Path) -> None:
    """Let the repository in ``folder`` use the object folders of other repositories (git's alternates)."""
    lines: list[bytes] = []
    for other in others:
        quoted = re.sub(rb'(["\\])', rb"\\\1", os.fsencode(other)).replace(b"\n", rb"\n")
        lines.append(b'"%s"\n' % quoted)
    (folder / "objects" / "info" / "alternates").write_bytes(b"".join(lines))


def bare_repository(folder: Path, *others: Git) -> Git:
    """Create a bare repository that uses the objects of others.

    An existing repository keeps its objects and refs. Its HEAD, configuration and alternates are replaced.
    """
    for name in ("objects/info", "refs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    borrow_objects(folder, *((other.folder / "objects").resolve() for other in others))
    (folder / "config").write_bytes(_BARE)
    return Git(folder)


def partial_repository(folder: Path) -> Git:
    """Return the repository in ``folder``, for a history without files. Create it if necessary.

    An existing repository keeps its configuration, because git may have added settings.
    """
    if (folder / "config").exists():
        return Git(folder)
    return bare_repository(folder)


@contextmanager
def scratch(*others: Git) -> Iterator[Scratch]:
    """Yield a temporary repository that uses the objects of others."""
    from patchq.git._reader import forget

    with fsio.temporary_folder() as folder:
        try:
            bare_repository(folder, *others)
            (folder / "config").write_bytes(_BARE + _TEMPORARY)
            yield Scratch(folder)
        finally:
            forget(folder)


_BARE = b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
#: Additional settings of a temporary repository.
_TEMPORARY = b"\tlooseCompression = 0\n\tfsync = none\n"
_STORE_CONFIG = {
    # apply repacks explicitly.
    "gc.auto": "0",
    "core.logAllRefUpdates": "false",
    "core.autocrlf": "false",
    "core.looseCompression": "1",
    # Also write refs, indexes and loose objects to disk at once, because a power cut may leave zeros in them.
    "core.fsync": "all",
}


def init_store(folder: Path) -> Git:
    """Return the store, a bare repository for all upstreams. Create it if necessary."""
    if not (folder / "HEAD").exists():
        fsio.make_folder(folder.parent)
        # The store is renamed into place when it is complete, so a concurrent process never sees a partial store.
        with fsio.temporary_folder(f"{folder.name}.", folder.parent) as temporary:
            new = temporary / "new"
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
