"""Bundles that name more than a project, say two things, or overwhelm whoever opens them."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable
from typing import Any

import pytest

from harness import Case, World
from tars import member, tar, tricks

Members = dict[str, bytes]
APPLY = ("--project {out}/site apply --from-bundle {inputs}/evil.bundle", "--project {out}/site status",
         "apply --from-bundle {inputs}/evil.bundle", "status")  # fmt: skip
X = b"x"


def good(world: World) -> Members:
    with tarfile.open(world.inputs / "good.bundle") as file:
        return {one.name: file.extractfile(one).read() for one in file}  # type: ignore[union-attr]


def named(members: Members) -> Members:
    """Have the manifest name each member as it is: whoever makes a bundle can do that."""
    manifest = json.loads(members["bundle.json"])
    files = {
        name: [len(data), hashlib.sha256(data).hexdigest()] for name, data in members.items() if name != "bundle.json"
    }
    return {**members, "bundle.json": json.dumps({**manifest, "files": files}).encode()}


def written(world: World, members: Members) -> None:
    world.write(world.inputs / "evil.bundle", tar(member(name, data) for name, data in members.items()))


def adds(*names: str, data: bytes = X) -> Callable[[World], None]:
    """A bundle with more members, all of them named by its manifest."""
    return lambda world: written(world, named({**good(world), **{name.format(**world.places): data for name in names}}))


def says(**fields: Any) -> Callable[[World], None]:
    """A bundle whose manifest has other fields."""

    def make(world: World) -> None:
        members = good(world)
        members["bundle.json"] = json.dumps({**json.loads(members["bundle.json"]), **fields}).encode()
        written(world, members)

    return make


def manifest(data: bytes) -> Callable[[World], None]:
    return lambda world: written(world, {**good(world), "bundle.json": data})


def changes(name: str, change: Callable[[bytes], bytes], honest: bool = True) -> Callable[[World], None]:
    """A bundle in which a member is another; an honest one has its size and hash."""

    def make(world: World) -> None:
        members = good(world)
        members[name] = change(members[name])
        written(world, named(members) if honest else members)

    return make


def tricky(name: str) -> Callable[[World], None]:
    """A bundle with what may be wrong with any archive; its manifest names what it can."""

    def make(world: World) -> None:
        members = good(world)
        trick = tricks("project/patches/up/v1", str(world.outside), world.mark_code("bundle"))[name]
        more = {info.name: data for info, data in trick.more if "\udcff" not in info.name}
        listed = named({**members, **more})["bundle.json"] if len(more) < 100 else members["bundle.json"]
        data = tar(
            [
                member("bundle.json", listed),
                *(member(n, d) for n, d in members.items() if n != "bundle.json"),
                *trick.more,
            ]
        )
        if trick.whole:
            data = trick.whole(data)
        packed = trick.pack(data) if name.startswith(("gzip", "xz", "bzip2", "bomb", "rubbish")) else data
        world.write(world.inputs / "evil.bundle", packed)

    return make


#: What a bundle may not bring, or not there.
PLACES = {
    "climbs": ("project/../../evil",), "absolute": ("{outside}/evil",), "project is a file": ("project",), "private": ("project/.patchq/store.git/config",),
    "journal": ("project/.patchq/journal/pending.json",), "git": ("project/.git/config",), "hooks": ("project/.git/hooks/post-checkout",),
    "git in capitals": ("project/.GIT/config",), "workflow": ("project/.github/workflows/x.yml",), "conftest": ("project/conftest.py",),
    "tests' conftest": ("project/tests/conftest.py",), "git in patches": ("project/patches/.git/config",), "git in proofs": ("project/tests/stacks/.git/config",),
    "private in patches": ("project/patches/.patchq/x",), "settings": ("project/pyproject.toml",), "action": ("project/action.yml",),
    "ignore": ("project/.gitignore",), "attributes": ("project/.gitattributes",), "deploy": ("project/deploy/Dockerfile",), "dist": ("project/dist/default/x.whl",),
    "file and folder": ("project/patches/up/v1/x", "project/patches/up/v1/x/y"), "file over folder": ("project/patches/up",),
    "folder over file": ("project/upstream.lock/x",), "names by case": ("project/patches/up/v1/FIRST.patch",), "names by accents": ("project/patches/caf\u00e9", "project/patches/cafe\u0301"),
    "control characters": ("project/patches/\x1b]0;x\x07",), "newline": ("project/patches/a\nb",), "turned": ("project/patches/\u202ex",), "NUL": ("project/patches/a\0b",),
    "long name": ("project/patches/" + "a" * 300,), "long path": ("project/patches/" + "a/" * 2100 + "x",), "deep path": ("project/patches/" + "a/" * 50_000 + "x",),
    "dots": ("project/patches/./x",), "empty parts": ("project/patches//x",), "blanks": ("project/patches/ ",), "pack elsewhere": ("packs/../../evil.pack",),
    "pack of nobody": ("packs/other.pack",), "archive elsewhere": ("archives/../../../evil",), "archive of another hash": ("archives/" + "0" * 64 + "/x",),
    "archive of a path": ("archives/{root}/x",), "wheel elsewhere": ("wheels/../../../evil.whl",), "kind of nobody": ("other/x",), "device names": ("project/patches/CON", "project/patches/aux.patch"),
    "backslashes": ("project\\..\\..\\evil",), "proof": ("project/tests/stacks/test_evil.py",), "kernels": ("project/kernels/../../evil.toml",),
    "lock twice": ("./project/upstream.lock",), "manifest twice": ("./bundle.json",), "journal of a link": ("project/patches/../.patchq/lock",),
}  # fmt: skip
LOCK = "project/upstream.lock"
FIELDS: dict[str, dict[str, Any]] = {
    "version of tomorrow": {"version": 999}, "version of text": {"version": "1"}, "no set": {"set": None}, "set of controls": {"set": "\x1b[31m"}, "set outside": {"set": "../../evil"},
    "files is a list": {"files": []}, "file is a text": {"files": {LOCK: "x"}}, "sizes below nothing": {"files": {LOCK: [-1, "0" * 64]}}, "sizes above all": {"files": {LOCK: [10**30, "0" * 64]}},
    "hash of nothing": {"files": {LOCK: [1, ""]}}, "hash of a list": {"files": {LOCK: [1, []]}}, "many files": {"files": {f"project/patches/{n}": [0, "0" * 64] for n in range(20_000)}},
    "pins is a table": {"pins": {}}, "pin of another": {"pins": [{"upstream": "other", "ref": "v1", "source": "git", "commit": "0" * 40}]},
    "pin outside": {"pins": [{"upstream": "../../x", "ref": "v1", "source": "git", "commit": "0" * 40}]}, "pin is an option": {"pins": [{"upstream": "up", "ref": "--all", "source": "git", "commit": "--output=x"}]},
    "pin of another source": {"pins": [{"upstream": "up", "ref": "v1", "source": "ext::sh", "commit": "0" * 40}]}, "pins of nothing": {"pins": [{}]}, "pins of numbers": {"pins": [1]},
    "many pins": {"pins": [{"upstream": "up", "ref": "v1", "source": "git", "commit": "0" * 40}] * 5000}, "trees is a list": {"trees": []},
    "tree is an option": {"trees": {"up": "--output=x"}}, "tree of another": {"trees": {"up": "0" * 40}}, "tree of nobody": {"trees": {"../x": "0" * 40}}, "tool of controls": {"tool": "\x1b]0;x\x07\u202e", "version": 9},
}  # fmt: skip
MANIFESTS = {
    "nothing": b"", "a list": b"[]", "a number": b"1", "deep": b"[" * 100_000, "deep tables": b'{"a":' * 100_000, "long number": b'{"version": ' + b"9" * 1_000_000 + b"}",
    "no text": b"\xff\xfe", "infinite": b'{"version": Infinity}', "twice": b'{"version": 1, "version": 2}', "large": b" " * (17 << 20), "surrogates": b'{"set": "\\ud800", "version": 1}',
    "controls": b'{"version": "\\u001b[31m"}',
}  # fmt: skip


def bomb(world: World) -> None:
    """A pack whose one object claims, and has, 64 MiB of zeros."""
    import struct
    import zlib

    size, kind = 64 << 20, 3
    head = [kind << 4 | size & 15 | 0x80]
    size >>= 4
    while size:
        head.append(size & 0x7F | (0x80 if size >> 7 else 0))
        size >>= 7
    deflate = zlib.compressobj(9)
    body = b"".join(deflate.compress(b"\0" * (1 << 20)) for _ in range(64)) + deflate.flush()
    data = b"PACK" + struct.pack(">II", 2, 1) + bytes(head) + body
    written(world, named({**good(world), "packs/up.pack": data + hashlib.sha1(data).digest()}))


EVIL_LOCK = b'\n[upstreams.evil]\nurl = "ext::sh -c x"\n'
CASES = [
    *(Case(name=f"place: {name}", make=adds(*names), verbs=APPLY) for name, names in PLACES.items()),
    *(Case(name=f"field: {name}", make=says(**fields), verbs=APPLY[:2]) for name, fields in FIELDS.items()),
    *(Case(name=f"manifest: {name}", make=manifest(data), verbs=APPLY[:1]) for name, data in MANIFESTS.items()),
    *(Case(name=f"archive: {name}", make=tricky(name), verbs=APPLY[:2]) for name in [*tricks("", "", "")][::2]
      if name.startswith(("climbs", "absolute", "dot git", "link", "through", "hard link", "device", "pipe", "twice", "file and", "names", "no ", "PAX", "GNU", "global", "size", "bomb", "gzip", "cut"))),
    Case(name="another hash", make=changes("packs/up.pack", lambda data: data[:-1] + X, honest=False), verbs=APPLY),
    Case(name="another pack", make=changes("packs/up.pack", lambda data: data[:-1] + X), verbs=APPLY),
    Case(name="no pack", make=changes("packs/up.pack", lambda _: X), verbs=APPLY),
    Case(name="pack of a count", make=changes("packs/up.pack", lambda data: data[:8] + b"\xff" * 4 + data[12:]), verbs=APPLY),
    Case(name="pack of zeros", make=bomb, verbs=APPLY[:2]),
    Case(name="lock of programs", make=changes(LOCK, lambda data: data + EVIL_LOCK), verbs=APPLY),
    Case(name="lock is none", make=changes(LOCK, lambda _: b"\0"), verbs=APPLY),
    Case(name="lock of another place", make=changes(LOCK, lambda data: data.replace(b"upstreams.up", b'upstreams."../up"')), verbs=APPLY),
    Case(name="series of another place", make=changes("project/patches/up/v1/series", lambda data: data + b"../../../outside/secret.txt\n"), verbs=APPLY),
    Case(name="series of controls", make=changes("project/patches/up/v1/series", lambda data: data + b"\x1b[31m.patch\n"), verbs=APPLY),
    Case(name="patch of nothing", make=changes("project/patches/up/v1/first.patch", lambda _: b""), verbs=APPLY),
    Case(name="patch that leaves", make=changes("project/patches/up/v1/first.patch", lambda data: data.replace(b"/a.txt", b"/../../evil")), verbs=APPLY),
    Case(name="patch of git's", make=changes("project/patches/up/v1/first.patch", lambda data: data.replace(b"/a.txt", b"/.git/config")), verbs=APPLY),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_bundle(case: Case, judged: Callable[[Case], None]) -> None:
    judged(case)


def test_the_family_is_whole() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 110
