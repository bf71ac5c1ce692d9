"""Downloads that broke off, kept by the hash that they are to have, so that the next one goes on where they end.

Nothing of it is believed: the whole file is hashed before it gets its name.
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
    """A file that is being downloaded, and the hash of what of it is there.

    :ivar size: bytes that are there.
    :ivar total: of the whole file, as the server says; 0 where it doesn't.
    :ivar resumed: some of them are of an earlier answer.
    """

    def __init__(self, path: Path, file: IO[bytes], *, kept: bool) -> None:
        self.path, self.file, self.kept = path, file, kept
        self.digest, self.size, self.total, self.resumed = hashlib.sha256(), 0, 0, False
        while chunk := file.read(1 << 20):
            self.digest.update(chunk)
            self.size += len(chunk)
        tag = fsio.read_limited(self._tag, _MOST_TAG) if kept and self._tag.is_file() else b""
        self.validator = (tag or b"").decode("ascii", "replace")
        if self.size and not self.validator:
            self.clear()

    @property
    def _tag(self) -> Path:
        """Beside it: what the server calls this version of the file."""
        return self.path.with_name(f"{self.path.name}.tag")

    def asking(self) -> dict[str, str]:
        """Headers to ask for what is missing, if the file is still the same one there."""
        plain = {"Accept-Encoding": "identity"}
        return {**plain, "Range": f"bytes={self.size}-", "If-Range": self.validator} if self.size else plain

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """Take an answer's headers: it goes on with what is there, or begins anew."""
        plain = "Content-Encoding" not in headers
        said = str(headers.get("Content-Length", ""))  # of a file, some versions of requests-file say a number
        length = int(said) if plain and said.isdecimal() else 0
        found = _RANGE.fullmatch(headers.get("Content-Range", "")) if status == 206 else None
        if found and int(found[1]) == self.size and plain:
            self.resumed = self.size > 0
            self.total = int(found[2]) if found[2] != "*" else self.size + length
            return
        self.clear()
        self.total = length
        tag = headers.get("ETag", "")
        if not tag.startswith('"'):  # a weak one, which If-Range doesn't take
            tag = headers.get("Last-Modified", "")
        if plain and self.kept and tag and len(tag) <= _MOST_TAG and tag.isascii():
            self.validator = tag
            fsio.write_atomic(self._tag, tag.encode())

    def write(self, chunk: bytes) -> None:
        """Add bytes."""
        self.file.write(chunk)
        self.digest.update(chunk)
        self.size += len(chunk)

    def clear(self) -> None:
        """Begin anew."""
        self.file.seek(0)
        self.file.truncate()
        self._tag.unlink(missing_ok=True)
        self.digest, self.size, self.total, self.resumed, self.validator = hashlib.sha256(), 0, 0, False, ""

    def finish(self, target: Path) -> None:
        """Give it its name: it is whole."""
        self.file.flush()
        fsio.make_folder(target.parent)
        fsio.rename(self.path, target)
        self._tag.unlink(missing_ok=True)


@contextmanager
def opened(root: Path, sha256: str) -> Iterator[Partial]:
    """A download in the cache folder ``root``; what of it is there is kept, unless it is empty or can't be resumed.

    One that another patchq is bringing is brought here too, from its beginning. So is one of an unknown hash.
    """
    root.mkdir(parents=True, exist_ok=True)
    path = root / "partial" / sha256
    fd = _claimed(path) if sha256 else None
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
    """The file, open and locked; None if another process has it, or there are no locks."""
    fsio.make_folder(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(OSError):
        fsio.lock_now(fd)
        if _is_at(fd, path):  # the one who had it may have finished it meanwhile
            return fd
    os.close(fd)
    return None


def _is_at(fd: int, path: Path) -> bool:
    """Whether a path is this open file."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
