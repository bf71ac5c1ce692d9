"""What runs, or changes the path, at each start of an interpreter, and what else it imports in place of something."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Mapping

from patchq.environment._distributions import Distribution, closure, intact
from patchq.environment._files import Kind
from patchq.environment._imports import Place, find_all, path_files
from patchq.environment._known import KnownLine, known_line, known_module
from patchq.environment.differences import Code, Findings
from patchq.environment.installed import Environment

_CUSTOM = ("sitecustomize", "usercustomize")
#: Modules of the standard library of Python 3.8 to 3.14 that one version or another of ``stdlib_module_names`` lacks.
_OLD_AND_NEW = """
    __hello__ __phello__ __phello__foo _android_support _apple_support _ast_unparse _bootlocale _bootsubprocess
    _colorize _crypt _dummy_thread _hmac _interpchannels _interpqueues _interpreters _ios_support _lsprof _msi
    _opcode_metadata _py_warnings _pydatetime _pylong _pyrepl _remote_debugging _sha2 _sha256 _sha512 _suggestions
    _sysconfig _testlimitedcapi _tokenize _types _typing _wmi _zstd aifc annotationlib asynchat asyncore audioop binhex
    cgi cgitb chunk compression crypt distutils dummy_threading formatter idlelib imghdr imp lib2to3 macpath mailcap
    msilib nis nntplib ossaudiodev parser pipes smtpd sndhdr spwd sunau symbol telnetlib test tomllib turtledemo uu
    xdrlib zoneinfo
""".split()  # noqa: SIM905
#: Modules of other systems that the standard library tries to import.
_ELSEWHERE = frozenset({"_overlapped", "_scproxy", "_winapi", "java", "msvcrt", "nt", "org", "vms_lib", "winreg"})
_STDLIB = frozenset(sys.stdlib_module_names) | frozenset(_OLD_AND_NEW)
#: Lines of an ``__init__.py`` that makes a namespace package, as pkgutil's and setuptools' documentation give them.
_NAMESPACE = re.compile(
    r"__import__\(['\"]pkg_resources['\"]\)\.declare_namespace\(__name__\)|(?:try|except ImportError):|"
    r"import pkg_resources|"
    r"pkg_resources\.declare_namespace\(__name__\)|from pkgutil import extend_path|import pkgutil|"
    r"__path__ = (?:__import__\(['\"]pkgutil['\"]\)\.|pkgutil\.)?extend_path\(__path__, __name__\)"
)
_BUILT = re.compile(r"_sysconfigdata\w*|_sysconfig_vars\w*|_test\w*|_xx\w*|xx\w*|_ctypes_test|_distutils_system_mod")
#: Folders in the standard library's that are no part of it.
_OTHERS = re.compile(r"(?:site|dist)-packages|lib-dynload|__pycache__|config-.*")


def judge_environment(environment: Environment, packages: Mapping[str, str], findings: Findings) -> list[str]:
    """Judge what an environment runs besides its packages; return the sources whose caches matter too.

    :param packages: distribution to import name of the patched packages.
    """
    sources = judge_startup(environment, findings)
    _judge_stdlib(environment, findings)
    _judge_build_folder(environment, findings)
    _judge_shadows(environment, packages, findings)
    _judge_plugins(environment, packages, findings)
    return sources


# .pth files and the customising modules


def judge_startup(environment: Environment, findings: Findings) -> list[str]:
    """Judge the code that runs at each start; return its sources."""
    return _judge_path_files(environment, findings) + _judge_custom(environment, findings)


def _judge_path_files(environment: Environment, findings: Findings) -> list[str]:
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
                findings.note(Code.STARTUP_CODE, [file.path], line[:200])
                sources += _judge_known(environment, known, name, findings)
    return sources


def _judge_known(environment: Environment, known: KnownLine, name: str, findings: Findings) -> list[str]:
    """Judge the modules that known code imports, and the names that it takes."""
    taken = [claim for claim in known.claims if _is_needed(environment, claim)]
    if taken:
        findings.judge(name, Code.SHADOWED, [name], ", ".join(taken))
    sources = []
    for module in known.imports:
        for found in find_all(environment.places, module)[:1]:
            sources.append(found.path)
            _judge_module(environment, found.path, known.owner, name, findings)
    return sources


def _judge_module(environment: Environment, path: str, owner: str, name: str, findings: Findings) -> None:
    """Judge a module that runs at each start: its content must be known, or ``owner`` must have recorded it."""
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
        allowed = name if name in findings.allow else own
        findings.judge(allowed, Code.STARTUP_CODE, [path])
    else:
        _judge_known(environment, known, own, findings)


def _is_needed(environment: Environment, module: str) -> bool:
    """Return whether something else is found under this name, without the code that takes it."""
    top = module.split(".")[0]
    return top in _STDLIB or bool(find_all(environment.places, top))


def _judge_custom(environment: Environment, findings: Findings) -> list[str]:
    """Judge sitecustomize and usercustomize. The folder of the script isn't on the path yet when they are imported."""
    sources = []
    for module in _CUSTOM:
        for found in find_all(environment.places, module):
            sources.append(found.path)
            _judge_module(environment, found.path, "", posixpath.basename(found.path), findings)
    return sources


# What stands in place of something else


def _judge_stdlib(environment: Environment, findings: Findings) -> None:
    """Judge what the standard library's folders hold besides it, and what is in them in two forms."""
    interpreter = environment.interpreter
    places = [interpreter.place(path) for path in interpreter.stdlib]
    forms: dict[str, list[str]] = {}
    for place in places:
        for module in place.modules:
            if _OTHERS.fullmatch(module) or not module.isidentifier():
                continue
            paths = [found.path for found in place.find(module)]
            forms.setdefault(module, []).extend(paths)
            if paths and module not in _STDLIB and module not in _CUSTOM and not _BUILT.fullmatch(module):
                findings.judge(module, Code.STDLIB, paths, module)
    for module, paths in forms.items():
        if len(_in_front(paths)) > 1:
            findings.judge(module, Code.STDLIB, paths, module)
    for path in interpreter.stdlib[1:2]:
        for folder in _packages(interpreter.place(path)):
            for module in folder.modules:
                inside = [found.path for found in folder.find(module)]
                if len(_in_front(inside)) > 1:
                    findings.judge(module, Code.STDLIB, inside, module)


def _judge_build_folder(environment: Environment, findings: Findings) -> None:
    """Judge the file by which an interpreter that lies where it was built finds its extension modules."""
    interpreter, files = environment.interpreter, environment.files
    settings = files.text(f"{interpreter.prefix.rstrip('/')}/pyvenv.cfg", 1 << 20)
    homes = re.findall(r"(?im)^[ \t]*home[ \t]*=[ \t]*(/.*?)[ \t]*$", settings)
    for folder in dict.fromkeys([interpreter.scripts, f"{interpreter.base.rstrip('/')}/bin", *homes]):
        path = f"{folder}/pybuilddir.txt"
        if files.real_kind(path) is not None:
            findings.judge("pybuilddir.txt", Code.STDLIB, [path], "pybuilddir.txt")


def _in_front(paths: list[str]) -> list[str]:
    """Return files of one name without sourceless caches that come after another form, which nothing loads."""
    return [path for number, path in enumerate(paths) if not number or not path.endswith(".pyc")]


def _packages(place: Place) -> Iterator[Place]:
    """Yield each folder below a standard library's folder that may be a package."""
    todo = [name for name in place.names if not _OTHERS.fullmatch(name)]
    while todo:
        name = todo.pop()
        folder = f"{place.path}/{name}"
        if name.rpartition("/")[2].isidentifier() and place.files.kind(place.files.resolve(folder)) is Kind.FOLDER:
            below = Place(place.files, folder, place.version)
            yield below
            todo += [f"{name}/{inner}" for inner in below.names if inner != "__pycache__"]


def _judge_shadows(environment: Environment, packages: Mapping[str, str], findings: Findings) -> None:
    """Judge modules that are found in place of the standard library's, of a package, or of what it requires."""
    interpreter = environment.interpreter
    library = {name for path in interpreter.stdlib for name in interpreter.place(path).modules if name.isidentifier()}
    own = {package.split(".")[0] for package in packages.values()}
    needed = _needed(environment, packages)
    for place in environment.places:
        for module in _ELSEWHERE.intersection(place.modules) - library:
            for found in place.find(module)[:1]:
                findings.judge(module, Code.SHADOWED, [found.path], module)
    for first in ["", *interpreter.starts()]:
        places = [*([interpreter.place(first)] if first else []), *environment.places]
        for place in places:
            if place.path in interpreter.stdlib:
                break
            for module in library.intersection(place.modules) - set(_CUSTOM):
                for found in place.find(module)[:1]:
                    findings.judge(module, Code.SHADOWED, [found.path], module)
        for module, owners in needed.items():
            if module in library or (module in own and not first):
                continue  # the package's own place is judged with it
            for winner in find_all(places, module)[:1]:
                if not _is_rightful(environment, winner.path, owners):
                    findings.judge(module, Code.SHADOWED, [winner.path], module)


def _needed(environment: Environment, packages: Mapping[str, str]) -> dict[str, list[Distribution]]:
    """Return the modules of the packages and of all that they require, with the distributions that record them."""
    names = closure(environment.distributions, packages)
    found: dict[str, list[Distribution]] = {}
    for distribution in environment.distributions:
        if distribution.name in names and not distribution.editable:
            for module in distribution.modules:
                found.setdefault(module, []).append(distribution)
    return found


def _is_rightful(environment: Environment, path: str, owners: Iterable[Distribution]) -> bool:
    """Return whether a module is one that its distributions recorded, or only declares a namespace package."""
    real = environment.files.resolve(path)
    return any(real in owner.recorded for owner in owners) or _is_namespace(environment.files.text(path, 1 << 16))


def _is_namespace(source: str) -> bool:
    lines = [line.strip() for line in source.splitlines() if line.strip() and not line.strip().startswith("#")]
    return bool(lines) and all(_NAMESPACE.fullmatch(line) for line in lines)


# Plugins


def _judge_plugins(environment: Environment, packages: Mapping[str, str], findings: Findings) -> None:
    """Judge entry points that other distributions provide for a patched package to load."""
    ours = {re.sub(r"[-_.]+", "-", name).lower() for name in packages}
    points = [
        (distribution, point)
        for distribution in environment.distributions
        if distribution.name not in ours
        for point in distribution.entry_points
        if point.group not in ("console_scripts", "gui_scripts")
    ]
    own_names = {name for pair in packages.items() for name in pair}
    groups = {point.group for _, point in points}
    loaded = {group for group in groups if group.split(".")[0] in own_names or group in findings.groups}
    if groups - loaded:
        quoted = _quoted_by_loaders(environment, packages)
        loaded |= groups & quoted
    for distribution, point in points:
        if point.group in loaded:
            findings.judge(
                distribution.name, Code.PLUGIN, [f"{distribution.info}/entry_points.txt"],
                distribution.name, point.name, point.group,
            )  # fmt: skip


def _quoted_by_loaders(environment: Environment, packages: Mapping[str, str]) -> set[str]:
    """Return the quoted names in those sources of the packages that load entry points."""
    files = environment.files
    found: set[str] = set()
    for package in packages.values():
        for folder in environment.locate(package).places:
            for path, kind in files.walk(folder):
                text = files.text(path, 4 << 20) if kind is Kind.FILE and path.endswith(".py") else ""
                if "entry_points" in text:
                    found.update(re.findall(r"[\"']([\w.-]+)[\"']", text))
    return found
