"""Images that reach outside of what they are kept in, say two things, or overwhelm whoever reads them."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Base, Case, World
from tars import Member, member, tar, tricks, zeros

SITE = f"opt/venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
SAVED = ("verify-image {inputs}/evil.tar",)
KEPT = ("verify-image {inputs}/evil",)
LINK, HARD, FOLDER = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE
Members = dict[str, bytes]


def good(world: World) -> Members:
    with tarfile.open(world.inputs / "good.tar") as file:
        return {one.name: file.extractfile(one).read() for one in file if one.isfile()}  # type: ignore[union-attr]


def saved(world: World, members: Members, *more: Member) -> None:
    world.write(world.inputs / "evil.tar", tar([*(member(n, d) for n, d in members.items()), *more]))


def trick_in_layer(name: str) -> Callable[[World], None]:
    """What may be wrong with any archive, in the layer of the packages."""

    def make(world: World) -> None:
        members = good(world)
        trick = tricks(SITE, str(world.outside), world.mark_code("image"))[name]
        layer = members["1/layer.tar"].rstrip(b"\0")
        layer += b"\0" * (-len(layer) % 512)
        layer += tar(trick.more)
        if trick.whole:
            layer = trick.whole(layer)
        members["1/layer.tar"] = (
            trick.pack(layer) if name.startswith(("gzip", "xz", "bzip2", "bomb", "rubbish")) else layer
        )
        saved(world, members)

    return make


def trick_outside(name: str) -> Callable[[World], None]:
    """The same, in the archive that the image is kept in."""

    def make(world: World) -> None:
        trick = tricks("1", str(world.outside), world.mark_code("image"))[name]
        data = tar([*(member(n, d) for n, d in good(world).items()), *trick.more])
        if trick.whole:
            data = trick.whole(data)
        packed = trick.pack(data) if name.startswith(("gzip", "xz", "bzip2", "bomb", "rubbish")) else data
        world.write(world.inputs / "evil.tar", packed)

    return make


def layer(*more: Member) -> Callable[[World], None]:
    """One more layer on top."""

    def make(world: World) -> None:
        members = good(world)
        listed = json.loads(members["manifest.json"])
        listed[0]["Layers"].append("9/layer.tar")
        placed = [(changed(info, world), data) for info, data in more]
        saved(world, {**members, "manifest.json": json.dumps(listed).encode(), "9/layer.tar": tar(placed)})

    return make


def changed(info: tarfile.TarInfo, world: World) -> tarfile.TarInfo:
    info.linkname = info.linkname.replace("OUTSIDE", str(world.outside))
    return info


def listed(body: Any) -> Callable[[World], None]:
    """Another manifest.json of `docker save`."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda world: saved(world, {**good(world), "manifest.json": data})


def configured(body: Any) -> Callable[[World], None]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda world: saved(world, {**good(world), "c.json": data})


def layout(world: World) -> Path:
    place = world.inputs / "evil"
    shutil.copytree(world.inputs / "good", place)
    return place


def blob(place: Path, data: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    (place / "blobs" / "sha256" / digest).write_bytes(data)
    return {"digest": f"sha256:{digest}", "size": len(data)}


def manifest(place: Path) -> dict[str, Any]:
    """The image's manifest."""
    index = json.loads((place / "index.json").read_text())
    found: dict[str, Any] = json.loads((place / "blobs" / "sha256" / index["manifests"][0]["digest"][7:]).read_text())
    return found


def index(body: Any) -> Callable[[World], None]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda world: layout(world).joinpath("index.json").write_bytes(data) and None


def image(change: Callable[[Path, dict[str, Any]], object]) -> Callable[[World], None]:
    """An OCI layout whose manifest is another, with right digests."""

    def make(world: World) -> None:
        place = layout(world)
        body = manifest(place)
        change(place, body)
        told = {**blob(place, json.dumps(body).encode()), "platform": {"architecture": "amd64", "os": "linux"}}
        (place / "index.json").write_text(json.dumps({"manifests": [told]}))

    return make


def special_blob(what: Callable[[World, Path], None]) -> Callable[[World], None]:
    def make(world: World) -> None:
        place = layout(world)
        path = place / "blobs" / "sha256" / manifest(place)["layers"][0]["digest"][7:]
        path.unlink()
        what(world, path)

    return make


def special(name: str, what: Callable[[World, Path], None]) -> Callable[[World], None]:
    def make(world: World) -> None:
        path = layout(world) / name
        path.unlink(missing_ok=True)
        what(world, path)

    return make


def root(change: Callable[[World, Path], object]) -> Callable[[World], None]:
    """A root file system as a folder."""

    def make(world: World) -> None:
        place = world.inputs / "evil"
        for name, data in good(world).items():
            if name.endswith("layer.tar"):
                world.write(world.temporary / "layer.tar", data)
                with tarfile.open(world.temporary / "layer.tar") as file:
                    for one in file:
                        world.write(place / one.name, file.extractfile(one).read())  # type: ignore[union-attr]
                (world.temporary / "layer.tar").unlink()
        change(world, place)

    return make


def site_elsewhere(world: World, place: Path) -> None:
    shutil.rmtree(place / SITE)
    (place / SITE).symlink_to(world.outside)


def circular(place: Path, body: dict[str, Any]) -> None:
    """An index that leads to itself can't have a right digest; one of many indexes can."""
    told = blob(place, json.dumps(body).encode())
    for _ in range(2000):
        told = {
            **blob(place, json.dumps({"manifests": [told]}).encode()),
            "mediaType": "application/vnd.oci.image.index.v1+json",
        }
    body.clear()
    body["manifests"] = [told]


def many_times(place: Path, body: dict[str, Any]) -> None:
    body["layers"] = body["layers"] * 2000


def bomb(place: Path, body: dict[str, Any]) -> None:
    body["layers"].append(blob(place, zeros(512 << 20)))


def pax_bomb(place: Path, body: dict[str, Any]) -> None:
    body["layers"].append(blob(place, gzip.compress(tar([member("x" * 90, b"") for _ in range(1)]) * 300)))


TRICKS = tuple(tricks("", "", ""))
KINDS = {"link": lambda world, path: path.symlink_to(world.secret), "pipe": lambda _, path: os.mkfifo(path),
         "device": lambda _, path: path.symlink_to("/dev/zero"), "folder": lambda _, path: path.mkdir()}  # fmt: skip
SECRET = {"digest": "sha256:../../../../outside/secret.txt", "size": 1}
CASES = [
    *(Case(name=f"in a layer: {name}", base=Base.WHEELS, make=trick_in_layer(name), verbs=SAVED) for name in TRICKS[::2]),
    *(Case(name=f"around: {name}", base=Base.WHEELS, make=trick_outside(name), verbs=SAVED)
      for name in TRICKS[1::2] if name.startswith(("link out", "absolute", "hard link", "PAX of", "global", "size", "twice", "dev", "cut"))),
    *(Case(name=f"layer: {name}", base=Base.WHEELS, make=layer(*more), verbs=SAVED) for name, more in {
        "whiteout of all": (member(".wh..wh..opq"),), "whiteout of nothing": (member(f"{SITE}/.wh."),), "whiteout of dots": (member(f"{SITE}/.wh..."), member(f"{SITE}/.wh.../x")),
        "whiteout that climbs": (member(f"{SITE}/.wh.../../../../../etc"), member("../.wh.outside")), "whiteout as a link": (member(f"{SITE}/.wh.lib", kind=LINK, link="OUTSIDE"),),
        "whiteout and file": (member(f"{SITE}/.wh.lib"), member(f"{SITE}/lib/__init__.py", b"x")), "whiteout of a link": (member(f"{SITE}/l", kind=LINK, link="OUTSIDE"), member(f"{SITE}/l/.wh.secret.txt")),
        "site is a link out": (member(".wh.opt"), member("opt", kind=LINK, link="OUTSIDE")), "site is a link to itself": (member(SITE, kind=LINK, link="site-packages"),),
        "deep links": tuple(member(f"l{n}", kind=LINK, link=f"l{n + 1}/l{n + 1}") for n in range(60)), "long chain": tuple(member(f"l{n}", kind=LINK, link=f"l{n + 1}") for n in range(5000)),
        "links in a circle": (member("opt", kind=LINK, link="tpo"), member("tpo", kind=LINK, link="opt")), "hard links in a circle": (member(f"{SITE}/a", kind=HARD, link=f"{SITE}/b"), member(f"{SITE}/b", kind=HARD, link=f"{SITE}/a")),
        "RECORD of a gigabyte": (member(f"{SITE}/lib-1.0.dist-info/RECORD", b"x,,\n" * 2_000_000),), "RECORD of rubbish": (member(f"{SITE}/lib-1.0.dist-info/RECORD", b'"\0\xff'),),
        "METADATA of controls": (member(f"{SITE}/\x1b[31m-1.0.dist-info/METADATA", b"Name: \x1b[31m\nVersion: \x1b]0;x\x07\n"),), "manifest of brackets": (member(f"{SITE}/lib/_patchq.json", b"[" * 200_000),),
        "manifest of controls": (member(f"{SITE}/lib/_patchq.json", b'{"schema": "patchq/wheel/1", "set": "\\u001b[31m", "stack_id": "\\u202e"}'),), "provenance of brackets": (member("usr/share/patchq/provenance.json", b"[" * 200_000),),
        "provenance is a link": (member("usr/share/patchq/provenance.json", kind=LINK, link="OUTSIDE/secret.txt"),), "start-up code": (member(f"{SITE}/x.pth", b"import os; os.system('x')\n"),),
        "many distributions": tuple(member(f"{SITE}/d{n}-1.dist-info/METADATA", b"Name: d\nVersion: 1\n") for n in range(1500)), "package is a link": (member(f"{SITE}/.wh.lib"), member(f"{SITE}/lib", kind=LINK, link="OUTSIDE")),
    }.items()),
    *(Case(name=f"manifest: {name}", base=Base.WHEELS, make=listed(body), verbs=SAVED) for name, body in {
        "no list": {}, "empty": [], "numbers": [1], "no layers": [{"Config": "c.json"}], "layers of numbers": [{"Config": "c.json", "Layers": [1, None]}],
        "layer climbs": [{"Config": "c.json", "Layers": ["../outside/secret.txt"]}], "layer is absolute": [{"Config": "/etc/passwd", "Layers": ["/etc/passwd"]}],
        "config is a layer": [{"Config": "1/layer.tar", "Layers": ["c.json"]}], "layers again": [{"Config": "c.json", "Layers": ["1/layer.tar"] * 2000}], "deep": b"[" * 200_000,
        "deep tables": b'[{"a":' * 100_000, "long number": b"[" + b"9" * 100_000 + b"]", "no text": b"\xff", "tags": [{"Config": "c.json", "Layers": [], "RepoTags": ["\x1b[31m"]}], "two": [{"Config": "c.json", "Layers": []}] * 2,
        "layer of controls": [{"Config": "c.json", "Layers": ["\x1b]0;x\x07\u202e"]}],
    }.items()),
    *(Case(name=f"config: {name}", base=Base.WHEELS, make=configured(body), verbs=SAVED) for name, body in {
        "list": [], "number": 1, "config is a list": {"config": []}, "labels are a list": {"config": {"Labels": []}}, "labels of numbers": {"config": {"Labels": {"patchq.stack": 1}}},
        "labels of controls": {"config": {"Labels": {"patchq.stack": "\x1b[31m\u202e", "patchq.set": "\n::error::pwned", "patchq.lock": "\0"}}}, "variables of numbers": {"config": {"Env": [1, None, "x", "=", "A"]}},
        "variables of code": {"config": {"Env": ["PYTHONPATH=\x1b[31m", "LD_PRELOAD=/evil.so", "PYTHONSTARTUP=/x"]}}, "deep": b'{"config":' * 100_000, "no text": b"\xff\xfe", "nothing": b"",
        "many labels": {"config": {"Labels": {f"l{n}": "x" for n in range(50_000)}}},
    }.items()),
    *(Case(name=f"index: {name}", base=Base.WHEELS, make=index(body), verbs=KEPT) for name, body in {
        "list": [], "numbers": {"manifests": [1]}, "none": {"manifests": []}, "digest climbs": {"manifests": [SECRET]}, "digest is absolute": {"manifests": [{"digest": "sha256:/etc/passwd"}]},
        "digest of another kind": {"manifests": [{"digest": "md5:../x"}]}, "digest of nothing": {"manifests": [{"digest": ""}]}, "digest of a number": {"manifests": [{"digest": 1}]}, "digest is the folder": {"manifests": [{"digest": "sha256:."}]},
        "many": {"manifests": [{"digest": "sha256:" + "0" * 64, "platform": {"architecture": "amd64"}}] * 20_000}, "platform of controls": {"manifests": [{"digest": "sha256:" + "0" * 64, "platform": {"architecture": "\x1b[31m"}}] * 2},
        "platform is a list": {"manifests": [{"digest": "sha256:" + "0" * 64, "platform": []}]}, "deep": b"[" * 200_000, "no text": b"\xff", "NUL": {"manifests": [{"digest": "sha256:a\0b"}]}, "long": {"manifests": [{"digest": "sha256:" + "a" * 100_000}]},
    }.items()),
    *(Case(name=f"image: {name}", base=Base.WHEELS, make=image(change), verbs=KEPT) for name, change in {
        "config climbs": lambda _, body: body.update(config=SECRET), "layer climbs": lambda _, body: body["layers"].append(SECRET), "layers are a table": lambda _, body: body.update(layers={}),
        "layers of nothing": lambda _, body: body.update(layers=[{}]), "no config": lambda _, body: body.pop("config"), "layer elsewhere": lambda _, body: body["layers"].append({"digest": "sha256:" + "0" * 64, "size": 1, "urls": ["http://127.0.0.1:9/x"]}),
        "size lies": lambda _, body: body["layers"][0].update(size=1), "size below nothing": lambda _, body: body["layers"][0].update(size=-1), "size of text": lambda _, body: body["layers"][0].update(size="x"),
        "layers again": many_times, "indexes of indexes": circular, "bomb": bomb, "long": pax_bomb, "zstd": lambda place, body: body["layers"].append(blob(place, b"\x28\xb5\x2f\xfd" + b"\0" * 100)),
        "layer of nothing": lambda place, body: body["layers"].append(blob(place, b"")), "layer of text": lambda place, body: body["layers"].append(blob(place, b"x" * 1000)),
        "config of brackets": lambda place, body: body.update(config=blob(place, b"[" * 200_000)),
    }.items()),
    *(Case(name=f"blob is a {name}", base=Base.WHEELS, make=special_blob(what), verbs=KEPT) for name, what in KINDS.items()),
    *(Case(name=f"index is a {name}", base=Base.WHEELS, make=special("index.json", what), verbs=KEPT) for name, what in KINDS.items()),
    *(Case(name=f"layout is a {name}", base=Base.WHEELS, make=special("oci-layout", what), verbs=KEPT) for name, what in KINDS.items()),
    *(Case(name=f"root: {name}", base=Base.WHEELS, make=root(change), verbs=KEPT) for name, change in {
        "site is a link out": site_elsewhere, "file is a link out": lambda world, place: ((place / SITE / "lib/other.py").unlink(), (place / SITE / "lib/other.py").symlink_to(world.secret)),
        "file is a pipe": lambda _, place: ((place / SITE / "lib/other.py").unlink(), os.mkfifo(place / SITE / "lib/other.py")),
        "RECORD is a pipe": lambda _, place: ((place / SITE / "lib-1.0+x.dist-info").mkdir(), os.mkfifo(place / SITE / "lib-1.0+x.dist-info" / "RECORD")),
        "METADATA is a link out": lambda world, place: ((place / SITE / "x-1.dist-info").mkdir(), (place / SITE / "x-1.dist-info" / "METADATA").symlink_to(world.secret)),
        "provenance is a link out": lambda world, place: ((place / "usr/share/patchq/provenance.json").unlink(), (place / "usr/share/patchq/provenance.json").symlink_to(world.secret)),
        "provenance is a pipe": lambda _, place: ((place / "usr/share/patchq/provenance.json").unlink(), os.mkfifo(place / "usr/share/patchq/provenance.json")),
        "device": lambda _, place: (place / SITE / "lib/zero.py").symlink_to("/dev/zero"), "links in a circle": lambda _, place: (place / SITE / "l").symlink_to("l"),
        "link to the root": lambda _, place: (place / SITE / "l").symlink_to("/"), "huge file": lambda _, place: os.truncate(place / SITE / "lib/other.py", 1 << 40),
        "names of controls": lambda _, place: (place / SITE / "\x1b[31m\n.py").write_text(""), "names of bytes": lambda _, place: (place / SITE / os.fsdecode(b"\xff.py")).write_text(""),
    }.items()),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_image(case: Case, judged: Callable[[Case], None]) -> None:
    judged(case)


def test_the_family_is_whole() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 150
