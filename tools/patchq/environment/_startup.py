"""Start-up code, shadowed modules and plugins in an environment."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from patchq.environment._distributions import Distribution, closure, intact
from patchq.environment._files import FileKind
from patchq.environment._imports import ImportPlace, find_all, path_files
from patchq.environment._known import KnownLine, known_line, known_module
from patchq.environment.differences import Code, Findings
from patchq.environment.installed import InstalledEnvironment
from patchq.formats.distinfo import canonical

_CUSTOM = ("sitecustomize", "usercustomize")
#: Modules of the standard library of Python 3.8 to 3.14 that are missing from ``stdlib_module_names`` in some version.
_OLD_AND_NEW = """
    __hello__ __phello__ __phello__foo _android_support _apple_support _ast_unparse _bootlocale
    _bootsubprocess _colorize _crypt _dummy_thread _hmac _interpchannels _interpqueues
    _interpreters _ios_support _lsprof _msi _opcode_metadata _py_warnings _pydatetime _pylong
    _pyrepl _remote_debugging _sha2 _sha256 _sha512 _suggestions _sysconfig _testlimitedcapi
    _tokenize _types _typing _wmi _zstd aifc annotationlib asynchat asyncore audioop binhex cgi
    cgitb chunk compression crypt distutils dummy_threading formatter idlelib imghdr imp lib2to3
    macpath mailcap msilib nis nntplib ossaudiodev parser pipes smtpd sndhdr spwd sunau symbol
    telnetlib test tomllib turtledemo uu xdrlib zoneinfo
""".split()  # noqa: SIM905
#: Modules of other systems that the standard library tries to import.
_ELSEWHERE = frozenset(
    "_overlapped _scproxy _winapi java msvcrt nt org vms_lib winreg".split()  # noqa: SIM905
)
_STDLIB = frozenset(sys.stdlib_module_names) | frozenset(_OLD_AND_NEW)
#: Lines of a namespace package's ``__init__.py``, from the documentation of pkgutil and setuptools.
_NAMESPACE = re.compile(
    r"__import__\(['\"]pkg_resources['\"]\)\.declare_namespace\(__name__\)|"
    r"(?:try|except ImportError):|"
    r"import pkg_resources|"
    r"pkg_resources\.declare_namespace\(__name__\)|from pkgutil import extend_path|import pkgutil|"
    r"__path__ = (?:__import__\(['\"]pkgutil['\"]\)\.|pkgutil\.)?extend_path\(__path__, __name__\)"
)
#: Modules that a build of Python adds to the standard library.
_BUILT = re.compile(r"_sysconfigdata\w*|_sysconfig_vars\w*|_test\w*|_xx\w*|xx\w*|_ctypes_test|_distutils_system_mod")
#: Folders inside the standard library's folder that aren't part of the standard library.
_OTHERS = re.compile(r"(?:site|dist)-packages|lib-dynload|__pycache__|config-.*")


def judge_environment(environment: InstalledEnvironment, packages: Mapping[str, str], findings: Findings) -> list[str]:
    """Report unexpected code that an environment runs; return the source files of its start-up code.

    :param packages: Import names of the patched packages by distribution.
    """
    sources = judge_startup(environment, findings)
    _judge_stdlib(environment, findings)
    _judge_build_folder(environment, findings)
    _judge_shadows(environment, packages, findings)
    _judge_plugins(environment, packages, findings)
    return sources


# .pth files, sitecustomize and usercustomize


def judge_startup(environment: InstalledEnvironment, findings: Findings) -> list[str]:
    """Report code that runs at each start of the interpreter; return its source files."""
    return _judge_path_files(environment, findings) + _judge_custom(environment, findings)


def _judge_path_files(environment: InstalledEnvironment, findings: Findings) -> list[str]:
    files = environment.files
    sources: list[str] = []
    for site in environment.interpreter.sites:
        for file in path_files(files, site):
            name = posixpath.basename(file.path)
            if file.error:
                findings.judge(name, Code.STARTUP_CODE, [file.path], file.error)
            if file.folders:
                findings.note(Code.STARTUP_PATH, [file.path])
            for line in file.code:
                known = known_line(line)
                if known is None:
                    findings.judge(name, Code.STARTUP_CODE, [file.path], line[:200])
                    continue
                findings.note(Code.STARTUP_CODE, [file.path], line[:200], known.owner)
                sources += _judge_known(environment, known, name, findings)
    return sources


def _judge_known(environment: InstalledEnvironment, known: KnownLine, name: str, findings: Findings) -> list[str]:
    """Report unknown modules that known start-up code imports, and modules that this code shadows.

    Return the source files of the imported modules.
    """
    taken = []
    for claim in known.claims:
        if _is_needed(environment, claim):
            taken.append(claim)
    if taken:
        findings.judge(name, Code.SHADOWED, [name], ", ".join(taken))
    sources = []
    for module in known.imports:
        for found in find_all(environment.places, module)[:1]:
            sources.append(found.path)
            _judge_module(environment, found.path, findings, owner=known.owner, name=name)
    return sources


def _judge_module(
    environment: InstalledEnvironment, path: str, findings: Findings, *, owner: str = "", name: str
) -> None:
    """Report a module that runs at each start, unless its content is known or matches the RECORD of ``owner``.

    :param name: Name of the file that imports the module.
    """
    files = environment.files
    own = posixpath.basename(path)
    if own.startswith("__init__."):
        own = posixpath.basename(posixpath.dirname(path))
    if owner and intact(files, environment.distributions, path, owner):
        return
    known = None
    if path.endswith(".py"):
        try:
            known = known_module(files.read(path))
        except OSError:
            known = None
    if known is None:
        if name in findings.allow:
            allowed = name
        else:
            allowed = own
        findings.judge(allowed, Code.STARTUP_CODE, [path])
    else:
        _judge_known(environment, known, own, findings)


def _is_needed(environment: InstalledEnvironment, module: str) -> bool:
    """Return whether the standard library or the path contains a module with this name."""
    top = module.split(".")[0]
    return top in _STDLIB or bool(find_all(environment.places, top))


def _judge_custom(environment: InstalledEnvironment, findings: Findings) -> list[str]:
    """Report sitecustomize and usercustomize; return their source files.

    The search ignores the script's folder, which Python adds to the path later.
    """
    sources = []
    for module in _CUSTOM:
        for found in find_all(environment.places, module):
            sources.append(found.path)
            _judge_module(environment, found.path, findings, name=posixpath.basename(found.path))
    return sources


# Shadowed modules


def _judge_stdlib(environment: InstalledEnvironment, findings: Findings) -> None:
    """Report modules in the standard library's folders that Python doesn't ship, and modules with several files."""
    interpreter = environment.interpreter
    forms: dict[str, list[str]] = {}
    for path in interpreter.stdlib:
        place = interpreter.place(path)
        for module in place.modules:
            if _OTHERS.fullmatch(module) or not module.isidentifier():
                continue
            paths = [found.path for found in place.find(module)]
            forms.setdefault(module, []).extend(paths)
            if paths and not _is_known(module):
                findings.judge(module, Code.STDLIB, paths, module)
    for module, paths in forms.items():
        _judge_forms(module, paths, findings)
    for path in interpreter.stdlib[1:2]:
        for folder in _packages(interpreter.place(path)):
            for module in folder.modules:
                _judge_forms(module, [found.path for found in folder.find(module)], findings)


def _is_known(module: str) -> bool:
    return module in _STDLIB or module in _CUSTOM or _BUILT.fullmatch(module) is not None


def _judge_forms(module: str, paths: list[str], findings: Findings) -> None:
    """Report a module of the standard library if it has several files.

    A cache without a source is ignored if it isn't the first file, because Python then doesn't load it.
    """
    others = []
    for path in paths[1:]:
        if not path.endswith(".pyc"):
            others.append(path)
    if others:
        findings.judge(module, Code.STDLIB, paths, module)


def _judge_build_folder(environment: InstalledEnvironment, findings: Findings) -> None:
    """Report ``pybuilddir.txt``, which makes an interpreter load its extension modules from another folder."""
    interpreter, files = environment.interpreter, environment.files
    settings = files.text(f"{interpreter.prefix.rstrip('/')}/pyvenv.cfg", 1 << 20)
    homes = re.findall(r"(?im)^[ \t]*home[ \t]*=[ \t]*(/.*?)[ \t]*$", settings)
    folders = [interpreter.scripts, f"{interpreter.base.rstrip('/')}/bin", *homes]
    for folder in dict.fromkeys(folders):
        path = f"{folder}/pybuilddir.txt"
        if files.real_kind(path) is not None:
            findings.judge("pybuilddir.txt", Code.STDLIB, [path], "pybuilddir.txt")


def _packages(place: ImportPlace) -> Iterator[ImportPlace]:
    """Yield the folders below a standard library's folder that may be packages."""
    files = place.files
    todo = [name for name in place.names if not _OTHERS.fullmatch(name)]
    while todo:
        name = todo.pop()
        folder = f"{place.path}/{name}"
        is_name = posixpath.basename(name).isidentifier()
        if is_name and files.kind(files.resolve(folder)) is FileKind.FOLDER:
            below = ImportPlace(files=files, path=folder, version=place.version)
            yield below
            todo += [f"{name}/{inner}" for inner in below.names if inner != "__pycache__"]


def _judge_shadows(environment: InstalledEnvironment, packages: Mapping[str, str], findings: Findings) -> None:
    """Report modules that shadow a module of the standard library, of a patched package or of its requirements."""
    interpreter = environment.interpreter
    library: set[str] = set()
    for path in interpreter.stdlib:
        library.update(filter(str.isidentifier, interpreter.place(path).modules))
    own = {package.split(".")[0] for package in packages.values()}
    needed = _needed(environment, packages)
    for place in environment.places:
        _judge_found(place, _ELSEWHERE - library, findings)
    for first in ["", *interpreter.starts()]:
        places = environment.places
        if first:
            places = [interpreter.place(first), *places]
        for place in places:
            if place.path in interpreter.stdlib:
                break
            _judge_found(place, library - set(_CUSTOM), findings)
        for module, owners in needed.items():
            # On the path itself, `judge_package` checks the packages' own modules.
            if module not in library and (first or module not in own):
                _judge_winner(environment, places, module, owners, findings=findings)


def _judge_found(place: ImportPlace, modules: frozenset[str] | set[str], findings: Findings) -> None:
    """Report each given module that an entry of the path contains."""
    for module in modules.intersection(place.modules):
        for found in place.find(module)[:1]:
            findings.judge(module, Code.SHADOWED, [found.path], module)


def _judge_winner(
    environment: InstalledEnvironment,
    places: Sequence[ImportPlace],
    module: str,
    owners: Iterable[Distribution],
    *,
    findings: Findings,
) -> None:
    """Report the file that an import of a module finds, unless it belongs to one of the distributions ``owners``."""
    for winner in find_all(places, module)[:1]:
        if not _is_rightful(environment, winner.path, owners):
            findings.judge(module, Code.SHADOWED, [winner.path], module)


def _needed(environment: InstalledEnvironment, packages: Mapping[str, str]) -> dict[str, list[Distribution]]:
    """Return the modules of the packages and of their requirements, with the distributions that record each module."""
    names = closure(environment.distributions, packages)
    found: dict[str, list[Distribution]] = {}
    for distribution in environment.distributions:
        if distribution.name in names and not distribution.editable:
            for module in distribution.modules:
                found.setdefault(module, []).append(distribution)
    return found


def _is_rightful(environment: InstalledEnvironment, path: str, owners: Iterable[Distribution]) -> bool:
    """Return True if the module ``path`` is in a RECORD of ``owners``, or only declares a namespace package."""
    real = environment.files.resolve(path)
    if any(real in owner.recorded for owner in owners):
        return True
    return _is_namespace(environment.files.text(path, 1 << 16))


def _is_namespace(source: str) -> bool:
    lines = [line.strip() for line in source.splitlines()]
    code = []
    for line in lines:
        if line and not line.startswith("#"):
            code.append(line)
    return bool(code) and all(map(_NAMESPACE.fullmatch, code))


# Plugins


def _judge_plugins(environment: InstalledEnvironment, packages: Mapping[str, str], findings: Findings) -> None:
    """Report entry points of other distributions that a patched package may load as plugins."""
    ours = set(map(canonical, packages))
    points = []
    for distribution in environment.distributions:
        if distribution.name not in ours:
            for point in distribution.entry_points:
                if point.group not in ("console_scripts", "gui_scripts"):
                    points.append((distribution, point))
    own_names = {*packages, *packages.values()}
    groups = {point.group for _, point in points}
    loaded = groups & findings.groups
    for group in groups:
        if group.split(".")[0] in own_names:
            loaded.add(group)
    if groups - loaded:
        loaded |= groups & _quoted_by_loaders(environment, packages)
    for distribution, point in points:
        if point.group in loaded:
            path = f"{distribution.info}/entry_points.txt"
            words = (distribution.name, point.name, point.group)
            findings.judge(distribution.name, Code.PLUGIN, [path], *words)


def _quoted_by_loaders(environment: InstalledEnvironment, packages: Mapping[str, str]) -> set[str]:
    """Find the packages' source files that load entry points, and return the strings in these files."""
    files = environment.files
    found: set[str] = set()
    for package in packages.values():
        for folder in environment.locate(package).places:
            for path, kind in files.walk(folder):
                if kind is not FileKind.FILE or not path.endswith(".py"):
                    continue
                text = files.text(path, 4 << 20)
                if "entry_points" in text:
                    found.update(re.findall(r"[\"']([\w.-]+)[\"']", text))
    return found
