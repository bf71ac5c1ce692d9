"""An image's files and labels, read from what it is kept in: no daemon, nothing unpacked, nothing of it run.

An OCI layout (a folder, or a tar archive of it), what ``docker save`` writes, or a root file system as a folder: a
running container's, for one. Every digest that an image gives is checked on the way.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import posixpath
import re
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from patchq.environment._files import MAX_TEXT, Files, Folder, Kind, Span
from patchq.errors import FormatError, UserError
from patchq.formats import tar
from patchq.names import show_path
from patchq.system import project_files

#: Bytes of a list of what is in an image, its blobs, and files of its layers. No real one has more.
MOST_JSON, MOST_BLOBS, MOST_FILES = 16 << 20, 100_000, 5_000_000
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
#: Characters of a path, as Linux has it.
_MOST_PATH = 4096
#: Files whose content may matter: what Python reads when it starts, metadata, and settings.
_KEPT = re.compile(
    r"\.(?:pyc?|pth|json|cfg|conf|txt|zip|egg|egg-link|egg-info)$|/(?:METADATA|RECORD|PKG-INFO|ld\.so\.preload|passwd)$"
)
#: What the readers of tar, of JSON and of compressed data raise for what is none.
_DAMAGED = (
    FormatError, OSError, tarfile.TarError, zlib.error, lzma.LZMAError, RecursionError, ValueError, KeyError, TypeError,
    AttributeError, EOFError,
)  # fmt: skip
_ARCHS = {"aarch64": "arm64", "x86_64": "amd64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file of an image: where a link points to; of a plain file its SHA-256, and its content where that is kept."""

    kind: Kind
    sha256: str = ""
    target: str = ""
    size: int = 0
    mtime: int = 0
    offset: int = -1


class Layers(Files):
    """The files of an image's layers. Content that may matter is kept in a temporary file."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[str, Entry] = {}
        #: Every folder that a file was ever put below; after :meth:`finish`, those that are there.
        self.folders: set[str] = {"/"}
        self._below: dict[str, list[str]] | None = None
        self._kept = tempfile.NamedTemporaryFile(prefix="patchq-image-")  # noqa: SIM115

    def kind(self, path: str) -> Kind | None:
        entry = self.entries.get(path)
        if entry:
            return entry.kind
        return Kind.FOLDER if path in self.folders else None

    def target(self, path: str) -> str:
        return self.entries[path].target

    def names(self, folder: str) -> list[str]:
        if self._below is None:
            self._below = {}
            for path in [*self.entries, *(self.folders - {"/"})]:
                above, name = posixpath.split(path)
                self._below.setdefault(above, []).append(name)
        return sorted(self._below.get(folder, ()))

    def size(self, path: str) -> int:
        return self.entries[path].size

    def mtime(self, path: str) -> int:
        return self.entries[path].mtime

    def span(self, path: str) -> Span:
        entry = self.entries[path]
        if entry.offset < 0:
            raise OSError(0, "was not kept")
        self._kept.flush()
        return Span(self._kept.name, entry.offset, entry.size)

    def digest(self, path: str, kinds: Iterable[str]) -> dict[str, str]:
        others = set(kinds) - {"sha256"}
        data = self.read(path) if others else b""
        sums = {kind: hashlib.new(kind, data).hexdigest() for kind in others}
        return sums | {"sha256": self.entries[path].sha256}

    def place_of(self, path: str) -> str:
        """Return where a member of a layer is put: links of its folders are followed, as by what unpacks the image.

        :raises ValueError: for links that go in a circle.
        """
        folder, name = posixpath.split(posixpath.normpath("/" + path.lstrip("/")))
        real = self.resolve(folder)
        if not real:
            raise ValueError(f"{path} is behind links that don't end")
        return posixpath.join(real, name)

    def drop(self, path: str) -> None:
        """Take a file away."""
        gone = self.entries.pop(path, None)
        if gone and gone.kind is Kind.LINK:
            self._real.clear()

    def put(self, path: str, entry: Entry) -> None:
        """Put a file at a path."""
        self.drop(path)
        if entry.kind is Kind.LINK:
            self._real.clear()
        self.entries[path] = entry
        folder = posixpath.dirname(path)
        while folder not in self.folders:
            self.folders.add(folder)
            folder = posixpath.dirname(folder)

    def finish(self) -> None:
        """Forget the folders of which no file is left."""
        self.folders = {"/"}
        for path in self.entries:
            folder = posixpath.dirname(path)
            while folder not in self.folders:
                self.folders.add(folder)
                folder = posixpath.dirname(folder)

    def keep(self, file: IO[bytes], member: tarfile.TarInfo, path: str) -> Entry:
        """Return the entry of a plain file; its content is kept if it may be read later."""
        keep = member.size <= MAX_TEXT and _is_kept(path, member.size)
        digest, offset = hashlib.sha256(), self._kept.seek(0, os.SEEK_END) if keep else -1
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            if keep:
                self._kept.write(chunk)
        return Entry(
            kind=Kind.FILE, sha256=digest.hexdigest(), size=member.size, mtime=int(member.mtime), offset=offset
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What was read.

    :ivar folders: all folders in it.
    :ivar labels: None of a mere file system, which has no settings.
    :ivar env: the variables that a container starts with, and so on.
    """

    name: str
    files: Files
    folders: frozenset[str]
    labels: Mapping[str, str] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    working: str = ""
    user: str = ""
    command: tuple[str, ...] = ()


def read_image(path: Path, platform: str = "") -> Image:
    """Read an image.

    :param platform: which of several images (``aarch64``); empty where there is one.
    :raises UserError: if it is no image, is damaged, or holds several and none was chosen.
    """
    try:
        if path.is_dir() and not (path / "oci-layout").exists():
            return Image(name=path.name, files=Folder(path), folders=frozenset(_folders(path)))
        layers = Layers()
        with _blobs(path) as store:
            manifest = _manifest(store, platform)
            config = json.loads(store.read(manifest["config"]))
            settings = config.get("config") or {}
            for layer in manifest["layers"]:
                with store.open(layer) as file:
                    _layer(file, layers)
        layers.finish()
        return Image(
            name=path.name, files=layers, folders=frozenset(layers.folders),
            labels={str(k): str(v) for k, v in (settings.get("Labels") or {}).items()},
            env=dict(str(text).partition("=")[::2] for text in settings.get("Env") or []),
            working=posixpath.normpath(posixpath.join("/", str(settings.get("WorkingDir") or ""))),
            user=str(settings.get("User") or "").partition(":")[0],
            command=tuple(map(str, [*(settings.get("Entrypoint") or []), *(settings.get("Cmd") or [])])),
        )  # fmt: skip
    except _DAMAGED as error:
        said = f"lacks {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise UserError(
            f"{path.name} can't be read as an image: {show_path(said.encode('utf-8', 'replace'))}",
            hint="an OCI layout or archive, what `docker save` writes, or a root file system as a folder",
        ) from None


def _folders(root: Path) -> Iterator[str]:
    """Yield every folder of a root file system; links are not followed."""
    yield "/"
    for folder, folders, _ in os.walk(root):
        below = folder[len(str(root)) :]
        yield from (f"{below}/{name}" for name in folders if not os.path.islink(f"{folder}/{name}"))


class _Checked:
    """A blob that is hashed while it is read, and must end with the digest that names it."""

    def __init__(self, file: IO[bytes], digest: str) -> None:
        self._file, self._digest, self._sum = file, digest, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._sum.update(data)
        return data

    def finish(self) -> None:
        while self.read(1 << 20):
            pass
        if self._digest and self._sum.hexdigest() != self._digest:
            raise ValueError(f"the blob {self._digest[:12]} isn't what its digest says")


class _Store:
    """The blobs of an image, by name. ``opened`` gives a file of a folder or an archive."""

    def __init__(self, opened: Callable[[str], IO[bytes]], names: set[str]) -> None:
        self._opened, self.names = opened, names

    @contextmanager
    def open(self, blob: Any) -> Iterator[_Checked]:
        """A blob by its descriptor, or a file by its name."""
        name, digest = str(blob), ""
        if isinstance(blob, dict):
            kind, _, digest = str(blob["digest"]).partition(":")
            if kind != "sha256" or len(digest) != 64 or not digest.isalnum():
                raise ValueError(f"{blob['digest']} is no digest that is known here")
            name = f"blobs/sha256/{digest}"
        with self._opened(name) as file:
            checked = _Checked(file, digest)
            yield checked
            checked.finish()

    def read(self, blob: Any) -> bytes:
        with self.open(blob) as file:
            data = file.read(MOST_JSON + 1)
        if len(data) > MOST_JSON:
            raise ValueError("says too much")
        return data


@contextmanager
def _blobs(path: Path) -> Iterator[_Store]:
    if path.is_dir():
        folder = path.resolve()  # a link to an image is followed, none in it is
        yield _Store(lambda name: _open_below(folder, name), set(os.listdir(folder)))
        return
    with tarfile.open(path, tarinfo=tar.Bounded) as archive:
        members: dict[str, tarfile.TarInfo] = {}
        for member in archive:
            members[member.name.removeprefix("./")] = member
            if len(members) > MOST_BLOBS:
                raise ValueError(f"has more than {MOST_BLOBS} members")

        def opened(name: str) -> IO[bytes]:
            found = archive.extractfile(members[name])
            if found is None:
                raise ValueError(f"{name} is no file")
            return found

        yield _Store(opened, set(members))


def _open_below(folder: Path, name: str) -> IO[bytes]:
    file = project_files.open_file(folder, folder / name)
    if file is None:
        raise KeyError(name)
    return file


def _manifest(store: _Store, platform: str) -> dict[str, Any]:
    """The image's list of layers, as descriptors; ``docker save``'s own list where there is no OCI index."""
    if "index.json" not in store.names:
        images = json.loads(store.read("manifest.json"))
        if len(images) != 1:
            raise ValueError(f"holds {len(images)} images")
        return {"config": images[0]["Config"], "layers": images[0]["Layers"]}
    found = json.loads(store.read("index.json"))
    for _ in range(4):
        if "layers" in found:
            _check_docker_list(store, found)
            return dict(found)
        chosen = [m for m in found["manifests"] if _fits(m, platform)]
        if len(chosen) != 1:
            raise ValueError(
                f"holds {len(chosen)} images{f' for {platform}' if platform else ''}: choose by --platform"
            )
        found = json.loads(store.read(chosen[0]))
    raise ValueError("its lists don't end")


def _check_docker_list(store: _Store, manifest: Mapping[str, Any]) -> None:
    """Compare an OCI image with ``docker save``'s list beside it, by which older programs load the image.

    :raises ValueError: if the list names another image.
    """
    if "manifest.json" not in store.names:
        return
    config, *layers = (f"blobs/{b['digest'].replace(':', '/')}" for b in (manifest["config"], *manifest["layers"]))
    if any((one["Config"], one["Layers"]) != (config, layers) for one in json.loads(store.read("manifest.json"))):
        raise ValueError("manifest.json names another image than index.json")


def _fits(manifest: Mapping[str, Any], platform: str) -> bool:
    arch = (manifest.get("platform") or {}).get("architecture", "")
    if arch == "unknown":
        return False  # what builders put beside an image
    nested = manifest.get("mediaType") in _INDEXES
    return nested or not platform or not arch or arch == _ARCHS.get(platform, platform)


def _layer(file: _Checked, image: Layers) -> None:
    """Put a layer's files over those before it."""
    own: set[str] = set()
    with tar.open_stream(file) as layer:
        for member in tar.members(layer):
            if len(image.entries) > MOST_FILES:
                raise ValueError("has too many files")
            if len(member.name) > _MOST_PATH:
                raise ValueError("has a path that is longer than any file system takes")
            path = image.place_of(member.name)
            folder, name = posixpath.split(path)
            if name == ".wh..wh..opq":
                _remove(image, folder, own, below=True)
            elif name.startswith(".wh."):
                _remove(image, posixpath.join(folder, name[4:]), own)
            elif member.isdir():
                image.drop(path)
            else:
                _remove(image, path, own, below=True)
                image.put(path, _entry(layer, member, path, image))
                own.add(path)


def _entry(layer: tarfile.TarFile, member: tarfile.TarInfo, path: str, image: Layers) -> Entry:
    if member.islnk():
        other = image.entries.get(image.place_of(member.linkname))
        return other or Entry(kind=Kind.LINK, target=member.linkname)
    if member.issym():
        return Entry(kind=Kind.LINK, target=member.linkname)
    if not member.isreg():
        return Entry(kind=Kind.SPECIAL)
    data = layer.extractfile(member)
    assert data is not None
    return image.keep(data, member, path)


def _is_kept(path: str, size: int) -> bool:
    """Return whether a file's content may be read later, and so is kept."""
    return _KEPT.search(path) is not None or (size <= 64 << 10 and posixpath.basename(posixpath.dirname(path)) == "bin")


def _remove(image: Layers, path: str, own: set[str], below: bool = False) -> None:
    """Take away what earlier layers have below a path and, unless ``below``, at it."""
    if not below and path not in own:
        image.drop(path)
    if path not in image.folders:
        return
    start = f"{path.rstrip('/')}/"
    for name in [p for p in image.entries if p.startswith(start) and p not in own]:
        image.drop(name)
