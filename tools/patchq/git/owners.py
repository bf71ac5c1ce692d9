"""Checks of a repository before git reads it: the owner, and special files that would block git.

As in git, a repository of another user must be listed in ``safe.directory`` of the user's configuration.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from patchq.names import sh
from patchq.system import fsio, runner

#: Folders of a repository that the check skips, because git doesn't read them for its own operations.
_NOT_READ = ("modules", "lfs")
#: git's limit for nested includes.
_DEEPEST = 10
_INCLUDES = r"^include(if\..*)?\.path$"


def foreign_owner(path: Path, *named: Path) -> int | None:
    """Return the uid of a path's owner if git would refuse this owner; otherwise, return None.

    git refuses the owner if it is another user, and ``safe.directory`` doesn't list the path.

    :param named: spellings of the path to look up in ``safe.directory``.
    """
    owner = path.stat().st_uid
    if owner == os.geteuid() or (os.geteuid() == 0 and str(owner) == os.environ.get("SUDO_UID")):
        return None
    argv = ["git", "config", "--null", "--get-all", "safe.directory"]
    out = runner.run(argv, cwd=Path("/"), ok_codes=(0, 1)).stdout
    safe: set[str] = set()
    for entry in os.fsdecode(out).split("\0")[:-1]:
        if entry:
            safe.add(entry)
        else:
            safe.clear()  # git's rule: an empty entry resets the list
    accepted = {"*"}
    for name in named:
        accepted.add(str(name))
        for folder in name.parents:
            accepted.add(f"{folder}/*".replace("//", "/"))
    if safe & accepted:
        return None
    return owner


def trust_hint(path: Path) -> str:
    """Return the hint for reading a repository that belongs to another user."""
    return f"if you trust that user with your account: `git config --global --add safe.directory {sh(path)}`"


def refuse_special(dot: Path, *, deep: bool = True) -> None:
    """Check that a repository has no pipe, socket or device that would block git.

    :param dot: the ``.git`` folder or file.
    :param deep: check refs and objects too, not only the files that git opens first.
    :raises FormatError: if the repository contains a special file; the message contains its path.
    """
    seen: set[str] = set()
    waiting = _folders(dot)
    while waiting:
        folder = waiting.pop()
        for at, folders, names in os.walk(folder):
            seen.add(os.path.realpath(at))
            for name in names:
                refuse_if_special(Path(at, name))
            if Path(at) == folder:
                folders[:] = [name for name in folders if deep and name not in _NOT_READ]
            for name in folders:
                linked = Path(at, name)
                if linked.is_symlink() and os.path.realpath(linked) not in seen:
                    waiting.append(linked)
        for config in (folder / "config", folder / "config.worktree"):
            _refuse_included(config, 0)


def _folders(dot: Path) -> list[Path]:
    """Return the folders of a repository: its own folder, its common folder and its alternates."""
    found = [dot]
    if not dot.is_dir():
        target = (fsio.read_or_none(dot) or b"").removeprefix(b"gitdir:").strip()
        found = []
        if target:
            found = [dot.parent / os.fsdecode(target)]
    # The loop appends to this list, and also visits the appended folders.
    for folder in found:
        for name, base in (("commondir", folder), ("objects/info/alternates", folder / "objects")):
            for line in (fsio.read_or_none(folder / name) or b"").splitlines():
                other = base / os.fsdecode(line)
                if line and other not in found:
                    found.append(other)
    folders: list[Path] = []
    for folder in found:
        if folder.is_dir():
            folders.append(folder)
    return folders


def refuse_if_special(path: Path) -> None:
    """Check that a path is neither a pipe, socket or device, nor a link to such a file.

    :raises FormatError: if the path is one of these.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise fsio.not_regular(path)


def _refuse_included(config: Path, depth: int) -> None:
    """Check that a configuration file doesn't include a special file: a pipe, socket or device."""
    if depth > _DEEPEST or b"include" not in (fsio.read_or_none(config) or b"").lower():
        return
    argv = ["git", "config", "--file", str(config), "--null", "--get-regexp", _INCLUDES]
    out = runner.run(argv, cwd=Path("/"), ok_codes=range(256)).stdout
    for entry in os.fsdecode(out).split("\0")[:-1]:
        # Path.expanduser raises for an unknown user.
        path = Path(os.path.expanduser(entry.partition("\n")[2]))  # noqa: PTH111
        included = config.parent / path
        refuse_if_special(included)
        _refuse_included(included, depth + 1)
