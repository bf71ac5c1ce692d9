"""Definitions in source files: their place and their tokens, by Python's parser and tree-sitter's."""

from __future__ import annotations

import functools
import io
import tokenize
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from patchq.drift._outline import lines_of, places
from patchq.extras import missing

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


@functools.cache
def reads_cpp() -> bool:
    """Return whether the parser for C++ and CUDA is installed; that for Python always is."""
    return not {"tree_sitter", "tree_sitter_cuda"} & set(missing("drift"))


def definitions(path: bytes, source: bytes) -> dict[str, Definition]:
    """The functions and macros of a file by qualified name; the innermost ones that hold code."""
    version = SourceVersion(path, source)
    return {name: version.must(name) for name in version.names}


class SourceVersion:
    """A version of a file: its definitions, the tokens of each made when they are asked for."""

    def __init__(self, path: bytes, source: bytes) -> None:
        self._source, self._nodes = source, dict[str, Any]()
        self._known: dict[str, Definition] = {}
        if path.endswith(b".py"):
            self._places, self._lines = places(source), lines_of(source)
        else:
            self._nodes = _cpp(source)
            self._places = {n: (d.start_point[0] + 1, d.end_point[0] + 1) for n, d in self._nodes.items()}
            self._lines = source.split(b"\n")

    @property
    def names(self) -> Iterable[str]:
        """Its definitions."""
        return self._places

    def text(self, name: str) -> list[bytes] | None:
        """The lines of a definition, to be compared; None of one that isn't there."""
        place = self._places.get(name)
        return self._lines[place[0] - 1 : place[1]] if place else None

    def lines(self, name: str) -> list[str]:
        """The lines of a definition; none of one that isn't there."""
        return [line.decode("utf-8", "replace") for line in self.text(name) or ()]

    def definition(self, name: str) -> Definition | None:
        """A definition with its tokens; None where the file hasn't got it."""
        return self.must(name) if name in self._places else None

    def must(self, name: str) -> Definition:
        """A definition that the file has, with its tokens."""
        if name not in self._known:
            if name in self._nodes:
                self._known[name] = _cpp_definition(name, self._nodes[name], self._source)
            else:
                tokens = _python_tokens("\n".join(self.lines(name)) + "\n")
                self._known[name] = Definition(name, *self._places[name], tokens)
        return self._known[name]

    def unlike(self, other: SourceVersion) -> list[str]:
        """The definitions whose lines differ in another version, or that one of the two hasn't got."""
        return [n for n in {**self._places, **other._places} if self.text(n) != other.text(n)]


def changed(
    before: SourceVersion, after: SourceVersion, unlike: Sequence[str], wanted: Container[str]
) -> list[tuple[str, Definition | None, Definition | None]]:
    """Of the definitions that are wanted those whose tokens differ; None where a version hasn't got it.

    Of those that hold one another, the innermost.

    :param unlike: all whose lines differ.
    """
    found = []
    for name in unlike:
        if name in wanted and _differs(before, after, name):
            inside = (n for n in unlike if n.startswith(name + "."))
            if not any(_differs(before, after, n) for n in inside):
                found.append((name, before.definition(name), after.definition(name)))
    return found


def _differs(before: SourceVersion, after: SourceVersion, name: str) -> bool:
    sides = before.definition(name), after.definition(name)
    return (sides[0] and sides[0].tokens) != (sides[1] and sides[1].tokens)


@functools.lru_cache(maxsize=4096)
def _python_tokens(text: str) -> tuple[str, ...]:
    skip = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    try:
        return tuple(t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in skip)
    except (tokenize.TokenError, IndentationError):
        return tuple(text.split())


def _cpp(source: bytes) -> dict[str, Any]:
    """tree-sitter's nodes of a file's functions and macros, by qualified name."""
    import tree_sitter
    import tree_sitter_cuda

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))
    found: dict[str, Any] = {}

    def walk(node: Any, scope: str) -> None:
        inner = scope
        if node.type in _KINDS:
            name = scope + _cpp_name(node, source)
            holds = node.type.endswith("_specifier")
            if holds:
                inner = name + "::"
            if not holds or node.child_by_field_name("body") is not None:
                unique, number = name, 2
                while unique in found:  # overloads and specialisations, in the order of the file
                    unique, number = f"{name}#{number}", number + 1
                if not holds:
                    found[unique] = node
        for child in node.children:
            if child.child_count:
                walk(child, inner)

    walk(parser.parse(source).root_node, "")
    return found


def _cpp_definition(name: str, node: Any, source: bytes) -> Definition:
    return Definition(name, node.start_point[0] + 1, node.end_point[0] + 1, tuple(_leaves(node, source)))


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
