"""Check that patchq created ``.patchq`` on this machine, and that it didn't come with a clone or an archive.

A ``.patchq`` written by someone else is dangerous:

- The git configuration in a store or a fetched history can name programs to run.
- The ``.git`` file of a worktree can name another repository.
- A link can lead to a file of the user.

Therefore, files that patchq didn't write are refused before git reads them.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from patchq.errors import StateError
from patchq.git.owners import foreign_owner, refuse_if_special, refuse_special, trust_hint
from patchq.system import fsio
from patchq.system.paths import Layout

#: Lines of a repository's configuration that ``git init`` and :mod:`patchq.git.repository` write.
_SETTINGS = re.compile(
    rb"\[(?:core|gc|extensions)\]|"
    rb"\t(?:repositoryformatversion = [01]|filemode = (?:true|false)|bare = true|"
    rb"ignorecase = (?:true|false)|symlinks = (?:true|false)|precomposeunicode = (?:true|false)|"
    rb"logallrefupdates = false|autocrlf = false|"
    rb"loosecompression = \d|fsync = all|auto = 0|objectformat = sha1|refstorage = files)|",
    re.IGNORECASE,
)
#: Lines that the user's git and editor add in a worktree. None of them names a program in any
#: section. The name of a remote must not look like a folder, because git would use it as a path.
_PERSONS = re.compile(
    rb"\[user\]|"
    rb'\[(?:branch|remote|submodule) "[\w@%+-][\w./@%+-]*"\]|'
    rb"\t(?:name|email|remote|merge|description|vscode-merge-base|url|fetch|active) = [^\0\r\n]*",
    re.IGNORECASE,
)
#: Lines that git adds in a partial clone. They don't name the host.
_PARTIAL = re.compile(rb'\[remote "partial"\]|\tpromisor = true|\tpartialclonefilter = blob:none', re.IGNORECASE)
#: Files that make git read other folders or other content. Neither patchq nor the user's git writes
#: them.
_FOREIGN = (
    ".git",
    "commondir",
    "gitdir",
    "config.worktree",
    "info/attributes",
    "info/grafts",
    "objects/info/http-alternates",
)
#: Folders in which git searches the URLs of remotes that its configuration lacks.
_HOSTS = ("remotes", "branches")
#: Folders that are not walked: content-addressed data, and data outside of the store.
_NOT_WALKED = ("objects", "modules", "lfs")
#: Versions of git's index format that are searched without git.
_PLAIN_INDEXES = (b"DIRC\0\0\0\2", b"DIRC\0\0\0\3")
_GITFILE = re.compile(rb"gitdir: (/[^\0]*[^\0\r\n])\n", re.DOTALL)
_LEAVE = "check where it came from, save edits in .patchq/trees that are in no patch, and remove it"


def check_private(layout: Layout) -> None:
    """Check that patchq wrote the project's private state.

    :raises StateError: for a file that patchq didn't write; the error has a hint.
    """
    for path in _own_paths(layout):
        if _is_link(path):
            raise StateError(
                f"{path} is a symbolic link to {os.readlink(path)}; patchq doesn't follow links in its own folder",
                hint="check why the link exists, and replace it with a folder or file; "
                f"to keep {path.name} on another disk, mount the disk there",
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
    """Refuse files of another user before git runs, by the same rule as git (``safe.directory``)."""
    owner = foreign_owner(layout.private, layout.root)
    if owner is not None:
        raise StateError(
            f"{layout.private} belongs to another user (uid {owner}); nothing was read",
            hint=trust_hint(layout.root),
        )


def _own_paths(layout: Layout) -> Iterator[Path]:
    """Yield the paths to which patchq writes, without following links."""
    yield from (layout.dist, layout.root / "measurements")
    for folder in _inside_real(layout.dist):
        yield folder
        for path in _odd(folder):
            if not path.is_symlink():
                yield path
    stacks = layout.root / "patches"
    yield stacks
    upstreams = _inside_real(stacks)
    yield from upstreams
    for upstream in upstreams:
        yield from _inside_real(upstream)
    yield layout.private
    for folder in _inside_real(layout.private):
        yield folder
        yield from _odd(folder)
        if folder.name in ("journal", "prove"):
            for below in _inside_real(folder):
                yield from _odd(below)


def _odd(folder: Path) -> Iterator[Path]:
    """Yield entries of a folder that are neither plain files nor folders; none if the folder is a link."""
    if folder.is_symlink() or not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            is_file = entry.is_file(follow_symlinks=False)
            if not is_file and not entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)


def _is_link(path: str | Path) -> bool:
    """Return whether a path is a symbolic link.

    :raises FormatError: for a pipe, a socket or a device, on which git would wait.
    """
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
        raise fsio.not_regular(Path(path))
    return stat.S_ISLNK(mode)


def _inside(folder: Path) -> list[Path]:
    if folder.is_dir():
        return [folder / name for name in os.listdir(folder)]
    return []


def _inside_real(folder: Path) -> list[Path]:
    """Return the entries of a folder; an empty list if the folder is a link."""
    if folder.is_symlink():
        return []
    return _inside(folder)


def _is_tracked(layout: Layout) -> bool:
    """Return whether the repository that contains the project tracks a file of ``.patchq``.

    Every command checks this, so the index is searched without git if possible.
    """
    for folder in (layout.root, *layout.root.parents):
        if (folder / ".git").exists():
            break
    else:
        return False
    index = folder / ".git" / "index"
    refuse_if_special(index)
    try:
        with (
            index.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            is_plain = data[:8] in _PLAIN_INDEXES and data.find(b"link\0") < 0
            if is_plain and data.find(f"{layout.private.name}/".encode()) < 0:
                return False
    except (OSError, ValueError):  # .git of a worktree is a file; a missing index is empty
        if (folder / ".git").is_dir() and not index.exists():
            return False
    from patchq.git.repository import Foreign

    refuse_special(folder / ".git", deep=False)
    inside = layout.private.relative_to(folder).as_posix()
    return bool(Foreign(folder).run("ls-files", "-z", "--", inside, ok_codes=(0, 128)))


def _check_store(store: Path, more: re.Pattern[bytes]) -> None:
    """Check a repository that patchq uses, before git reads it.

    :param more: Lines that its configuration may contain in addition to patchq's own lines.
    """
    if not store.is_dir():
        return
    records = _inside(store / "worktrees")
    for path in _foreign_candidates(store, records):
        if os.path.lexists(path):
            raise StateError(f"{path} was not written by patchq", hint=_LEAVE)
    # patchq leaves this file empty: commands that borrow objects use a repository of their own.
    alternates = store / "objects" / "info" / "alternates"
    if fsio.read_or_none(alternates):
        raise StateError(f"{alternates} was not written by patchq", hint=_LEAVE)
    for folder, folders, files in os.walk(store):
        for name in (*folders, *files):
            _refuse_link(os.path.join(folder, name))
        if Path(folder) in (store, *records):
            folders[:] = [name for name in folders if name not in _NOT_WALKED]
    for path in (store / "objects", *_inside(store / "objects")):
        for odd in _odd(path):
            _refuse_link(odd)
    _check_config(store / "config", more)
    for record in records:
        common = fsio.read_or_none(record / "commondir")
        if common is not None and common != b"../..\n" and not fsio.is_cut(common, b"../..\n"):
            raise StateError(f"{record / 'commondir'} was not written by patchq", hint=_LEAVE)


def _foreign_candidates(store: Path, records: list[Path]) -> Iterator[Path]:
    """Yield paths that must not exist in a store."""
    for name in _FOREIGN:
        yield store / name
    for record in records:
        yield record / "config.worktree"
    for name in _HOSTS:
        yield from _inside(store / name)


def _check_config(path: Path, more: re.Pattern[bytes]) -> None:
    """Check each line of a repository's configuration file.

    :raises StateError: for a line that patchq didn't write and ``more`` doesn't match.
    """
    for line in (fsio.read_or_none(path) or b"").split(b"\n"):
        if not (_SETTINGS.fullmatch(line) or more.fullmatch(line)):
            text = line.decode("utf-8", "backslashreplace").strip()
            raise StateError(
                f"{path} contains {text!r}, which patchq didn't write; nothing was run",
                hint=f"if you wrote this line, move it to `git config --global`. Otherwise {_LEAVE}",
            )


def _refuse_link(path: str | Path) -> None:
    """Raise StateError if a path that git reads is a symbolic link."""
    if _is_link(path):
        reason = f"{path} is a symbolic link, and git would write to its target"
        raise StateError(reason, hint=_LEAVE)


def _check_tree(tree: Path, store: Path) -> None:
    """Check that the ``.git`` of a worktree names its record in this store.

    If the project was copied or moved, update the ``.git`` file.
    """
    gitfile = tree / ".git"
    _refuse_link(gitfile)
    if gitfile.is_dir():
        content: bytes | None = b"a folder"
    else:
        content = fsio.read_or_none(gitfile)
    if content is None:
        return
    if fsio.is_cut(content, b"gitdir: " + os.fsencode(store / "worktrees" / tree.name) + b"\n"):
        return  # damaged by a power cut, and repaired before git reads it
    # Accept only the exact format that git writes, which git and patchq read in the same way.
    match = _GITFILE.fullmatch(content)
    if match:
        target = Path(os.fsdecode(match[1]))
    else:
        target = gitfile
    record = store / "worktrees" / target.name
    is_named = target.name != ".."
    if match and target == record and is_named:
        return
    is_record = is_named and target.parts[-3:] == (store.name, "worktrees", target.name)
    if not is_record or (target.exists() and not record.is_dir()):
        reason = f"{gitfile} leads to {target}, which is not in this project's store"
        raise StateError(reason, hint=_LEAVE)
    if record.is_dir():
        fsio.write_atomic(gitfile, b"gitdir: %s\n" % os.fsencode(record))
        fsio.write_atomic(record / "gitdir", os.fsencode(gitfile) + b"\n")
