"""Conversion of monkey patches: each function that a Python file replaces when it is imported becomes a patch.

The file is parsed, never run. A replacement becomes a patch if it is a function defined in that file and uses
only names that the target module defines. Other replacements are reported with the attribute that they set.
"""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from patchq.adopt._overlay import tree_with
from patchq.adopt.found import FoundPatch
from patchq.errors import UserError
from patchq.git.repository import Git
from patchq.names import TreeId
from patchq.stacks.export import slug

_Definition = ast.FunctionDef | ast.AsyncFunctionDef
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Function that is assigned as a static method, class method or property.
_WRAPPED = re.compile(r"(staticmethod|classmethod|property)\((\w+)\)")


@dataclass(frozen=True, slots=True)
class Replacement:
    """Assignment of a new value to an attribute of an upstream module.

    :ivar target: name of the attribute: ``package.module.Class.name``.
    :ivar line: line of the new value.
    :ivar by: source code of the new value.
    """

    target: str
    line: int
    by: str


def replacements(text: str, files: Collection[bytes]) -> list[Replacement]:
    """Return the assignments to attributes of the tree's modules; none if the text isn't valid Python.

    >>> replacements("import pkg.mod as m\\nm.f = g\\nsetattr(m.C, 'h', None)\\nx.y = 1\\n", [b"pkg/mod.py"])
    [Replacement(target='pkg.mod.f', line=2, by='g'), Replacement(target='pkg.mod.C.h', line=3, by='None')]
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    names = _imported_names(tree)
    found = []
    for node in ast.walk(tree):
        for target, value in _assigned(node):
            first, _, rest = target.partition(".")
            full = f"{names.get(first, '')}.{rest}"
            if first in names and _module_of(full, files):
                found.append(Replacement(full, value.lineno, ast.unparse(value)))
    return sorted(found, key=lambda r: r.line)


def _imported_names(tree: ast.AST) -> dict[str, str]:
    """Return the full dotted name of each name that the file imports."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    names[alias.asname] = alias.name
                else:
                    top = alias.name.split(".")[0]
                    names[top] = top
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _assigned(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """Return the attributes that an assignment or a call of ``setattr`` sets, with their values."""
    pairs: list[tuple[str, ast.expr]] = []
    if isinstance(node, ast.Assign):
        for t in node.targets:
            if isinstance(t, ast.Attribute):
                pairs.append((ast.unparse(t), node.value))
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr" and len(node.args) == 3:
        name = node.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            pairs.append((f"{ast.unparse(node.args[0])}.{name.value}", node.args[2]))
    return pairs


def _module_of(target: str, files: Collection[bytes]) -> tuple[str, str] | None:
    """Return the tree's file that defines a dotted name, and the name inside that file."""
    parts = target.split(".")
    for size in range(len(parts) - 1, 0, -1):
        stem = "/".join(parts[:size])
        for path in (f"{stem}.py", f"{stem}/__init__.py", f"src/{stem}.py", f"src/{stem}/__init__.py"):
            if path.encode() in files:
                return path, ".".join(parts[size:])
    return None


def from_monkey_patches(store: Git, base: TreeId, text: str, where: str, origin: str) -> list[FoundPatch]:
    """Return a patch for each replaced attribute. ``problem`` is set for replacements that can't be converted."""
    files = store.list_tree(base)
    module = ast.parse(text)
    own: dict[str, _Definition] = {}
    for node in module.body:
        if isinstance(node, _Function):
            own[node.name] = node
    found = []
    for item in replacements(text, files):
        place = _module_of(item.target, files)
        assert place
        path, name = place
        named = f"{where}:{item.line}"
        file = files[path.encode()]
        content = store.read_blobs([file.blob])[file.blob].decode("utf-8", "replace")
        try:
            after, lost = _replaced(content, name, own, text, f"{path}: {name}", item.by)
        except UserError as error:
            found.append(FoundPatch(name=slug(name), where=named, author=None, message="", problem=error))
            continue
        notes: tuple[str, ...] = ()
        if lost:
            notes = (f"{named}: {name} loses {', '.join(lost)}, as when Python ran this file: check its callers",)
        tree = tree_with(store, base, {path.encode(): (file.mode, after.encode())})
        message = f"Replace {name.rsplit('.', 1)[-1]} of {path}\n\nA monkey patch replaced it when Python started.\n"
        found.append(
            FoundPatch(
                name=f"replace-{slug(name)}",
                where=named,
                author=None,
                message=message,
                notes=notes,
                trees=(base, tree),
                origin=f"{origin}:{item.line}",
            )
        )
    return found


def _replaced(
    content: str, name: str, own: Mapping[str, _Definition], text: str, there: str, written: str
) -> tuple[str, list[str]]:
    """Return a module's text with the function ``written`` in place of the function ``name``.

    :param own: functions in the monkey patch's file.
    :param text: content of the monkey patch's file.
    :param there: name of the replaced function, for messages.
    :returns: the text, and the decorators of the replaced function that the new function doesn't have.
    :raises UserError: if the function can't be replaced.
    """
    hint = "make the change in the worktree, then run `patchq new`"
    module = ast.parse(content)
    old = _definition(module, name.split("."))
    if old is None:
        raise UserError(f"the script replaces {there}, which is not a function", hint=hint)
    there = f"{there} (line {old.lineno})"
    wrapped = _WRAPPED.fullmatch(written)
    by = own.get(wrapped[2] if wrapped else written)
    if by is None:
        raise UserError(f"the script replaces {there} by {written}, which is not one of its functions", hint=hint)
    known = _bound(module) | set(dir(builtins))
    for node in ast.walk(module):
        if isinstance(node, ast.Name):
            known.add(node.id)
    lacks = sorted(_free(by) - known)
    if lacks:
        names = ", ".join(lacks)
        raise UserError(
            f"the script replaces {there} by {by.name}, which uses names that the upstream file lacks: {names}",
            hint=hint,
        )
    start = _first_line(by)
    lines = textwrap.dedent("\n".join(text.split("\n")[start - 1 : by.end_lineno])).split("\n")
    at = by.lineno - start
    lines[at] = lines[at].replace(f"def {by.name}", f"def {old.name}", 1)
    lost = [f"@{ast.unparse(decorator)}" for decorator in old.decorator_list]
    if wrapped:
        kept = f"@{wrapped[1]}"
    # A static method is called without `self`. Python would have passed `self` to the replacement function.
    elif lost == ["@staticmethod"] and _positional(old) == _positional(by):
        kept = "@staticmethod"
    else:
        kept = ""
    if kept:
        lines.insert(0, kept)
    blank = " " * old.col_offset
    whole = content.split("\n")
    whole[_first_line(old) - 1 : old.end_lineno] = [blank + line if line.strip() else line for line in lines]
    present = {f"@{ast.unparse(decorator)}" for decorator in by.decorator_list} | {kept}
    return "\n".join(whole), [decorator for decorator in lost if decorator not in present]


def _positional(function: _Definition) -> tuple[int, bool]:
    """Return the number of a function's positional parameters, and True if the function also has ``*args``."""
    arguments = function.args
    return len(arguments.posonlyargs) + len(arguments.args), arguments.vararg is not None


def _first_line(function: _Definition) -> int:
    """Return the line at which a function or its first decorator begins."""
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def _definition(node: ast.AST, names: list[str]) -> _Definition | None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*_Function, ast.ClassDef)) and child.name == names[0]:
            if len(names) > 1:
                return _definition(child, names[1:])
            if isinstance(child, _Function):
                return child
            return None
    return None


def _bound(node: ast.AST) -> set[str]:
    """Return the names that a module defines or imports."""
    found: set[str] = set()
    for child in ast.walk(node):
        if isinstance(child, (*_Function, ast.ClassDef)):
            found.add(child.name)
        elif isinstance(child, (ast.Import, ast.ImportFrom)):
            for alias in child.names:
                found.add((alias.asname or alias.name).split(".")[0])
    return found


def _free(function: _Definition) -> set[str]:
    """Return the names that a function reads but doesn't define."""
    reads: set[str] = set()
    makes = _bound(function)
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            makes.add(node.arg)
        elif isinstance(node, ast.Name):
            (reads if isinstance(node.ctx, ast.Load) else makes).add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            makes.add(node.name)
    return reads - makes
