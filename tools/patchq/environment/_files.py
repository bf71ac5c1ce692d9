"""Read access to a file tree: a real folder or the layers of an image. Nothing in the tree is run.

Paths are absolute within the tree. Symbolic links resolve as if the tree were the root file system.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

#: Most symbolic links in the resolution of one path, as in Linux.
MAX_LINKS = 40
#: Largest file to read as a whole, in bytes, and maximum number of files in a package. Real files and packages are
#: smaller.
MAX_TEXT, MAX_FILES = 64 << 20, 500_000


class FileKind(Enum):
    """Kind of a file. Links are not followed."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    SPECIAL = "special file"
    UNREADABLE = "unreadable"


class Span(NamedTuple):
    """Location of the content of a file in a tree: a range of bytes in a file on this machine."""

    path: str
    offset: int
    size: int


class FileTree(ABC):
    """Read access to a file tree."""

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    @abstractmethod
    def kind(self, path: str) -> FileKind | None:
        """Return the kind of the file ``path``; None if it doesn't exist.

        No parent folder in ``path`` may be a link.
        """

    @abstractmethod
    def target(self, path: str) -> str:
        """Return the target of the link ``path``."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the sorted names in ``folder``; an empty list if the folder can't be listed."""

    @abstractmethod
    def size(self, path: str) -> int:
        """Return the size of a plain file."""

    @abstractmethod
    def mtime(self, path: str) -> int:
        """Return the modification time of a plain file, in seconds."""

    @abstractmethod
    def span(self, path: str) -> Span:
        """Return the location of a plain file's content on this machine.

        :raises OSError: if the file is in an image, and its content was not kept when the image was read.
        """

    @abstractmethod
    def digest(self, path: str, kinds: Iterable[str]) -> dict[str, str]:
        """Return the hexadecimal digests of a plain file, by the names of the hash algorithms.

        :raises OSError: if the file can't be read.
        """

    def resolve(self, path: str) -> str:
        """Return ``path`` with all links resolved; empty if the links form a loop."""
        try:
            return self._resolve(posixpath.normpath(posixpath.join("/", path)), MAX_LINKS)
        except RecursionError:
            return ""

    def _resolve(self, path: str, links_left: int) -> str:
        if path == "/" or path in self._real:
            return self._real.get(path, "/")
        folder, name = posixpath.split(path)
        real = posixpath.join(self._resolve(folder, links_left), name)
        if self.kind(real) is FileKind.LINK:
            if not links_left:
                raise RecursionError
            # A link's target is relative to the link's resolved folder.
            real = self._follow(posixpath.dirname(real), self.target(real), links_left - 1)
        self._real[path] = real
        return real

    def _follow(self, folder: str, target: str, links_left: int) -> str:
        real = "/"
        if not target.startswith("/"):
            real = folder
        for part in target.split("/"):
            if part == "..":
                real = posixpath.dirname(real)
            elif part not in ("", "."):
                real = self._resolve(posixpath.join(real, part), links_left)
        return real

    def follow(self, path: str) -> str:
        """Resolve links and ``..`` in ``path`` as the kernel does: ``link/..`` is the parent of the link's target.

        Return an empty string if a component before ``..`` is not a folder.
        """
        real = "/"
        try:
            for part in path.split("/"):
                if part == ".." and real != "/" and self.kind(real) is not FileKind.FOLDER:
                    return ""
                real = self._follow(real, part, MAX_LINKS)
        except RecursionError:
            return ""
        return real

    def real_kind(self, path: str) -> FileKind | None:
        """Return the kind of the file ``path`` after following links; None if it doesn't exist."""
        real = self.resolve(path)
        if real:
            return self.kind(real)
        return None

    def is_file(self, path: str) -> bool:
        return self.real_kind(path) is FileKind.FILE

    def is_folder(self, path: str) -> bool:
        return self.real_kind(path) is FileKind.FOLDER

    def listed(self, folder: str) -> list[str]:
        """Return the sorted names in ``folder`` after following links."""
        if self.is_folder(folder):
            return self.names(self.resolve(folder))
        return []

    def read(self, path: str, most: int = MAX_TEXT) -> bytes:
        """Return the content of a plain file after following links.

        :raises OSError: if the file is not a plain file, has more than ``most`` bytes, or can't be read.
        """
        real = self.resolve(path)
        kind = self.real_kind(path)
        if kind is None:
            raise FileNotFoundError(2, "No such file or directory")
        if kind is not FileKind.FILE:
            raise OSError(0, "is not a regular file")
        size = self.size(real)
        if size > most:
            raise OSError(0, f"has {size} bytes")
        span = self.span(real)
        fd = os.open(span.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(0, "is not a regular file")
            file.seek(span.offset)
            return file.read(span.size)

    def text(self, path: str, most: int = MAX_TEXT) -> str:
        """Return a file's text, with invalid UTF-8 as surrogates; empty if the file can't be read."""
        try:
            return self.read(path, most).decode("utf-8", "surrogateescape")
        except OSError:
            return ""

    def walk(self, top: str) -> Iterator[tuple[str, FileKind]]:
        """Yield the path and kind of each file below ``top``, but not of the folders. Links are not followed.

        A folder that can't be listed is yielded with the kind ``UNREADABLE``. If ``top`` contains too many files,
        ``top`` itself is yielded with this kind.
        """
        todo = [top]
        count = 0
        while todo:
            folder = todo.pop()
            for name in self.names(folder):
                path = posixpath.join(folder, name)
                kind = self.kind(path)
                count += 1
                if count > MAX_FILES:
                    yield top, FileKind.UNREADABLE
                    return
                if kind is FileKind.FOLDER:
                    todo.append(path)
                elif kind is not None:
                    yield path, kind


class Folder(FileTree):
    """Files below a folder of this machine (default: ``/``)."""

    def __init__(self, root: Path | str = "/") -> None:
        super().__init__()
        self.root = str(root).rstrip("/")

    def kind(self, path: str) -> FileKind | None:
        try:
            mode = os.lstat(self.root + path).st_mode
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError:
            return FileKind.UNREADABLE
        if stat.S_ISREG(mode):
            return FileKind.FILE
        if stat.S_ISLNK(mode):
            return FileKind.LINK
        if not stat.S_ISDIR(mode):
            return FileKind.SPECIAL
        if os.access(self.root + path, os.R_OK | os.X_OK):
            return FileKind.FOLDER
        return FileKind.UNREADABLE

    def target(self, path: str) -> str:
        return os.readlink(self.root + path)

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self.root + folder))
        except (OSError, ValueError):
            return []

    def size(self, path: str) -> int:
        return os.lstat(self.root + path).st_size

    def mtime(self, path: str) -> int:
        return int(os.lstat(self.root + path).st_mtime)

    def span(self, path: str) -> Span:
        return Span(self.root + path, 0, self.size(path))

    def digest(self, path: str, kinds: Iterable[str]) -> dict[str, str]:
        fd = os.open(
            self.root + path,
            os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0),
        )
        with os.fdopen(fd, "rb") as file:
            hashes = {kind: hashlib.new(kind) for kind in kinds}
            while chunk := file.read(1 << 20):
                for one in hashes.values():
                    one.update(chunk)
        return {kind: one.hexdigest() for kind, one in hashes.items()}
