"""Comparison of the files in ``bin`` with the console scripts that installers write."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Collection, Iterable

from patchq.environment._distributions import Distribution
from patchq.environment._files import FileKind, FileTree
from patchq.environment._imports import Interpreter
from patchq.environment.differences import Code, Findings, Level
from patchq.formats.distinfo import EntryPoint

#: Largest script, in bytes.
_MAX_SCRIPT = 64 << 10
#: ``#!/path/python``; distlib's and uv's form for long paths and paths with spaces; uv's form for
#: relocatable environments.
_SHEBANG = re.compile(
    r"#!/bin/sh\n'''exec' (?:(/[\w./+@-]+)|\"(/[\w./+@ -]+)\") \"\$0\" \"\$@\"\n' '''\n|"
    r"#!/bin/sh\n'''exec' \"\$\(dirname -- \"\$\(realpath -- \"\$0\"\)\"\)\"/'(python[\d.]*)' "
    r"\"\$0\" \"\$@\"\n' '''\n|"
    r"#!(/[\w./+@-]+)\n"
)
_COOKIE = re.compile(r"coding[:=]\s*([-\w.]+)")
#: Statements besides the import and the call, as written by pip (distlib), uv, setuptools and
#: installer.
_ALLOWED = """
import re
import sys
import re, sys
import sys, re
sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])
sys.argv[0] = re.sub(r'(-script\\.pyw?|\\.exe)?$', '', sys.argv[0])
sys.argv[0] = sys.argv[0].removesuffix('.exe')
if sys.argv[0].endswith('.exe'):
    sys.argv[0] = sys.argv[0][:-4]
if sys.argv[0].endswith('-script.pyw'):
    sys.argv[0] = sys.argv[0][:-11]
elif sys.argv[0].endswith('.exe'):
    sys.argv[0] = sys.argv[0][:-4]
"""
_STATEMENTS = frozenset(ast.dump(node) for node in ast.parse(_ALLOWED).body)
_MAIN = ast.dump(ast.parse("__name__ == '__main__'", mode="eval").body)


def scripts_of(distribution: Distribution) -> dict[str, EntryPoint]:
    """Return the console scripts that a distribution declares, by name."""
    groups = ("console_scripts", "gui_scripts")
    return {point.name: point for point in distribution.entry_points if point.group in groups}


def judge_scripts(
    interpreter: Interpreter,
    distribution: Distribution,
    found: Findings,
    *,
    search: Iterable[str] = (),
    python: str = "",
) -> None:
    """Report scripts of a distribution that do anything other than call their entry point.

    :param python: Program of the interpreter, if known. If given, each script must start this program or a copy of it.
    :param search: Folders of ``PATH``, if known.
    """
    files = interpreter.files
    above = posixpath.dirname(posixpath.dirname(posixpath.dirname(distribution.root)))
    folders = [interpreter.scripts, f"{distribution.root}/bin", f"{above.rstrip('/')}/bin", *search]
    folders = list(dict.fromkeys(map(files.resolve, folders)))
    programs = _program_folders(interpreter, distribution.root)
    scripts = scripts_of(distribution)
    for name, point in scripts.items():
        if not re.fullmatch(r"[\w.-]+", name):
            continue
        for folder in folders:
            path = f"{folder}/{name}"
            if files.real_kind(path) is None:
                continue
            fault = _fault(interpreter, path, point, programs=programs, python=python)
            if fault:
                found.add(Code.SCRIPT, [path], fault)
    unknown = []
    for path in distribution.recorded:
        folder, name = posixpath.split(path)
        if posixpath.basename(folder) == "bin" and name not in scripts:
            unknown.append(path)
    found.add_any(Code.SCRIPT, unknown, "no entry point has its name", level=Level.NOTE)


def _program_folders(interpreter: Interpreter, root: str) -> set[str]:
    """Return the folders of the Python programs that import from ``root``, with links resolved.

    The base Python of a virtual environment imports from the base's own site folders and the user's, but not from the
    virtual environment. A virtual environment with ``--system-site-packages`` also imports from the base's site folders
    and the user's.
    """
    resolve = interpreter.files.resolve
    folders = {resolve(interpreter.scripts)}
    prefix = resolve(interpreter.prefix).rstrip("/")
    is_virtual = interpreter.files.real_kind(f"{prefix}/pyvenv.cfg") is not None
    is_hidden = is_virtual and root.startswith(f"{prefix}/")
    if root in map(resolve, interpreter.sites) and not is_hidden:
        folders.add(resolve(f"{interpreter.base.rstrip('/')}/bin"))
    return folders


def _fault(
    interpreter: Interpreter,
    path: str,
    point: EntryPoint,
    *,
    programs: Collection[str],
    python: str,
) -> str:
    """Return the reason why a script is a problem; empty if the script is good.

    :param programs: Folders of the Pythons that the script may start.
    """
    files = interpreter.files
    if not files.is_file(path):
        return "it is not a regular file"
    try:
        text = files.read(path, _MAX_SCRIPT).decode("ascii")
    except OSError as error:
        return f"it {error.strerror or 'cannot be read'}"
    except UnicodeDecodeError:
        return "it isn't ASCII"
    shebang = _SHEBANG.match(text)
    if not shebang:
        return "it doesn't start an interpreter"
    absolute, quoted, relative, direct = shebang.groups()
    program = absolute or quoted or direct or f"{posixpath.dirname(path)}/{relative}"
    if ".." in program.split("/"):
        # `../try/bin/python -m pip` writes this path as it was typed.
        folder, name = posixpath.split(program)
        program = f"{files.follow(folder)}/{name}"
    if not _is_interpreter(interpreter, program, programs):
        return f"it starts {program}"
    if python and not _are_same(files, program, python):
        return f"it starts {program}, which is another Python than {python}"
    body = text[shebang.end() :]
    cookie = _COOKIE.search("\n".join(body.split("\n")[:2]))
    if cookie and cookie[1].lower() not in ("utf-8", "utf8"):
        return f"its encoding is {cookie[1]}"
    if not _calls(body, point):
        return f"it does more than call {point.value}"
    return ""


def _is_interpreter(interpreter: Interpreter, program: str, folders: Collection[str]) -> bool:
    """Return whether a program is in ``folders`` and has the name of a Python of the environment's version."""
    files = interpreter.files
    major, minor = interpreter.version
    folder, name = posixpath.split(program)
    if name not in ("python", f"python{major}", f"python{major}.{minor}"):
        return False
    return files.resolve(folder) in folders and not is_script(files, program)


def _are_same(files: FileTree, one: str, other: str) -> bool:
    """Return whether two paths lead to the same program or to copies of it."""
    first, second = files.resolve(one), files.resolve(other)
    if first == second:
        return True
    try:
        return files.digest(first, ["sha256"]) == files.digest(second, ["sha256"])
    except OSError:
        return False


def is_script(files: FileTree, program: str) -> bool:
    """Return whether a program is a script with a ``#!`` line."""
    real = files.resolve(program)
    if files.kind(real) is not FileKind.FILE or files.size(real) > _MAX_SCRIPT:
        return False
    try:
        return files.read(real).startswith(b"#!")
    except OSError:
        return False


def _calls(body: str, point: EntryPoint) -> bool:
    """Return whether a script's code only imports and calls the entry point."""
    module, _, attribute = point.value.replace(" ", "").partition(":")
    first = attribute.split(".")[0]
    if not re.fullmatch(r"[\w.]+:[\w.]+", f"{module}:{attribute}"):
        return False
    try:
        needed = ast.parse(f"from {module} import {first}\nsys.exit({attribute}())").body
        statements = ast.parse(body).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    flat: list[ast.stmt] = []
    for statement in statements:
        if isinstance(statement, ast.If) and not statement.orelse:
            is_main = ast.dump(statement.test) == _MAIN
            if is_main:
                flat += statement.body
            else:
                flat += [statement]
        else:
            flat.append(statement)
    dumps = [ast.dump(statement) for statement in flat]
    wanted = [ast.dump(statement) for statement in needed]
    return set(dumps) - _STATEMENTS == set(wanted) and dumps[-1] == wanted[1]
