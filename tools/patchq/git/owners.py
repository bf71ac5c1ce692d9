"""Which repositories are read: checked before git looks at them.

Whose they may be is git's own rule, by the person's ``safe.directory``. A pipe in one would keep git waiting.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from patchq.names import sh
from patchq.system import fsio, runner

#: Folders of a repository that hold others, or what git itself doesn't read.
_NOT_READ = ("modules", "lfs")
#: How deep git follows includes.
_DEEPEST = 10
_INCLUDES = r"^include(if\..*)?\.path$"


def stranger(path: Path, *named: Path) -> int | None:
    """The user whom a path belongs to, where it is another than who asks, and no name of it is one that is safe.

    :param named: what a person's configuration may call it; a folder above with ``/*``, or ``*``, is all below.
    """
    owner = path.stat().st_uid
    if owner == os.geteuid() or (os.geteuid() == 0 and str(owner) == os.environ.get("SUDO_UID")):
        return None
    said = runner.run(["git", "config", "--null", "--get-all", "safe.directory"], cwd=Path("/"), ok_codes=(0, 1)).stdout
    safe: set[str] = set()
    for entry in os.fsdecode(said).split("\0")[:-1]:
        safe = safe | {entry} if entry else set()  # an empty one forgets those before
    above = {f"{folder}/*".replace("//", "/") for name in named for folder in name.parents}
    return None if safe & {"*", *map(str, named), *above} else owner


def trusting(path: Path) -> str:
    """What to type to have a path read that is another user's."""
    return f"if you trust them with your account: `git config --global --add safe.directory {sh(path)}`"


def refuse_special(dot: Path, *, deep: bool = True) -> None:
    """Refuse a repository in which git would wait for a pipe, a socket or a device.

    :param dot: a ``.git``, the folder or the file that names one.
    :param deep: look at refs and objects too, not only at what git reads to open the repository and its index.
    :raises FormatError: naming what git would wait for.
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
            linked = (path for name in folders if (path := Path(at, name)).is_symlink())
            waiting += [path for path in linked if os.path.realpath(path) not in seen]
        for config in (folder / "config", folder / "config.worktree"):
            _refuse_included(config, 0)


def _folders(dot: Path) -> list[Path]:
    """Return the folders that a repository is in: its own, that of its main worktree, those it borrows objects from."""
    found = [dot]
    if not dot.is_dir():
        said = (fsio.read_or_none(dot) or b"").removeprefix(b"gitdir:").strip()
        found = [dot.parent / os.fsdecode(said)] if said else []
    for folder in found:
        for name, base in (("commondir", folder), ("objects/info/alternates", folder / "objects")):
            for line in (fsio.read_or_none(folder / name) or b"").splitlines():
                other = base / os.fsdecode(line)
                if line and other not in found:
                    found.append(other)
    return [folder for folder in found if folder.is_dir()]


def refuse_if_special(path: Path) -> None:
    """:raises FormatError: if a path is a pipe, a socket or a device, or a link to one."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise fsio.not_regular(path)


def _refuse_included(config: Path, depth: int) -> None:
    """Refuse a configuration that includes a pipe, a socket or a device, wherever that lies."""
    if depth > _DEEPEST or b"include" not in (fsio.read_or_none(config) or b"").lower():
        return
    argv = ["git", "config", "--file", str(config), "--null", "--get-regexp", _INCLUDES]
    said = runner.run(argv, cwd=Path("/"), ok_codes=range(256)).stdout
    for entry in os.fsdecode(said).split("\0")[:-1]:
        path = Path(os.path.expanduser(entry.partition("\n")[2]))  # noqa: PTH111  # of an unknown user it raises
        included = config.parent / path
        refuse_if_special(included)
        _refuse_included(included, depth + 1)
