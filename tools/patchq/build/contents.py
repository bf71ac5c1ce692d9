"""Checks of an untrusted wheel before any of its members is used.

A zip file describes each member twice: in its table of contents, and before the member's data. Some programs read the
first description, others the second. The whole wheel is refused if these descriptions differ, or if it contains a file
name that no installer should write.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import IO, NoReturn

from patchq.errors import BuildError
from patchq.formats.distinfo import HASHES, read_record
from patchq.names import show_path

LOCAL = struct.Struct("<4s5H3I2H")
#: Limits: bytes of a member that is read at once, bytes of all members together, and number of members.
MAX_READ, MAX_TOTAL, MAX_MEMBERS = 256 << 20, 64 << 30, 500_000
#: Highest compression ratio that deflate can reach.
_RATIO = 1032
#: Files that RECORD can't list with a hash.
_UNLISTED = ("RECORD", "RECORD.jws", "RECORD.p7s")


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelInfo:
    """Contents of a wheel.

    :ivar dist_info: name of the metadata folder.
    :ivar metadata: text of METADATA.
    :ivar items: members by name, in the order of the table of contents.
    :ivar spans: start and end position of each member in the wheel file.
    :ivar record: algorithm and hexadecimal digest in RECORD for each member; both empty for RECORD itself.
    """

    path: Path
    dist_info: str
    metadata: str
    items: Mapping[str, zipfile.ZipInfo]
    spans: Mapping[str, tuple[int, int]]
    record: Mapping[str, tuple[str, str]]

    @property
    def members(self) -> tuple[str, ...]:
        """Names of all members."""
        return tuple(self.items)

    @property
    def name(self) -> str:
        """Name of the distribution, as the metadata spells it."""
        return HeaderParser().parsestr(self.metadata)["Name"] or ""

    @property
    def version(self) -> str:
        """Version of the distribution, from the metadata."""
        return HeaderParser().parsestr(self.metadata)["Version"] or ""

    def read(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the contents of the named members.

        :raises BuildError: if a member is damaged, or doesn't match its hash in RECORD.
        """
        with self.path.open("rb") as file, _opened(file, self.path) as zf:
            found = {name: _read(self.path, zf, self.items[name]) for name in names}
        for name, data in found.items():
            kind, digest = self.record.get(name, ("", ""))
            if kind and hashlib.new(kind, data).hexdigest() != digest:
                _refuse(self.path, name, "differs from RECORD")
        return found

    def check(self) -> None:
        """Decompress every member, and compare it with the recorded size and with its hash in RECORD.

        This takes seconds for half a gigabyte.

        :raises BuildError: if a member doesn't match.
        """
        names = []
        for n, item in self.items.items():
            if not item.is_dir():
                names.append(n)
        workers = os.cpu_count() or 1
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(self._check_some, [names[n::workers] for n in range(workers)]))

    def _check_some(self, names: Iterable[str]) -> None:
        with self.path.open("rb") as file, _opened(file, self.path) as zf:
            for name in names:
                kind, digest = self.record.get(name, ("", ""))
                summed = hashlib.new(kind or "sha256")
                size = 0
                with _reading(self.path), zf.open(self.items[name]) as member:
                    while chunk := member.read(1 << 20):
                        summed.update(chunk)
                        size += len(chunk)
                if size != self.items[name].file_size:
                    _refuse(self.path, name, "has another size than the table of contents gives")
                if kind and summed.hexdigest() != digest:
                    _refuse(self.path, name, "differs from RECORD")


def inspect_wheel(path: Path) -> WheelInfo:
    """Read and check a wheel's table of contents, metadata and RECORD.

    :raises BuildError: if the file isn't a wheel, if it contradicts itself, or if a member has an unsafe name.
    """
    with path.open("rb") as file, _opened(file, path) as zf:
        items = zf.infolist()
        _check_names(path, items)
        for item in items:
            _check_item(path, item)
        spans = _spans(path, file, items, zf.start_dir)
        _check_end(path, file, zf, items)
        by_name = {item.filename: item for item in items}
        folders = set()
        for m in by_name:
            if re.fullmatch(r"[^/]+\.dist-info/METADATA", m):
                folders.add(m.split("/")[0])
        if len(folders) != 1 or len({m.split("/")[0] for m in by_name if re.match(r"[^/]+\.dist-info/", m)}) != 1:
            raise BuildError(f"{path.name} has no single .dist-info", hint="is it a wheel?")
        dist_info = folders.pop()
        metadata = _text(path, zf, by_name, f"{dist_info}/METADATA")
        _check_identity(path, dist_info, metadata)
        record = _record(path, _text(path, zf, by_name, f"{dist_info}/RECORD"), dist_info, by_name)
    return WheelInfo(path=path, dist_info=dist_info, metadata=metadata, items=by_name, spans=spans, record=record)


def _refuse(path: Path, what: str, why: str) -> NoReturn:
    shown = show_path(what.encode("utf-8", "surrogateescape"))
    raise BuildError(
        f"{path.name}: {f'{shown!r} ' if what else ''}{why}",
        hint="nothing was written; check where this wheel comes from before you use it",
    )


def _damaged(path: Path, error: Exception) -> NoReturn:
    raise BuildError(f"{path.name} is damaged: {error or type(error).__name__}", hint="get it again: `patchq fetch`")


def _opened(file: IO[bytes], path: Path) -> zipfile.ZipFile:
    """Open a zip file, and convert the exceptions that :mod:`zipfile` raises for damaged tables."""
    try:
        return zipfile.ZipFile(file)
    except Exception as error:
        _damaged(path, error)


def _read(path: Path, zf: zipfile.ZipFile, item: zipfile.ZipInfo) -> bytes:
    if item.file_size > MAX_READ:
        _refuse(path, item.filename, f"has {item.file_size} bytes; the limit is {MAX_READ}")
    with _reading(path):
        data = zf.read(item)
    if len(data) != item.file_size:
        _refuse(path, item.filename, "has another size than the table of contents gives")
    return data


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        _damaged(path, error)


def _text(path: Path, zf: zipfile.ZipFile, items: Mapping[str, zipfile.ZipInfo], name: str) -> str:
    if name not in items:
        raise BuildError(f"{path.name} has no {name}", hint="is it a wheel?")
    try:
        return _read(path, zf, items[name]).decode()
    except UnicodeDecodeError:
        _refuse(path, name, "is not UTF-8")


# Names


def _check_names(path: Path, items: Iterable[zipfile.ZipInfo]) -> None:
    """Refuse duplicate names, and names that are unsafe on at least one system."""
    seen: set[str] = set()
    folders: set[str] = set()
    total = 0
    for number, item in enumerate(items, 1):
        name = item.filename
        total += item.file_size
        if number > MAX_MEMBERS or total > MAX_TOTAL:
            _refuse(path, "", "is larger than any wheel")
        parts = name.removesuffix("/").split("/")
        if item.orig_filename != name or "\\" in name or not name.isprintable():
            _refuse(path, item.orig_filename, "is not a valid file name on every system")
        if not name.isascii() and not item.flag_bits & 0x800:
            _refuse(path, name, "is not a file name in UTF-8")
        if name.startswith("/") or ".." in parts or re.match(r"[A-Za-z]:", name):
            _refuse(path, name, "would be written outside of the target folder")
        if {"", "."} & set(parts) or any(len(part.encode()) > 255 for part in parts) or len(name.encode()) > 4000:
            _refuse(path, name, "is not a valid file name on every system")
        if name in seen:
            _refuse(path, name, "is listed twice")
        seen.add(name)
        folders.update("/".join(parts[:n]) for n in range(1, len(parts)))
    for name in sorted(folders & seen):
        _refuse(path, name, "is both a file and a folder")


def _check_item(path: Path, item: zipfile.ZipInfo) -> None:
    """Refuse a member that isn't a plain file or folder, uses another compression method, or has an impossible size."""
    name, kind = item.filename, stat.S_IFMT(item.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or ((kind == stat.S_IFDIR) != item.is_dir() and kind):
        _refuse(path, name, "is a link or another special file")
    if item.is_dir() and item.file_size:
        _refuse(path, name, "is a folder with content")
    if item.flag_bits & (0x1 | 0x20 | 0x40 | 0x2000):
        _refuse(path, name, "is encrypted or patched data")
    if item.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        _refuse(path, name, f"is compressed by method {item.compress_type}, which wheels don't use")
    if item.compress_type == zipfile.ZIP_STORED and item.compress_size != item.file_size:
        _refuse(path, name, "has two different sizes or checksums")
    if item.file_size > item.compress_size * _RATIO:
        _refuse(path, name, f"can't hold {item.file_size} bytes in {item.compress_size}")


# The zip file itself


def _spans(
    path: Path, file: IO[bytes], items: Iterable[zipfile.ZipInfo], end_of_all: int
) -> dict[str, tuple[int, int]]:
    """Return the start and end position of each member, and refuse members that overlap.

    Also refuse a member whose own header differs from the table of contents.
    """
    spans: dict[str, tuple[int, int]] = {}
    end = 0
    for item in sorted(items, key=lambda i: i.header_offset):
        start = item.header_offset
        if not spans and start:
            _refuse(path, "", f"has {start} bytes before its first member")
        if start < end:
            _refuse(path, item.filename, "overlaps the member before it")
        end = _end_of(path, file, item)
        if end > end_of_all:
            _refuse(path, item.filename, "overlaps the table of contents")
        spans[item.filename] = start, end
    return spans


def _end_of(path: Path, file: IO[bytes], item: zipfile.ZipInfo) -> int:
    file.seek(item.header_offset)
    raw = file.read(LOCAL.size)
    if len(raw) < LOCAL.size or raw[:4] != b"PK\3\4":
        _refuse(path, item.filename, "has no header of its own")
    _, _, flags, method, _, _, crc, packed, size, name_size, extra_size = LOCAL.unpack(raw)
    name, extra = file.read(name_size), file.read(extra_size)
    if name != item.orig_filename.encode() or method != item.compress_type or (flags ^ item.flag_bits) & 0x809:
        _refuse(path, item.filename, "has two different names or kinds")
    wide = _zip64(extra)
    if wide is not None:
        if size == 0xFFFFFFFF:
            size = int.from_bytes(wide[:8], "little")
        if packed == 0xFFFFFFFF:
            packed = int.from_bytes(wide[8:16], "little")
    end = item.header_offset + LOCAL.size + name_size + extra_size + item.compress_size
    output = crc, packed, size
    if flags & 0x08:
        # The checksum and sizes (four or eight bytes each) follow the data, with or without a signature before them. In
        # the header before the data they may be zero.
        width = 4
        if wide is not None:
            width = 8
        file.seek(end)
        after = file.read(4 + 4 + 2 * width)
        signed = 0
        if after[:4] == b"PK\7\10":
            signed = 4
        if (
            output[0] not in (0, item.CRC)
            or output[1] not in (0, item.compress_size)
            or output[2] not in (0, item.file_size)
        ):
            _refuse(path, item.filename, "has two different sizes or checksums")
        end += signed + 4 + 2 * width
        fields = after[signed:]
        output = (
            int.from_bytes(fields[:4], "little"),
            int.from_bytes(fields[4 : 4 + width], "little"),
            int.from_bytes(fields[4 + width : 4 + 2 * width], "little"),
        )
    if output != (item.CRC, item.compress_size, item.file_size):
        _refuse(path, item.filename, "has two different sizes or checksums")
    return int(end)


def _zip64(extra: bytes) -> bytes | None:
    """Return the content of the zip64 extra field, which holds sizes of eight bytes; None if it is missing."""
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<2H", extra)
        if kind == 1:
            return extra[4 : 4 + size]
        extra = extra[4 + size :]
    return None


def _check_end(path: Path, file: IO[bytes], zf: zipfile.ZipFile, items: list[zipfile.ZipInfo]) -> None:
    """Refuse a file with data after its table of contents, because other programs could read that data."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - (1 << 16) - 22))
    tail = file.read()
    if zf.comment or tail[-22:-18] != b"PK\5\6":
        _refuse(path, "", "has data after its table of contents")
    disk, first, here, count, _, _ = struct.unpack("<4H2I", tail[-18:-2])
    if disk or first or here != count or count not in (len(items) & 0xFFFF, 0xFFFF):
        _refuse(path, "", "gives two different numbers of members")


# Metadata


def _check_identity(path: Path, dist_info: str, metadata: str) -> None:
    """Check that file name, metadata folder and METADATA agree on the distribution and version."""
    from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
    from packaging.version import InvalidVersion, Version

    head = HeaderParser().parsestr(metadata)
    names, versions = head.get_all("Name") or [], head.get_all("Version") or []
    if len(names) != 1 or len(versions) != 1:
        _refuse(path, f"{dist_info}/METADATA", "doesn't give one name and one version")
    try:
        folder_name, _, folder_version = dist_info.removesuffix(".dist-info").rpartition("-")
        output = [(canonicalize_name(names[0]), Version(versions[0]))]
        output.append((canonicalize_name(folder_name), Version(folder_version)))
        output.append(parse_wheel_filename(path.name)[:2])
    except (InvalidVersion, InvalidWheelFilename, ValueError) as error:
        # Python raises ValueError for a number with too many digits. Before release 25, packaging doesn't escape its
        # message.
        message = show_path(str(error).encode("utf-8", "surrogateescape"))
        raise BuildError(f"{path.name}: {message}", hint="is it a wheel?") from None
    if len(set(output)) != 1:
        own = show_path(f"{names[0]} {versions[0]}".encode("utf-8", "replace"))
        _refuse(path, "", f"contains another distribution or version than its file name gives: {own}, in {dist_info}")


def _record(path: Path, text: str, dist_info: str, items: Mapping[str, zipfile.ZipInfo]) -> dict[str, tuple[str, str]]:
    """Return the hash that RECORD lists for each member.

    Refuse a RECORD that doesn't list each member once with a valid hash, or that lists other files.
    """
    found: dict[str, tuple[str, str]] = {}
    unlisted = {f"{dist_info}/{name}" for name in _UNLISTED}
    try:
        for row in read_record(text):
            if row.path in found:
                _refuse(path, row.path, "is in RECORD twice")
            if row.path not in items:
                _refuse(path, row.path, "is in RECORD and not in the wheel")
            if row.path in unlisted:
                found[row.path] = "", ""
                continue
            if row.kind not in HASHES or len(row.digest) != 2 * HASHES[row.kind]:
                _refuse(path, row.path, "has no SHA-2 in RECORD")
            if 0 <= row.size != items[row.path].file_size:
                _refuse(path, row.path, "has another size in RECORD than in the wheel")
            found[row.path] = row.kind, row.digest
    except ValueError as error:
        _refuse(path, f"{dist_info}/RECORD", f"is damaged: {error}")
    for name, item in items.items():
        if name not in found and name not in unlisted and not item.is_dir():
            _refuse(path, name, "is not in RECORD")
    return found
