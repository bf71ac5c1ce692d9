"""Reader for the files and settings of a container image, without a daemon. Nothing is unpacked or run.

An image is an OCI layout (a folder, or a tar archive of the folder), an archive from ``docker save``, or a
root file system as a folder, such as that of a running container. Parts that the image names with a digest are checked
against it; an archive from ``docker save`` may name its parts by paths only.
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
import weakref
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from patchq.environment._files import MAX_TEXT, FileKind, FileTree, Folder, Span
from patchq.errors import FormatError, UserError
from patchq.formats import tar
from patchq.names import show_path
from patchq.system import project_files

#: Maximum size in bytes of an image's JSON file, and maximum numbers of blobs and files. Real images have less.
MOST_JSON, MOST_BLOBS, MOST_FILES = 16 << 20, 100_000, 5_000_000
_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
#: Longest path in characters, as in Linux.
_MOST_PATH = 4096
#: Files whose content is kept: files that Python reads when it starts, metadata, and settings.
_KEPT = re.compile(
    r"\.(?:pyc?|pth|json|cfg|conf|txt|zip|egg|egg-link|egg-info)$"
    r"|/(?:METADATA|RECORD|WHEEL|PKG-INFO|ld\.so\.preload|passwd)$"
)
#: Largest program that is kept, in bytes: scripts in ``bin`` folders.
_MOST_SCRIPT = 64 << 10
#: Maximum depth of nested lists in an OCI index.
_MOST_LISTS = 4
#: Errors that the readers of tar, JSON and compressed data raise for damaged data.
_DAMAGED = (
    FormatError,
    OSError,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    RecursionError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    EOFError,
)
_ARCHS = {"aarch64": "arm64", "x86_64": "amd64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageEntry:
    """File in an image.

    :ivar target: Target of a link.
    :ivar offset: Position of a plain file's content in the temporary file; -1 if the content isn't kept.
    """

    kind: FileKind
    sha256: str = ""
    target: str = ""
    size: int = 0
    mtime: int = 0
    offset: int = -1


class Layers(FileTree):
    """Files in an image's layers. Content that may be read later is kept in a temporary file."""

    def __init__(self, wanted: Collection[str] = ()) -> None:
        super().__init__()
        self.entries: dict[str, ImageEntry] = {}
        self._wanted = frozenset(wanted)
        #: Folders of all files so far, including deleted files. After :meth:`finish`, only existing folders.
        self.folders: set[str] = {"/"}
        self._below: dict[str, list[str]] | None = None
        self._kept = tempfile.NamedTemporaryFile(prefix="patchq-image-")  # noqa: SIM115
        # In a reference cycle, Python may finalize the open file before this object, and print a warning.
        weakref.finalize(self, self._kept.close)

    def kind(self, path: str) -> FileKind | None:
        entry = self.entries.get(path)
        if entry:
            return entry.kind
        if path in self.folders:
            return FileKind.FOLDER
        return None

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
        data = b""
        if others:
            data = self.read(path)
        sums = {kind: hashlib.new(kind, data).hexdigest() for kind in others}
        return sums | {"sha256": self.entries[path].sha256}

    def place_of(self, path: str) -> str:
        """Resolve symlinks in ``path``'s parent directories, as an unpacker would.

        :raises ValueError: if the links form a loop.
        """
        folder, name = posixpath.split(posixpath.normpath("/" + path.lstrip("/")))
        real = self.resolve(folder)
        if not real:
            raise ValueError(f"{path} is below a loop of links")
        return posixpath.join(real, name)

    def drop(self, path: str) -> None:
        """Remove the entry of a file."""
        gone = self.entries.pop(path, None)
        if gone and gone.kind is FileKind.LINK:
            self._real.clear()

    def put(self, path: str, entry: ImageEntry) -> None:
        """Add or replace the entry of a file."""
        self.drop(path)
        if entry.kind is FileKind.LINK:
            self._real.clear()
        self.entries[path] = entry
        self._add_parents(path)

    def _add_parents(self, path: str) -> None:
        folder = posixpath.dirname(path)
        while folder not in self.folders:
            self.folders.add(folder)
            folder = posixpath.dirname(folder)

    def finish(self) -> None:
        """Remove folders that contain no files."""
        self.folders = {"/"}
        for path in self.entries:
            self._add_parents(path)

    def keep(self, file: IO[bytes], member: tarfile.TarInfo, path: str) -> ImageEntry:
        """Read a plain file and return its entry. Keep its content if it may be read later."""
        keep = member.size <= MAX_TEXT and (path in self._wanted or _is_kept(path, member.size))
        if keep:
            offset = self._kept.seek(0, os.SEEK_END)
        else:
            offset = -1
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            if keep:
                self._kept.write(chunk)
        return ImageEntry(
            kind=FileKind.FILE,
            sha256=digest.hexdigest(),
            size=member.size,
            mtime=int(member.mtime),
            offset=offset,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Files and settings of an image.

    :ivar folders: All folders in the image.
    :ivar labels: Labels of the image; None for a root file system, which has no settings.
    :ivar env: Environment variables of a container.
    :ivar working: Working folder of a container.
    :ivar user: User of a container.
    :ivar command: Entry point and command of a container.
    """

    name: str
    files: FileTree
    folders: frozenset[str]
    labels: Mapping[str, str] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    working: str = ""
    user: str = ""
    command: tuple[str, ...] = ()


def read_image(path: Path, platform: str = "", *, keep: Collection[str] = ()) -> Image:
    """Read a container image.

    :param keep: Paths of more files whose content will be read.
    :param platform: Platform of the image to choose (``aarch64``); may be empty if there is only
        one image.
    :raises UserError: if the path isn't an image, if the image is damaged, or if it contains several images
        and no platform was chosen.
    """
    try:
        if path.is_dir() and not (path / "oci-layout").exists():
            return Image(name=path.name, files=Folder(path), folders=frozenset(_folders(path)))
        return _read_layers(path, platform, keep)
    except _DAMAGED as error:
        if isinstance(error, KeyError):
            reason = f"lacks {error}"
        else:
            reason = str(error) or type(error).__name__
        shown = show_path(reason.encode("utf-8", "replace"))
        raise UserError(
            f"{path.name} can't be read as an image: {shown}",
            hint="give an OCI layout or archive, a `docker save` archive, or a root file system",
        ) from None


def _read_layers(path: Path, platform: str, keep: Collection[str]) -> Image:
    layers = Layers(keep)
    with _blobs(path) as store:
        manifest = _manifest(store, platform)
        settings = json.loads(store.read(manifest["config"])).get("config") or {}
        for layer in manifest["layers"]:
            with store.open(layer) as file:
                _layer(file, layers)
    layers.finish()
    labels = settings.get("Labels") or {}
    command = [*(settings.get("Entrypoint") or []), *(settings.get("Cmd") or [])]
    env = {}
    for assignment in settings.get("Env") or []:
        name, _, value = str(assignment).partition("=")
        env[name] = value
    return Image(
        name=path.name,
        files=layers,
        folders=frozenset(layers.folders),
        labels={str(name): str(value) for name, value in labels.items()},
        env=env,
        working=posixpath.normpath(posixpath.join("/", str(settings.get("WorkingDir") or ""))),
        user=str(settings.get("User") or "").partition(":")[0],
        command=tuple(map(str, command)),
    )


def _folders(root: Path) -> Iterator[str]:
    """Yield every folder of a root file system. Links are not followed."""
    yield "/"
    for folder, folders, _ in os.walk(root):
        below = folder[len(str(root)) :]
        for name in folders:
            if not os.path.islink(f"{folder}/{name}"):
                yield f"{below}/{name}"


class _Checked:
    """Reader of a blob that checks the blob's digest."""

    def __init__(self, file: IO[bytes], digest: str) -> None:
        self._file = file
        self._digest = digest
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        return data

    def finish(self) -> None:
        """Read the rest of the blob and check its digest.

        :raises ValueError: if the digest differs.
        """
        while self.read(1 << 20):
            pass
        if self._digest and self._hash.hexdigest() != self._digest:
            raise ValueError(f"the blob {self._digest[:12]} doesn't match its digest")


class _Store:
    """Blobs of an image by name.

    :param opened: function that opens a file in the image's folder or archive.
    """

    def __init__(self, opened: Callable[[str], IO[bytes]], names: set[str]) -> None:
        self._opened = opened
        self.names = names

    @contextmanager
    def open(self, blob: Any) -> Iterator[_Checked]:
        """Open a blob by its descriptor, or a file by its name."""
        name, digest = str(blob), ""
        if isinstance(blob, dict):
            kind, _, digest = str(blob["digest"]).partition(":")
            if kind != "sha256" or len(digest) != 64 or not digest.isalnum():
                raise ValueError(f"{blob['digest']} is not a SHA-256 digest")
            name = f"blobs/sha256/{digest}"
        with self._opened(name) as file:
            checked = _Checked(file, digest)
            yield checked
            checked.finish()

    def read(self, blob: Any) -> bytes:
        with self.open(blob) as file:
            data = file.read(MOST_JSON + 1)
        if len(data) > MOST_JSON:
            raise ValueError(f"has a JSON file of more than {MOST_JSON} bytes")
        return data


@contextmanager
def _blobs(path: Path) -> Iterator[_Store]:
    if path.is_dir():
        folder = path.resolve()  # links to the image are followed, but not links inside the image
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
                raise ValueError(f"{name} is not a file")
            return found

        yield _Store(opened, set(members))


def _open_below(folder: Path, name: str) -> IO[bytes]:
    file = project_files.open_file(folder, folder / name)
    if file is None:
        raise KeyError(name)
    return file


def _manifest(store: _Store, platform: str) -> dict[str, Any]:
    """Return the manifest of the chosen image: its config and its layers.

    Read it from the OCI index, or else from the list that ``docker save`` writes.
    """
    if "index.json" not in store.names:
        image = _only(_saved_images(store, platform), platform)
        return {"config": image["Config"], "layers": image["Layers"]}
    found = json.loads(store.read("index.json"))
    for _ in range(_MOST_LISTS):
        if "layers" in found:
            _check_docker_list(store, found)
            return dict(found)
        chosen = []
        for one in found["manifests"]:
            if _fits(one, platform):
                chosen.append(one)
        found = json.loads(store.read(_only(chosen, platform)))
    raise ValueError("index.json leads to a manifest through too many nested lists")


def _saved_images(store: _Store, platform: str) -> list[dict[str, Any]]:
    """Return the images in the list of ``docker save`` that fit a platform. The list itself names no platforms."""
    images = json.loads(store.read("manifest.json"))
    if not platform:
        return list(images)
    chosen = []
    archs: dict[str, str] = {}
    for image in images:
        config = str(image["Config"])
        if config not in archs:
            archs[config] = json.loads(store.read(config)).get("architecture", "")
        if _fits({"platform": {"architecture": archs[config]}}, platform):
            chosen.append(image)
    return chosen


def _only(images: list[dict[str, Any]], platform: str) -> dict[str, Any]:
    """Return the only image in a list of images that fit a platform.

    :raises ValueError: if the list has no image or several.
    """
    if len(images) == 1:
        return images[0]
    target, advice = "", "choose one with --platform"
    if platform:
        target = f" for {platform}"
        if images:
            advice = "save only one of them"
    raise ValueError(f"holds {len(images)} images{target}: {advice}")


def _check_docker_list(store: _Store, manifest: Mapping[str, Any]) -> None:
    """Check that an OCI image agrees with the list of ``docker save``, which older programs use to load images.

    :raises ValueError: if the list names another image.
    """
    if "manifest.json" not in store.names:
        return
    config = _blob_path(manifest["config"])
    layers = [_blob_path(layer) for layer in manifest["layers"]]
    for image in json.loads(store.read("manifest.json")):
        if image["Config"] != config or image["Layers"] != layers:
            raise ValueError("manifest.json names another image than index.json")


def _blob_path(descriptor: Mapping[str, Any]) -> str:
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def _fits(manifest: Mapping[str, Any], platform: str) -> bool:
    arch = (manifest.get("platform") or {}).get("architecture", "")
    if arch == "unknown":
        return False  # the builder has added an attestation
    if manifest.get("mediaType") in _INDEXES or not platform or not arch:
        return True
    return bool(arch == _ARCHS.get(platform, platform))


def _layer(file: _Checked, image: Layers) -> None:
    """Apply a layer on top of the earlier layers."""
    own: set[str] = set()
    with tar.open_stream(file) as layer:
        for member in tar.members(layer):
            if len(image.entries) > MOST_FILES:
                raise ValueError("has too many files")
            if len(member.name) > _MOST_PATH:
                raise ValueError(f"has a path of more than {_MOST_PATH} characters")
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


def _entry(layer: tarfile.TarFile, member: tarfile.TarInfo, path: str, image: Layers) -> ImageEntry:
    if member.islnk():
        other = image.entries.get(image.place_of(member.linkname))
        return other or ImageEntry(kind=FileKind.LINK, target=member.linkname)
    if member.issym():
        return ImageEntry(kind=FileKind.LINK, target=member.linkname)
    if not member.isreg():
        return ImageEntry(kind=FileKind.SPECIAL)
    data = layer.extractfile(member)
    assert data is not None
    return image.keep(data, member, path)


def _is_kept(path: str, size: int) -> bool:
    """Return whether a file's content may be read later."""
    if _KEPT.search(path):
        return True
    return size <= _MOST_SCRIPT and posixpath.basename(posixpath.dirname(path)) == "bin"


def _remove(image: Layers, path: str, own: set[str], below: bool = False) -> None:
    """Remove the files of earlier layers at and below ``path``.

    :param own: Paths that this layer has added, which are kept.
    :param below: True to keep ``path`` itself.
    """
    if not below and path not in own:
        image.drop(path)
    if path not in image.folders:
        return
    start = f"{path.rstrip('/')}/"
    for name in list(image.entries):
        if name.startswith(start) and name not in own:
            image.drop(name)
