"""Zip files whose bytes depend only on their contents, not on the time, the builder or the system's zlib.

The output of a deflate compressor varies between its releases. The output of zlib and of its successors also varies
between processors. libdeflate's output is the same on all processors. patchq requires an exact version of the Python
package, which determines the release of libdeflate.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from itertools import islice
from pathlib import Path

from patchq.build.contents import LOCAL, WheelInfo
from patchq.errors import BuildError
from patchq.system import fsio

#: Release of the package that contains the compressor. Another release can produce other bytes,
#: which requires a new ``BUILD_FORMAT``.
COMPRESSOR = "0.9.0"
#: At this level, sources and kernels are within 0.1 % of their size at level 9, in less than half of the time.
LEVEL = 6
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
#: 1 January 1980, the first day that the zip format can express.
_DATE = 1 << 5 | 1
_UTF8 = 0x800


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipMember:
    """Member of a zip file, compressed only if that makes it smaller."""

    name: str
    data: bytes
    size: int
    crc: int
    method: int
    runnable: bool


def check_compressor() -> None:
    """Check that the installed compressor is the pinned release.

    :raises BuildError: if another release is installed.
    """
    found = metadata.version("deflate")
    if found != COMPRESSOR:
        raise BuildError(
            f"wheels must be compressed by deflate {COMPRESSOR}; the installed {found} writes other bytes",
            hint=f"python -m pip install deflate=={COMPRESSOR}",
        )


def pack(name: str, content: bytes, runnable: bool = False) -> ZipMember:
    """Return a file as a member of a zip file."""
    import deflate

    packed = b""
    if content:
        packed = bytes(deflate.deflate_compress(content, LEVEL))
    smaller = len(packed) < len(content)
    return ZipMember(
        name=name,
        data=packed if smaller else content,
        size=len(content),
        crc=zlib.crc32(content),
        method=zipfile.ZIP_DEFLATED if smaller else zipfile.ZIP_STORED,
        runnable=runnable,
    )


def write(
    target: Path,
    files: Mapping[str, bytes],
    executable: Iterable[str] = (),
    kept: Iterable[zipfile.ZipInfo] = (),
    source: WheelInfo | None = None,
) -> None:
    """Write the zip file ``target``: the ``kept`` members of ``source`` unchanged, then ``files`` in order.

    ``target`` appears only when it is complete.

    :raises BuildError: if the file would be too large for a plain zip file, or the compressor isn't
        the pinned release.
    """
    check_compressor()
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{target.name}{fsio.UNFINISHED}"
    try:
        with temporary.open("wb") as out:
            if source:
                central, count = _copy_members(source, list(kept), out)
            else:
                central, count = (bytearray(), 0)
            for member in _packed(files, set(executable)):
                central += _put(member, out)
                count += 1
            start = out.tell()
            if start + len(central) >= 0xFFFFFFFF or count >= 0xFFFF:
                raise BuildError(
                    f"{target.name} is larger than 4 GB, or has more than 65,534 files",
                    hint="no wheel is that large: check the file",
                )
            counts = (0, 0, count, count)
            out.write(central + _END.pack(b"PK\5\6", *counts, len(central), start, 0))
        # Not fsynced, because writing half a gigabyte to disk takes longer than all other steps. A lost wheel can be
        # built again, and the hash in its record shows whether a wheel is complete.
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _packed(files: Mapping[str, bytes], runnable: set[str]) -> Iterator[ZipMember]:
    """Yield files as members in the given order. They are compressed in batches, on all cores."""
    rest = iter(files.items())
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        while some := list(islice(rest, 256)):
            yield from pool.map(lambda item: pack(item[0], item[1], item[0] in runnable), some)


def _put(member: ZipMember, out: io.BufferedWriter) -> bytes:
    """Write a member, and return the member's entry for the table of contents."""
    name, offset = member.name.encode(), out.tell()
    if offset + len(member.data) >= 0xFFFFFFFF or member.size >= 0xFFFFFFFF:
        raise BuildError(f"{member.name} ends beyond 4 GB", hint="no wheel is that large: check the file")
    flags = 0
    if not member.name.isascii():
        flags = _UTF8
    common = (flags, member.method, 0, _DATE, member.crc, len(member.data), member.size, len(name), 0)
    out.write(LOCAL.pack(b"PK\3\4", 20, *common) + name)
    out.write(member.data)
    mode = 0o100644
    if member.runnable:
        mode = 0o100755
    version = (20 | 3 << 8, 20)
    return _CENTRAL.pack(b"PK\1\2", *version, *common, *(0, 0, 0), mode << 16, offset) + name


def _copy_members(info: WheelInfo, kept: list[zipfile.ZipInfo], out: io.BufferedWriter) -> tuple[bytearray, int]:
    """Copy members unchanged. Copy each run of adjacent members at once.

    :returns: the copied members' part of the table of contents, and the number of members.
    """
    central = bytearray()
    runs: list[list[int]] = []
    position = 0
    for item in sorted(kept, key=lambda i: i.header_offset):
        start, end = info.spans[item.filename]
        central += _central_entry(item, position)
        position += end - start
        if runs and runs[-1][1] == start:
            runs[-1][1] = end
        else:
            runs.append([start, end])
    if position + len(central) >= 0xFFFFFFFF:
        raise BuildError(f"{info.path.name} is larger than 4 GB", hint="use `--profile source`")
    with info.path.open("rb") as src:
        for start, end in runs:
            _copy_range(src, out, start, end - start)
    return central, len(kept)


def _central_entry(item: zipfile.ZipInfo, offset: int) -> bytes:
    name = item.filename.encode("utf-8")
    flags = item.flag_bits | (_UTF8 if not item.filename.isascii() else 0)
    year, month, day, hour, minute, second = item.date_time
    date, time = (year - 1980) << 9 | month << 5 | day, hour << 11 | minute << 5 | second // 2
    version = item.create_version | item.create_system << 8
    fields = (
        b"PK\1\2",
        version,
        item.extract_version,
        flags,
        item.compress_type,
        time,
        date,
        item.CRC,
        item.compress_size,
        item.file_size,
        len(name),
        0,
        0,
        0,
        item.internal_attr,
        item.external_attr,
        offset,
    )
    return _CENTRAL.pack(*fields) + name


def _copy_range(src: io.BufferedReader, out: io.BufferedWriter, start: int, size: int) -> None:
    """Copy a range of bytes from one file to another.

    If possible, the operating system's kernel copies the bytes, so that they don't pass through this process.
    """
    out.flush()
    done = 0
    try:
        while done < size:
            count = os.copy_file_range(src.fileno(), out.fileno(), size - done, start + done)
            if not count:
                break
            done += count
    except OSError:
        pass
    out.seek(0, os.SEEK_END)
    src.seek(start + done)
    while done < size:
        chunk = src.read(min(1 << 22, size - done))
        if not chunk:
            raise BuildError("the wheel is truncated", hint="get it again")
        out.write(chunk)
        done += len(chunk)
