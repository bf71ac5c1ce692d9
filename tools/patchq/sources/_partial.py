"""Partial downloads, stored under the expected hash of the file, so that the next attempt can resume.

The content of a partial download isn't trusted: the whole file is hashed before it gets its final name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from patchq.system import fsio

_RANGE = re.compile(r"bytes (\d+)-\d*/(\d+|\*)")
_MOST_TAG = 1024


class Partial:
    """File that is being downloaded, with the hash of the bytes received so far.

    :ivar size: number of bytes received so far.
    :ivar total: size of the whole file according to the server; 0 if unknown.
    :ivar resumed: True if some of the bytes come from an earlier response.
    """

    def __init__(self, path: Path, file: IO[bytes], *, kept: bool) -> None:
        self.path, self.file, self.kept = path, file, kept
        self.digest, self.size, self.total, self.resumed = hashlib.sha256(), 0, 0, False
        while chunk := file.read(1 << 20):
            self.digest.update(chunk)
            self.size += len(chunk)
        tag = None
        if kept and self._tag.is_file():
            tag = fsio.read_limited(self._tag, _MOST_TAG)
        self.validator = (tag or b"").decode("ascii", "replace")
        if self.size and not self.validator:
            self.clear()

    @property
    def _tag(self) -> Path:
        """File next to the download that stores the server's version tag (``ETag``) of the downloaded file."""
        return self.path.with_name(f"{self.path.name}.tag")

    def asking(self) -> dict[str, str]:
        """Return request headers that ask for the missing bytes only if the file hasn't changed on the server."""
        plain = {"Accept-Encoding": "identity"}
        if self.size:
            return {**plain, "Range": f"bytes={self.size}-", "If-Range": self.validator}
        return plain

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """Process the headers of a response: continue after the existing bytes, or start from the beginning."""
        plain = "Content-Encoding" not in headers
        message = str(headers.get("Content-Length", ""))  # an int from some versions of requests-file
        length = 0
        if plain and message.isdecimal():
            length = int(message)
        found = None
        if status == 206:
            found = _RANGE.fullmatch(headers.get("Content-Range", ""))
        if found and int(found[1]) == self.size and plain:
            self.resumed = self.size > 0
            if found[2] != "*":
                self.total = int(found[2])
            else:
                self.total = self.size + length
            return
        self.clear()
        self.total = length
        tag = headers.get("ETag", "")
        if not tag.startswith('"'):  # If-Range doesn't accept weak tags
            tag = headers.get("Last-Modified", "")
        if plain and self.kept and tag and len(tag) <= _MOST_TAG and tag.isascii():
            self.validator = tag
            fsio.write_atomic(self._tag, tag.encode())

    def write(self, chunk: bytes) -> None:
        """Append bytes to the download."""
        self.file.write(chunk)
        self.digest.update(chunk)
        self.size += len(chunk)

    def clear(self) -> None:
        """Discard all bytes, and start from the beginning."""
        self.file.seek(0)
        self.file.truncate()
        self._tag.unlink(missing_ok=True)
        self.digest, self.size, self.total, self.resumed, self.validator = hashlib.sha256(), 0, 0, False, ""

    def finish(self, target: Path) -> None:
        """Rename the completely downloaded file to ``target``."""
        self.file.flush()
        fsio.make_folder(target.parent)
        fsio.rename(self.path, target)
        self._tag.unlink(missing_ok=True)


@contextmanager
def opened(root: Path, sha256: str) -> Iterator[Partial]:
    """Open a download in the cache folder ``root``.

    If the download is interrupted and can be resumed later, the received bytes are kept. If another patchq process is
    downloading the same file, or if the hash is unknown, a separate download starts from the beginning.
    """
    root.mkdir(parents=True, exist_ok=True)
    path = root / "partial" / sha256
    fd = None
    if sha256:
        fd = _claimed(path)
    if fd is None:
        fd, name = tempfile.mkstemp(prefix=".download-", dir=root)
        path = Path(name)
    with os.fdopen(fd, "r+b") as file:
        found = Partial(path, file, kept=not path.name.startswith("."))
        try:
            yield found
        finally:
            file.flush()
            if not (found.kept and found.size and found.validator) and _is_at(fd, path):
                found.clear()
                path.unlink()


def _claimed(path: Path) -> int | None:
    """Open and lock a file; return None if another process holds the lock, or if the file system has no locks."""
    fsio.make_folder(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(OSError):
        fsio.lock_now(fd)
        if _is_at(fd, path):  # the previous holder may have renamed the file
            return fd
    os.close(fd)
    return None


def _is_at(fd: int, path: Path) -> bool:
    """Return True if ``path`` still names the open file ``fd``."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
