"""`verify-image`: the right image is accepted from whatever it is kept in, and each wrong one is refused."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import importlib.util
import io
import json
import lzma
import marshal
import os
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
from patchq.build.wheel import record_line
from patchq.environment.image import read_image
from patchq.errors import UserError
from test_build import built, pair  # noqa: F401

VENV = "opt/venv"
SITE = "{}/lib/python{}.{}/site-packages".format(VENV, *sys.version_info[:2])
Tree = dict[str, bytes]


class Made:
    """An image as a build would make it: layers of files, labels, environment."""

    def __init__(self, patchq: Patchq, layers: list[Tree], labels: dict[str, str]) -> None:
        self.patchq, self.layers, self.labels = patchq, layers, labels
        self.env = ["PATH=/usr/local/bin:/opt/venv/bin:/usr/bin"]
        self.settings: dict[str, object] = {}

    def config(self) -> bytes:
        return json.dumps({"config": {"Labels": self.labels, "Env": self.env, **self.settings}}).encode()

    @property
    def site(self) -> Tree:
        return self.layers[1]

    def blobs(self) -> tuple[dict[str, bytes], dict[str, object]]:
        layers = [gzip.compress(archive(layer), mtime=0) for layer in self.layers]
        config = self.config()
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
        files["c.json"] = self.config()
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


def saved_images(path: Path, archs: list[str]) -> Path:
    """An archive from an older ``docker save`` of several images, each with the file ``etc/arch``."""
    files = {}
    listed = []
    for number, arch in enumerate(archs):
        files[f"{number}/layer.tar"] = archive({"etc/arch.txt": arch.encode()})
        files[f"{number}.json"] = json.dumps({"architecture": arch, "config": {}}).encode()
        listed.append({"Config": f"{number}.json", "Layers": [f"{number}/layer.tar"]})
    path.write_bytes(archive({**files, "manifest.json": json.dumps(listed).encode()}))
    return path


def test_one_of_several_saved_images_is_chosen_by_its_platform(tmp_path: Path) -> None:
    path = saved_images(tmp_path / "image.tar", ["amd64", "arm64"])
    for platform, arch in (("x86_64", b"amd64"), ("aarch64", b"arm64")):
        assert read_image(path, platform).files.read("/etc/arch.txt") == arch
    with pytest.raises(UserError, match="holds 2 images: choose one with --platform"):
        read_image(path)
    with pytest.raises(UserError, match="holds 0 images for riscv64: choose one with --platform"):
        read_image(path, "riscv64")
    path = saved_images(tmp_path / "image.tar", ["amd64", "amd64"])
    with pytest.raises(UserError, match="holds 2 images for x86_64: save only one of them"):
        read_image(path, "x86_64")


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


def installed(prefix: Path) -> Tree:
    return {f"{VENV}/{p.relative_to(prefix).as_posix()}": p.read_bytes() for p in prefix.rglob("*") if p.is_file()}


#: What pip installed, by the wheels' contents: it takes a second, and does the same each time.
_INSTALLED: dict[tuple[str, ...], Tree] = {}


def install(wheels: list[Path], site: Path) -> Tree:
    which = tuple(f"{wheel.name} {sha(wheel.read_bytes())}" for wheel in wheels)
    if which not in _INSTALLED:
        _INSTALLED[which] = install_anew(wheels, site)
    return dict(_INSTALLED[which])


def install_anew(wheels: list[Path], prefix: Path) -> Tree:
    """What pip installs into a virtual environment at /opt/venv."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-compile",
        "--no-index",
        "--ignore-installed",
    ]
    subprocess.run([*pip, "--prefix", str(prefix), *map(str, wheels)], check=True, capture_output=True)
    tree = installed(prefix)
    tree[f"{VENV}/pyvenv.cfg"] = b"home = /usr/bin\ninclude-system-site-packages = false\n"
    for name in [n for n in tree if n.startswith(f"{VENV}/bin/")]:
        script = b"#!/opt/venv/bin/python3\n" + tree[name].partition(b"\n")[2]
        forge(tree, name, script)
    return tree


def forge(site: Tree, name: str, data: bytes) -> None:
    """Put a file into the environment, and into whichever RECORD has its name."""
    row = os.path.relpath(name, SITE)
    for record in [n for n in site if n.endswith("/RECORD")]:
        lines = [x for x in site[record].decode().splitlines() if x.split(",")[0] != row]
        if len(lines) != len(site[record].decode().splitlines()):
            site[record] = "\n".join([*lines, ",".join(map(str, record_line(row, data))), ""]).encode()
    site[name] = data


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
    assert f"{path.name} matches upstream.lock" in said
    assert "lib 1.0+patchq." in said
    assert "app 1.0+patchq." in said
    told = json.loads(image.patchq.ok("verify-image", str(path), "--json"))
    assert (told["ok"], told["problems"]) == (True, [])


def test_upstreams_wheel_is_refused(image: Made, tmp_path: Path) -> None:
    for name in [n for n in image.site if f"{SITE}/lib" in n]:
        del image.site[name]
    image.site.update(install([next((tmp_path / "index").glob("lib-*.whl"))], tmp_path / "stock"))
    assert "lib, which patchq did not build" in image.refused(tmp_path)


def test_an_older_stack_is_refused(image: Made, tmp_path: Path) -> None:
    edit(image.patchq.tree("app") / "app" / "other.py", 1, b"x = 2\n")
    image.patchq.ok("new", "app", "more", "-m", "More\n\nWhy.")
    built(image.patchq)
    said = image.refused(tmp_path)
    assert re.search(r"lib 1\.0\+patchq\.\w+: was built from stack \w{8}, not from \w{8}", said)
    assert "its label patchq.stack is" in said
    # Labels can be forged; what they are stuck on can't.
    parts = json.loads((image.patchq.layout.dist / "default" / "provenance.json").read_bytes())["predicate"]
    image.labels["patchq.stack"] = parts["buildDefinition"]["externalParameters"]["stackId"]
    said = image.refused(tmp_path)
    assert "its label" not in said
    assert "was built from stack" in said
    assert "its attestation differs from the wheels" in said


def test_a_changed_file_is_refused_whatever_record_says(image: Made, tmp_path: Path) -> None:
    name = f"{SITE}/lib/other.py"
    good, image.site[name] = image.site[name], b"x = 3\n"
    assert "changed since the build: lib/other.py" in image.refused(tmp_path)
    record = next(n for n in image.site if "/lib-1.0+" in n and n.endswith("RECORD"))
    old, new = (",".join(record_line("lib/other.py", d)).encode() for d in (good, b"x = 3\n"))
    assert old in image.site[record]
    image.site[record] = image.site[record].replace(old, new)
    assert "but match RECORD, so RECORD was changed, too: lib/other.py" in image.refused(tmp_path)
    image.site[name] = good
    image.layers.append({f"{SITE}/lib/.wh.other.py": b""})
    assert "in its RECORD, but missing: lib/other.py" in image.refused(tmp_path), "taken away by a later layer"
    image.layers[-1] = {f"{SITE}/lib/more.py": b"import os\n"}
    assert "not in its RECORD, so added since the install: lib/more.py" in image.refused(tmp_path)
    image.layers[-1] = {f"{SITE}/lib/.wh..wh..opq": b""}
    assert "lib is not installed there" in image.refused(tmp_path), "emptied by a later layer"


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
    assert "its attestation differs from" in image.refused(tmp_path)
    image.layers[2]["usr/share/patchq/provenance.json"] = b"["
    assert "its attestation can't be read" in image.refused(tmp_path)
    image.layers[2] = {"usr/share/patchq/provenance.json": body}
    assert "it has no bill of materials" in image.refused(tmp_path)


def test_what_stands_in_front_is_refused(image: Made, tmp_path: Path) -> None:
    image.env.append("PYTHONPATH=/elsewhere")
    assert image.patchq.ok("verify-image", str(image.saved(tmp_path / "absent.tar"))), "it leads nowhere"
    image.layers.append({f"{SITE}/x.pth": b"import os\n", "usr/lib/python3/dist-packages/lib/__init__.py": b""})
    said = image.refused(tmp_path)
    assert f"(import os): /{SITE}/x.pth" in said
    assert "the import path contains 1 more copy: /usr/lib/python3/dist-packages/lib" in said
    image.layers[-1] = {"elsewhere/lib/__init__.py": b""}
    assert "imports come from /elsewhere/lib, which patchq did not build" in image.refused(tmp_path)
    image.layers[-1] = {"elsewhere/click/__init__.py": b"", "elsewhere/other.py": b""}
    image.patchq.ok("verify-image", str(image.saved(tmp_path / "others.tar")))


def test_a_blob_that_is_not_its_digest_is_refused(image: Made, tmp_path: Path) -> None:
    folder = image.layout(tmp_path / "layout")
    for path in (folder / "blobs" / "sha256").iterdir():
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            path.write_bytes(gzip.compress(gzip.decompress(data) + b"\0" * 512, mtime=0))
    assert "doesn't match its digest" in image.patchq.fails(1, "verify-image", str(folder))


def test_what_is_no_image_is_told(image: Made, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"no archive")
    assert "can't be read as an image" in image.patchq.fails(1, "verify-image", str(tmp_path / "x.tar"))
    (tmp_path / "y.tar").write_bytes(archive({"manifest.json": b"[{}]"}))
    assert "can't be read as an image: lacks" in image.patchq.fails(1, "verify-image", str(tmp_path / "y.tar"))
    (tmp_path / "empty").mkdir()
    said = image.patchq.fails(1, "verify-image", str(tmp_path / "empty"))
    assert "lib is not installed there" in said
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
    assert "CVE: soon is not a CVE number" in pair.run("check").output


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
    files["c.json"] = made.config()
    listed = [{"Config": "c.json", "Layers": list(files)[:-1]}]
    path.write_bytes(archive({**files, "manifest.json": json.dumps(listed).encode()}))
    return path


def test_what_is_written_through_a_link_is_seen(image: Made, tmp_path: Path) -> None:
    """Whoever unpacks an image follows the links of its folders: what is put below one lies where it leads."""
    code = next(name for name in image.site if name.endswith("/__init__.py"))
    layers = link("tmp/far", f"/{SITE}"), archive({f"tmp/far{code.removeprefix(SITE)}": b"import evil\n"})
    path = with_layers(image, tmp_path / "i.tar", *layers)
    assert "changed since the build" in image.patchq.fails(1, "verify-image", str(path))


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
                read_image(path)


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
    assert f"is a link to ../back: patchq can't determine where Python would look: /{other}" in said


@pytest.mark.parametrize("text", [b"x" * 200_000 + b",,\n", b'"' + b"x" * 200_000, b"a\0b,,\n", b"a\rb,,\n"])
def test_a_record_that_is_none(image: Made, tmp_path: Path, text: bytes) -> None:
    (record,) = [name for name in image.site if name.endswith("RECORD") and "lib" in name.rpartition("/")[0]][:1]
    image.site[record] = text
    assert "error: " not in image.refused(tmp_path)


STDLIB = SITE.replace(VENV, "usr").removesuffix("/site-packages")
TAG = "{}{}".format(*sys.version_info[:2])


def with_python(made: Made) -> None:
    """Add the Python that the virtual environment is of."""
    names = [
        "os.py",
        "json/__init__.py",
        "json/decoder.py",
        "random.py",
        "types.py",
        f"lib-dynload/_json.cpython-{TAG}.so",
    ]
    made.layers.append({f"{STDLIB}/{name}": b"# python\n" for name in names})
    made.layers.append({"usr/bin/python3": b"\x7fELF" + b"\0" * 99, f"{VENV}/bin/python3": b"\x7fELF" + b"\0" * 99})


def evil_pyc() -> bytes:
    return importlib.util.MAGIC_NUMBER + b"\0" * 12 + marshal.dumps(compile("x = 666", "x", "exec"))


#: What each tampered image has besides, and how the difference is called.
TAMPERED: dict[str, tuple[Tree, str]] = {
    "the package in the standard library": ({f"{STDLIB}/lib/__init__.py": b""}, "copies"),
    "a package in front of a module of the library": ({f"{STDLIB}/random/__init__.py": b""}, "stdlib"),
    "an extension in front of a module": ({f"{STDLIB}/types.cpython-{TAG}-x86_64-linux-gnu.so": b""}, "stdlib"),
    "an extension in front of a submodule": ({f"{STDLIB}/json/decoder.abi3.so": b""}, "stdlib"),
    "a requirement in the standard library": ({f"{STDLIB}/click/__init__.py": b""}, "stdlib"),
    "a zip file of the library": ({f"usr/lib/python{TAG}.zip": b"PK"}, ""),
    "sitecustomize": ({f"{SITE}/sitecustomize.py": b"import x\n"}, "startup-code"),
    "sitecustomize as a package": ({f"{STDLIB}/sitecustomize/__init__.py": b"import x\n"}, "startup-code"),
    "sitecustomize as a cache": ({f"{SITE}/sitecustomize.pyc": b"x"}, "startup-code"),
    "sitecustomize as an extension": ({f"{STDLIB}/sitecustomize.so": b"x"}, "startup-code"),
    "usercustomize": ({f"{SITE}/usercustomize.abi3.so": b"x"}, "startup-code"),
    "a sourceless module in the package": ({f"{SITE}/lib/more.pyc": b"x"}, "added"),
    "a sourceless package in front": ({f"{STDLIB}/lib/__init__.pyc": b"x"}, "copies"),
    "a cache that is always loaded": (
        {f"{SITE}/lib/__pycache__/other.cpython-{TAG}.pyc": importlib.util.MAGIC_NUMBER + b"\1\0\0\0" + evil_pyc()[8:]},
        "cache-forged",
    ),
    "a .pth file after a carriage return": ({f"{SITE}/x.pth": b"#\rimport x\n"}, "startup-code"),
    "a .pth file after a form feed": ({f"{SITE}/x.pth": b"#\x0cimport x\n"}, "startup-code"),
    "a .pth file with a byte order mark": ({f"{SITE}/x.pth": b"\xef\xbb\xbfimport x\n"}, "startup-code"),
    "a .pth file in another encoding": ({f"{SITE}/x.pth": b"#\x85import x\xff\n"}, "startup-code"),
    "a hidden .pth file": ({f"{SITE}/.x.pth": b"import x\n"}, "startup-code"),
    "another module behind a known line": (
        {f"{SITE}/_virtualenv.pth": b"import _virtualenv", f"{SITE}/_virtualenv.py": b"import x\n"}, "startup-code",
    ),
    "a script in front on PATH": ({"usr/local/bin/lib": b"#!/bin/sh\n"}, "script"),
    "another interpreter": ({f"{VENV}/bin/python3": b"#!/bin/sh\n"}, "interpreter"),
    "ld.so.preload": ({"etc/ld.so.preload": b"/opt/x.so\n", "opt/x.so": b""}, "library"),
    "ld.so.conf": (
        {"etc/ld.so.conf": b"include ld.so.conf.d/*.conf\n", "etc/ld.so.conf.d/a.conf": b"/opt/x\n", "opt/x/libc.so.6": b""},
        "library",
    ),
    "a plugin": (
        {f"{SITE}/evil-1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: evil\nVersion: 1\n",
         f"{SITE}/evil-1.dist-info/entry_points.txt": b"[lib.general_plugins]\nx = evil:run\n"},
        "plugin",
    ),
}  # fmt: skip


def codes(made: Made, path: Path) -> set[str]:
    told = json.loads(made.patchq.run("verify-image", str(path), "--json").output)
    assert told["ok"] == (not [d for d in told["differences"] if d["level"] == "problem"])
    return {d["code"] for d in told["differences"] if d["level"] == "problem"}


@pytest.mark.parametrize("how", TAMPERED)
def test_an_image_that_runs_other_code_is_refused(image: Made, tmp_path: Path, how: str) -> None:
    with_python(image)
    tree, code = TAMPERED[how]
    image.layers.append(tree)
    found = codes(image, image.saved(tmp_path / "image.tar"))
    assert code in found if code else not found
    root = Made(image.patchq, image.layers, {})
    assert (code in codes(root, root.root(tmp_path / "root"))) == bool(code)


SETTINGS: dict[str, tuple[dict[str, str], Tree]] = {
    "LD_PRELOAD": ({"LD_PRELOAD": "/opt/x.so"}, {"opt/x.so": b""}),
    "LD_AUDIT": ({"LD_AUDIT": "/opt/x.so"}, {"opt/x.so": b""}),
    "LD_LIBRARY_PATH": ({"LD_LIBRARY_PATH": "/opt/x"}, {"opt/x/libc.so.6": b""}),
    "LD_LIBRARY_PATH to Python's": ({"LD_LIBRARY_PATH": "/a:/opt/x"}, {"opt/x/libpython3.12.so.1.0": b""}),
    "LD_LIBRARY_PATH to the working folder": ({"LD_LIBRARY_PATH": "/a:"}, {"srv/libm.so.6": b""}),
    "PYTHONPATH": ({"PYTHONPATH": "/opt/x"}, {"opt/x/lib.py": b""}),
    "PYTHONPATH to the library's": ({"PYTHONPATH": "/opt/x"}, {"opt/x/random.py": b""}),
    "PYTHONPATH to sitecustomize": ({"PYTHONPATH": "/opt/x"}, {"opt/x/sitecustomize.py": b"import x\n"}),
    "PYTHONPATH to a plugin": (
        {"PYTHONPATH": "/opt/x"}, {"opt/x/e-1.dist-info/entry_points.txt": b"[lib.general_plugins]\nx = e:run\n"},
    ),
    "PYTHONHOME": ({"PYTHONHOME": "/opt/x"}, {f"opt/x/lib/python{TAG}/os.py": b""}),
    "PYTHONUSERBASE": (
        {"PYTHONUSERBASE": "/opt/u"}, {f"opt/u/lib/{STDLIB.rpartition('/')[2]}/site-packages/x.pth": b"import x\n"},
    ),
    "PYTHONSTARTUP": ({"PYTHONSTARTUP": "/opt/x.py"}, {"opt/x.py": b""}),
    "PYTHONBREAKPOINT": ({"PYTHONBREAKPOINT": "evil.run"}, {f"{SITE}/evil.py": b""}),
    "PYTHONWARNINGS": ({"PYTHONWARNINGS": "error::evil.W"}, {f"{SITE}/evil.py": b""}),
    "BASH_ENV": ({"BASH_ENV": "/opt/x.sh"}, {"opt/x.sh": b""}),
    "ENV": ({"ENV": "/opt/x.sh"}, {"opt/x.sh": b""}),
    "the package in the working folder": ({}, {"srv/lib/__init__.py": b""}),
    "a module of the library in the working folder": ({}, {"srv/json/__init__.py": b""}),
    "a module of the library with the script": ({}, {f"{VENV}/bin/random.py": b""}),
}  # fmt: skip


@pytest.mark.parametrize("how", SETTINGS)
def test_settings_that_lead_to_other_code_are_refused(image: Made, tmp_path: Path, how: str) -> None:
    with_python(image)
    env, tree = SETTINGS[how]
    image.env += [f"{name}={value}" for name, value in env.items()]
    image.settings["WorkingDir"] = "/srv"
    if env:
        image.patchq.ok(
            "verify-image", str(image.saved(tmp_path / "leads-nowhere.tar"))
        ) if how != "PYTHONHOME" else None
    image.layers.append(tree)
    assert codes(image, image.saved(tmp_path / "image.tar"))


def test_the_image_of_an_ordinary_cuda_base_is_accepted(image: Made, tmp_path: Path) -> None:
    with_python(image)
    image.env += [
        "LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64:/usr/local/cuda/lib64", "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_REQUIRE_CUDA=cuda>=12.9", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1", "PYTHON_VERSION=3.12.1",
        "ENV=production", "HOME=/root", "PYTHONPATH=/app",
    ]  # fmt: skip
    image.settings |= {"WorkingDir": "/app", "User": "1000:1000", "Entrypoint": ["/opt/nvidia/entrypoint.sh"]}
    hack = Path(next(p for p in sys.path if (Path(p) / "_distutils_hack").is_dir())) / "_distutils_hack" / "__init__.py"
    image.layers.append({
        "usr/local/cuda/lib64/libcudart.so.13": b"", "usr/local/cuda/lib64/libcublas.so.13": b"",
        "etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n", "etc/ld.so.conf.d/cuda.conf": b"/usr/local/cuda/lib64\n",
        "etc/ld.so.conf.d/libc.conf": b"# libc default configuration\n/usr/local/lib\n",
        "app/server.py": b"import lib\n", "app/tests/__init__.py": b"", "srv/x": b"",
        "usr/lib/python3/dist-packages/_distutils_hack/__init__.py": hack.read_bytes(),
        "usr/lib/python3/dist-packages/distutils-precedence.pth": DISTUTILS,
        f"{SITE}/google_cloud-1-nspkg.pth": NAMESPACE, f"{SITE}/__editable__.tool-1.pth": b"/app/src\n",
        f"{STDLIB}/sitecustomize.py": b"# Empty sitecustomize.py to avoid a dangling symlink\n",
    })  # fmt: skip
    assert codes(image, image.saved(tmp_path / "image.tar")) == set()


DISTUTILS = (
    b"import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local') == 'local'; "
    b"enabled and __import__('_distutils_hack').add_shim(); \n"
)
NAMESPACE = (
    b"import sys, types, os;has_mfs = sys.version_info > (3, 5);p = os.path.join(sys._getframe(1).f_locals['sitedir'], "
    b"*('google',));importlib = has_mfs and __import__('importlib.util');has_mfs and __import__('importlib.machinery');"
    b"m = has_mfs and sys.modules.setdefault('google', importlib.util.module_from_spec(importlib.machinery.PathFinder."
    b"find_spec('google', [os.path.dirname(p)])));m = m or sys.modules.setdefault('google', types.ModuleType('google'));"
    b"mp = (m or []) and m.__dict__.setdefault('__path__',[]);(p not in mp) and mp.append(p)\n"
)


def test_a_script_replaced_with_its_row_is_refused(image: Made, tmp_path: Path) -> None:
    """pip's row for the script is of a file outside of site-packages; the file is hashed, and judged by its content."""
    script = f"{VENV}/bin/lib"
    assert b"from lib import answer" in image.site[script]
    good = image.site[script]
    image.site[script] = good + b"\n"
    assert "changed" in codes(image, image.saved(tmp_path / "a.tar"))
    for body in (good + b"import x\n", good.replace(b"/opt/venv/bin/python3", b"/usr/bin/python3.1"), b"#!/bin/sh\nlib\n",
                 good.replace(b"\n", b"\n# coding: utf-7\n", 1)):  # fmt: skip
        forge(image.site, script, body)
        assert codes(image, image.saved(tmp_path / "b.tar")) == {"script"}, body


def test_what_the_lock_allows_by_name_is_a_note(image: Made, tmp_path: Path) -> None:
    text = image.patchq.layout.lock.read_text()
    image.patchq.layout.lock.write_text(text + '\n[verify]\nallow = ["x.pth", "LD_PRELOAD"]\n')
    image.env.append("LD_PRELOAD=/opt/x.so")
    image.layers.append({f"{SITE}/x.pth": b"import x\n", "opt/x.so": b""})
    found = codes(image, image.saved(tmp_path / "image.tar"))
    assert found <= {"label", "attestation-other"}, "the lock is another one now"
    image.layers.append({f"{SITE}/y.pth": b"import x\n"})
    assert "startup-code" in codes(image, image.saved(tmp_path / "image.tar"))


@pytest.mark.parametrize("table", ["allow = 3", "allow = [3]", 'allow = ["a/b"]', 'other = ["x"]', 'allow = [""]'])
def test_a_verify_table_that_is_none_is_refused(pair: Patchq, table: str) -> None:  # noqa: F811
    text = pair.layout.lock.read_text()
    pair.layout.lock.write_text(f"{text}\n[verify]\n{table}\n")
    assert "verify" in pair.fails(1, "status")


@pytest.mark.parametrize("field", ["path", "linkpath", "size"])
def test_a_global_header_that_renames_is_refused(image: Made, tmp_path: Path, field: str) -> None:
    """Python's reader applies it to each member after it, Go's to none."""
    record = f" {field}={SITE}/lib/other.py\n" if field != "size" else " size=3\n"
    record = f"{len(record) + 2}{record}"
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XGLTYPE, len(record)
    layer = header.tobuf(tarfile.USTAR_FORMAT) + record.encode().ljust(512, b"\0") + archive({"etc/x": b"x\n"})
    path = with_layers(image, tmp_path / "i.tar", layer)
    assert f"a global header sets {field}" in " ".join(image.patchq.fails(1, "verify-image", str(path)).split())


#: Commands in front of ``python3 -m lib``: none of them sets what is judged.
HARMLESS: list[list[str]] = [
    [],
    ["/bin/sh", "-c", 'exec "$0" "$@"'],
    ["timeout", "-k", "5", "1h", "nice", "-n", "5", "env", "LANG=C"],
    ["/usr/bin/tini", "-g", "--", "env", "PATH=/opt/venv/bin:/usr/bin", "stdbuf", "-oL"],
]
#: Commands that start another Python, or set what one reads; and what they are refused for.
REFUSED: list[tuple[list[str], str]] = [
    (["/bin/sh", "-c", "exec /usr/bin/python3 -m lib"], "interpreter"),
    (["timeout", "5", "nice", "-n", "5", "/usr/bin/python3", "-m", "lib"], "interpreter"),
    (["/entry.sh", "/usr/bin/python3", "-m", "lib"], "interpreter"),
    (["dumb-init", "sh", "-c", "bash -c 'cd /srv; exec /usr/bin/python3 -m lib'"], "interpreter"),
    (["env", "-S/usr/bin/python3 -m lib"], "interpreter"),
    (["env", "PATH=/usr/bin:/opt/venv/bin", "python3", "-m", "lib"], "interpreter"),
    (["nohup", "sh", "-c", "PATH=/opt/evil:$PATH exec lib"], "script"),
    (["setsid", "ionice", "-c", "3", "env", "-i", "PYTHONPATH=/opt/x", "python3", "-m", "lib"], "shadowed"),
    (["env", "PYTHONPATH=/opt/a b:/opt/x", "python3", "-m", "lib"], "shadowed"),
    (["sh", "-c", 'PYTHONPATH="/opt/none":/opt/x python3 -m lib'], "shadowed"),
    (["sh", "-c", "PYTHONPATH=/opt/x python3 -m lib; PYTHONPATH=/opt/none true"], "shadowed"),
    (["sh", "-c", "PYTHONPATH=$MORE:/opt/none python3 -m lib"], "shadowed"),
    (["sh", "-c", "".join(f"PYTHONPATH=/opt/{n} true;" for n in range(9)) + "python3 -m lib"], "variable"),
]


@pytest.mark.parametrize("front", HARMLESS, ids=" ".join)
def test_a_command_in_front_of_the_right_python_is_accepted(image: Made, tmp_path: Path, front: list[str]) -> None:
    with_python(image)
    image.settings["Entrypoint"], image.settings["Cmd"] = front, ["python3", "-m", "lib"]
    image.patchq.ok("verify-image", str(image.saved(tmp_path / "image.tar")))


@pytest.mark.parametrize(
    ("command", "code"), REFUSED, ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_a_command_that_runs_other_code_is_refused(image: Made, tmp_path: Path, command: list[str], code: str) -> None:
    with_python(image)
    image.layers.append({"opt/evil/lib": b"#!/bin/sh\n", "opt/x/random.py": b""})
    image.env.append("MORE=/opt/x")
    image.patchq.ok("verify-image", str(image.saved(tmp_path / "without.tar")))
    image.settings["Cmd"] = command
    assert codes(image, image.saved(tmp_path / "image.tar")) == {code}


def test_two_lists_that_name_different_images_are_refused(image: Made, tmp_path: Path) -> None:
    """`docker save` writes both since version 25, and older programs read the other one."""
    folder = image.layout(tmp_path / "layout")
    manifest = image.blobs()[1]
    config, *layers = (f"blobs/sha256/{b['digest'][7:]}" for b in (manifest["config"], *manifest["layers"]))  # type: ignore[index, misc]
    listed = {"Config": config, "RepoTags": ["serve:latest"], "Layers": layers}
    (folder / "manifest.json").write_text(json.dumps([listed]))
    image.patchq.ok("verify-image", str(folder))
    for wrong in ({**listed, "Layers": layers[:-1]}, {**listed, "Config": layers[0]}, {"Config": config}, 3):
        (folder / "manifest.json").write_text(json.dumps([listed, wrong]))
        said = " ".join(image.patchq.fails(1, "verify-image", str(folder)).split())
        assert "can't be read as an image" in said
    (folder / "manifest.json").write_text(json.dumps([{**listed, "Layers": layers[:-1]}]))
    assert "manifest.json names another image than index.json" in image.patchq.fails(1, "verify-image", str(folder))
