"""Reader for the files of a project. No other module opens them.

What is read here leaves this machine: in mails, branches, bundles, pull requests and pages. The project may be
somebody else's, so a symbolic link below its root is never followed, wherever it leads, and only regular files
are read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from patchq.errors import FormatError
from patchq.system import fsio

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
#: A pipe is not waited for.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def open_file(root: Path, path: Path) -> BinaryIO | None:
    """Open a regular file below ``root``; None where there is no such file.

    Each folder is opened from the one above it, so that none can become a link in between.

    :raises FormatError: if a part of the path below ``root`` is a symbolic link, or the file isn't regular.
    """
    *folders, name = path.relative_to(root).parts
    if ".." in (*folders, name):
        raise FormatError(f"{path} would leave the project", hint="use a path without '..'")
    at = os.open(root, _FOLDER)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
        fd = os.open(name, _FILE, dir_fd=at)
    except FileNotFoundError:
        return None
    except OSError as error:
        refuse_links(root, path)
        if error.errno == errno.ENXIO:  # a socket
            raise fsio.not_regular(path) from None
        if error.errno == errno.ENOTDIR:
            return None
        raise
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise fsio.not_regular(path)
    return os.fdopen(fd, "rb")


def read(root: Path, path: Path, most: int = fsio.MOST) -> bytes | None:
    """Return the bytes of a project's file; None where there is no such file.

    :raises FormatError: as :func:`open_file`, or if it has more than ``most`` bytes.
    """
    file = open_file(root, path)
    return fsio.read_all(file, path, most) if file else None


def read_lines(root: Path, path: Path) -> Iterator[bytes]:
    """Yield the lines of a project's file, ends included; none where there is no file.

    :raises FormatError: as :func:`open_file`, or if it has more than :data:`fsio.MOST` bytes.
    """
    if file := open_file(root, path):
        with file:
            fsio.check_size(file, path, fsio.MOST)
            yield from file


def exists(root: Path, path: Path) -> bool:
    """Return whether a project has a file.

    :raises FormatError: as :func:`open_file`.
    """
    file = open_file(root, path)
    if file:
        file.close()
    return file is not None


def hash_file(root: Path, path: Path) -> str:
    """Return the SHA-256 of a project's file, as hexadecimal digits; empty where there is no such file.

    :raises FormatError: as :func:`open_file`.
    """
    file = open_file(root, path)
    return fsio.sha256_open(file) if file else ""


def list_files(root: Path, folder: Path) -> list[Path]:
    """Return the files below a folder of a project, sorted; none where there is no such folder.

    Python's caches are passed over.

    :raises FormatError: if anything there is a symbolic link, a pipe, a socket or a device, or has more than
        :data:`fsio.MOST` bytes.
    """
    refuse_links(root, folder)
    found, folders = [], [folder] if folder.is_dir() else []
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                path = Path(entry.path)
                if entry.is_symlink():
                    raise _is_link(path)
                if entry.is_dir():
                    folders += [path] if entry.name != "__pycache__" else []
                elif entry.is_file():
                    fsio.refuse_larger(path, entry.stat().st_size, fsio.MOST)
                    found.append(path)
                else:
                    raise fsio.not_regular(path)
    return sorted(found)


def refuse_links(root: Path, path: Path) -> None:
    """:raises FormatError: if ``path``, or a folder between ``root`` and it, is a symbolic link."""
    at = root
    for part in path.relative_to(root).parts:
        at = at / part
        if at.is_symlink():
            raise _is_link(at)


def _is_link(path: Path) -> FormatError:
    return FormatError(
        f"{path} is a symbolic link to {os.readlink(path)}; patchq follows none in a project",
        hint="put the file itself in its place",
    )
