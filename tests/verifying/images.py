"""OCI layouts of root file systems: layers, their configuration, and unpacking them as a container engine does."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifying.rootfs import Base, Environment, same_file, walk

CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A blob: in memory, or a file."""

    data: bytes | Path
    digest: str
    size: int

    @classmethod
    def of(cls, data: bytes | Path) -> Layer:
        content = data.read_bytes() if isinstance(data, Path) else data
        return cls(data=data, digest=hashlib.sha256(content).hexdigest(), size=len(content))


def member(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    """Return a member of a hand-written layer."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(data), 0o644, 1_700_000_000
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def layer_of(members: Iterable[tuple[tarfile.TarInfo, bytes]], pax_headers: dict[str, str] | None = None) -> bytes:
    """Return a layer of those members, in that order."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers=pax_headers or {}) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def pack(root: Path, wanted: Callable[[str], bool]) -> bytes:
    """Return a layer of the paths of a root file system that are wanted."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, status in walk(root):
            if not wanted(name):
                continue
            info = tarfile.TarInfo(name)
            info.mode, info.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
            if stat.S_ISREG(status.st_mode):
                info.size = status.st_size
                with open(root / name, "rb") as file:
                    tar.addfile(info, file)
                continue
            if stat.S_ISDIR(status.st_mode):
                info.type = tarfile.DIRTYPE
            elif stat.S_ISLNK(status.st_mode):
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink(root / name)
            else:
                info.type = tarfile.FIFOTYPE
            tar.addfile(info)
    return out.getvalue()


def base_layers(base: Base, folder: Path) -> list[Layer]:
    """Write the layers of a base: the system, what pip installed, what the Dockerfile copies from other stages."""
    folder.mkdir()
    site = base.environment.site.lstrip("/")
    place = site.split("/lib/")[0]
    kinds = ("system", "packages", "evidence")

    def kind(name: str) -> str:
        if f"{name}/".startswith(f"{place}/") and place != "usr/local":
            return "packages"
        if name == site or name.startswith(f"{site}/"):
            return "packages"
        return "evidence" if name.startswith(("usr/share", "etc/patched")) else "system"

    layers = []
    for wanted in kinds:
        path = folder / wanted
        path.write_bytes(pack(base.moved, lambda name, wanted=wanted: kind(name) == wanted))  # type: ignore[misc]
        layers.append(Layer.of(path))
    return layers


def difference(before: Path, after: Path) -> bytes:
    """Return the layer that makes one root file system the other: new files, and whiteouts of what is gone."""
    old, new = dict(walk(before)), dict(walk(after))
    changed = set()
    for name, status in new.items():
        if name not in old or stat.S_IFMT(old[name].st_mode) != stat.S_IFMT(status.st_mode):
            changed.add(name)
        elif stat.S_ISLNK(status.st_mode):
            if os.readlink(before / name) != os.readlink(after / name):
                changed.add(name)
        elif stat.S_ISDIR(status.st_mode):
            if status.st_mode != old[name].st_mode:
                changed.add(name)
        elif not same_file(before / name, status):
            changed.add(name)
    gone = {name for name in old if name not in new and name.rpartition("/")[0] in {"", *new}}
    whiteouts = [member(str(Path(name).with_name(f".wh.{Path(name).name}"))) for name in sorted(gone)]
    packed = pack(after, changed.__contains__)
    if not whiteouts:
        return packed
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        rest = [(info, tar.extractfile(info).read() if info.isreg() else b"") for info in tar]  # type: ignore[union-attr]
    return layer_of([*whiteouts, *rest])


def configuration(environment: Environment, layers: list[Layer]) -> dict[str, Any]:
    """Return an image's configuration."""
    config: dict[str, Any] = {
        "Env": [f"{name}={value}" for name, value in environment.variables.items()],
        "Labels": environment.labels,
        "Cmd": environment.command,
        "ExposedPorts": {"8000/tcp": {}},
    }
    for key, given in (
        ("WorkingDir", environment.directory),
        ("User", environment.user),
        ("Entrypoint", environment.entrypoint),
    ):
        if given:
            config[key] = given
    return {
        "architecture": ARCHITECTURES.get(os.uname().machine, os.uname().machine), "os": "linux", "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in layers]},
        "history": [{"created_by": "RUN"} for _ in layers],
    }  # fmt: skip


def write_layout(folder: Path, environment: Environment, layers: list[Layer], compress: bool = False) -> Path:
    """Write an image as an OCI layout."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    described = []
    for layer in layers:
        if compress:
            data = layer.data.read_bytes() if isinstance(layer.data, Path) else layer.data
            half = len(data) // 2  # tools that compress in parallel write several streams
            streams = b"".join(gzip.compress(part, 1, mtime=0) for part in (data[:half], data[half:]))
            described.append({"mediaType": f"{LAYER}+gzip", **put(streams)})
            continue
        if isinstance(layer.data, Path):
            if not (blobs / layer.digest).exists():
                os.link(layer.data, blobs / layer.digest)
        else:
            (blobs / layer.digest).write_bytes(layer.data)
        described.append({"mediaType": LAYER, "digest": f"sha256:{layer.digest}", "size": layer.size})
    config = put(json.dumps(configuration(environment, layers)).encode())
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, **config},
        "layers": described,
    }
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [{"mediaType": MANIFEST, **put(json.dumps(manifest).encode())}],
    }
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder


def write_docker(path: Path, environment: Environment, layers: list[Layer]) -> Path:
    """Write an image as `docker save` did before it wrote OCI layouts."""
    config = json.dumps(configuration(environment, layers)).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    contents = {f"{layer.digest}/layer.tar": layer.data for layer in layers}
    manifest = [{"Config": name, "RepoTags": ["serve:latest"], "Layers": list(contents)}]
    with tarfile.open(path, "w") as tar:
        for file, data in {**contents, name: config, "manifest.json": json.dumps(manifest).encode()}.items():
            info, content = member(file, data.read_bytes() if isinstance(data, Path) else data)
            tar.addfile(info, io.BytesIO(content))
    return path


def archived(layout: Path, path: Path) -> Path:
    """Write an OCI layout as an archive."""
    with tarfile.open(path, "w") as tar:
        for name, status in walk(layout):
            if stat.S_ISREG(status.st_mode):
                tar.add(layout / name, name)
    return path


def unpack(root: Path, layer: bytes) -> None:
    """Put a layer over a root file system as Docker does: names cleaned, links of folders followed, whiteouts obeyed."""
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        for info in tar:
            name = os.path.normpath("/" + info.name).lstrip("/")
            path = resolved(root, name.rpartition("/")[0]) / Path(name).name
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.name == ".wh..wh..opq":
                removed(path.parent)
                path.parent.mkdir()
                continue
            if path.name.startswith(".wh."):
                removed(path.with_name(path.name[4:]))
                continue
            if not (info.isdir() and path.is_dir() and not path.is_symlink()):
                removed(path)
            if info.isdir():
                path.mkdir(exist_ok=True)
            elif info.issym():
                path.symlink_to(info.linkname)
            elif info.islnk():
                os.link(resolved(root, os.path.normpath("/" + info.linkname)), path)
            elif info.isreg():
                file = tar.extractfile(info)
                assert file is not None
                path.write_bytes(file.read())


def resolved(root: Path, name: str) -> Path:
    """Return where a path of a root file system is, with its links followed inside of it."""
    here, rest = root, [part for part in name.split("/") if part]
    for _ in range(1000):
        if not rest:
            return here
        part = rest.pop(0)
        if part == "..":
            here = here if here == root else here.parent
            continue
        if (path := here / part).is_symlink():
            target = os.readlink(path)
            rest = [*(p for p in target.split("/") if p not in ("", ".")), *rest]
            here = root if target.startswith("/") else here
        else:
            here = path
    raise OSError(f"links of {name} go round")


def removed(path: Path) -> None:
    """Remove a file or a folder, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
