"""Reader for the files of a project. No other module opens project files.

patchq sends project files to other people in mails, branches, bundles, pull requests and pages, and the project may
come from an untrusted source. A symbolic link could make patchq publish a private file of the user. Therefore, symbolic
links below the project's root are never followed, and only regular files are read.
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
#: O_NONBLOCK: opening a pipe must not block.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def open_file(root: Path, path: Path) -> BinaryIO | None:
    """Open a regular file below ``root``; return None if it doesn't exist.

    Each folder is opened relative to its parent. So no other process can replace a folder by a link after patchq has
    checked the folder.

    :raises FormatError: if a component of the path below ``root`` is a symbolic link or ``..``, or if the
        file isn't a regular file.
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
    """Return the content of a project's file; None if the file doesn't exist.

    :raises FormatError: in the same cases as :func:`open_file`, or if the file has more than ``most`` bytes.
    """
    file = open_file(root, path)
    if file:
        return fsio.read_all(file, path, most)
    return None


def read_lines(root: Path, path: Path) -> Iterator[bytes]:
    """Yield the lines of a project's file, with line ends; none if the file doesn't exist.

    :raises FormatError: in the same cases as :func:`open_file`, or if the file has more than :data:`fsio.MOST` bytes.
    """
    if file := open_file(root, path):
        with file:
            fsio.check_size(file, path, fsio.MOST)
            yield from file


def exists(root: Path, path: Path) -> bool:
    """Return True if a file exists in the project.

    :raises FormatError: in the same cases as :func:`open_file`.
    """
    file = open_file(root, path)
    if file:
        file.close()
    return file is not None


def hash_file(root: Path, path: Path) -> str:
    """Return the SHA-256 of a project's file in hexadecimal; empty if the file doesn't exist.

    :raises FormatError: in the same cases as :func:`open_file`.
    """
    file = open_file(root, path)
    if file:
        return fsio.sha256_open(file)
    return ""


def list_files(root: Path, folder: Path) -> list[Path]:
    """Return the files below a folder of a project, sorted; none if the folder doesn't exist.

    ``__pycache__`` folders are skipped.

    :raises FormatError: for a symbolic link, pipe, socket or device, and for a file of more than
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
                    if entry.name != "__pycache__":
                        folders += [path]
                elif entry.is_file():
                    fsio.refuse_larger(path, entry.stat().st_size, fsio.MOST)
                    found.append(path)
                else:
                    raise fsio.not_regular(path)
    return sorted(found)


def refuse_links(root: Path, path: Path) -> None:
    """Raise FormatError if ``path``, or a folder between ``root`` and ``path``, is a symbolic link."""
    at = root
    for part in path.relative_to(root).parts:
        at = at / part
        if at.is_symlink():
            raise _is_link(at)


def _is_link(path: Path) -> FormatError:
    return FormatError(
        f"{path} is a symbolic link to {os.readlink(path)}; patchq doesn't follow links in a project",
        hint="replace the link with the file itself",
    )
