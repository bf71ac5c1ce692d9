"""Where an interpreter finds modules: the folders and zip files on its path, and which file each name means.

The order within a folder is that of :class:`importlib.machinery.FileFinder`: a package, then an extension, a source, a
sourceless cache; and a folder without ``__init__`` only if nothing on the whole path has the name.
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

from patchq.environment._files import Files

_CODE = re.compile(r"\.py|\.pyc|(?:\.(?P<tag>[\w-]+))?\.so")
#: Bytes of a zip file on the path that is read.
_MAX_ZIP = 256 << 20


class Module(NamedTuple):
    """A file that a name may be imported from. ``path`` is the source, extension or cache that would run."""

    path: str
    place: str


@dataclass
class Place:
    """An entry of ``sys.path``: a folder, or a zip file. What is neither holds nothing."""

    files: Files
    path: str
    version: tuple[int, int] = (0, 0)
    _by_name: dict[str, list[str]] | None = field(default=None, repr=False)

    @cached_property
    def archive(self) -> dict[str, bytes | None] | None:
        """The members of a zip file; content for metadata alone. None for a folder."""
        if not self.files.is_file(self.path):
            return None
        try:
            with zipfile.ZipFile(io.BytesIO(self.files.read(self.path, _MAX_ZIP))) as archive:
                wanted = re.compile(r"[^/]+\.(?:dist|egg)-info/[^/]+")
                return {n: archive.read(n) if wanted.fullmatch(n) else None for n in archive.namelist()}
        except Exception:  # zipfile raises whatever its code meets in a damaged file; Python imports nothing from one
            return {}

    @cached_property
    def names(self) -> list[str]:
        """The names in the folder, or at the top of the zip file."""
        if self.archive is not None:
            return sorted({name.split("/")[0] for name in self.archive})
        return self.files.listed(self.path)

    def text(self, name: str) -> str:
        """Return the text of a file below, empty if there is none."""
        if self.archive is not None:
            return (self.archive.get(name) or b"").decode("utf-8", "surrogateescape")
        return self.files.text(f"{self.path}/{name}")

    @cached_property
    def modules(self) -> dict[str, list[str]]:
        """The names in the folder by the module that each may be."""
        found: dict[str, list[str]] = {}
        for name in self.names:
            found.setdefault(name.partition(".")[0], []).append(name)
        return found

    def find(self, module: str) -> list[Module]:
        """Return each file that a module or package of this name may be, in Python's order."""
        there = self.modules.get(module, ())
        packages, plain = [], []
        for name in there:
            path = f"{self.path}/{name}"
            if name == module:
                inside = Place(self.files, path, self.version)
                if self.archive is not None:
                    names = [n.split("/")[1] for n in self.archive if re.fullmatch(rf"{re.escape(module)}/[^/]+", n)]
                else:
                    names = inside.names
                packages = [f"{path}/{n}" for n in self._sorted("__init__", names)]
            elif self._sorted(module, [name]) and (self.archive is not None or self.files.is_file(path)):
                plain.append(name)
        return [Module(p, self.path) for p in (*packages, *(f"{self.path}/{n}" for n in self._sorted(module, plain)))]

    def has_folder(self, module: str) -> bool:
        """Return whether there is a folder of this name, which is a namespace package if nothing else is found."""
        return module in self.modules.get(module, ()) and self.files.is_folder(f"{self.path}/{module}")

    def _sorted(self, module: str, names: Iterable[str]) -> list[str]:
        """Return those of ``names`` that this interpreter imports as ``module``."""
        ranked = []
        for name in names:
            match = _CODE.fullmatch(name[len(module) :]) if name.startswith(module) else None
            if match and self._loads(match["tag"]):
                kind = name.rpartition(".")[2]
                ranked.append((("so", "py", "pyc").index(kind), name))
        return [name for _, name in sorted(ranked)]

    def _loads(self, tag: str | None) -> bool:
        """Return whether this version loads an extension with a tag, such as ``cpython-312-x86_64-linux-gnu``."""
        if tag is None or tag == "abi3" or self.version == (0, 0):
            return True
        return re.match(r"cpython-{}{}t?(?:-|$)".format(*self.version), tag) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """What decides which modules an interpreter imports, apart from the files.

    :ivar prefix: its environment's folder; ``bin`` in it holds the scripts.
    :ivar base: the folder of the Python that a virtual environment is of, or that imports what is installed in a folder
        without a Python; else the prefix.
    :ivar stdlib: the entries of ``sys.path`` that are the standard library, in order.
    :ivar path: all entries of ``sys.path`` but the first, which is a script's folder or the working folder.
    :ivar sites: folders whose ``.pth`` files are read.
    :ivar working: the folder that a process starts in; empty if it isn't known.
    :ivar caches: the folder that ``PYTHONPYCACHEPREFIX`` names, or empty.
    """

    files: Files
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
        """The tag of its caches: ``cpython-312``."""
        return "cpython-{}{}".format(*self.version)

    @property
    def is_found(self) -> bool:
        """Whether it is an interpreter's environment; else it is a site folder that may be none's."""
        return self.version != (0, 0)

    @property
    def scripts(self) -> str:
        return f"{self.prefix.rstrip('/')}/bin"

    def place(self, path: str) -> Place:
        return Place(self.files, path, self.version)

    def places(self) -> list[Place]:
        return [self.place(path) for path in self.path]

    def starts(self) -> list[str]:
        """Return the folders that may be the first entry of ``sys.path``."""
        found = [self.scripts, *([self.working] if self.working else [])]
        return [folder for folder in found if self.files.resolve(folder) not in map(self.files.resolve, self.path)]


def find_all(places: Sequence[Place], module: str) -> list[Module]:
    """Return each file that an import of ``module`` may find, the one that it finds first."""
    return [found for place in places for found in place.find(module)]


def cache_paths(source: str, tag: str, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield the caches of a source and their levels of optimisation."""
    folder, name = posixpath.split(source)
    folder = f"{prefix}{folder}" if prefix else f"{folder}/__pycache__"
    stem = name.removesuffix(".py")
    for level, suffix in enumerate(("", ".opt-1", ".opt-2")):
        yield f"{folder}/{stem}.{tag}{suffix}.pyc", level


# .pth files


@dataclass(frozen=True, slots=True)
class PathFile:
    """A ``.pth`` file, as any of the supported versions of Python reads it.

    :ivar error: why it can't be read, or empty.
    """

    path: str
    code: tuple[str, ...]
    folders: tuple[str, ...]
    error: str = ""


def path_files(files: Files, site: str) -> Iterator[PathFile]:
    """Yield the ``.pth`` files of a site folder.

    Python before 3.13 reads them by line in the encoding of the locale, and reads hidden ones too; later versions skip
    a byte order mark and split at every line boundary of Unicode. A line counts as code if any of them would run it.
    """
    for name in files.listed(site):
        if not name.endswith(".pth"):
            continue
        path = f"{site}/{name}"
        try:
            data = files.read(path, 1 << 20)
        except OSError as error:
            yield PathFile(path, (), (), error.strerror or "can't be read")
            continue
        lines = dict.fromkeys(line for text in _decoded(data) for line in _split(text))
        code = tuple(line for line in lines if line.startswith(("import ", "import\t")))
        rest = (line.rstrip() for line in lines if line.strip() and not line.startswith("#") and line not in code)
        yield PathFile(path, code, tuple(posixpath.normpath(posixpath.join(site, line)) for line in rest))


def _decoded(data: bytes) -> Iterator[str]:
    try:
        yield data.decode()
    except UnicodeDecodeError:
        yield data.decode("utf-8", "surrogateescape")
        yield data.decode("latin-1")


def _split(text: str) -> Iterator[str]:
    yield from text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    yield from text.removeprefix("\ufeff").splitlines()
