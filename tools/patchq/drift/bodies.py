"""Definitions in source files: their place and their tokens, by Python's parser and tree-sitter's."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

_CPP = (b".cu", b".cuh", b".cpp", b".cc", b".cxx", b".h", b".hpp", b".inl", b".c")
_KINDS = {"function_definition", "preproc_function_def", "preproc_def", "struct_specifier", "class_specifier"}


@dataclass(frozen=True, slots=True)
class Definition:
    """A function, macro or class: lines ``start`` to ``end`` counted from 1, and its tokens
    without comments and blanks."""

    name: str
    start: int
    end: int
    tokens: tuple[str, ...]


def language_of(path: bytes) -> str:
    """``python``, ``c++`` or an empty text."""
    if path.endswith(b".py"):
        return "python"
    return "c++" if path.endswith(_CPP) else ""


def definitions(path: bytes, source: bytes) -> dict[str, Definition]:
    """The functions and macros of a file by qualified name; the innermost ones that hold code."""
    return _python(source) if language_of(path) == "python" else _cpp(source)


def changed(path: bytes, old: bytes, new: bytes) -> list[tuple[str, Definition | None, Definition | None]]:
    """The definitions whose tokens differ between two versions of a file; None where one hasn't got it.

    Of those that hold one another, the innermost.
    """
    before, after = ((_python(c, tokens=False) if path.endswith(b".py") else _cpp(c)) for c in (old, new))
    lines = [c.decode("utf-8", "replace").splitlines() for c in (old, new)]
    found = []
    for name in {**before, **after}:
        sides = before.get(name), after.get(name)
        texts = [t[side.start - 1 : side.end] if side else None for side, t in zip(sides, lines, strict=True)]
        if texts[0] == texts[1]:
            continue
        mine, theirs = (_with_tokens(side, text) for side, text in zip(sides, texts, strict=True))
        if (mine and mine.tokens) != (theirs and theirs.tokens):
            found.append((name, mine, theirs))
    return [f for f in found if not any(other[0].startswith(f[0] + ".") for other in found)]


def _with_tokens(definition: Definition | None, lines: list[str] | None) -> Definition | None:
    if definition is None or lines is None or definition.tokens:
        return definition
    return replace(definition, tokens=_python_tokens("\n".join(lines) + "\n"))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements in one: no definition is anywhere else."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, name, ())
        if isinstance(inner, list):
            yield from inner


def _python(source: bytes, *, tokens: bool = True) -> dict[str, Definition]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return {}
    lines = source.decode("utf-8", "replace").splitlines(keepends=True)
    found: dict[str, Definition] = {}

    def walk(node: ast.AST, scope: str) -> None:
        for child in _statements(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                name = scope + child.name
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                end = child.end_lineno or first
                words = _python_tokens("".join(lines[first - 1 : end])) if tokens else ()
                found[name] = Definition(name, first, end, words)
                walk(child, name + ".")
            elif isinstance(child, ast.ClassDef):
                walk(child, scope + child.name + ".")
            else:
                walk(child, scope)

    walk(tree, "")
    return found


def _python_tokens(text: str) -> tuple[str, ...]:
    skip = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    try:
        return tuple(t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in skip)
    except (tokenize.TokenError, IndentationError):
        return tuple(text.split())


def _cpp(source: bytes) -> dict[str, Definition]:
    import tree_sitter
    import tree_sitter_cuda

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))
    found: dict[str, Definition] = {}

    def walk(node: Any, scope: str) -> None:
        inner = scope
        if node.type in _KINDS:
            name = scope + _cpp_name(node, source)
            holds = node.type.endswith("_specifier")
            if holds:
                inner = name + "::"
            if not holds or node.child_by_field_name("body") is not None:
                start, end = node.start_point[0] + 1, node.end_point[0] + 1
                unique, number = name, 2
                while unique in found:  # overloads and specialisations, in the order of the file
                    unique, number = f"{name}#{number}", number + 1
                tokens = () if holds else tuple(_leaves(node, source))
                if not holds:
                    found[unique] = Definition(unique, start, end, tokens)
        for child in node.children:
            walk(child, inner)

    walk(parser.parse(source).root_node, "")
    return found


def _cpp_name(node: Any, source: bytes) -> str:
    named = node.child_by_field_name("name")
    while named is None:
        inner = node.child_by_field_name("declarator")
        if inner is None:
            return "?"
        node = inner
        if node.type in (
            "identifier",
            "field_identifier",
            "qualified_identifier",
            "operator_name",
            "destructor_name",
            "template_function",
        ):
            named = node
    return source[named.start_byte : named.end_byte].decode("utf-8", "replace")


def _leaves(node: Any, source: bytes) -> list[str]:
    if node.type == "comment":
        return []
    if not node.children:
        text = source[node.start_byte : node.end_byte].decode("utf-8", "replace")
        return text.split() if node.type == "preproc_arg" else [text]
    return [leaf for child in node.children for leaf in _leaves(child, source)]
