"""Variables and files that make the system's loader, a shell or Python load something else than it would.

A variable is judged by what it leads to: a folder that isn't there, or that holds nothing in place of anything, is no
problem.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping

from patchq.environment._files import Files
from patchq.environment._imports import Interpreter
from patchq.environment.differences import Code, Findings
from patchq.environment.installed import Environment

#: Variables whose value is a file that a process runs or loads by itself.
_RUN = ("PYTHONSTARTUP", "BASH_ENV", "ENV")
_PRELOADS = ("LD_PRELOAD", "LD_AUDIT")
#: Variables that name code: Python imports their module.
_NAMED = ("PYTHONBREAKPOINT", "PYTHONWARNINGS", "PYTHON_PRESITE")
#: Modules of the standard library that start a program when they are imported.
_ACTING = frozenset({"antigravity"})
VARIABLES = (*_RUN, *_PRELOADS, *_NAMED, "LD_LIBRARY_PATH")
#: Libraries of the system and of Python, which a process has whatever it runs.
_CRITICAL = re.compile(
    r"(?:ld-linux.*|ld-musl.*|lib(?:c|m|dl|pthread|rt|util|resolv|nsl|nss_\w+|crypt|anl|mvec|thread_db|BrokenLocale|"
    r"python3[\w.]*|stdc\+\+|gcc_s|z|crypto|ssl|ffi|expat|bz2|lzma|sqlite3|readline|ncursesw?|tinfo|uuid|gdbm\w*|db-[\d.]+|"
    r"mpdec|musl.*|gomp|atomic|c\.musl.*))(?:[-.][\d.]+)?\.so(?:\.[\d.]+)?"
)
_SYSTEM = re.compile(r"(?:ld-linux.*|ld-musl.*|lib(?:c|m|dl|pthread|rt|resolv|nss_\w+))\.so(?:\.[\d.]+)?")
#: Folders that the loader searches by default.
_DEFAULT = re.compile(r"(?:/usr)?/lib(?:64|32)?(?:/[\w-]+-linux-(?:gnu|musl)\w*)?")


def judge_variables(
    env: Mapping[str, str], environments: list[Environment], files: Files, findings: Findings, *, working: str = ""
) -> None:
    """Judge the variables that a process starts with, and the loader's own settings.

    :param working: the folder that it starts in; empty if it isn't known.
    """
    for name in _PRELOADS:
        for entry in re.split(r"[ :]+", env.get(name, "")):
            if entry and _exists(files, entry):
                findings.judge(name, Code.VARIABLE, [entry], name, entry)
    for name in _RUN:
        value = env.get(name, "")
        if value.startswith("/") and files.real_kind(value) is not None:
            findings.judge(name, Code.VARIABLE, [value], name, value)
    for name in _NAMED:
        for module in _modules_named(name, env.get(name, "")):
            if not all(_is_owned(environment, module) for environment in environments):
                findings.judge(name, Code.VARIABLE, (), name, env[name])
    home = env.get("PYTHONHOME", "").split(":")[0].rstrip("/")
    bases = {files.resolve(environment.interpreter.base) for environment in environments}
    if home and bases != {files.resolve(home)}:
        findings.judge("PYTHONHOME", Code.VARIABLE, [home], "PYTHONHOME", home)
    if env.get("PYTHONPLATLIBDIR", "lib") not in ("lib", "lib64"):
        findings.judge("PYTHONPLATLIBDIR", Code.VARIABLE, (), "PYTHONPLATLIBDIR", env["PYTHONPLATLIBDIR"])
    judged = [environment.interpreter for environment in environments]
    folders = _library_path(env, working)
    for folder in folders:
        _judge_libraries(files, folder, judged, "LD_LIBRARY_PATH", findings)
    for entry in re.split(r"[\s:]+", files.text("/etc/ld.so.preload", 1 << 20)):
        if entry and not entry.startswith("#") and _exists(files, entry):
            findings.judge("ld.so.preload", Code.LIBRARY, [entry], "/etc/ld.so.preload")
    for folder in _configured(files, "/etc/ld.so.conf", 8):
        _judge_libraries(files, folder, judged, "/etc/ld.so.conf", findings)
    for environment in environments:
        _judge_site_libraries(environment, folders, findings)


def _library_path(env: Mapping[str, str], working: str) -> list[str]:
    """Return the folders of ``LD_LIBRARY_PATH``. An empty or relative one is of the working folder."""
    value = env.get("LD_LIBRARY_PATH", "")
    entries = re.split(r"[:;]", value) if value else []
    return [posixpath.join(working, entry) for entry in entries if working or entry.startswith("/")]


def _judge_site_libraries(environment: Environment, folders: Iterable[str], findings: Findings) -> None:
    """Judge folders that the loader searches for libraries of torch and of the patched packages."""
    files = environment.files
    recorded: dict[str, set[str]] = {}
    for distribution in environment.distributions:
        for path in distribution.recorded:
            name = posixpath.basename(path)
            if re.match(r"lib(?:torch|c10|vllm|flashinfer|tvm)\w*\.so", name):
                recorded.setdefault(name, set()).add(path)
    for folder in folders:
        for name in set(files.listed(folder)) & set(recorded):
            path = files.resolve(f"{folder}/{name}")
            if path not in recorded[name]:
                findings.judge(name, Code.LIBRARY, [f"{folder}/{name}"], "LD_LIBRARY_PATH")


def _judge_libraries(
    files: Files, folder: str, interpreters: Iterable[Interpreter], source: str, findings: Findings
) -> None:
    """Judge a folder that the loader searches before its own ones."""
    real = files.resolve(folder)
    if _DEFAULT.fullmatch(real):
        return
    own = {files.resolve(f"{one.base.rstrip('/')}/{lib}") for one in interpreters for lib in ("lib", "lib64")}
    # An interpreter's own folder has the libraries that it was built with, but not the C library.
    shape = _SYSTEM if real in own else _CRITICAL
    for name in files.listed(real):
        if shape.fullmatch(name):
            findings.judge(name, Code.LIBRARY, [f"{folder}/{name}"], source)


def _configured(files: Files, path: str, depth: int) -> list[str]:
    """Return the folders that ``ld.so.conf`` and what it includes name."""
    found: list[str] = []
    for line in files.text(path, 1 << 20).splitlines():
        line = line.partition("#")[0].strip()
        if line.startswith("include") and depth:
            for pattern in line.split()[1:]:
                folder, _, name = posixpath.join(posixpath.dirname(path), pattern).rpartition("/")
                shape = re.compile(re.escape(name).replace(r"\*", ".*").replace(r"\?", "."))
                for inner in files.listed(folder):
                    if shape.fullmatch(inner):
                        found += _configured(files, f"{folder}/{inner}", depth - 1)
        elif line.startswith("/"):
            found.append(line.split("=")[0].split()[0].rstrip("/") or "/")
    return found


def _exists(files: Files, entry: str) -> bool:
    """Return whether a library is there: by its path, or by its name in a folder that the loader may search."""
    if "/" in entry:
        # $LIB and such stand for several folders.
        return "$" in entry or files.real_kind(entry) is not None
    return True


def _modules_named(variable: str, value: str) -> list[str]:
    """Return the modules that the value of a variable makes Python import."""
    if variable == "PYTHONBREAKPOINT":
        return [value.rpartition(".")[0]] if value not in ("", "0") and "." in value else []
    if variable == "PYTHON_PRESITE":
        return [value] if value else []
    categories = [part.split(":")[2].strip() for part in value.split(",") if part.count(":") >= 2]
    return [category.rpartition(".")[0] for category in categories if "." in category]


def _is_owned(environment: Environment, module: str) -> bool:
    """Return whether a module is the standard library's, or one that an installed distribution recorded."""
    top = module.split(".")[0]
    if top in _ACTING:
        return False
    if any(environment.interpreter.place(path).find(top) for path in environment.interpreter.stdlib):
        return True
    for place in environment.places:
        for found in place.find(top)[:1]:
            real = environment.files.resolve(found.path)
            return any(real in distribution.recorded for distribution in environment.distributions)
    return True  # nothing to import
