"""Where a Python file's definitions stand, by its syntax tree."""

from __future__ import annotations

import ast
import contextlib
import re
import warnings
from collections.abc import Iterator

#: The fields of a statement that hold statements, in the order of its grammar; no definition is anywhere else.
_INNER = ("body", "handlers", "orelse", "finalbody", "cases")
#: By the type of a node, those that it has; of most none.
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}
_END = re.compile(rb"\r\n?|\n")


def lines_of(source: bytes) -> list[bytes]:
    """The lines of a file, without their ends, as Python's parser counts them."""
    return _END.split(source)


def places(source: bytes) -> dict[str, tuple[int, int]]:
    """The functions of a file by qualified name, first and last line counted from 1; none of one that is no Python."""
    found: dict[str, tuple[int, int]] = {}
    if tree := parse(source):
        with contextlib.suppress(RecursionError):  # what lies deeper has no lines of its own
            for statement in tree.body:
                _walk(statement, "", found)
    return found


def inner(node: ast.AST) -> Iterator[ast.AST]:
    """The statements right in one, with the clauses that hold some."""
    kind = type(node)
    names = _FIELDS.get(kind)
    if names is None:
        statement = issubclass(kind, (ast.stmt, ast.excepthandler, ast.match_case, ast.Module))
        names = _FIELDS[kind] = tuple(f for f in node._fields if f in _INNER) if statement else ()
    for name in names:
        yield from getattr(node, name)


def parse(source: bytes | str) -> ast.Module | None:
    """Return a file's syntax tree; None of what is no Python, or is nested deeper than Python's own reader goes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an upstream's escape sequences
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
