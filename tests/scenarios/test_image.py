"""`verify-image`: the right image is accepted from whatever it is kept in, and each wrong one is refused."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import io
import json
import lzma
import random
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from kit import Patchq, edit
from patchq.environment.image import read_image
from patchq.errors import UserError
from test_build import built, pair  # noqa: F401

SITE = "opt/venv/lib/python3.12/site-packages"
Tree = dict[str, bytes]


class Made:
    """An image as a build would make it: layers of files, labels, environment."""

    def __init__(self, patchq: Patchq, layers: list[Tree], labels: dict[str, str]) -> None:
        self.patchq, self.layers, self.labels, self.env = patchq, layers, labels, ["PATH=/opt/venv/bin"]

    @property
    def site(self) -> Tree:
        return self.layers[1]

    def blobs(self) -> tuple[dict[str, bytes], dict[str, object]]:
        layers = [gzip.compress(archive(layer), mtime=0) for layer in self.layers]
        config = json.dumps({"config": {"Labels": self.labels, "Env": self.env}}).encode()
        listed = [{"digest": f"sha256:{sha(layer)}", "size": len(layer)} for layer in layers]
        manifest = {"schemaVersion": 2, "config": {"digest": f"sha256:{sha(config)}"}, "layers": listed}
        return {sha(b): b for b in [*layers, config]}, manifest

    def layout(self, folder: Path) -> Path:
        blobs, manifest = self.blobs()
        body = json.dumps(manifest).encode()
        blobs[sha(body)] = body
        index = {"manifests": [
            {"digest": f"sha256:{sha(body)}", "platform": {"architecture": "amd64", "os": "linux"}},
            {"digest": f"sha256:{sha(b'x')}", "platform": {"architecture": "unknown"}},
        ]}  # fmt: skip
        (folder / "blobs" / "sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        (folder / "index.json").write_text(json.dumps(index))
        for name, data in blobs.items():
            (folder / "blobs" / "sha256" / name).write_bytes(data)
        return folder

    def oci_archive(self, path: Path) -> Path:
        folder = self.layout(path.with_suffix(".d"))
        with tarfile.open(path, "w") as out:
            out.add(folder, arcname=".")
        return path

    def saved(self, path: Path) -> Path:
        """As `docker save` wrote it before it wrote OCI layouts."""
        files = {f"{n}/layer.tar": archive(layer) for n, layer in enumerate(self.layers)}
        files["c.json"] = json.dumps({"config": {"Labels": self.labels, "Env": self.env}}).encode()
        listed = [{"Config": "c.json", "Layers": [f"{n}/layer.tar" for n in range(len(self.layers))]}]
        path.write_bytes(archive({**files, "manifest.json": json.dumps(listed).encode()}))
        return path

    def root(self, folder: Path) -> Path:
        for layer in self.layers:
            for name, data in layer.items():
                if not Path(name).name.startswith(".wh."):
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    (folder / name).write_bytes(data)
        return folder

    def refused(self, folder: Path) -> str:
        path = self.saved(folder / "image.tar")
        return " ".join(self.patchq.fails(1, "verify-image", str(path)).split())


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def archive(files: Tree) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            item = tarfile.TarInfo(name)
            item.size = len(data)
            tar.addfile(item, io.BytesIO(data))
    return out.getvalue()


def installed(site: Path) -> Tree:
    return {f"{SITE}/{p.relative_to(site).as_posix()}": p.read_bytes() for p in site.rglob("*") if p.is_file()}


#: What pip installed, by the wheels' contents: it takes a second, and does the same each time.
_INSTALLED: dict[tuple[str, ...], Tree] = {}


def install(wheels: list[Path], site: Path) -> Tree:
    which = tuple(f"{wheel.name} {sha(wheel.read_bytes())}" for wheel in wheels)
    if which not in _INSTALLED:
        _INSTALLED[which] = install_anew(wheels, site)
    return dict(_INSTALLED[which])


def install_anew(wheels: list[Path], site: Path) -> Tree:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-compile",
        "--no-index",
        "--target",
        str(site),
    ]
    subprocess.run([*pip, *map(str, wheels)], check=True, capture_output=True)
    return installed(site)


@pytest.fixture
def image(pair: Patchq, tmp_path: Path) -> Made:  # noqa: F811
    """The image of `pair`, with the labels that compose writes and the files that it copies."""
    text = pair.layout.lock.read_text()
    pair.layout.lock.write_text(text + '\n[environments.default]\nimage = "base:1"\n')
    wheels = built(pair)
    pair.ok("compose")
    dockerfile = (pair.root / "deploy" / "Dockerfile").read_text()
    (line,) = re.findall(r"^LABEL (.*)$", dockerfile, re.MULTILINE)
    labels = dict(word.split("=", 1) for word in line.split())
    labels = {k: v.strip("'\"") for k, v in labels.items()}
    folder = pair.layout.dist / "default"
    copied = {f"usr/share/patchq/{n}": (folder / n).read_bytes() for n in ("provenance.json", "patchq.cdx.json")}
    site = install(list(wheels.values()), tmp_path / "site")
    return Made(pair, [{"etc/os-release": b"x\n"}, site, copied], labels)


KEPT_IN: list[Callable[[Made, Path], Path]] = [
    lambda made, folder: made.saved(folder / "i.tar"),
    lambda made, folder: made.oci_archive(folder / "i.oci"),
    lambda made, folder: made.layout(folder / "layout"),
    lambda made, folder: made.root(folder / "root"),
]


@pytest.mark.parametrize("how", KEPT_IN, ids=["docker save", "oci archive", "oci layout", "file system"])
def test_the_right_image_is_accepted(image: Made, tmp_path: Path, how: Callable[[Made, Path], Path]) -> None:
    path = how(image, tmp_path)
    said = image.patchq.ok("verify-image", str(path))
    assert f"{path.name} is what upstream.lock says" in said
    assert "lib 1.0+patchq." in said
    assert "app 1.0+patchq." in said
    told = json.loads(image.patchq.ok("verify-image", str(path), "--json"))
    assert (told["ok"], told["problems"]) == (True, [])


def test_upstreams_wheel_is_refused(image: Made, tmp_path: Path) -> None:
    for name in [n for n in image.site if f"{SITE}/lib" in n]:
        del image.site[name]
    image.site.update(install([next((tmp_path / "index").glob("lib-*.whl"))], tmp_path / "stock"))
    assert "lib 1.0 is upstream's: it has no manifest" in image.refused(tmp_path)


def test_an_older_stack_is_refused(image: Made, tmp_path: Path) -> None:
    edit(image.patchq.tree("app") / "app" / "other.py", 1, b"x = 2\n")
    image.patchq.ok("new", "app", "more", "-m", "More\n\nWhy.")
    built(image.patchq)
    said = image.refused(tmp_path)
    assert re.search(r"lib 1\.0\+patchq\.\w+ is of stack \w{8}, not of \w{8}", said)
    assert "its label patchq.stack is" in said
    # Labels can be forged; what they are stuck on can't.
    parts = json.loads((image.patchq.layout.dist / "default" / "provenance.json").read_bytes())["predicate"]
    image.labels["patchq.stack"] = parts["buildDefinition"]["externalParameters"]["stackId"]
    said = image.refused(tmp_path)
    assert "its label" not in said
    assert "is of stack" in said
    assert "attestation is another one" in said


def test_a_changed_file_is_refused_whatever_record_says(image: Made, tmp_path: Path) -> None:
    name = f"{SITE}/lib/other.py"
    good, image.site[name] = image.site[name], b"x = 3\n"
    assert "lib: lib/other.py isn't as it was built" in image.refused(tmp_path)
    record = next(n for n in image.site if "/lib-1.0+" in n and n.endswith("RECORD"))
    from patchq.build.wheel import record_line

    old, new = (",".join(record_line("lib/other.py", d)).encode() for d in (good, b"x = 3\n"))
    assert old in image.site[record]
    image.site[record] = image.site[record].replace(old, new)
    assert "lib: lib/other.py isn't as it was built" in image.refused(tmp_path)
    image.site[name] = good
    image.layers.append({f"{SITE}/lib/.wh.other.py": b""})
    assert "lib: lib/other.py isn't as it was built" in image.refused(tmp_path), "taken away by a later layer"
    image.layers[-1] = {f"{SITE}/lib/more.py": b"import os\n"}
    assert "lib: lib/more.py was added" in image.refused(tmp_path)
    image.layers[-1] = {f"{SITE}/lib/.wh..wh..opq": b""}
    assert "lib 1.0+patchq." in image.refused(tmp_path)
    assert "is upstream's: it has no manifest" in image.refused(tmp_path), "emptied by a later layer"


@pytest.mark.parametrize("label", ["patchq.stack", "patchq.lock", "patchq.set"])
def test_a_forged_label_is_refused(image: Made, tmp_path: Path, label: str) -> None:
    image.labels[label] = "0" * 64
    assert f"its label {label} is 000000" in image.refused(tmp_path)
    del image.labels[label]
    assert f"its label {label} is missing" in image.refused(tmp_path)


def test_a_missing_or_other_attestation_is_refused(image: Made, tmp_path: Path) -> None:
    body = image.layers[2].pop("usr/share/patchq/provenance.json")
    assert "it has no attestation" in image.refused(tmp_path)
    other = json.loads(body)
    other["subject"] = []
    image.layers[2]["usr/share/patchq/provenance.json"] = json.dumps(other).encode()
    assert "its attestation is another one" in image.refused(tmp_path)
    image.layers[2]["usr/share/patchq/provenance.json"] = b"["
    assert "its attestation can't be read" in image.refused(tmp_path)
    image.layers[2] = {"usr/share/patchq/provenance.json": body}
    assert "it has no bill of materials" in image.refused(tmp_path)


def test_what_stands_in_front_is_refused(image: Made, tmp_path: Path) -> None:
    image.env.append("PYTHONPATH=/elsewhere")
    image.layers.append({f"{SITE}/x.pth": b"import os\n", "usr/lib/python3/dist-packages/lib/__init__.py": b""})
    said = image.refused(tmp_path)
    assert "PYTHONPATH is set to /elsewhere" in said
    assert f"{SITE}/x.pth runs at each start" in said
    assert "lib is in it 2 times" in said


def test_a_blob_that_is_not_its_digest_is_refused(image: Made, tmp_path: Path) -> None:
    folder = image.layout(tmp_path / "layout")
    for path in (folder / "blobs" / "sha256").iterdir():
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            path.write_bytes(gzip.compress(gzip.decompress(data) + b"\0" * 512, mtime=0))
    assert "isn't what its digest says" in image.patchq.fails(1, "verify-image", str(folder))


def test_what_is_no_image_is_told(image: Made, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"no archive")
    assert "can't be read as an image" in image.patchq.fails(1, "verify-image", str(tmp_path / "x.tar"))
    (tmp_path / "y.tar").write_bytes(archive({"manifest.json": b"[{}]"}))
    assert "can't be read as an image: lacks" in image.patchq.fails(1, "verify-image", str(tmp_path / "y.tar"))
    (tmp_path / "empty").mkdir()
    said = image.patchq.fails(1, "verify-image", str(tmp_path / "empty"))
    assert "lib is not in it" in said
    shutil.rmtree(image.patchq.layout.dist / "default")
    assert "has no wheels to compare with" in image.patchq.fails(1, "verify-image", str(tmp_path / "empty"))


def test_the_statement_is_one_that_in_totos_own_library_takes(image: Made) -> None:
    from google.protobuf.json_format import ParseDict
    from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
    from in_toto_attestation.v1 import statement_pb2
    from in_toto_attestation.v1.statement import Statement

    folder = image.patchq.layout.dist / "default"
    body = json.loads((folder / "provenance.json").read_bytes())
    # Strictly: a field that in-toto or SLSA doesn't know is an error.
    Statement.copy_from_pb(ParseDict(body, statement_pb2.Statement())).validate()
    ParseDict(body["predicate"], provenance_pb2.Provenance())
    assert body["_type"] == "https://in-toto.io/Statement/v1"
    assert body["predicateType"] == "https://slsa.dev/provenance/v1"
    assert {s["name"]: s["digest"]["sha256"] for s in body["subject"]} == {
        p.name: sha(p.read_bytes()) for p in folder.glob("*.whl")
    }
    definition = body["predicate"]["buildDefinition"]
    patches = [d for d in definition["resolvedDependencies"] if d["uri"].endswith(".patch")]
    assert len(patches) == 2
    assert all(sha((image.patchq.root / d["uri"]).read_bytes()) == d["digest"]["sha256"] for d in patches)


def test_a_patch_that_mends_a_cve_is_a_vex_statement(pair: Patchq) -> None:  # noqa: F811
    edit(pair.tree("lib") / "lib" / "other.py", 1, b"x = 2\n")
    pair.ok("new", "lib", "mend", "-m", "Mend it\n\nWhy.\n\nCVE: CVE-2026-12345")
    built(pair)
    text = (pair.layout.dist / "default" / "patchq.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    (found,) = document["vulnerabilities"]
    assert found["id"] == "CVE-2026-12345"
    assert found["analysis"]["state"] == "resolved_with_pedigree"
    (component,) = [c for c in document["components"] if c["name"] == "lib"]
    assert found["affects"] == [{"ref": component["bom-ref"]}]
    edit(pair.tree("lib") / "lib" / "other.py", 1, b"x = 3\n")
    pair.ok("new", "lib", "wrong", "-m", "Wrong\n\nWhy.\n\nCVE: soon")
    assert "CVE: soon is no number of one" in pair.run("check").output


def link(name: str, target: str) -> bytes:
    """A layer of a link alone."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        item = tarfile.TarInfo(name)
        item.type, item.linkname = tarfile.SYMTYPE, target
        tar.addfile(item)
    return out.getvalue()


def with_layers(made: Made, path: Path, *layers: bytes) -> Path:
    """The image, with layers more, as `docker save` writes it."""
    every = [*(archive(layer) for layer in made.layers), *layers]
    files = {f"{n}/layer.tar": layer for n, layer in enumerate(every)}
    files["c.json"] = json.dumps({"config": {"Labels": made.labels, "Env": made.env}}).encode()
    listed = [{"Config": "c.json", "Layers": list(files)[:-1]}]
    path.write_bytes(archive({**files, "manifest.json": json.dumps(listed).encode()}))
    return path


def test_what_is_written_through_a_link_is_seen(image: Made, tmp_path: Path) -> None:
    """Whoever unpacks an image follows the links of its folders: what is put below one lies where it leads."""
    code = next(name for name in image.site if name.endswith("/__init__.py"))
    layers = link("tmp/far", f"/{SITE}"), archive({f"tmp/far{code.removeprefix(SITE)}": b"import evil\n"})
    path = with_layers(image, tmp_path / "i.tar", *layers)
    assert "isn't as it was built" in image.patchq.fails(1, "verify-image", str(path))


def test_links_in_plain_order_are_taken(image: Made, tmp_path: Path) -> None:
    """As systems have them: /lib64 is /lib, and what is put into the one is in the other."""
    layers = link(SITE.split("/")[0] + "64", SITE.split("/")[0]), archive({SITE.split("/")[0] + "64/x": b"x\n"})
    image.patchq.ok("verify-image", str(with_layers(image, tmp_path / "i.tar", *layers)))


@pytest.mark.parametrize("how", ["site", "package", "module"])
def test_a_good_copy_elsewhere_proves_nothing(image: Made, tmp_path: Path, how: str) -> None:
    """The packages as they were built lie where no Python looks; where it looks, there is something else."""
    package = next(name for name in image.site if name.endswith("/_patchq.json")).split("/")[-2]
    image.layers = [{n.replace(SITE, "opt/copy/site-packages"): d for n, d in x.items()} for x in image.layers]
    layer = {
        "site": link(SITE, "/opt/evil"),
        "package": link(f"{SITE}/{package}", "/opt/evil"),
        "module": archive({f"{SITE}/{package}.py": b"evil\n"}),
    }[how]
    image.patchq.fails(1, "verify-image", str(with_layers(image, tmp_path / "i.tar", layer)))


def test_damage_of_any_kind_is_told(image: Made, tmp_path: Path) -> None:
    """No traceback, and no memory for what only says that it is large."""
    whole = image.oci_archive(tmp_path / "i.oci").read_bytes()
    deep = tmp_path / "deep.tar"
    deep.write_bytes(archive({"manifest.json": b"[" * 200_000}))
    pax = tarfile.TarInfo("x")
    pax.type, pax.size = tarfile.XHDTYPE, 4 << 30
    large = tmp_path / "large.tar"
    large.write_bytes(pax.tobuf(tarfile.USTAR_FORMAT) + bytes(1024))
    long = with_layers(image, tmp_path / "long.tar", archive({"a/" * 9000 + "a": b""}))
    circle = with_layers(image, tmp_path / "circle.tar", link("a", "/a/b"), archive({"a/c": b""}))
    for path in (deep, large, long, circle):
        assert "can't be read as an image" in " ".join(image.patchq.fails(1, "verify-image", str(path)).split())
    chance = random.Random(1)
    for suffix, pack in (("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)):
        data = pack(whole)
        for _ in range(12):
            at = chance.randrange(len(data))
            path = tmp_path / f"damaged.tar.{suffix}"
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
            with contextlib.suppress(UserError):
                read_image(path, lambda _: True, lambda _: True)


@pytest.mark.parametrize("how", ["root", "layer"])
def test_links_to_site_packages_that_go_in_a_circle(image: Made, tmp_path: Path, how: str) -> None:
    """Nobody can say where Python would look: that is said, and isn't a fault of patchq's."""
    other = f"opt/other/{Path(SITE).name}"
    if how == "root":
        root = image.root(tmp_path / "root")
        (root / other).parent.mkdir()
        (root / other).symlink_to("../back")
        (root / "opt" / "back").symlink_to(f"/{other}")
        path = root
    else:
        path = with_layers(image, tmp_path / "i.tar", link(other, "../back"), link("opt/back", f"/{other}"))
    said = " ".join(image.patchq.fails(1, "verify-image", str(path)).split())
    assert f"{other} is a link to ../back" in said


@pytest.mark.parametrize("text", [b"x" * 200_000 + b",,\n", b'"' + b"x" * 200_000, b"a\0b,,\n", b"a\rb,,\n"])
def test_a_record_that_is_none(image: Made, tmp_path: Path, text: bytes) -> None:
    (record,) = [name for name in image.site if name.endswith("RECORD") and "lib" in name.rpartition("/")[0]][:1]
    image.site[record] = text
    assert "error: " not in image.refused(tmp_path)
