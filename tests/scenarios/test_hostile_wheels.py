"""Release wheels that overwhelm, reach outside or say two things: refused in words before anything is written."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import stat
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from kit import Patchq
from patchq.build import contents
from patchq.build.contents import inspect_wheel
from patchq.cli import cli
from patchq.errors import BuildError
from test_build import make_pair

METADATA = b"Metadata-Version: 2.1\nName: lib\nVersion: 1.0\n\nText.\n"
INFO = "lib-1.0.dist-info"


@dataclass(frozen=True)
class Entry:
    """A member as it is said in the table of contents; ``local`` is what its own header says otherwise."""

    name: bytes
    data: bytes = b""
    packed: bytes | None = None
    method: int = 0
    flags: int = 0x800
    mode: int = stat.S_IFREG | 0o644
    size: int | None = None
    extra: bytes = b""
    after: bytes = b""
    local: dict[str, object] = field(default_factory=dict)
    at: int | None = None

    @property
    def body(self) -> bytes:
        return self.data if self.packed is None else self.packed


def header(e: Entry, central: bool, offset: int) -> bytes:
    told = e if central else replace(e, **e.local)  # type: ignore[arg-type]
    crc = 0 if told.flags & 8 and not central else zlib.crc32(told.data)
    sizes = (len(e.body), len(e.data) if told.size is None else told.size)
    sizes = (0, 0) if told.flags & 8 and not central else sizes
    if central:
        return struct.pack(
            "<4s6H3I5H2I", b"PK\1\2", 0x314, 20, told.flags, told.method, 0, 0x21, crc, *sizes, len(told.name), 0, 0, 0, 0,
            told.mode << 16, offset,
        ) + told.name  # fmt: skip
    return struct.pack(
        "<4s5H3I2H", b"PK\3\4", 20, told.flags, told.method, 0, 0x21, crc, *sizes, len(told.name), len(told.extra)
    ) + told.name + told.extra  # fmt: skip


def archive(entries: list[Entry], before: bytes = b"", comment: bytes = b"", count: int | None = None) -> bytes:
    out, central = bytearray(before), bytearray()
    for e in entries:
        offset = len(out) if e.at is None else e.at
        if e.at is None:
            out += header(e, False, offset) + e.body + e.after
        central += header(e, True, offset)
    number = len(entries) if count is None else count
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, number, number, len(central), len(out), len(comment))
    return bytes(out + central + end + comment)


def line(name: bytes, data: bytes) -> bytes:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return b"%s,sha256=%s,%d\n" % (name, digest, len(data))


def wheel(*more: Entry, metadata: bytes = METADATA, info: str = INFO, record: Callable[[bytes], bytes] | None = None,
          **end: object) -> bytes:  # fmt: skip
    """A release wheel of lib with more members, all of them in RECORD."""
    folder = info.encode()
    entries = [
        Entry(b"lib/__init__.py", b"from ._version import __version__\n\ndef answer():\n    return 41\n"),
        Entry(b"lib/_version.py", b'__version__ = version = "1.0"\n'),
        Entry(b"lib/other.py", b"x = 1\n"),
        *more,
        Entry(folder + b"/METADATA", metadata),
        Entry(folder + b"/WHEEL", b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
    ]
    own = folder + b"/RECORD"
    names = dict.fromkeys(e.name for e in entries if not e.name.endswith(b"/"))
    text = b"".join(line(n, next(e.data for e in entries if e.name == n)) for n in names) + own + b",,\n"
    if record:
        text = record(text)
    return archive([*entries, Entry(own, text)], **end)  # type: ignore[arg-type]


DEFLATED = zlib.compressobj(9, zlib.DEFLATED, -15)
ZEROS = b"\0" * 5_000_000
BOMB = DEFLATED.compress(ZEROS) + DEFLATED.flush()
X = b"x = 2\n"


def packed(data: bytes) -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    return deflate.compress(data) + deflate.flush()


ATTACKS: dict[str, tuple[bytes, str]] = {
    "parent": (wheel(Entry(b"../evil.py")), "would be written outside of the target folder"),
    "parent inside": (wheel(Entry(b"lib/../../evil.py")), "would be written outside of the target folder"),
    "absolute": (wheel(Entry(b"/etc/evil.py")), "would be written outside of the target folder"),
    "drive": (wheel(Entry(b"C:/evil.py")), "would be written outside of the target folder"),
    "drive alone": (wheel(Entry(b"C:evil.py")), "would be written outside of the target folder"),
    "backslash": (wheel(Entry(b"lib\\..\\evil.py")), "is not a valid file name on every system"),
    "NUL": (wheel(Entry(b"lib/a.py\0.txt")), "is not a valid file name on every system"),
    "control": (wheel(Entry(b"lib/\x1b[31m.py")), "is not a valid file name on every system"),
    "newline": (wheel(Entry(b"lib/a\nb.py")), "is not a valid file name on every system"),
    "dot": (wheel(Entry(b"lib/./a.py")), "is not a valid file name on every system"),
    "empty part": (wheel(Entry(b"lib//a.py")), "is not a valid file name on every system"),
    "empty": (wheel(Entry(b"")), "is not a valid file name on every system"),
    "long": (wheel(Entry(b"lib/" + b"a" * 300)), "is not a valid file name on every system"),
    "not UTF-8": (wheel(Entry("lib/ü.py".encode("cp437"), flags=0)), "is not a file name in UTF-8"),
    "twice": (wheel(Entry(b"lib/other.py", X)), "is listed twice"),
    "file and folder": (wheel(Entry(b"lib/other.py/x.py")), "is both a file and a folder"),
    "folder with content": (wheel(Entry(b"lib/sub/", X, mode=stat.S_IFDIR | 0o755)), "is a folder with content"),
    "link": (wheel(Entry(b"lib/evil.py", b"/etc/passwd", mode=stat.S_IFLNK | 0o777)), "is a link or another special file"),
    "device": (wheel(Entry(b"lib/evil.py", mode=stat.S_IFCHR | 0o666)), "is a link or another special file"),
    "fifo": (wheel(Entry(b"lib/evil.py", mode=stat.S_IFIFO | 0o666)), "is a link or another special file"),
    "encrypted": (wheel(Entry(b"lib/evil.py", X, flags=0x801)), "is encrypted"),
    "strongly": (wheel(Entry(b"lib/evil.py", X, flags=0x841)), "is encrypted"),
    "bzip2": (wheel(Entry(b"lib/evil.py", X, method=12)), "by method 12"),
    "lzma": (wheel(Entry(b"lib/evil.py", X, method=14)), "by method 14"),
    "stored size": (wheel(Entry(b"lib/evil.py", X, size=99)), "has two different sizes"),
    "bomb": (wheel(Entry(b"lib/evil.py", X, packed=packed(X), method=8, size=1 << 31)), "can't hold 2147483648 bytes"),
    "more than told": (
        wheel(Entry(b"lib/evil.py", X, packed=BOMB, method=8), record=lambda t: t), "is damaged",
    ),
    "less than told": (
        wheel(Entry(b"lib/evil.py", X, packed=packed(X), method=8, size=60),
              record=lambda t: re.sub(rb"(lib/evil.py,sha256=[^,]*),6", rb"\1,60", t)),
        "has another size than the table of contents gives",
    ),
    "local name": (wheel(Entry(b"lib/evil.py", X, local={"name": b"../evil.py"})), "has two different names"),
    "local method": (wheel(Entry(b"lib/evil.py", X, local={"method": 8})), "has two different names or kinds"),
    "local flags": (wheel(Entry(b"lib/evil.py", X, local={"flags": 0x801})), "has two different names or kinds"),
    "local size": (wheel(Entry(b"lib/evil.py", X, local={"size": 5})), "has two different sizes"),
    "local checksum": (wheel(Entry(b"lib/evil.py", X, local={"data": b"y"})), "or checksum"),
    "overlap": (wheel(Entry(b"lib/evil.py", b"from", at=0)), "overlaps the member before it"),
    "nowhere": (wheel(Entry(b"lib/evil.py", b"", at=60)), "overlaps the member before it"),
    "past the end": (wheel(Entry(b"lib/evil.py", b"", at=1 << 30)), "has no header of its own"),
    "prefix": (wheel(before=b"#!/bin/sh\n"), "before its first member"),
    "comment": (wheel(comment=b"hello"), "after its table of contents"),
    "second table": (wheel(comment=wheel()), "before its first member"),
    "count": (wheel(count=3), "different numbers of members"),
    "descriptor lies": (
        wheel(Entry(b"lib/evil.py", X, flags=0x808, after=struct.pack("<4s3I", b"PK\7\10", 1, 6, 6))),
        "has two different sizes",
    ),
    "zip64 lies": (
        wheel(Entry(b"lib/evil.py", X, local={"size": 0xFFFFFFFF, "extra": struct.pack("<2H2Q", 1, 16, 1 << 40, 6)})),
        "has two different sizes",
    ),
    "no RECORD": (wheel().replace(INFO.encode() + b"/RECORD", INFO.encode() + b"/RECORX"), "has no lib-1.0.dist-info/RECORD"),
    "not in RECORD": (wheel(Entry(b"lib/evil.py", X), record=lambda t: t.replace(line(b"lib/evil.py", X), b"")), "is not in RECORD"),
    "only in RECORD": (wheel(record=lambda t: t + line(b"lib/none.py", b"")), "is in RECORD and not in the wheel"),
    "outside in RECORD": (wheel(record=lambda t: t + line(b"../../etc/passwd", b"")), "is in RECORD and not in the wheel"),
    "RECORD twice": (wheel(record=lambda t: t + line(b"lib/other.py", b"")), "is in RECORD twice"),
    "other hash": (wheel(record=lambda t: t.replace(line(b"lib/other.py", b"x = 1\n"), line(b"lib/other.py", X))), "differs from RECORD"),
    "other size": (wheel(record=lambda t: t.replace(b",6\n", b",7\n")), "has another size in RECORD"),
    "no hash": (wheel(record=lambda t: re.sub(rb"(lib/other.py),[^,]*", rb"\1,", t)), "has no SHA-2 in RECORD"),
    "weak hash": (wheel(record=lambda t: re.sub(rb"(lib/other.py),[^,]*", rb"\1,md5=AAAAAAAAAAAAAAAAAAAAAA", t)), "has no SHA-2"),
    "RECORD is junk": (wheel(record=lambda t: b'a,"b\n\0'), "is damaged"),
    "RECORD is no text": (wheel(record=lambda t: b"\xff\xfe"), "is not UTF-8"),
    "other name": (wheel(metadata=METADATA.replace(b"Name: lib", b"Name: evil")), "another distribution or version"),
    "other version": (wheel(metadata=METADATA.replace(b"1.0\n", b"9.0\n")), "another distribution or version"),
    "other folder": (wheel(info="evil-1.0.dist-info"), "another distribution or version"),
    "two names": (wheel(metadata=b"Name: lib\n" + METADATA), "doesn't give one name"),
    "no version": (wheel(metadata=b"Name: lib\n\n"), "doesn't give one name"),
    "no real version": (wheel(metadata=METADATA.replace(b"1.0\n", b"\x1b[31m\n")), "nvalid version"),
    "METADATA is no text": (wheel(metadata=b"\xff"), "is not UTF-8"),
    "two dist-infos": (wheel(Entry(b"x-1.dist-info/METADATA", METADATA)), "no single .dist-info"),
    "no zip": (b"no zip", "is damaged"),
    "cut": (wheel()[:-30], "is damaged"),
    "nothing": (b"", "is damaged"),
}  # fmt: skip


@pytest.fixture(scope="session")
def overlaid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A project whose lib is an overlay over a release wheel in an index; the wheel's name, and its hash."""
    root = tmp_path_factory.mktemp("wheels")
    with pytest.MonkeyPatch.context() as patch:
        (root / "home").mkdir()
        (root / "home" / ".gitconfig").write_text("[user]\n\tname = T\n\temail = t@example.org\n")
        patch.setenv("HOME", str(root / "home"))
        patch.setenv("PATCHQ_CACHE", str(root / "cache"))
        patch.setenv("PIP_NO_INDEX", "1")
        patchq = Patchq(root / "project")
        assert CliRunner().invoke(cli, ["init", str(patchq.root)]).exit_code == 0
        make_pair(patchq, root, patch)
        from patchq.sources.index import pip_settings

        pip_settings.cache_clear()
    made = next((root / "index").glob("*.whl"))
    return root, made.name, hashlib.sha256(made.read_bytes()).hexdigest()


def with_release(overlaid: tuple[Path, str, str], tmp_path: Path, data: bytes, patch: pytest.MonkeyPatch) -> Patchq:
    """That project with another release wheel in the lock and in the index."""
    root, name, sha256 = overlaid
    patchq = Patchq(tmp_path / "project")
    shutil.copytree(root / "project", patchq.root, symlinks=True)
    text = patchq.layout.lock.read_text()
    assert sha256 in text
    patchq.layout.lock.write_text(text.replace(sha256, hashlib.sha256(data).hexdigest()))
    folder = tmp_path / "index"
    folder.mkdir()
    (folder / name).write_bytes(data)
    patch.setenv("PIP_FIND_LINKS", str(folder))
    from patchq.sources.index import pip_settings

    pip_settings.cache_clear()
    return patchq


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_wheel_is_refused(attack: str, tmp_path: Path) -> None:
    data, said = ATTACKS[attack]
    path = tmp_path / "lib-1.0-py3-none-any.whl"
    path.write_bytes(data)
    with pytest.raises(BuildError, match=re.escape(said)) as caught:
        inspect_wheel(path).check()
    assert caught.value.message.isprintable()
    assert caught.value.hint


@pytest.mark.parametrize("limit", ["MAX_READ", "MAX_TOTAL", "MAX_MEMBERS"])
def test_a_wheel_that_overwhelms_is_refused(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lib-1.0-py3-none-any.whl"
    path.write_bytes(wheel())
    inspect_wheel(path)
    monkeypatch.setattr(contents, limit, 3)
    with pytest.raises(BuildError, match=r"the limit is|larger than any wheel"):
        inspect_wheel(path)


@pytest.mark.parametrize("attack", ["parent", "link", "bomb", "other hash", "overlap", "cut", "more than told"])
def test_build_writes_nothing_of_it(
    attack: str, overlaid: tuple[Path, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, said = ATTACKS[attack]
    patchq = with_release(overlaid, tmp_path, data, monkeypatch)
    before = patchq.snapshot()
    told = " ".join(patchq.fails(5, "build", "lib").split())
    assert said in told
    assert patchq.snapshot() == before
    assert not patchq.layout.dist.exists() or not list(patchq.layout.dist.rglob("*.whl"))
    assert not list(tmp_path.rglob("evil.py"))
    again = " ".join(patchq.fails(5, "build", "lib").split())
    assert said in again, "what was refused once is refused again"


def test_a_wheel_in_plain_order_is_taken(
    overlaid: tuple[Path, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deflated members, data descriptors of both widths, folders, names in UTF-8: what real wheels have."""
    crc = zlib.crc32(X)
    data = wheel(
        Entry(b"lib/sub/", mode=stat.S_IFDIR | 0o755),
        Entry(b"lib/sub/deflated.py", X, packed=packed(X), method=8),
        Entry("lib/sub/ü.py".encode(), X),
        Entry(b"lib/streamed.py", X, flags=0x808, after=struct.pack("<4s3I", b"PK\7\10", crc, 6, 6)),
        Entry(b"lib/unsigned.py", X, flags=0x808, after=struct.pack("<3I", crc, 6, 6)),
        Entry(b"lib/wide.py", X, flags=0x808, extra=struct.pack("<2H2Q", 1, 16, 0, 0),
              after=struct.pack("<4sI2Q", b"PK\7\10", crc, 6, 6)),
    )  # fmt: skip
    patchq = with_release(overlaid, tmp_path, data, monkeypatch)
    patchq.ok("build", "lib")
    made = inspect_wheel(next((patchq.layout.dist / "default").glob("lib-*.whl")))
    made.check()
    names = ["lib/sub/deflated.py", "lib/sub/ü.py", "lib/streamed.py", "lib/unsigned.py", "lib/wide.py"]
    assert made.read(names) == dict.fromkeys(names, X)


def test_random_damage_is_refused_or_harmless(tmp_path: Path) -> None:
    """A bit, a cut, or bytes put in: in words, or the wheel is whole."""
    import random

    chance = random.Random(19)
    good = wheel(Entry(b"lib/more.py", X, packed=packed(X), method=8))
    path = tmp_path / "lib-1.0-py3-none-any.whl"
    refused = 0
    for _ in range(400):
        data = bytearray(good)
        at = chance.randrange(len(data))
        how = chance.randrange(3)
        if how == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif how == 1:
            del data[at : at + chance.randrange(1, 40)]
        else:
            data[at:at] = chance.randbytes(chance.randrange(1, 40))
        path.write_bytes(data)
        try:
            info = inspect_wheel(path)
            info.check()
        except BuildError:
            refused += 1
        else:
            assert info.read(["lib/more.py", "lib/other.py"]) == {"lib/more.py": X, "lib/other.py": b"x = 1\n"}
    assert refused > 300
