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
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from patchq.errors import UserError
from patchq.names import show_path
from patchq.sources.archive import Bounded

#: Bytes of a text that is kept, of a list of what is in an image, and files of an image: nobody's has more.
MOST_TEXT, MOST_JSON, MOST_FILES = 64 << 20, 16 << 20, 5_000_000
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
#: Links that a path may lead through, and characters of one, as Linux has it.
_MOST_LINKS, _MOST_PATH = 40, 4096
#: What the readers of tar, of JSON and of compressed data raise for what is none.
_DAMAGED = (
    OSError, tarfile.TarError, zlib.error, lzma.LZMAError, RecursionError, ValueError, KeyError, TypeError,
    AttributeError, EOFError,
)  # fmt: skip
_ARCHS = {"aarch64": "arm64", "x86_64": "amd64"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: its SHA-256 where it was asked for, or where a link points to; ``text`` where it is kept."""

    kind: str
    sha256: str = ""
    target: str = ""
    text: bytes | None = None


@dataclass(slots=True)
class Image:
    """What was read. ``env`` and ``labels`` are those that a container starts with; None of a mere folder."""

    name: str
    files: dict[str, Entry] = field(default_factory=dict)
    labels: dict[str, str] | None = None
    env: dict[str, str] = field(default_factory=dict)
    #: Every folder that a file was put below: most paths are none, and needn't be looked for.
    folders: set[str] = field(default_factory=set)
    #: Where folders are, as far as was asked since a link was last put or removed.
    _real: dict[str, str] = field(default_factory=dict, repr=False)

    def real(self, path: str) -> str:
        """Where a path's file is: in what its folders are links to, as whoever unpacks the image follows them.

        :raises ValueError: for links that go in a circle.
        """
        folder, name = posixpath.split(path)
        return posixpath.join(self.followed(folder), name)

    def followed(self, path: str, left: int = _MOST_LINKS) -> str:
        """Where a path leads if the last of it is a link, too."""
        if not path or path in self._real:
            return self._real.get(path, "")
        if not left:
            raise ValueError(f"{path} is behind links that don't end")
        folder, name = posixpath.split(path)
        at = posixpath.join(self.followed(folder, left), name)
        entry = self.files.get(at)
        if entry and entry.kind == "link":
            target = posixpath.normpath(posixpath.join("/", posixpath.dirname(at), entry.target)).lstrip("/")
            at = self.followed(target, left - 1)
        self._real[path] = at
        return at

    def drop(self, path: str) -> None:
        """Take a file away."""
        gone = self.files.pop(path, None)
        if gone and gone.kind == "link":
            self._real.clear()

    def put(self, path: str, entry: Entry) -> None:
        """Lay a file at a path."""
        self.drop(path)
        if entry.kind == "link":
            self._real.clear()
        self.files[path] = entry
        folder = posixpath.dirname(path)
        while folder and folder not in self.folders:
            self.folders.add(folder)
            folder = posixpath.dirname(folder)


def read_image(path: Path, wanted: Callable[[str], bool], kept: Callable[[str], bool], platform: str = "") -> Image:
    """Read an image.

    :param wanted: whether a file's hash is asked for, by its path without a leading slash; ``kept``: its text too.
    :param platform: which of several images (``aarch64``); empty where there is one.
    :raises UserError: if it is no image, is damaged, or holds several and none was chosen.
    """
    image = Image(path.name)
    try:
        if path.is_dir() and not (path / "oci-layout").exists():
            _walk(path, image, wanted, kept)
            return image
        with _blobs(path) as store:
            manifest = _manifest(store, platform)
            config = json.loads(store.read(manifest["config"]))
            settings = config.get("config") or {}
            image.labels = {str(k): str(v) for k, v in (settings.get("Labels") or {}).items()}
            image.env = dict(str(text).partition("=")[::2] for text in settings.get("Env") or [])
            for layer in manifest["layers"]:
                with store.open(layer) as file:
                    _layer(file, image, wanted, kept)
    except _DAMAGED as error:
        said = f"lacks {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise UserError(
            f"{path.name} can't be read as an image: {show_path(said.encode('utf-8', 'replace'))}",
            hint="an OCI layout or archive, what `docker save` writes, or a root file system as a folder",
        ) from None
    return image


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
        yield _Store(lambda name: (path / name).open("rb"), set(os.listdir(path)))
        return
    with tarfile.open(path, tarinfo=Bounded) as archive:
        members = {member.name.removeprefix("./"): member for member in archive}

        def opened(name: str) -> IO[bytes]:
            found = archive.extractfile(members[name])
            if found is None:
                raise ValueError(f"{name} is no file")
            return found

        yield _Store(opened, set(members))


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
            return dict(found)
        chosen = [m for m in found["manifests"] if _fits(m, platform)]
        if len(chosen) != 1:
            raise ValueError(
                f"holds {len(chosen)} images{f' for {platform}' if platform else ''}: choose by --platform"
            )
        found = json.loads(store.read(chosen[0]))
    raise ValueError("its lists don't end")


def _fits(manifest: Mapping[str, Any], platform: str) -> bool:
    arch = (manifest.get("platform") or {}).get("architecture", "")
    if arch == "unknown":
        return False  # what builders put beside an image
    nested = manifest.get("mediaType") in _INDEXES
    return nested or not platform or not arch or arch == _ARCHS.get(platform, platform)


def _layer(file: _Checked, image: Image, wanted: Callable[[str], bool], kept: Callable[[str], bool]) -> None:
    """Lay a layer's files over those before it."""
    own: set[str] = set()
    with tarfile.open(fileobj=file, mode="r|*", tarinfo=Bounded) as layer:  # type: ignore[call-overload]
        for member in layer:
            if len(image.files) > MOST_FILES:
                raise ValueError("has too many files")
            if len(member.name) > _MOST_PATH:
                raise ValueError("has a path that is longer than any file system takes")
            path = image.real(posixpath.normpath("/" + member.name).lstrip("/"))
            folder, name = posixpath.split(path)
            if name == ".wh..wh..opq":
                _remove(image, folder, own, below=True)
            elif name.startswith(".wh."):
                _remove(image, posixpath.join(folder, name[4:]), own)
            elif member.isdir():
                image.drop(path)
            else:
                _remove(image, path, own, below=True)
                image.put(path, _entry(layer, member, path, image, wanted, kept))
                own.add(path)


def _entry(
    layer: tarfile.TarFile, member: tarfile.TarInfo, path: str, image: Image, wanted: Callable[[str], bool],
    kept: Callable[[str], bool],
) -> Entry:  # fmt: skip
    if member.islnk():
        other = image.files.get(image.real(posixpath.normpath("/" + member.linkname).lstrip("/")))
        return other or Entry("link", target=member.linkname)
    if member.issym():
        return Entry("link", target=member.linkname)
    if not member.isreg():
        return Entry("special")
    if not wanted(path):
        return Entry("file")
    data = layer.extractfile(member)
    assert data is not None
    return _hashed(data, kept(path))


def _hashed(file: IO[bytes], keep: bool) -> Entry:
    digest, text = hashlib.sha256(), bytearray()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
        if keep and len(text) <= MOST_TEXT:
            text += chunk
    return Entry("file", digest.hexdigest(), text=bytes(text) if keep and len(text) <= MOST_TEXT else None)


def _remove(image: Image, path: str, own: set[str], below: bool = False) -> None:
    """Take away what earlier layers have below a path and, unless ``below``, at it."""
    if not below and path not in own:
        image.drop(path)
    if path not in image.folders:
        return
    start = f"{path}/"
    for name in [p for p in image.files if p.startswith(start) and p not in own]:
        image.drop(name)


def _walk(root: Path, image: Image, wanted: Callable[[str], bool], kept: Callable[[str], bool]) -> None:
    """A root file system; links are not followed."""
    for folder, folders, files in os.walk(root):
        below = Path(folder).relative_to(root).as_posix()
        linked = [name for name in folders if Path(folder, name).is_symlink()]
        for name in [*files, *linked]:
            path, place = posixpath.normpath(posixpath.join(below, name)), Path(folder, name)
            mode = place.lstat().st_mode
            if stat.S_ISLNK(mode):
                image.files[path] = Entry("link", target=os.readlink(place))
            elif not stat.S_ISREG(mode):
                image.files[path] = Entry("special")
            elif wanted(path):
                with place.open("rb") as file:
                    image.files[path] = _hashed(file, kept(path))
            else:
                image.files[path] = Entry("file")
