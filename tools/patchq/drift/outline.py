"""Where a Python file's definitions stand; of another version of it only the statements that differ are parsed."""

from __future__ import annotations

import ast
import itertools
import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

#: The fields of a statement that hold statements, in the order of its grammar; no definition is anywhere else.
_INNER = ("body", "handlers", "orelse", "finalbody", "cases")
#: By the type of a node, those that it has; of most none.
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}
#: What ends a line for Python's parser or for its texts, and not for both; or makes it read something else than UTF-8.
_ODD = (
    b"\r", b"\f", b"\0", b"\x0b", b"\x1c", b"\x1d", b"\x1e", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9",
    b"\xef\xbb\xbf",
)  # fmt: skip
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

#: A definition's qualified name, and its first and its last line, counted from 1.
_Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class _Body:
    """The body of a class at the top of a file."""

    scope: str
    indent: bytes


@dataclass(frozen=True, slots=True)
class _Piece:
    """A statement at the top of a file, or in the body of a class there; of such a class the lines above its body.

    Its first and last line, and the definitions in it, in order; the body that it stands in, and that it begins.
    """

    start: int
    end: int
    places: tuple[_Place, ...]
    body: _Body | None = None
    begins: _Body | None = None

    def moved(self, by: int) -> _Piece:
        if not by:
            return self
        places = tuple((name, start + by, end + by) for name, start, end in self.places)
        return _Piece(self.start + by, self.end + by, places, self.body, self.begins)


@dataclass(slots=True)
class Outline:
    """A file's lines, and its statements at the top; none of one that is no Python.

    :ivar plain: whether its lines end where Python's do.
    """

    lines: list[bytes]
    plain: bool
    pieces: tuple[_Piece, ...] | None
    places: dict[str, tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.places = {name: (start, end) for p in self.pieces or () for name, start, end in p.places}


def outline(source: bytes, like: Outline | None = None) -> Outline:
    """Where the definitions of a file stand.

    :param like: another version of it: what both begin and end with isn't parsed again.
    """
    lines = source.split(b"\n")
    plain = not any(odd in source for odd in _ODD) and not any(b"coding" in line for line in lines[:2])
    pieces = _pieces_like(lines, like) if like and plain else None
    if pieces is None and (tree := parse(source)):
        pieces = tuple(_pieces(tree, lines) if plain else (_piece(statement, None) for statement in tree.body))
    return Outline(lines, plain, pieces)


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
    """A file's syntax tree; None of what is no Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an upstream's escape sequences
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError):
            return None


def _pieces(tree: ast.Module, lines: Sequence[bytes]) -> Iterator[_Piece]:
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            line = lines[_first(statement.body[0]) - 1]
            indent = line[: len(line) - len(line.lstrip(b" \t"))]
            if len(indent) == statement.body[0].col_offset:  # else it stands beside its class's name
                body = _Body(statement.name + ".", indent)
                yield _Piece(_first(statement), _first(statement.body[0]) - 1, (), None, body)
                yield from (_piece(inside, body) for inside in statement.body)
                continue
        yield _piece(statement, None)


def _piece(statement: ast.stmt, body: _Body | None) -> _Piece:
    places: list[_Place] = []
    _walk(statement, body.scope if body else "", places)
    return _Piece(_first(statement), statement.end_lineno or statement.lineno, tuple(places), body)


def _first(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(d.lineno for d in decorators)])


def _walk(node: ast.AST, scope: str, places: list[_Place]) -> None:
    if isinstance(node, _FUNCTIONS):
        first = _first(node)
        places.append((scope + node.name, first, node.end_lineno or first))
        scope += node.name + "."
    elif isinstance(node, ast.ClassDef):
        scope += node.name + "."
    for child in inner(node):
        _walk(child, scope, places)


def _pieces_like(lines: Sequence[bytes], like: Outline) -> tuple[_Piece, ...] | None:
    """The statements of a file that has those of another but for some; None where that doesn't tell them.

    What lies between is parsed by itself. It is whole statements, since before it one has ended, behind it one
    begins, and it is no part of either: neither continues a line, and nothing that continues a statement is one.
    """
    if not like.plain or like.pieces is None:
        return None
    pieces, found, done = like.pieces, list[_Piece](), 0
    kept = _kept(pieces, _blocks(like.lines, lines))
    moves = [block[1] - block[0] if block else 0 for block in kept]
    for first, last in _gaps(pieces, kept, (len(like.lines), len(lines))):
        found += (pieces[n].moved(moves[n]) for n in range(done, first))
        begin = pieces[first - 1].end + moves[first - 1] if first else 0
        end = pieces[last].start - 1 + moves[last] if last < len(pieces) else len(lines)
        if any(line.endswith(b"\\") for line in (*lines[:begin][-1:], *lines[begin:end][-1:])):
            return None
        between = _between(lines[begin:end], pieces[last].body if last < len(pieces) else None)
        if between is None:
            return None
        found += (piece.moved(begin) for piece in between)
        done = last
    found += (pieces[n].moved(moves[n]) for n in range(done, len(pieces)))
    return tuple(found)


_Block = tuple[int, int, int]


def _blocks(old: Sequence[bytes], new: Sequence[bytes]) -> list[_Block]:
    """Where two versions of a file are the same: from which line of each how many, one block behind another."""
    most = min(len(old), len(new))
    head = next((n for n in range(most) if old[n] != new[n]), most)
    tail = next((n for n in range(most - head) if old[-1 - n] != new[-1 - n]), most - head)
    ends = len(old) - tail, len(new) - tail
    blocks = [(0, 0, head)]
    for i, j in _anchors(old[head : ends[0]], new[head : ends[1]]):
        begin, begin_new = i + head, j + head
        before, before_new = (x + blocks[-1][2] for x in blocks[-1][:2])
        if begin < before or begin_new < before_new:
            continue
        while begin > before and begin_new > before_new and old[begin - 1] == new[begin_new - 1]:
            begin, begin_new = begin - 1, begin_new - 1
        room = min(ends[0] - begin, ends[1] - begin_new)
        size = next((n for n in range(room) if old[begin + n] != new[begin_new + n]), room)
        blocks.append((begin, begin_new, size))
    return [*blocks, (*ends, tail)]


def _anchors(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Lines that each of two texts has once, as many as stand in one order in both."""
    places: list[dict[bytes, int]] = []
    for text in (old, new):
        counts = Counter(text)
        places.append({line: n for n, line in enumerate(text) if counts[line] == 1})
    # The longest rising run: of each length the run that ends lowest, and each pair with the one before it.
    lowest: list[int] = []
    pairs: list[tuple[int, int, int]] = []
    ending: list[int] = []
    for line, j in places[1].items():
        if (i := places[0].get(line)) is not None:
            at = bisect_left(lowest, i)
            pairs.append((i, j, ending[at - 1] if at else -1))
            lowest[at : at + 1], ending[at : at + 1] = [i], [len(pairs) - 1]
    found, n = list[tuple[int, int]](), ending[-1] if ending else -1
    while n >= 0:
        i, j, n = pairs[n]
        found.append((i, j))
    yield from reversed(found)


def _kept(pieces: Sequence[_Piece], blocks: Sequence[_Block]) -> list[_Block | None]:
    """The block that each statement lies in; None of one that isn't there as it was."""
    found: list[_Block | None] = []
    waiting = list(reversed(blocks))
    for piece in pieces:
        while len(waiting) > 1 and waiting[-1][0] + waiting[-1][2] < piece.end:
            waiting.pop()
        begin, _, size = waiting[-1]
        found.append(waiting[-1] if begin < piece.start and piece.end <= begin + size else None)
    return found


def _gaps(pieces: Sequence[_Piece], kept: Sequence[_Block | None], ends: tuple[int, int]) -> list[tuple[int, int]]:
    """The statements, from one to before another, that are parsed anew with what lies around them.

    One to before itself is what lies between two that stay, where that isn't as it was.

    :param ends: how many lines there were, and are.
    """
    whole: list[_Block | None] = [(0, 0, 0), *kept, (*ends, 0)]
    gaps = [(n, n + 1) for n, block in enumerate(kept) if block is None]
    for n, (before, after) in enumerate(itertools.pairwise(whole)):
        if before and after and before != after:
            edge = after[:2] == (0, 0) if n == 0 else (before[0] + before[2], before[1] + before[2]) == ends
            if not (edge and n in (0, len(kept))):
                gaps.append((n, n))
    while True:
        merged: list[tuple[int, int]] = []
        for first, last in sorted(gaps):
            if merged and first <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(last, merged[-1][1])
            else:
                merged.append((first, last))
        gaps = [_parted(pieces, *gap) for gap in merged]
        if gaps == merged:
            return merged


def _parted(pieces: Sequence[_Piece], first: int, last: int) -> tuple[int, int]:
    """The statements from ``first`` to before ``last``, or more of them: what is parsed by itself as a whole.

    Those around it stand in one body, and none has a line together with it.
    """
    while 0 < first < len(pieces) and pieces[first].start <= pieces[first - 1].end:
        first -= 1
    while first < last < len(pieces) and pieces[last].start <= pieces[last - 1].end:
        last += 1
    while True:
        before = (pieces[first - 1].begins or pieces[first - 1].body) if first else None
        after = pieces[last].body if last < len(pieces) else None
        if before is after:
            return first, last
        if before:
            first -= 1
        else:
            last += 1


def _between(lines: Sequence[bytes], body: _Body | None) -> list[_Piece] | None:
    """Some statements of a file, lines counted from the first of them; None where they are none."""
    above = [b"class _:"] if body else []
    below = (body.indent if body else b"") + b"pass"
    try:
        # As text: in the midst of a file no comment says in what it is written.
        tree = parse(b"\n".join([*above, *lines, below, b""]).decode())
    except UnicodeDecodeError:
        return None
    if tree is None:
        return None
    if not body:
        return list(_pieces(tree, [*lines, below]))[:-1]
    outer = tree.body[0]
    # What ends the class, or begins a statement that holds what is behind it, has the last line in it.
    if not isinstance(outer, ast.ClassDef) or outer.body[-1].lineno != len(lines) + 2:
        return None
    return [_piece(statement, body).moved(-1) for statement in outer.body[:-1]]
