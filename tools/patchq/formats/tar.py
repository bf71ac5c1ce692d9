"""Reader for untrusted tar archives. Archives with many, large or unusual headers are refused.

The module ``tarfile`` reads a whole extended header into memory, follows chains of headers by recursion, and
needs more than linear time to parse them. The header of a sparse member may claim any size.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
from collections.abc import Iterator
from types import SimpleNamespace
from typing import IO, Any

#: Size limit in bytes of an extended header, such as a long name or the target of a link.
MAX_EXTENDED = 1 << 20
#: Most headers of one member: a global one, its own, a long name, a long target, the member itself,
#: and some to spare.
MAX_HEADERS = 16
#: Most members of an archive that is read as a stream.
MAX_MEMBERS = 5_000_000
_GLOBAL, _OWN = (tarfile.XGLTYPE,), (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_LONG = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
#: Fields that change a member's path, link target or size. Some readers apply such fields of a global header to all
#: later members.
_RENAMING = {b"path", b"linkpath", b"size"}
_RECORD = re.compile(rb"(\d{1,7}) ([^=\n]{1,4096})=")
#: tarfile searches the whole header for a record's length, from each digit on.
_DIGITS = re.compile(rb"\d{101}")


class Bounded(tarfile.TarInfo):
    """Archive member whose headers are checked before ``tarfile`` parses them."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Bounded:
        info = super().frombuf(buf, encoding, errors)
        if info.type in (*_GLOBAL, *_OWN, *_LONG) and not 0 <= info.size <= MAX_EXTENDED:
            raise tarfile.ReadError(f"an extended header has {info.size} bytes")
        if info.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("it contains a sparse member")
        return info

    @classmethod
    def fromtarfile(cls, tar: Any) -> Bounded:
        before = getattr(tar, "headers", 0)
        if before == MAX_HEADERS:
            raise tarfile.ReadError(f"a member has more than {MAX_HEADERS} headers")
        tar.headers = before + 1
        try:
            return super().fromtarfile(tar)
        finally:
            tar.headers = before

    def _proc_pax(self, tar: Any) -> tarfile.TarInfo:
        """Check the records of a PAX header before ``tarfile`` parses them."""
        file = tar.fileobj
        data = file.read(self._block(self.size))  # type: ignore[attr-defined]
        _check_records(data[: self.size], _RENAMING if self.type in _GLOBAL else set())

        def again(_: int) -> bytes:
            tar.fileobj = file
            return data  # type: ignore[no-any-return]

        tar.fileobj = SimpleNamespace(read=again)
        try:
            return super()._proc_pax(tar)  # type: ignore[misc,no-any-return]
        finally:
            tar.fileobj = file


def _check_records(data: bytes, refused: set[bytes]) -> None:
    """Raise tarfile.ReadError if a PAX header isn't a list of records, or contains a refused record."""
    if _DIGITS.search(data):
        raise tarfile.ReadError("a PAX header contains a number of more than 100 digits")
    at, data = 0, data.rstrip(b"\0")
    while at < len(data):
        record = _RECORD.match(data, at)
        length = 0
        if record:
            length = int(record[1])
        if record is None or at + length < record.end() or data[at + length - 1 : at + length] != b"\n":
            raise tarfile.ReadError("a PAX header is not a list of records")
        if record[2] in refused or record[2].startswith(b"GNU.sparse"):
            kind = "PAX"
            if refused:
                kind = "global"
            raise tarfile.ReadError(f"a {kind} header sets {record[2].decode(errors='replace')}")
        at += length


class _Raw(io.RawIOBase):
    """Adapter that gives an object with only ``read`` the methods that :class:`io.BufferedReader` needs."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        data = self._file.read(len(into))
        into[: len(data)] = data
        return len(data)


def open_stream(file: IO[bytes] | Any) -> tarfile.TarFile:
    """Open an archive, compressed or not, to read it once from its beginning to its end.

    An archive may consist of several compressed streams. ``tarfile`` itself stops after the first stream, but
    other programs read all streams.

    :raises tarfile.TarError: for an invalid archive, here or later while it is read. Decompressors raise their
        own exceptions.
    """
    raw = io.BufferedReader(_Raw(file), 1 << 16)
    start = raw.peek(6)
    data: Any = raw
    if start.startswith(b"\x1f\x8b"):
        data = gzip.GzipFile(fileobj=raw)
    elif start.startswith(b"BZh"):
        data = bz2.BZ2File(raw)
    elif start.startswith(b"\xfd7zXZ\x00"):
        data = lzma.LZMAFile(raw)  # noqa: SIM115
    return tarfile.open(fileobj=data, mode="r|", tarinfo=Bounded)


def members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive that is read as a stream, without keeping the members in memory.

    :raises tarfile.TarError: for a damaged member, or if there are more than :data:`MAX_MEMBERS` members.
    """
    for number, member in enumerate(tar):
        if number == MAX_MEMBERS:
            raise tarfile.ReadError(f"it contains more than {MAX_MEMBERS} members")
        tar.members.clear()  # type: ignore[attr-defined]
        yield member
