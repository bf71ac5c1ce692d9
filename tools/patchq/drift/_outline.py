"""Lines of the definitions in a Python file, from its syntax tree."""

from __future__ import annotations

import ast
import contextlib
import re
import warnings
from collections.abc import Iterator

#: Fields with nested statements, in the order of the grammar. All definitions are in them.
_INNER = ("body", "handlers", "orelse", "finalbody", "cases")
#: Cache: by type of node, the fields from _INNER that it has; none for most types.
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}
_END = re.compile(rb"\r\n?|\n")


def lines_of(source: bytes) -> list[bytes]:
    """Return the lines of a file, without line ends, as Python's parser counts them."""
    return _END.split(source)


def places(source: bytes) -> dict[str, tuple[int, int]]:
    """Return the first and last line, from 1, of each function by qualified name.

    The result is empty if the file is not valid Python.
    """
    found: dict[str, tuple[int, int]] = {}
    if tree := parse(source):
        with contextlib.suppress(RecursionError):  # functions nested too deeply are left out
            for statement in tree.body:
                _walk(statement, "", found)
    return found


def inner(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the direct child statements of a statement, and its clauses that hold statements."""
    kind = type(node)
    names = _FIELDS.get(kind)
    if names is None:
        statement = issubclass(kind, (ast.stmt, ast.excepthandler, ast.match_case, ast.Module))
        names = _FIELDS[kind] = tuple(f for f in node._fields if f in _INNER) if statement else ()
    for name in names:
        yield from getattr(node, name)


def parse(source: bytes | str) -> ast.Module | None:
    """Return a file's syntax tree; None if it is not valid Python or nested too deeply."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escape sequences in upstream's code
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _walk(node: ast.AST, scope: str, found: dict[str, tuple[int, int]]) -> None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        found[scope + node.name] = first, node.end_lineno or first
        scope += node.name + "."
    elif isinstance(node, ast.ClassDef):
        scope += node.name + "."
    for child in inner(node):
        _walk(child, scope, found)
