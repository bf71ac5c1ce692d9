"""A file tree to judge: a real folder, or the layers of an image. Nothing in it is run.

Paths are absolute within the tree. Symbolic links lead where they would lead if the tree were a system's root.
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

#: Symbolic links that one path may lead through, as in Linux.
MAX_LINKS = 40
#: Bytes of a file that is read whole, and files of one package. No real one has more.
MAX_TEXT, MAX_FILES = 64 << 20, 500_000


class Kind(Enum):
    """Kind of a file, its links not followed."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    SPECIAL = "special file"
    UNREADABLE = "unreadable"


class Span(NamedTuple):
    """Bytes of a file on this machine that hold the content of a file of the tree."""

    path: str
    offset: int
    size: int


class Files(ABC):
    """Read access to a tree."""

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    @abstractmethod
    def kind(self, path: str) -> Kind | None:
        """Return the kind of ``path``, whose parents are no links; None if nothing is there."""

    @abstractmethod
    def target(self, path: str) -> str:
        """Return the target of the link ``path``."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the sorted names in ``folder``; none if it can't be listed."""

    @abstractmethod
    def size(self, path: str) -> int:
        """Return the size of a plain file."""

    @abstractmethod
    def mtime(self, path: str) -> int:
        """Return the time of the last change of a plain file, in seconds."""

    @abstractmethod
    def span(self, path: str) -> Span:
        """Return where the content of a plain file is on this machine.

        :raises OSError: if it wasn't kept.
        """

    @abstractmethod
    def digest(self, path: str, kinds: Iterable[str]) -> dict[str, str]:
        """Return the hexadecimal digests of a plain file by their names.

        :raises OSError: if it can't be read.
        """

    def resolve(self, path: str) -> str:
        """Return ``path`` with all links resolved; empty for a circle of links."""
        try:
            return self._resolve(posixpath.normpath(posixpath.join("/", path)), MAX_LINKS)
        except RecursionError:
            return ""

    def _resolve(self, path: str, left: int) -> str:
        if path == "/" or path in self._real:
            return self._real.get(path, "/")
        folder, name = posixpath.split(path)
        at = posixpath.join(self._resolve(folder, left), name)
        if self.kind(at) is Kind.LINK:
            if not left:
                raise RecursionError
            # ".." in a link is of the folder that the link is in, after links are resolved.
            at = self._follow(posixpath.dirname(at), self.target(at), left - 1)
        self._real[path] = at
        return at

    def _follow(self, folder: str, target: str, left: int) -> str:
        at = "/" if target.startswith("/") else folder
        for part in target.split("/"):
            if part == "..":
                at = posixpath.dirname(at)
            elif part not in ("", "."):
                at = self._resolve(posixpath.join(at, part), left)
        return at

    def real_kind(self, path: str) -> Kind | None:
        """Return the kind of what ``path`` leads to, links followed."""
        real = self.resolve(path)
        return self.kind(real) if real else None

    def is_file(self, path: str) -> bool:
        return self.real_kind(path) is Kind.FILE

    def is_folder(self, path: str) -> bool:
        return self.real_kind(path) is Kind.FOLDER

    def listed(self, folder: str) -> list[str]:
        """Return the sorted names in ``folder``, links followed."""
        return self.names(self.resolve(folder)) if self.is_folder(folder) else []

    def read(self, path: str, most: int = MAX_TEXT) -> bytes:
        """Return the content of a plain file, links followed.

        :raises OSError: if it is none, has more than ``most`` bytes, or can't be read.
        """
        real = self.resolve(path)
        kind = self.kind(real) if real else None
        if kind is None:
            raise FileNotFoundError(2, "No such file or directory")
        if kind is not Kind.FILE:
            raise OSError(0, "is no plain file")
        size = self.size(real)
        if size > most:
            raise OSError(0, f"has {size} bytes")
        span = self.span(real)
        fd = os.open(span.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(0, "is no plain file")
            file.seek(span.offset)
            return file.read(span.size)

    def text(self, path: str, most: int = MAX_TEXT) -> str:
        """Return a file's text; bytes that are no UTF-8 are kept as surrogates. Empty if it can't be read."""
        try:
            return self.read(path, most).decode("utf-8", "surrogateescape")
        except OSError:
            return ""

    def walk(self, top: str) -> Iterator[tuple[str, Kind]]:
        """Yield each file below ``top`` that is no folder; links are not followed.

        A folder that can't be listed, and the rest of one with too many files, is ``UNREADABLE``.
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
                    yield top, Kind.UNREADABLE
                    return
                if kind is Kind.FOLDER:
                    todo.append(path)
                elif kind is not None:
                    yield path, kind


class Folder(Files):
    """The file system of this machine, or what lies below one of its folders."""

    def __init__(self, root: Path | str = "/") -> None:
        super().__init__()
        self.root = str(root).rstrip("/")

    def kind(self, path: str) -> Kind | None:
        try:
            mode = os.lstat(self.root + path).st_mode
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError:
            return Kind.UNREADABLE
        if stat.S_ISREG(mode):
            return Kind.FILE
        if stat.S_ISLNK(mode):
            return Kind.LINK
        if not stat.S_ISDIR(mode):
            return Kind.SPECIAL
        return Kind.FOLDER if os.access(self.root + path, os.R_OK | os.X_OK) else Kind.UNREADABLE

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
        fd = os.open(self.root + path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(fd, "rb") as file:
            sums = {kind: hashlib.new(kind) for kind in kinds}
            while chunk := file.read(1 << 20):
                for one in sums.values():
                    one.update(chunk)
        return {kind: one.hexdigest() for kind, one in sums.items()}
