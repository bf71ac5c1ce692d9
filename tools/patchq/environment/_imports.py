"""Module search on an interpreter's path: folders, zip files and ``.pth`` files.

Within a folder, files are searched in the order of :class:`importlib.machinery.FileFinder`: package, extension, source,
sourceless cache. A folder without ``__init__`` is used only if no other entry of the path provides a module with the
folder's name.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from patchq.environment._files import FileTree

_CODE = re.compile(r"\.py|\.pyc|(?:\.(?P<tag>[\w-]+))?\.so")
_METADATA = re.compile(r"[^/]+\.(?:dist|egg)-info/[^/]+")
#: Largest zip file that is read, in bytes.
_MAX_ZIP = 256 << 20


class ImportedModule(NamedTuple):
    """File from which a module may be imported: a source, an extension or a cache."""

    path: str
    place: str


@dataclass(kw_only=True)
class ImportPlace:
    """Entry of ``sys.path``: a folder or a zip file. Any other entry counts as empty."""

    files: FileTree
    path: str
    version: tuple[int, int] = (0, 0)
    _by_name: dict[str, list[str]] | None = field(default=None, repr=False)

    @cached_property
    def archive(self) -> dict[str, bytes | None] | None:
        """Members of a zip file; None for a folder. Only metadata files have their content."""
        if not self.files.is_file(self.path):
            return None
        members: dict[str, bytes | None] = {}
        try:
            with zipfile.ZipFile(io.BytesIO(self.files.read(self.path, _MAX_ZIP))) as archive:
                for name in archive.namelist():
                    if _METADATA.fullmatch(name):
                        members[name] = archive.read(name)
                    else:
                        members[name] = None
        except Exception:  # zipfile raises many types for a damaged file, and Python ignores such a file
            return {}
        return members

    @cached_property
    def names(self) -> list[str]:
        """Names in the folder, or at the top level of the zip file."""
        if self.archive is not None:
            return sorted({name.split("/")[0] for name in self.archive})
        return self.files.listed(self.path)

    def text(self, name: str) -> str:
        """Return the text of a file in this entry; empty if the file doesn't exist."""
        if self.archive is not None:
            return (self.archive.get(name) or b"").decode("utf-8", "surrogateescape")
        return self.files.text(f"{self.path}/{name}")

    @cached_property
    def modules(self) -> dict[str, list[str]]:
        """Names of the files and folders in this entry, by the name of the module that Python may load from them."""
        found: dict[str, list[str]] = {}
        for name in self.names:
            found.setdefault(name.partition(".")[0], []).append(name)
        return found

    def find(self, module: str) -> list[ImportedModule]:
        """Return the files of a module or package of this name, in the order in which Python prefers them."""
        packages, plain = [], []
        for name in self.modules.get(module, ()):
            path = f"{self.path}/{name}"
            if name == module:
                for inner in self._sorted("__init__", self._names_in(name)):
                    packages.append(f"{path}/{inner}")
            elif self.archive is not None or self.files.is_file(path):
                plain.append(name)
        modules = [f"{self.path}/{name}" for name in self._sorted(module, plain)]
        return [ImportedModule(path, self.path) for path in [*packages, *modules]]

    def _names_in(self, name: str) -> list[str]:
        """Return the names in a subfolder of this entry."""
        if self.archive is None:
            return ImportPlace(files=self.files, path=f"{self.path}/{name}", version=self.version).names
        found = []
        for member in self.archive:
            folder, _, inner = member.partition("/")
            if folder == name and inner and "/" not in inner:
                found.append(inner)
        return found

    def has_folder(self, module: str) -> bool:
        """Return whether this entry contains a folder with the name ``module``.

        If no module has this name, Python imports the folder as a namespace package.
        """
        if module not in self.modules.get(module, ()):
            return False
        return self.files.is_folder(f"{self.path}/{module}")

    def _sorted(self, module: str, names: Iterable[str]) -> list[str]:
        """Return the file names that this interpreter would import as ``module``, in its order of preference."""
        ranked = []
        for name in names:
            if not name.startswith(module):
                continue
            match = _CODE.fullmatch(name[len(module) :])
            if match and self._loads(match["tag"]):
                kind = name.rpartition(".")[2]
                ranked.append((("so", "py", "pyc").index(kind), name))
        return [name for _, name in sorted(ranked)]

    def _loads(self, tag: str | None) -> bool:
        """Return whether this version loads extensions with ``tag`` (such as ``cpython-312-x86_64-linux-gnu``)."""
        if tag is None or tag == "abi3" or self.version == (0, 0):
            return True
        return re.match(r"cpython-{}{}t?(?:-|$)".format(*self.version), tag) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """Settings that decide which modules an interpreter imports.

    :ivar prefix: Folder of the interpreter's environment. Its scripts are in ``bin`` below this folder.
    :ivar base: Folder of the base Python. Usually, it equals the prefix. For a virtual environment, it is the folder of
        the Python that created the environment. For a folder without a Python, it is the folder of the Python that
        imports from there.
    :ivar stdlib: Entries of ``sys.path`` for the standard library, in order.
    :ivar path: Entries of ``sys.path`` after the first one, which is the folder of the script or the working
        folder.
    :ivar sites: Folders whose ``.pth`` files are read.
    :ivar working: Working folder of a process; empty if it isn't known.
    :ivar caches: Folder that ``PYTHONPYCACHEPREFIX`` names, or an empty string.
    """

    files: FileTree
    version: tuple[int, int]
    prefix: str
    base: str
    stdlib: tuple[str, ...]
    path: tuple[str, ...]
    sites: tuple[str, ...]
    working: str = ""
    caches: str = ""

    @property
    def tag(self) -> str:
        """Tag of the interpreter's caches: ``cpython-312``."""
        return "cpython-{}{}".format(*self.version)

    @property
    def is_found(self) -> bool:
        """True for an environment with an interpreter; False for a site folder without one."""
        return self.version != (0, 0)

    @property
    def scripts(self) -> str:
        return f"{self.prefix.rstrip('/')}/bin"

    def place(self, path: str) -> ImportPlace:
        return ImportPlace(files=self.files, path=path, version=self.version)

    def places(self) -> list[ImportPlace]:
        return [self.place(path) for path in self.path]

    def starts(self) -> list[str]:
        """Return the folders that may be the first entry of ``sys.path`` and aren't among its other entries."""
        found = [self.scripts]
        if self.working:
            found.append(self.working)
        known = set(map(self.files.resolve, self.path))
        starts: list[str] = []
        for folder in found:
            if self.files.resolve(folder) not in known:
                starts.append(folder)
        return starts


def find_all(places: Sequence[ImportPlace], module: str) -> list[ImportedModule]:
    """Return the files that an import of ``module`` may load, in the order of the search."""
    found = []
    for place in places:
        found += place.find(module)
    return found


def cache_paths(source: str, tag: str, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield the paths of a source's possible caches, with their optimisation levels."""
    folder, name = posixpath.split(source)
    if prefix:
        folder = f"{prefix}{folder}"
    else:
        folder = f"{folder}/__pycache__"
    stem = name.removesuffix(".py")
    for level, suffix in enumerate(("", ".opt-1", ".opt-2")):
        yield f"{folder}/{stem}.{tag}{suffix}.pyc", level


# .pth files


@dataclass(frozen=True, slots=True, kw_only=True)
class PathFile:
    """Contents of a ``.pth`` file. Python versions read such a file differently; lines of all readings are included.

    :ivar code: Lines that Python executes.
    :ivar folders: Paths that are added to ``sys.path``.
    :ivar error: Reason why the file can't be read; empty if it can.
    """

    path: str
    code: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    error: str = ""


def path_files(files: FileTree, site: str) -> Iterator[PathFile]:
    """Yield the ``.pth`` files of a site folder.

    Versions of Python before 3.13 decode lines in the locale's encoding, and also read hidden files. Later versions
    skip a byte order mark and split at every Unicode line boundary. A line counts as code if any version would run it.
    """
    for name in files.listed(site):
        if not name.endswith(".pth"):
            continue
        path = f"{site}/{name}"
        try:
            data = files.read(path, 1 << 20)
        except OSError as error:
            yield PathFile(path=path, error=error.strerror or "can't be read")
            continue
        lines: dict[str, None] = {}
        for text in _decoded(data):
            lines.update(dict.fromkeys(_split(text)))
        code, folders = [], []
        for line in lines:
            if line.startswith(("import ", "import\t")):
                code.append(line)
            elif line.strip() and not line.startswith("#"):
                folders.append(posixpath.normpath(posixpath.join(site, line.rstrip())))
        yield PathFile(path=path, code=tuple(code), folders=tuple(folders))


def _decoded(data: bytes) -> Iterator[str]:
    """Yield each text that Python may decode from a file. The decoding depends on Python's version and the locale."""
    try:
        yield data.decode()
    except UnicodeDecodeError:
        yield data.decode("utf-8", "surrogateescape")
        yield data.decode("latin-1")


def _split(text: str) -> Iterator[str]:
    """Yield lines as Python before 3.13 splits them, followed by lines as later versions split them."""
    yield from text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    yield from text.removeprefix("\ufeff").splitlines()
