"""The Python environments of a file tree, told from its folders: nothing in the tree can be started."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from patchq.environment._files import Files
from patchq.environment._imports import Interpreter, path_files
from patchq.environment._known import known_line

_LIB = re.compile(r"(?P<prefix>/.*?|)/lib(?:64)?/(?:python|pypy)(?P<version>3(?:\.\d+)?)")
_SITE = re.compile(r"(?:.*/)?(?:site|dist)-packages")
#: Modules that every standard library has.
_MARK = "os.py"


def environments(files: Files, folders: set[str], env: Mapping[str, str], home: str, working: str) -> list[Interpreter]:
    """Return an interpreter for each environment of a tree.

    An environment is a folder that has ``lib/pythonX.Y`` with a standard library or a site folder. A site folder that
    lies elsewhere is one by itself. A folder that ``pip install --user`` or ``--prefix`` fills has no Python of its
    own: its base is the Python that has its site folders on the path.

    :param folders: all folders of the tree.
    :param env: the variables that a process starts with.
    :param home: the home folder of the user that it starts as.
    """
    found: dict[tuple[str, tuple[int, int]], Interpreter] = {}
    libs = sorted(folder for folder in folders if _LIB.fullmatch(folder) and files.resolve(folder) == folder)
    covered: set[str] = set()
    for lib in libs:
        match = _LIB.fullmatch(lib)
        assert match
        version = _version(match["version"])
        if len(match["version"]) == 1 and match["prefix"] == "/usr":
            continue  # Debian's /usr/lib/python3, which its interpreters share
        if (
            match["prefix"] == "/usr/local"
            and not _stdlib(files, "/usr/local", version)
            and _stdlib(files, "/usr", version)
        ):
            continue  # Debian's and Fedora's place for what pip installs
        key = match["prefix"] or "/", version
        if key not in found and (files.is_file(f"{lib}/{_MARK}") or _sites_below(files, lib)):
            found[key] = _interpreter(files, key[0], version, libs, env, home, working)
            covered.update(map(files.resolve, found[key].sites))
    for site in sorted(folder for folder in folders if _SITE.fullmatch(folder)):
        if files.resolve(site) == site and site not in covered and not _is_nested(site):
            key = site, (0, 0)
            prefix = posixpath.dirname(site)
            path = (*_variable(env, working), *_with_added(files, [site]))
            found[key] = Interpreter(
                files=files, version=(0, 0), prefix=prefix, base=prefix, stdlib=(), path=path, sites=(site,),
                working=working, caches=env.get("PYTHONPYCACHEPREFIX", ""),
            )  # fmt: skip
    return [_with_base(one, found.values()) for one in found.values()]


def _with_base(one: Interpreter, others: Iterable[Interpreter]) -> Interpreter:
    """Return an environment that has no Python with the base that imports what is installed there."""
    resolve = one.files.resolve
    for other in () if one.stdlib else others:
        is_on_path = set(map(resolve, one.sites)) <= set(map(resolve, other.path))
        if other.stdlib and other.version == one.version and is_on_path:
            return replace(one, base=other.prefix)
    return one


def _is_nested(site: str) -> bool:
    """Return whether a site folder lies within a package: a package's own data, which no interpreter reads."""
    return _SITE.match(posixpath.dirname(site) + "/") is not None and "-packages/" in site.rpartition("/")[0]


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if minor else (0, 0)


def _sites_below(files: Files, lib: str) -> list[str]:
    return [f"{lib}/{name}" for name in ("site-packages", "dist-packages") if files.is_folder(f"{lib}/{name}")]


def _interpreter(
    files: Files, prefix: str, version: tuple[int, int], libs: list[str], env: Mapping[str, str], home: str,
    working: str,
) -> Interpreter:  # fmt: skip
    settings = _venv_settings(files, prefix)
    base = prefix
    isolated = False
    if settings:
        isolated = settings.get("include-system-site-packages", "").lower() != "true"
        base = posixpath.dirname(files.resolve(settings.get("home", "").rstrip("/") or prefix))
        base = _base_with_stdlib(files, [base, settings.get("home", "").rstrip("/").rpartition("/")[0]], version)
    stdlib = _stdlib(files, base, version)
    sites = _sites(files, prefix, version)
    if settings and not isolated and base != prefix:
        sites += _sites(files, base, version)
    user = env.get("PYTHONUSERBASE") or f"{home.rstrip('/')}/.local"
    if not isolated and not env.get("PYTHONNOUSERSITE"):
        sites.insert(0, f"{user}/lib/python{version[0]}.{version[1]}/site-packages")
    sites = [site for site in dict.fromkeys(sites) if files.is_folder(site)]
    path = (*_variable(env, working), *stdlib, *_with_added(files, sites))
    return Interpreter(
        files=files, version=version, prefix=prefix, base=base or prefix, stdlib=stdlib, path=path,
        sites=tuple(sites), working=working, caches=env.get("PYTHONPYCACHEPREFIX", ""),
    )  # fmt: skip


def _venv_settings(files: Files, prefix: str) -> dict[str, str]:
    """Return the settings of ``pyvenv.cfg``; empty if there is none."""
    settings = {}
    for line in files.text(f"{prefix.rstrip('/')}/pyvenv.cfg", 1 << 20).splitlines():
        key, equals, value = line.partition("=")
        if equals:
            settings[key.strip().lower()] = value.strip()
    return settings


def _base_with_stdlib(files: Files, candidates: list[str], version: tuple[int, int]) -> str:
    return next((base for base in candidates if _stdlib(files, base, version)), candidates[0])


def _stdlib(files: Files, base: str, version: tuple[int, int]) -> tuple[str, ...]:
    for lib in ("lib", "lib64"):
        folder = f"{base.rstrip('/')}/{lib}/python{version[0]}.{version[1]}"
        if files.is_file(f"{folder}/{_MARK}"):
            archive = f"{base.rstrip('/')}/{lib}/python{version[0]}{version[1]}.zip"
            return archive, folder, f"{folder}/lib-dynload"
    return ()


def _sites(files: Files, prefix: str, version: tuple[int, int]) -> list[str]:
    """Return the site folders of a prefix, as ``site.getsitepackages`` does here and on Debian and Fedora."""
    prefix = prefix.rstrip("/")
    name = f"python{version[0]}.{version[1]}"
    found = [f"{prefix}/{lib}/{name}/site-packages" for lib in ("lib", "lib64")]
    if prefix == "/usr":
        local = [
            f"/usr/local/{lib}/{name}/{kind}" for lib in ("lib", "lib64") for kind in ("site-packages", "dist-packages")
        ]
        found = [*local, *found, "/usr/lib/python3/dist-packages", f"/usr/lib/{name}/dist-packages"]
    elif files.is_folder(f"{prefix}/lib/{name}/dist-packages"):
        found.append(f"{prefix}/lib/{name}/dist-packages")
    unique = {files.resolve(site): site for site in reversed(found) if files.is_folder(site)}
    return [site for site in found if unique.get(files.resolve(site)) == site]


def _with_added(files: Files, sites: list[str]) -> Iterator[str]:
    """Yield site folders, each followed by what its ``.pth`` files add."""
    front: list[str] = []
    rest: list[str] = []
    for site in sites:
        rest.append(site)
        for file in path_files(files, site):
            moves = any((line := known_line(code)) and line.front for code in file.code)
            (front if moves else rest).extend(path for path in file.folders if files.real_kind(path))
    yield from dict.fromkeys([*front, *rest])


def _variable(env: Mapping[str, str], working: str) -> list[str]:
    """Return the entries of ``PYTHONPATH``; an empty or relative one is of the working folder."""
    named = env.get("PYTHONPATH", "")
    return [posixpath.normpath(posixpath.join(working or "/", entry)) for entry in named.split(":")] if named else []
