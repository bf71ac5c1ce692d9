"""Environment variables and files that make the dynamic loader, a shell or Python load other code.

A variable is a problem only if it has an effect. For example, a folder has no effect if it doesn't exist, or if it
replaces no library or module.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping

from patchq.environment._files import FileTree
from patchq.environment._imports import Interpreter
from patchq.environment.differences import Code, Findings
from patchq.environment.installed import InstalledEnvironment

#: Variables that name a file which a process runs or loads at its start.
_RUN = ("PYTHONSTARTUP", "BASH_ENV", "ENV")
_PRELOADS = ("LD_PRELOAD", "LD_AUDIT")
#: Variables that name a module which Python imports.
_NAMED = ("PYTHONBREAKPOINT", "PYTHONWARNINGS", "PYTHON_PRESITE")
#: Modules of the standard library that start a program when they are imported.
_ACTING = frozenset({"antigravity"})
#: Libraries of the system and of Python, which any process may load.
_CRITICAL = re.compile(
    r"(?:ld-linux.*|ld-musl.*|"
    r"lib(?:c|m|dl|pthread|rt|util|resolv|nsl|nss_\w+|crypt|anl|mvec|thread_db|BrokenLocale|"
    r"python3[\w.]*|stdc\+\+|gcc_s|z|crypto|ssl|ffi|expat|bz2|lzma|sqlite3|readline|ncursesw?|"
    r"tinfo|uuid|gdbm\w*|db-[\d.]+|mpdec|musl.*|gomp|atomic|c\.musl.*))"
    r"(?:[-.][\d.]+)?\.so(?:\.[\d.]+)?"
)
_SYSTEM = re.compile(r"(?:ld-linux.*|ld-musl.*|lib(?:c|m|dl|pthread|rt|resolv|nss_\w+))\.so(?:\.[\d.]+)?")
#: Libraries of torch and of the patched packages.
_PACKAGED = re.compile(r"lib(?:torch|c10|vllm|flashinfer|tvm)\w*\.so")
#: Maximum depth of nested ``include`` lines in ``ld.so.conf``.
_MOST_INCLUDES = 8
#: Folders that the loader searches by default.
_DEFAULT = re.compile(r"(?:/usr)?/lib(?:64|32)?(?:/[\w-]+-linux-(?:gnu|musl)\w*)?")


def judge_variables(
    env: Mapping[str, str],
    environments: list[InstalledEnvironment],
    files: FileTree,
    findings: Findings,
    *,
    working: str = "",
) -> None:
    """Report environment variables, and settings of the loader, that make a process load other code.

    :param working: Working folder of the process; empty if it isn't known.
    """
    _judge_run(env, files, findings)
    _judge_python(env, environments, files, findings)
    interpreters = [environment.interpreter for environment in environments]
    folders = _library_path(env, working)
    for folder in folders:
        _judge_libraries(files, folder, interpreters, findings, source="LD_LIBRARY_PATH")
    for entry in re.split(r"[\s:]+", files.text("/etc/ld.so.preload", 1 << 20)):
        if entry and not entry.startswith("#") and _may_exist(files, entry):
            findings.judge("ld.so.preload", Code.LIBRARY, [entry], "/etc/ld.so.preload")
    for folder in _configured(files, "/etc/ld.so.conf", _MOST_INCLUDES):
        _judge_libraries(files, folder, interpreters, findings, source="/etc/ld.so.conf")
    for environment in environments:
        _judge_site_libraries(environment, folders, findings)


def _judge_run(env: Mapping[str, str], files: FileTree, findings: Findings) -> None:
    """Report files that a process loads or runs when it starts."""
    for name in _PRELOADS:
        for entry in re.split(r"[ :]+", env.get(name, "")):
            if entry and _may_exist(files, entry):
                findings.judge(name, Code.VARIABLE, [entry], name, entry)
    for name in _RUN:
        value = env.get(name, "")
        if value.startswith("/") and files.real_kind(value) is not None:
            findings.judge(name, Code.VARIABLE, [value], name, value)


def _judge_python(
    env: Mapping[str, str], environments: list[InstalledEnvironment], files: FileTree, findings: Findings
) -> None:
    """Report variables that make Python import other modules."""
    for name in _NAMED:
        for module in _modules_named(name, env.get(name, "")):
            if not all(_is_owned(environment, module) for environment in environments):
                findings.judge(name, Code.VARIABLE, (), name, env[name])
    home = env.get("PYTHONHOME", "").split(":")[0].rstrip("/")
    bases = {files.resolve(environment.interpreter.base) for environment in environments}
    if home and bases != {files.resolve(home)}:
        findings.judge("PYTHONHOME", Code.VARIABLE, [home], "PYTHONHOME", home)
    lib = env.get("PYTHONPLATLIBDIR", "lib")
    if lib not in ("lib", "lib64"):
        findings.judge("PYTHONPLATLIBDIR", Code.VARIABLE, (), "PYTHONPLATLIBDIR", lib)


def _library_path(env: Mapping[str, str], working: str) -> list[str]:
    """Return the folders in ``LD_LIBRARY_PATH``. Empty and relative entries are resolved below ``working``."""
    value = env.get("LD_LIBRARY_PATH", "")
    entries = []
    if value:
        entries = re.split(r"[:;]", value)
    found: list[str] = []
    for entry in entries:
        if working or entry.startswith("/"):
            found.append(posixpath.join(working, entry))
    return found


def _judge_site_libraries(environment: InstalledEnvironment, folders: Iterable[str], findings: Findings) -> None:
    """Report libraries in ``folders`` that replace recorded libraries of torch or of a patched package."""
    files = environment.files
    recorded: dict[str, set[str]] = {}
    for distribution in environment.distributions:
        for path in distribution.recorded:
            name = posixpath.basename(path)
            if _PACKAGED.match(name):
                recorded.setdefault(name, set()).add(path)
    for folder in folders:
        for name in set(files.listed(folder)) & set(recorded):
            path = files.resolve(f"{folder}/{name}")
            if path not in recorded[name]:
                findings.judge(name, Code.LIBRARY, [f"{folder}/{name}"], "LD_LIBRARY_PATH")


def _judge_libraries(
    files: FileTree,
    folder: str,
    interpreters: Iterable[Interpreter],
    findings: Findings,
    *,
    source: str,
) -> None:
    """Report system libraries in a folder that the loader searches before the default folders."""
    real = files.resolve(folder)
    if _DEFAULT.fullmatch(real):
        return
    own = set()
    for interpreter in interpreters:
        base = interpreter.base.rstrip("/")
        own |= {files.resolve(f"{base}/lib"), files.resolve(f"{base}/lib64")}
    # An interpreter's folder contains the libraries with which it was built, but not the C library.
    if real in own:
        shape = _SYSTEM
    else:
        shape = _CRITICAL
    for name in files.listed(real):
        if shape.fullmatch(name):
            findings.judge(name, Code.LIBRARY, [f"{folder}/{name}"], source)


def _configured(files: FileTree, path: str, depth: int) -> list[str]:
    """Return the folders that ``ld.so.conf`` lists, also in files that it includes."""
    found: list[str] = []
    for line in files.text(path, 1 << 20).splitlines():
        line = line.partition("#")[0].strip()
        if line.startswith("include") and depth:
            for pattern in line.split()[1:]:
                for included in _matching(files, posixpath.join(posixpath.dirname(path), pattern)):
                    found += _configured(files, included, depth - 1)
        elif line.startswith("/"):
            found.append(line.split("=")[0].split()[0].rstrip("/") or "/")
    return found


def _matching(files: FileTree, pattern: str) -> list[str]:
    """Return the files that match a pattern with wildcards in its last path component."""
    folder, _, name = pattern.rpartition("/")
    shape = re.compile(re.escape(name).replace(r"\*", ".*").replace(r"\?", "."))
    found: list[str] = []
    for inner in files.listed(folder):
        if shape.fullmatch(inner):
            found.append(f"{folder}/{inner}")
    return found


def _may_exist(files: FileTree, entry: str) -> bool:
    """Return whether the loader may find the library ``entry``."""
    if "/" not in entry or "$" in entry:
        return True  # the loader may find a bare name, $LIB or $ORIGIN in several folders
    return files.real_kind(entry) is not None


def _modules_named(variable: str, value: str) -> list[str]:
    """Return the modules that Python imports because of a variable's value."""
    if variable == "PYTHON_PRESITE":
        if value:
            return [value]
        return []
    if variable == "PYTHONBREAKPOINT":
        names = [value]
    else:
        # action:message:category:module:line, separated by commas
        names = []
        for rule in value.split(","):
            if rule.count(":") >= 2:
                names.append(rule.split(":")[2].strip())
    found: list[str] = []
    for name in names:
        if "." in name:
            found.append(name.rpartition(".")[0])
    return found


def _is_owned(environment: InstalledEnvironment, module: str) -> bool:
    """Return whether the standard library or a distribution contains a module; also True if no such module exists."""
    top = module.split(".")[0]
    if top in _ACTING:
        return False
    interpreter = environment.interpreter
    if any(interpreter.place(path).find(top) for path in interpreter.stdlib):
        return True
    for place in environment.places:
        for found in place.find(top)[:1]:
            real = environment.files.resolve(found.path)
            return any(real in distribution.recorded for distribution in environment.distributions)
    return True  # nothing to import
