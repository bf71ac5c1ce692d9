"""Definitions in source files: their lines and tokens, read with Python's parser or tree-sitter."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import operator
import re
import tokenize
import warnings
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from patchq.drift._api.signatures import Parameter
from patchq.extras import missing

_CPP = (b".cu", b".cuh", b".cpp", b".cc", b".cxx", b".h", b".hpp", b".inl", b".c")
_KINDS = {"function_definition", "preproc_function_def", "preproc_def", "struct_specifier", "class_specifier"}

#: Fields with nested statements, in the order of the grammar. All definitions are in them.
_INNER = ("body", "handlers", "orelse", "finalbody", "cases")
#: Cache of the fields in _INNER that each type of node has. Most types have none.
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}
_END = re.compile(rb"\r\n?|\n")
_MACRO_OF_A_LOOP = re.compile(rb"(\b[A-Z][A-Z0-9_]+\s*) (?=(?:for|while)\s*\()")
#: Macro whose last argument is a block: ``DISPATCH(x, X, { … })``.
_MACRO_OF_A_BLOCK = re.compile(rb"\b[A-Z][A-Z0-9_]+\([\w\s.:<>*-]+(?:,[\w\s.:<>*-]+)*(,)\s*(\s)\{")
_BRACE = re.compile(rb"[{}]")
#: Parts of a name, such as ``get``, ``tactic`` and ``count``.
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@dataclass(frozen=True, slots=True)
class Definition:
    """Function or macro: its first and last line (from 1), and its tokens without comments and whitespace."""

    name: str
    start: int
    end: int
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Interface of a definition: how it is called, its value, and the conditions under which it exists.

    :ivar name: qualified name.
    :ivar kind: ``function``, ``macro``, ``class`` or ``value``.
    :ivar parameters: parameters; None if the definition can't be called. In C++, a parameter's ``kind`` is its type.
    :ivar value: value of a constant, see :func:`folded`; for a C++ function, its return type.
    :ivar traits: decorators; also ``async`` and ``generator``.
    :ivar guards: conditions around the definition, outermost first.
    :ivar bases: base classes.
    :ivar returns: numbers of values that a Python function returns: 2 for ``return a, b``, 0 for ``return``.
    :ivar raises: exceptions that a Python function raises in its own body.
    """

    name: str
    line: int
    kind: str
    parameters: tuple[Parameter, ...] | None = None
    value: str = ""
    traits: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    returns: tuple[int, ...] = ()
    raises: tuple[str, ...] = ()

    @property
    def simple(self) -> str:
        """Return the last part of the name: ``f`` for ``A.f``."""
        return simple_name(self.name)


def simple_name(name: str) -> str:
    """Return the last part of a definition's name, without the number of an overload: ``f`` for ``A::f#2``."""
    return re.split(r"\.|::", name)[-1].partition("#")[0]


_ARITHMETIC: dict[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.BitOr: operator.or_,
}
#: Text that may be arithmetic with whole numbers.
_NUMBERS = re.compile(r"(?=\D*\d)[-+*/<>|()\s\dxXa-fA-F_]*")
#: Largest shift, and most bits of an operand, to compute.
_MOST_BITS = 256


def folded(text: str) -> str:
    """Evaluate an expression if it is arithmetic with whole numbers; return other expressions unchanged.

    >>> folded("4 * (1024)"), folded("0x80"), folded("2 * n")
    ('4096', '128', '2 * n')
    """
    if not _NUMBERS.fullmatch(text):
        return text
    try:
        value = _whole(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError, ArithmeticError):
        return text
    if value is None:
        return text
    return str(value)


def _whole(node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _whole(node.operand)
        if value is None:
            return None
        return -value
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        sides = _whole(node.left), _whole(node.right)
        if sides[0] is None or sides[1] is None or max(sides[0].bit_length(), sides[1].bit_length()) > _MOST_BITS:
            return None
        if isinstance(node.op, ast.LShift) and not 0 <= sides[1] <= _MOST_BITS:
            return None
        value = _ARITHMETIC[type(node.op)](*sides)
        return int(value)
    return None


def language_of(path: bytes) -> str:
    """Return the language of a file, ``python`` or ``c++``; empty for other files."""
    if path.endswith(b".py"):
        return "python"
    if path.endswith(_CPP):
        return "c++"
    return ""


@functools.cache
def reads_cpp() -> bool:
    """Return whether the parser for C++ and CUDA is installed. Python's parser is always available."""
    return not {"tree_sitter", "tree_sitter_cuda"} & set(missing("drift"))


def count_cpp_errors(source: bytes) -> int:
    """Return the number of syntax errors that the parser for C++ and CUDA finds."""
    pending, count = [parse_cpp(source)], 0
    while pending:
        node = pending.pop()
        count += node.type == "ERROR" or node.is_missing
        if node.has_error:
            pending += node.children
    return count


def lines_of(source: bytes) -> list[bytes]:
    """Split a file at the same line ends as Python's parser, so that line numbers agree with the parser's."""
    return _END.split(source)


def places(source: bytes) -> dict[str, tuple[int, int]]:
    """Return each function's first and last line (from 1) by qualified name; empty if the file is not valid Python."""
    found: dict[str, tuple[int, int]] = {}
    if tree := parse(source):
        with contextlib.suppress(RecursionError):  # functions nested too deeply are left out
            for statement in tree.body:
                _walk(statement, "", found)
    return found


def inner(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements directly inside a statement, and its clauses such as ``except`` or ``case``."""
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


def definitions(path: bytes, source: bytes) -> dict[str, Definition]:
    """Return the functions and macros of a file by qualified name."""
    version = SourceVersion(path, source)
    return {name: version.must(name) for name in version.names}


class SourceVersion:
    """Version of a file with its definitions. The tokens of a definition are computed when needed."""

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
        """Names of the definitions."""
        return self._places

    def at(self, lines: Collection[int]) -> list[str]:
        """Return the names of the definitions around any of these lines."""
        return [name for name, (first, last) in self._places.items() if any(first <= one <= last for one in lines)]

    def text(self, name: str) -> list[bytes] | None:
        """Return the raw lines of a definition; None if the file doesn't have it."""
        place = self._places.get(name)
        if place:
            return self._lines[place[0] - 1 : place[1]]
        return None

    def lines(self, name: str) -> list[str]:
        """Return the decoded lines of a definition; empty if the file doesn't have it."""
        return [line.decode("utf-8", "replace") for line in self.text(name) or ()]

    def definition(self, name: str) -> Definition | None:
        """Return a definition with its tokens; None if the file doesn't have it."""
        if name in self._places:
            return self.must(name)
        return None

    def must(self, name: str) -> Definition:
        """Return a definition with its tokens. The file must contain the definition."""
        if name not in self._known:
            if name in self._nodes:
                self._known[name] = _cpp_definition(name, self._nodes[name], self._source)
            else:
                tokens = _python_tokens("\n".join(self.lines(name)) + "\n")
                self._known[name] = Definition(name, *self._places[name], tokens)
        return self._known[name]

    def unlike(self, other: SourceVersion) -> list[str]:
        """Return the definitions whose lines differ, or that only one of the versions has."""
        found: list[str] = []
        for n in {**self._places, **other._places}:
            if self.text(n) != other.text(n):
                found.append(n)
        return found


def changed(
    before: SourceVersion, after: SourceVersion, unlike: Sequence[str], wanted: Container[str]
) -> list[tuple[str, Definition | None, Definition | None]]:
    """Return the wanted definitions whose tokens differ, each with its old and new version.

    A version is None if the file doesn't have the definition. If definitions are nested, only the
    innermost changed ones are returned.

    :param unlike: all definitions whose lines differ.
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
    """Return the tree-sitter node of each function and macro in a file, by qualified name."""
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
                while unique in found:  # number overloads and specialisations
                    unique, number = f"{name}#{number}", number + 1
                if not holds:
                    found[unique] = node
        for child in node.children:
            if child.child_count:
                walk(child, inner)

    walk(parse_cpp(source), "")
    return found


def parse_cpp(source: bytes) -> Any:
    """Parse a C++ or CUDA file with tree-sitter, and return the root node."""
    import tree_sitter
    import tree_sitter_cuda

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))
    # A macro before a loop is parsed as the type of a declaration, so it becomes a statement, at the same places.
    return parser.parse(_with_blocks(_MACRO_OF_A_LOOP.sub(rb"\1;", source))).root_node


def _with_blocks(source: bytes) -> bytes:
    """Rewrite ``DISPATCH(x, X, { … });`` to ``DISPATCH(x, X);{ … } ;``, at the same places."""
    found = bytearray(source)
    for match in _MACRO_OF_A_BLOCK.finditer(source):
        end, depth = match.end(), 1
        while depth and (brace := _BRACE.search(source, end)):
            depth += {b"{": 1, b"}": -1}[brace[0]]
            end = brace.end()
        if not depth and source[end : end + 1] == b")":
            found[match.start(1)] = ord(")")
            found[match.start(2)] = ord(";")
            found[end] = ord(" ")
    return bytes(found)


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
        if node.type == "preproc_arg":
            return text.split()
        return [text]
    leaves: list[str] = []
    for child in node.children:
        leaves += _leaves(child, source)
    return leaves


@functools.cache
def stem(word: str) -> str:
    """Return what a thing's names in Python and C++ have in common: ``~tacticcount`` for ``getTacticCount``.

    Return an empty text for names of one part.
    """
    parts = [part.lower() for part in _PARTS.findall(word)]
    while parts and parts[0] in ("m", "k", "s", "p", "get", "set"):
        del parts[0]
    return f"~{''.join(parts)}" if len(parts) > 1 else ""
