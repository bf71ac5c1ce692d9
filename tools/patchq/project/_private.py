"""Whether ``.patchq`` is private: made here by patchq, not brought by a clone, a bundle or an archive.

A store's configuration can name programs, a worktree's ``.git`` another repository, a link in a folder of
patchq's a file of somebody's. None of these is obeyed: what patchq didn't write is refused before git, or
anything else, looks at it.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from patchq.errors import StateError
from patchq.git.linked import is_cut
from patchq.git.owners import foreign_owner, refuse_if_special, refuse_special, trust_hint
from patchq.git.repository import Foreign
from patchq.system import fsio
from patchq.system.paths import Layout

#: What a repository's configuration may say: ``git init`` and :mod:`patchq.git.repository` wrote it.
_SETTINGS = re.compile(
    rb"\[(?:core|gc|extensions)\]|"
    rb"\t(?:repositoryformatversion = [01]|filemode = (?:true|false)|bare = true|ignorecase = (?:true|false)|"
    rb"symlinks = (?:true|false)|precomposeunicode = (?:true|false)|logallrefupdates = false|autocrlf = false|"
    rb"loosecompression = \d|fsync = all|auto = 0|objectformat = sha1|refstorage = files)|",
    re.IGNORECASE,
)
#: What a person's git and editor add to that in a worktree. None of it names a program, whatever section it stands in;
#: and no remote is called as a folder is, which git would take it for: the lock alone says what is asked.
_PERSONS = re.compile(
    rb"\[user\]|"
    rb'\[(?:branch|remote|submodule) "[\w@%+-][\w./@%+-]*"\]|'
    rb"\t(?:name|email|remote|merge|description|vscode-merge-base|url|fetch|active) = [^\0\r\n]*",
    re.IGNORECASE,
)
#: What git adds to that in a history without files: that it has a host for them, not where that is.
_PARTIAL = re.compile(rb'\[remote "partial"\]|\tpromisor = true|\tpartialclonefilter = blob:none', re.IGNORECASE)
#: Files by which git would look elsewhere, or see other content; neither patchq nor a person's git writes them there.
_FOREIGN = (
    ".git", "commondir", "gitdir", "config.worktree", "info/attributes", "info/grafts",
    "objects/info/http-alternates",
)  # fmt: skip
#: Folders in which git looks for where a host is, where its configuration doesn't say.
_HOSTS = ("remotes", "branches")
#: Folders of git's that are not walked: content by its id, and what isn't the store's.
_NOT_WALKED = ("objects", "modules", "lfs")
_GITFILE = re.compile(rb"gitdir: (/[^\0]*[^\0\r\n])\n", re.DOTALL)
_LEAVE = (
    "look where it came from and remove it; what the worktrees in .patchq/trees hold and no patch has is only there"
)


def check_private(layout: Layout) -> None:
    """Check that the project's private state is patchq's own.

    :raises StateError: naming what isn't, and what to do.
    """
    for path in _own_paths(layout):
        if _is_link(path):
            raise StateError(
                f"{path} is a symbolic link to {os.readlink(path)}; patchq writes there and follows none",
                hint=f"look at what it is for, remove it and put a folder or file in its place; to keep {path.name} "
                "on another disk, mount it there",
            )
    private = layout.private
    if not private.is_dir():
        return
    if _is_tracked(layout):
        raise StateError(
            f"{private} is tracked by git: private state came with a clone, and could name programs to run",
            hint="`git rm -r --cached .patchq`, remove the folder, add /.patchq/ to .gitignore, then `patchq apply`",
        )
    _check_owner(layout)
    _check_store(layout.store, _PERSONS)
    for history in _inside(private / "history"):
        _check_store(history, _PARTIAL)
    for tree in sorted(_inside(private / "trees")):
        _check_tree(tree, layout.store)


def _check_owner(layout: Layout) -> None:
    """Git's rule, asked before git is: what another user wrote is read where the person's configuration says so."""
    owner = foreign_owner(layout.private, layout.root)
    if owner is not None:
        raise StateError(
            f"{layout.private} belongs to another user (uid {owner}); nothing of it was read",
            hint=trust_hint(layout.root),
        )


def _own_paths(layout: Layout) -> Iterator[Path]:
    """Where patchq writes, down to where names are the project's; links are not looked behind."""
    root, private = layout.root, layout.private
    yield from (layout.dist, root / "measurements")
    for folder in () if layout.dist.is_symlink() else _inside(layout.dist):
        yield folder
        yield from (path for path in _odd(folder) if not path.is_symlink())
    stacks = [root / "patches"]
    yield from stacks
    if not stacks[0].is_symlink():
        upstreams = _inside(stacks[0])
        yield from upstreams
        yield from (path for upstream in upstreams if not upstream.is_symlink() for path in _inside(upstream))
    yield private
    if private.is_symlink():
        return
    for folder in _inside(private):
        yield folder
        if folder.is_symlink() or not folder.is_dir():
            continue
        yield from _odd(folder)
        for below in _inside(folder) if folder.name in ("journal", "prove") else ():
            yield from _odd(below)


def _odd(folder: Path) -> Iterator[Path]:
    """Yield what lies in a folder and is neither a file nor a folder; none if the folder itself is a link."""
    if not folder.is_symlink() and folder.is_dir():
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_file(follow_symlinks=False) and not entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path)


def _is_link(path: str | Path) -> bool:
    """Return whether a path is a symbolic link.

    :raises FormatError: if it is a pipe, a socket or a device, which git would wait for.
    """
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
        raise fsio.not_regular(Path(path))
    return stat.S_ISLNK(mode)


def _inside(folder: Path) -> list[Path]:
    return [folder / name for name in os.listdir(folder)] if folder.is_dir() else []


def _is_tracked(layout: Layout) -> bool:
    """Whether git tracks anything of ``.patchq`` in the repository that the project lies in.

    Read from the index itself, since this is asked by every command; git is asked where it can't be.
    """
    folder = next((f for f in (layout.root, *layout.root.parents) if (f / ".git").exists()), None)
    if folder is None:
        return False
    index = folder / ".git" / "index"
    refuse_if_special(index)
    try:
        with index.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            plain = data[:4] == b"DIRC" and data[4:8] in (b"\0\0\0\2", b"\0\0\0\3") and data.find(b"link\0") < 0
            if plain and data.find(f"{layout.private.name}/".encode()) < 0:
                return False
    except (OSError, ValueError):  # a worktree's .git is a file; no index at all is empty
        if (folder / ".git").is_dir() and not index.exists():
            return False
    refuse_special(folder / ".git", deep=False)
    inside = layout.private.relative_to(folder).as_posix()
    return bool(Foreign(folder).run("ls-files", "-z", "--", inside, ok_codes=(0, 128)))


def _check_store(store: Path, besides: re.Pattern[bytes]) -> None:
    """Check a repository of patchq's own before git looks at it.

    :param besides: what its configuration may say besides what patchq writes.
    """
    if not store.is_dir():
        return
    records = _inside(store / "worktrees")
    foreign = [path for path in (store / name for name in _FOREIGN) if os.path.lexists(path)]
    foreign += [path for record in records if os.path.lexists(path := record / "config.worktree")]
    foreign += [path for name in _HOSTS for path in _inside(store / name)]
    # Made by patchq it says nothing: each command that borrows objects does so in a repository of its own.
    if fsio.read_or_none(alternates := store / "objects" / "info" / "alternates"):
        foreign.append(alternates)
    if foreign:
        raise StateError(f"{foreign[0]} is not patchq's", hint=_LEAVE)
    for folder, folders, files in os.walk(store):
        here = Path(folder)
        for name in (*folders, *files):
            _refuse_link(os.path.join(folder, name))
        if here in (store, *records):
            folders[:] = [name for name in folders if name not in _NOT_WALKED]
    for path in (store / "objects", *_inside(store / "objects")):
        for odd in _odd(path):
            _refuse_link(odd)
    for line in (fsio.read_or_none(store / "config") or b"").split(b"\n"):
        if not (_SETTINGS.fullmatch(line) or besides.fullmatch(line)):
            raise StateError(
                f"{store / 'config'} says {line.decode('utf-8', 'backslashreplace').strip()!r}, which patchq didn't "
                "write; nothing was run",
                hint="if you did, take it out of that file: `git config --global` keeps what is yours. Otherwise "
                + _LEAVE,
            )
    for record in records:
        common = fsio.read_or_none(record / "commondir")
        if common is not None and common != b"../..\n" and not is_cut(common, b"../..\n"):
            raise StateError(f"{record / 'commondir'} is not patchq's", hint=_LEAVE)


def _refuse_link(path: str | Path) -> None:
    """:raises StateError: if a path that git reads is a symbolic link."""
    if _is_link(path):
        raise StateError(f"{path} is a symbolic link, and git would write where it leads", hint=_LEAVE)


def _check_tree(tree: Path, store: Path) -> None:
    """A worktree's ``.git`` names this store's record of it; in a project that was copied or moved it is made to."""
    _refuse_link(tree / ".git")
    said = fsio.read_or_none(tree / ".git") if not (tree / ".git").is_dir() else b"a folder"
    if said is None:
        return
    if is_cut(said, b"gitdir: " + os.fsencode(store / "worktrees" / tree.name) + b"\n"):
        return  # by a power cut: mended before git looks at it
    # As git writes it, to the byte: what git reads otherwise than patchq would be a way around this.
    match = _GITFILE.fullmatch(said)
    there = Path(os.fsdecode(match[1])) if match else tree / ".git"
    record = store / "worktrees" / there.name
    if match and there == record and there.name != "..":
        return
    elsewhere = there.parts[-3:] != (store.name, "worktrees", there.name) or there.name == ".."
    if elsewhere or (there.exists() and not record.is_dir()):
        raise StateError(f"{tree / '.git'} leads to {there}, which is not this project's", hint=_LEAVE)
    if record.is_dir():
        fsio.write_atomic(tree / ".git", b"gitdir: %s\n" % os.fsencode(record))
        fsio.write_atomic(record / "gitdir", os.fsencode(tree / ".git") + b"\n")
