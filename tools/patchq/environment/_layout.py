"""Python environments in a file tree, found by the names of its folders. Nothing in the tree is run."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from patchq.environment._files import FileTree
from patchq.environment._imports import Interpreter, path_files
from patchq.environment._known import known_line

_LIB = re.compile(r"(?P<prefix>/.*?|)/lib(?:64)?/(?:python|pypy)(?P<version>3(?:\.\d+)?)")
_SITE = re.compile(r"(?:.*/)?(?:site|dist)-packages")
_SITE_NAMES = ("site-packages", "dist-packages")
_LIB_NAMES = ("lib", "lib64")
#: Module that every standard library has.
_MARK = "os.py"
#: Version that is assumed for a site folder without an interpreter.
_NO_VERSION = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Settings of a process that may start an interpreter.

    :ivar env: Environment variables of the process.
    :ivar home: Home folder of the user.
    :ivar working: Working folder.
    """

    env: Mapping[str, str]
    home: str
    working: str

    @property
    def caches(self) -> str:
        return self.env.get("PYTHONPYCACHEPREFIX", "")

    @property
    def python_path(self) -> list[str]:
        """Entries of ``PYTHONPATH``. Empty and relative entries are resolved below the working folder."""
        value = self.env.get("PYTHONPATH", "")
        if not value:
            return []
        entries = value.split(":")
        return [posixpath.normpath(posixpath.join(self.working or "/", one)) for one in entries]


def environments(files: FileTree, folders: set[str], process: Process) -> list[Interpreter]:
    """Return an interpreter for each Python environment in a file tree.

    An environment is a folder that contains ``lib/pythonX.Y`` with a standard library or a site folder. A site folder
    anywhere else counts as an environment of its own. Folders of ``pip install --user`` and ``--prefix`` contain no
    Python. Their base is the Python whose path contains their site folders.

    :param folders: All folders of the tree.
    """
    found: dict[tuple[str, tuple[int, int]], Interpreter] = {}
    covered: set[str] = set()
    for lib in sorted(folders):
        match = _LIB.fullmatch(lib)
        if not match or files.resolve(lib) != lib or _is_shared(files, match):
            continue
        key = match["prefix"] or "/", _version(match["version"])
        if key not in found and (files.is_file(f"{lib}/{_MARK}") or _has_site(files, lib)):
            found[key] = _interpreter(files, *key, process)
            covered.update(map(files.resolve, found[key].sites))
    for site in sorted(folders):
        if not _SITE.fullmatch(site) or _is_nested(site):
            continue
        if files.resolve(site) == site and site not in covered:
            found[site, _NO_VERSION] = _lone_site(files, site, process)
    return [_with_base(one, found.values()) for one in found.values()]


def _is_shared(files: FileTree, lib: re.Match[str]) -> bool:
    """Return whether a folder ``PREFIX/lib/pythonX.Y`` belongs to an interpreter that has another prefix."""
    if lib["prefix"] == "/usr":
        return len(lib["version"]) == 1  # Debian's interpreters share /usr/lib/python3
    if lib["prefix"] != "/usr/local":
        return False
    # Debian's and Fedora's Python in /usr installs packages below /usr/local.
    version = _version(lib["version"])
    return not _stdlib(files, "/usr/local", version) and bool(_stdlib(files, "/usr", version))


def _lone_site(files: FileTree, site: str, process: Process) -> Interpreter:
    prefix = posixpath.dirname(site)
    return Interpreter(
        files=files,
        version=_NO_VERSION,
        prefix=prefix,
        base=prefix,
        stdlib=(),
        path=(*process.python_path, *_with_added(files, [site])),
        sites=(site,),
        working=process.working,
        caches=process.caches,
    )


def _with_base(one: Interpreter, others: Iterable[Interpreter]) -> Interpreter:
    """Return ``one``; if it has no Python, set its base to the Python whose path contains its site folders."""
    if one.stdlib:
        return one
    resolve = one.files.resolve
    for other in others:
        is_on_path = set(map(resolve, one.sites)) <= set(map(resolve, other.path))
        if other.stdlib and other.version == one.version and is_on_path:
            return replace(one, base=other.prefix)
    return one


def _is_nested(site: str) -> bool:
    """Return whether a site folder is only data inside a package. No interpreter reads such a folder."""
    above = posixpath.dirname(site)
    return _SITE.match(above + "/") is not None and "-packages/" in above


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    if minor:
        return (int(major), int(minor))
    return _NO_VERSION


def _has_site(files: FileTree, lib: str) -> bool:
    return any(files.is_folder(f"{lib}/{name}") for name in _SITE_NAMES)


def _interpreter(files: FileTree, prefix: str, version: tuple[int, int], process: Process) -> Interpreter:
    settings = _venv_settings(files, prefix)
    base = prefix
    isolated = False
    if settings:
        isolated = settings.get("include-system-site-packages", "").lower() != "true"
        home = settings.get("home", "").rstrip("/")
        resolved = posixpath.dirname(files.resolve(home or prefix))
        base = resolved
        for candidate in (resolved, home.rpartition("/")[0]):
            if _stdlib(files, candidate, version):
                base = candidate
                break
    stdlib = _stdlib(files, base, version)
    sites = _sites(files, prefix, version)
    if settings and not isolated and base != prefix:
        sites += _sites(files, base, version)
    user = process.env.get("PYTHONUSERBASE") or f"{process.home.rstrip('/')}/.local"
    if not isolated and not process.env.get("PYTHONNOUSERSITE"):
        sites.insert(0, f"{user}/lib/python{version[0]}.{version[1]}/site-packages")
    sites = [site for site in dict.fromkeys(sites) if files.is_folder(site)]
    return Interpreter(
        files=files,
        version=version,
        prefix=prefix,
        base=base or prefix,
        stdlib=stdlib,
        path=(*process.python_path, *stdlib, *_with_added(files, sites)),
        sites=tuple(sites),
        working=process.working,
        caches=process.caches,
    )


def _venv_settings(files: FileTree, prefix: str) -> dict[str, str]:
    """Return the settings in ``pyvenv.cfg`` of a prefix; empty if the file doesn't exist."""
    settings = {}
    for line in files.text(f"{prefix.rstrip('/')}/pyvenv.cfg", 1 << 20).splitlines():
        key, equals, value = line.partition("=")
        if equals:
            settings[key.strip().lower()] = value.strip()
    return settings


def _stdlib(files: FileTree, base: str, version: tuple[int, int]) -> tuple[str, ...]:
    """Return the path entries of a base Python's standard library; empty if it has none."""
    major, minor = version
    for name in _LIB_NAMES:
        lib = f"{base.rstrip('/')}/{name}"
        folder = f"{lib}/python{major}.{minor}"
        if files.is_file(f"{folder}/{_MARK}"):
            return f"{lib}/python{major}{minor}.zip", folder, f"{folder}/lib-dynload"
    return ()


def _sites(files: FileTree, prefix: str, version: tuple[int, int]) -> list[str]:
    """Return a prefix's site folders, like ``site.getsitepackages``, and the extra folders of Debian and Fedora."""
    prefix = prefix.rstrip("/")
    name = f"python{version[0]}.{version[1]}"
    found = [f"{prefix}/{lib}/{name}/site-packages" for lib in _LIB_NAMES]
    if prefix == "/usr":
        local = [f"/usr/local/{lib}/{name}" for lib in _LIB_NAMES]
        found = [
            *(f"{lib}/{kind}" for lib in local for kind in _SITE_NAMES),
            *found,
            "/usr/lib/python3/dist-packages",
            f"/usr/lib/{name}/dist-packages",
        ]
    elif files.is_folder(f"{prefix}/lib/{name}/dist-packages"):
        found.append(f"{prefix}/lib/{name}/dist-packages")
    unique: dict[str, str] = {}
    for site in found:
        if files.is_folder(site):
            unique.setdefault(files.resolve(site), site)
    return list(unique.values())


def _with_added(files: FileTree, sites: list[str]) -> Iterator[str]:
    """Yield site folders, each followed by the paths that its ``.pth`` files add."""
    front: list[str] = []
    rest: list[str] = []
    for site in sites:
        rest.append(site)
        for file in path_files(files, site):
            added = []
            for path in file.folders:
                if files.real_kind(path):
                    added.append(path)
            if any(line.front for line in map(known_line, file.code) if line):
                front += added
            else:
                rest += added
    yield from dict.fromkeys([*front, *rest])
