"""Tar files with members that no tar program writes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass

#: A member: its header, and what follows it.
Member = tuple[tarfile.TarInfo, bytes]


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "", **fields: object) -> Member:
    """Return a member whose header says what its data is, but for the fields that are given."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def tar(members: Iterable[Member], form: int = tarfile.PAX_FORMAT, **more: object) -> bytes:
    """Return a tar file of members, in a format of `tarfile`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, **more) as file:  # type: ignore[call-overload]
        for info, data in members:
            file.fileobj.write(info.tobuf(form, "utf-8", "surrogateescape"))
            file.fileobj.write(data + b"\0" * (-len(data) % 512))
            file.offset = out.tell()
    return out.getvalue()


def block(
    name: bytes,
    data: bytes = b"",
    kind: bytes = b"0",
    size: bytes | None = None,
    link: bytes = b"",
    magic: bytes = b"ustar\x0000",
) -> bytes:
    """Return a member of bytes that `tarfile` would not write, with a right checksum."""
    told = b"%011o\0" % len(data) if size is None else size
    head = name.ljust(100, b"\0")[:100] + b"0000644\0" + b"0000000\0" * 2 + told.ljust(12, b"\0") + b"0" * 11 + b"\0"
    head += b" " * 8 + kind + link.ljust(100, b"\0")[:100] + magic.ljust(8, b"\0") + b"\0" * 247
    head = head[:148] + b"%06o\0 " % sum(head[:512]) + head[156:512]
    return head + data + b"\0" * (-len(data) % 512)


def pax(**records: str | bytes) -> bytes:
    """Return the records of an extended header."""
    found = b""
    for key, value in records.items():
        text = (
            b" "
            + key.replace("__", ".").encode()
            + b"="
            + (value if isinstance(value, bytes) else value.encode())
            + b"\n"
        )
        size = len(text) + 1
        while len(b"%d" % size) + len(text) != size:
            size = len(b"%d" % size) + len(text)
        found += b"%d" % size + text
    return found


def zeros(size: int) -> bytes:
    """Return a gzip file of zeros without ever having them."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as file:
        for _ in range(size >> 20):
            file.write(b"\0" * (1 << 20))
    return out.getvalue()


@dataclass(frozen=True)
class Trick:
    """What is wrong with an archive: members beside the good ones, or the whole archive."""

    more: tuple[Member, ...] = ()
    whole: Callable[[bytes], bytes] | None = None
    pack: Callable[[bytes], bytes] = lambda data: gzip.compress(data, mtime=0)


def tricks(top: str, outside: str, mark: str) -> dict[str, Trick]:
    """Return what may be wrong with an archive whose files lie in ``top``.

    :param outside: a folder that nothing may be written to.
    :param mark: Python code that leaves a mark.
    """
    link, hard, folder = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE
    good = tar([member(f"{top}/a.txt", b"a\n")])
    end = b"\0" * 1024

    def behind(data: bytes) -> Trick:
        return Trick(
            whole=lambda archive: archive.rstrip(b"\0") + b"\0" * (-len(archive.rstrip(b"\0")) % 512) + data + end
        )

    def before(data: bytes) -> Trick:
        return Trick(whole=lambda archive: data + archive)

    return {
        "climbs": Trick((member(f"{top}/../../outside/evil", b"x"),)),
        "climbs at once": Trick((member("../outside/evil", b"x"),)),
        "absolute": Trick((member(f"{outside}/evil", b"x"),)),
        "absolute twice": Trick((member(f"//{outside}/evil", b"x"),)),
        "drive": Trick((member("C:/evil", b"x"),)),
        "backslashes": Trick((member(f"{top}\\..\\..\\evil", b"x"),)),
        "dot git": Trick((member(f"{top}/.git/hooks/post-checkout", b"#!/bin/sh\n", mode=0o755),)),
        "dot git in capitals": Trick((member(f"{top}/.GIT/config", b"x"),)),
        "dot git of NTFS": Trick((member(f"{top}/GIT~1/config", b"x"),)),
        "dot git of HFS": Trick((member(f"{top}/.g\u200cit/config", b"x"),)),
        "dot git with a dot": Trick((member(f"{top}/.git./config", b"x"),)),
        "dot git with a stream": Trick((member(f"{top}/.git::$INDEX_ALLOCATION/config", b"x"),)),
        "link out": Trick((member(f"{top}/link", kind=link, link="../../outside/secret.txt"),)),
        "absolute link": Trick((member(f"{top}/link", kind=link, link=f"{outside}/secret.txt"),)),
        "through a link": Trick((member(f"{top}/l", kind=link, link=outside), member(f"{top}/l/evil", b"x"))),
        "through a link inside": Trick((member(f"{top}/l", kind=link, link="b"), member(f"{top}/l/evil", b"x"))),
        "link then file": Trick((member(f"{top}/l", kind=link, link=f"{outside}/secret.txt"), member(f"{top}/l", b"x"))),
        "chain of links": Trick(tuple(member(f"{top}/l{n}", kind=link, link=f"l{n + 1}/..") for n in range(40))),
        "circle of links": Trick((member(f"{top}/l", kind=link, link="m"), member(f"{top}/m", kind=link, link="l"))),
        "link to itself": Trick((member(f"{top}/l", kind=link, link="l"),)),
        "long link": Trick((member(f"{top}/l", kind=link, link="a/" * 20_000),)),
        "link with a NUL": Trick((member(f"{top}/l", kind=link, link="a\0b"),)),
        "hard link out": Trick((member(f"{top}/hard", kind=hard, link=f"{outside}/secret.txt"),)),
        "hard link climbs": Trick((member(f"{top}/hard", kind=hard, link=f"{top}/../../outside/secret.txt"),)),
        "hard link to nothing": Trick((member(f"{top}/hard", kind=hard, link=f"{top}/none"),)),
        "hard link to itself": Trick((member(f"{top}/hard", kind=hard, link=f"{top}/hard"),)),
        "hard link to a link": Trick((member(f"{top}/l", kind=link, link=f"{outside}/secret.txt"), member(f"{top}/h", kind=hard, link=f"{top}/l"))),
        "hard links to hard links": Trick(tuple(member(f"{top}/h{n}", kind=hard, link=f"{top}/h{n - 1}") for n in range(3000, 0, -1))),
        "device": Trick((member(f"{top}/dev", kind=tarfile.CHRTYPE, devmajor=1, devminor=5),)),
        "disk": Trick((member(f"{top}/dev", kind=tarfile.BLKTYPE, devmajor=8),)),
        "pipe": Trick((member(f"{top}/pipe", kind=tarfile.FIFOTYPE),)),
        "kind of nobody": Trick((member(f"{top}/x", b"x", kind=b"Z"),)),
        "contiguous": Trick((member(f"{top}/x", b"x", kind=tarfile.CONTTYPE),)),
        "twice": Trick((member(f"{top}/a.txt", b"other\n"),)),
        "file and folder": Trick((member(f"{top}/a.txt/x", b"x"),)),
        "folder over file": Trick((member(f"{top}/a.txt", kind=folder),)),
        "names by case": Trick((member(f"{top}/A.TXT", b"x"),)),
        "names by accents": Trick((member(f"{top}/caf\u00e9", b"x"), member(f"{top}/cafe\u0301", b"y"))),
        "two tops": Trick((member("other/x", b"x"),)),
        "no name": Trick((member("", b"x"),)),
        "dots": Trick((member(f"{top}/./././x", b"x"), member(f"{top}//x", b"y"), member(".", kind=folder))),
        "control characters": Trick((member(f"{top}/\x1b]0;evil\x07\r", b"x"),)),
        "newline": Trick((member(f"{top}/a\nM 100644 inline ../evil\n", b"x"),)),
        "turned": Trick((member(f"{top}/\u202etxt.exe", b"x"),)),
        "no text": Trick((member(f"{top}/" + "\udcff\udcfe", b"x"),)),
        "long name": Trick((member(f"{top}/" + "a" * 5000, b"x"),)),
        "deep name": Trick((member(f"{top}/" + "a/" * 2040 + "x", b"x"),)),
        "deeper name": Trick((member(f"{top}/" + "a/" * 100_000 + "x", b"x"),)),
        "set-uid": Trick((member(f"{top}/su", b"x", mode=0o6755),)),
        "mode of bits": Trick((member(f"{top}/m", b"x", mode=0o7777777),)),
        "dates": Trick((member(f"{top}/d", b"x", mtime=2**40), member(f"{top}/e", b"x", mtime=-(2**40)))),
        "code": Trick(tuple(member(f"{top}/{n}.py", mark.encode(), mode=0o755) for n in ("setup", "conftest", "sitecustomize", "__init__"))),
        "build settings": Trick((member(f"{top}/pyproject.toml", b'[build-system]\nrequires=[]\nbuild-backend="setup"\nbackend-path=["."]\n'), member(f"{top}/setup.py", mark.encode()))),
        "attributes": Trick((member(f"{top}/.gitattributes", b"* filter=x diff=x merge=x working-tree-encoding=UTF-16 ident export-subst\n"),)),
        "submodules": Trick((member(f"{top}/.gitmodules", b'[submodule "x"]\n\tpath = x\n\turl = ext::sh\n\tupdate = !sh\n'),)),
        "submodules as link": Trick((member(f"{top}/.gitmodules", kind=link, link="a.txt"),)),
        "many members": Trick(tuple(member(f"{top}/m/{n}", b"") for n in range(5_000))),
        "many folders": Trick(tuple(member(f"{top}/{'d/' * (n % 60)}{n}", b"") for n in range(2_000))),
        "size below nothing": behind(block(f"{top}/x".encode(), b"x", size=b"-0000000001")),
        "size in base 256": behind(block(f"{top}/x".encode(), b"x", size=b"\x80" + b"\x7f" + b"\xff" * 10)),
        "size below nothing in base 256": behind(block(f"{top}/x".encode(), b"x", size=b"\xff" * 12)),
        "size of a terabyte": behind(block(f"{top}/x".encode(), b"x", size=b"%011o" % (1 << 32))),
        "size of letters": behind(block(f"{top}/x".encode(), b"x", size=b"abcdefghijk")),
        "bad checksum": behind(block(f"{top}/x".encode(), b"x").replace(b"ustar", b"evila")),
        "PAX path": behind(block(b"x", pax(path="../outside/evil"), b"x") + block(f"{top}/x".encode(), b"x")),
        "PAX path is absolute": behind(block(b"x", pax(path=f"{outside}/evil"), b"x") + block(f"{top}/x".encode(), b"x")),
        "PAX path with a NUL": behind(block(b"x", pax(path=f"{top}/a\0b"), b"x") + block(f"{top}/x".encode(), b"x")),
        "PAX link": behind(block(b"x", pax(linkpath=f"{outside}/secret.txt"), b"x") + block(f"{top}/l".encode(), kind=b"2", link=b"a.txt")),
        "PAX size": behind(block(b"x", pax(size="99999999999999"), b"x") + block(f"{top}/x".encode(), b"x")),
        "PAX size below nothing": behind(block(b"x", pax(size="-512"), b"x") + block(f"{top}/x".encode(), b"x")),
        "PAX size of no number": behind(block(b"x", pax(size="9" * 5000), b"x") + block(f"{top}/x".encode(), b"x")),
        "PAX date": behind(block(b"x", pax(mtime="1e999", uid="x"), b"x") + block(f"{top}/x".encode(), b"x")),
        "PAX of bytes": behind(block(b"x", pax(path=b"\xff\xfe", hdrcharset="BINARY"), b"x") + block(f"{top}/x".encode(), b"x")),
        "PAX of a length": behind(block(b"x", b"99999 path=x\n", b"x") + block(f"{top}/x".encode(), b"x")),
        "PAX of length nothing": behind(block(b"x", b"0 path=x\n", b"x") + block(f"{top}/x".encode(), b"x")),
        "PAX of no end": behind(block(b"x", b"9" * 100_000, b"x") + block(f"{top}/x".encode(), b"x")),
        "PAX of many records": behind(block(b"x", pax(comment="x") * 50_000, b"x") + block(f"{top}/x".encode(), b"x")),
        "PAX of megabytes": behind(block(b"x", pax(comment="x" * (3 << 20)), b"x") + block(f"{top}/x".encode(), b"x")),
        "PAX of PAX": behind(block(b"x", pax(comment="x"), b"x") * 3000 + block(f"{top}/x".encode(), b"x")),
        "global path": before(block(b"g", pax(path="../outside/evil"), b"g")),
        "global path inside": before(block(b"g", pax(path=f"{top}/same"), b"g")),
        "global size": before(block(b"g", pax(size="0"), b"g")),
        "global link": before(block(b"g", pax(linkpath=f"{outside}/secret.txt"), b"g")),
        "globals": before(block(b"g", pax(comment="x"), b"g") * 5000),
        "global in the middle": behind(block(b"g", pax(path=f"{top}/../evil"), b"g") + block(f"{top}/x".encode(), b"x")),
        "GNU long name": behind(block(b"././@LongLink", b"../outside/evil\0", b"L", magic=b"ustar  \0") + block(b"x", b"x")),
        "GNU long name of megabytes": behind(block(b"././@LongLink", b"a/" * (2 << 20), b"L", magic=b"ustar  \0") + block(b"x", b"x")),
        "GNU long link": behind(block(b"././@LongLink", f"{outside}/secret.txt\0".encode(), b"K", magic=b"ustar  \0") + block(f"{top}/l".encode(), kind=b"2")),
        "GNU long names": behind(block(b"././@LongLink", f"{top}/x\0".encode(), b"L", magic=b"ustar  \0") * 3000 + block(b"x", b"x")),
        "GNU long name at the end": behind(block(b"././@LongLink", b"x\0", b"L", magic=b"ustar  \0")),
        "GNU sparse": behind(sparse(f"{top}/s".encode())),
        "PAX sparse": behind(block(b"x", pax(GNU__sparse__major="1", GNU__sparse__minor="0", GNU__sparse__name="../evil", GNU__sparse__realsize="99999999999"), b"x") + block(f"{top}/x".encode(), b"1\n0\n1\nx")),
        "old PAX sparse": behind(block(b"x", pax(GNU__sparse__size="99999999999", GNU__sparse__map="0,1,99999999998,1"), b"x") + block(f"{top}/x".encode(), b"xy")),
        "volume": before(block(b"../evil", b"", b"V", magic=b"ustar  \0")),
        "folder of names": behind(block(b"../evil", b"Yx\0\0", b"D", magic=b"ustar  \0")),
        "multi-volume": behind(block(f"{top}/x".encode(), b"x", b"M", magic=b"ustar  \0")),
        "cut": Trick(whole=lambda archive: archive[: len(archive) // 2 + 17]),
        "nothing": Trick(whole=lambda _: b""),
        "NULs": Trick(whole=lambda _: b"\0" * 100_000),
        "text": Trick(whole=lambda _: b"#!/bin/sh\ntouch evil\n"),
        "gzip cut": Trick(pack=lambda data: gzip.compress(data)[:-9]),
        "gzip of rubbish": Trick(pack=lambda data: gzip.compress(data)[:40] + b"\xff" * 500),
        "gzip behind gzip": Trick(pack=lambda data: gzip.compress(good) + gzip.compress(data)),
        "gzip in gzip": Trick(pack=lambda data: gzip.compress(gzip.compress(gzip.compress(data)))),
        "rubbish behind": Trick(pack=lambda data: gzip.compress(data) + b"x" * 10_000),
        "bomb of zeros": Trick(pack=lambda data: gzip.compress(data.rstrip(b"\0") + b"\0" * (-len(data.rstrip(b"\0")) % 512)) + zeros(100 << 20)),
        "bzip2": Trick(pack=lambda data: bz2.compress(data)),
        "xz": Trick(pack=lambda data: lzma.compress(data)),
        "xz cut": Trick(pack=lambda data: lzma.compress(data)[:-20]),
    }  # fmt: skip


def sparse(name: bytes) -> bytes:
    """Return an old GNU sparse member that claims eight terabytes."""
    head = bytearray(block(name, b"x" * 512, b"S", magic=b"ustar  \0"))
    head[386:410] = b"%011o\0%011o\0" % (0, 512)
    head[483:495] = b"\x80" + struct.pack(">Q", 1 << 43).rjust(11, b"\0")
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head[:512])
    return bytes(head)
