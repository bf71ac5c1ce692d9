"""The dependency graph as a drawing: columns by what a patch needs, and arrows that pass between the boxes."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from patchq.report.evidence import PatchView

#: Past so many nodes a drawing helps nobody; the table stays.
MOST_NODES = 150
_ROW, _BOX, _GAP, _CHAR, _MARGIN = 28, 20, 70, 7, 10
#: How often the columns are put in the order of what they are joined to.
_SWEEPS = 6


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    x: int
    y: int
    w: int


@dataclass(frozen=True, slots=True)
class Edge:
    """``path``: an SVG path from a patch to what it needs; ``said``: it only says that it requires it."""

    path: str
    said: bool


@dataclass(frozen=True, slots=True)
class Graph:
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    width: int = 0
    height: int = 0


@dataclass(frozen=True, slots=True)
class _Point:
    """A place in a column: a patch's, or one where the arrow of this number passes."""

    column: int
    name: str
    arrow: int = -1


def draw(patches: Sequence[PatchView]) -> Graph:
    """Patches that need others or are needed, in columns by how far they are from needing none."""
    known = {p.name for p in patches}
    arrows = [(p.name, other, False) for p in patches for other in p.needs]
    arrows += [(p.name, r, True) for p in patches for r in p.info.requires if r not in p.needs]
    arrows = [a for a in arrows if {a[0], a[1]} <= known and a[0] != a[1]]
    names = {name for a, b, _ in arrows for name in (a, b)}
    if not names or len(names) > MOST_NODES:
        return Graph()
    depth = _depths([p.name for p in patches if p.name in names], arrows)
    routes = [
        [_Point(depth[a], a), *(_Point(c, a, n) for c in range(depth[a] - 1, depth[b], -1)), _Point(depth[b], b)]
        for n, (a, b, _) in enumerate(arrows)
    ]
    points = dict.fromkeys([_Point(column, name) for name, column in depth.items()] + [p for r in routes for p in r])
    columns = _ordered([[p for p in points if p.column == n] for n in range(max(depth.values()) + 1)], routes)
    widths = [
        max(len(p.name) for p in points if p.column == n and p.arrow < 0) * _CHAR + 12 for n in range(len(columns))
    ]
    lefts = [_MARGIN + sum(widths[:n]) + _GAP * n for n in range(len(columns))]
    tops = {p: _MARGIN + row * _ROW for column in columns for row, p in enumerate(column)}
    nodes = tuple(Node(p.name, lefts[p.column], y, widths[p.column]) for p, y in tops.items() if p.arrow < 0)
    edges = tuple(
        Edge(_path([(lefts[p.column], widths[p.column], tops[p] + _BOX // 2) for p in route]), said)
        for route, (_, _, said) in zip(routes, arrows, strict=True)
    )
    return Graph(nodes, edges, lefts[-1] + widths[-1] + _MARGIN, max(tops.values()) + _BOX + _MARGIN)


def _depths(names: Sequence[str], arrows: Sequence[tuple[str, str, bool]]) -> dict[str, int]:
    """How many patches stand behind each, one behind the other; of a circle, one arrow doesn't count."""
    needs: dict[str, list[str]] = {}
    for a, b, _ in arrows:
        needs.setdefault(a, []).append(b)
    found: dict[str, int] = {}

    def depth(name: str, on_the_way: frozenset[str]) -> int:
        if name not in found:
            behind = [n for n in needs.get(name, ()) if n not in on_the_way]
            found[name] = max((depth(n, on_the_way | {name}) + 1 for n in behind), default=0)
        return found[name]

    for name in names:
        depth(name, frozenset({name}))
    return {name: found[name] for name in names}


def _ordered(columns: list[list[_Point]], routes: Sequence[Sequence[_Point]]) -> list[list[_Point]]:
    """Each column in the order of the middles of what its points are joined to, so that few arrows cross."""
    joined: dict[_Point, list[_Point]] = {}
    for route in routes:
        for a, b in itertools.pairwise(route):
            joined.setdefault(a, []).append(b)
            joined.setdefault(b, []).append(a)
    for _ in range(_SWEEPS):
        for n in (*range(1, len(columns)), *reversed(range(len(columns) - 1))):
            rows = {p: row for column in columns for row, p in enumerate(column)}
            middle = {
                p: statistics.fmean([rows[q] for q in joined.get(p, ()) if q.column != n] or [rows[p]])
                for p in columns[n]
            }
            columns[n].sort(key=middle.__getitem__)
    return columns


def _path(places: Sequence[tuple[int, int, int]]) -> str:
    """A curve through places (left, width, y): out of the first box's left side, into the last one's right side."""
    x, _, y = places[0]
    path = f"M{x} {y}"
    for left, width, to in places[1:]:
        right = left + width
        bend = (x - right) // 2
        path += f"C{x - bend} {y} {right + bend} {to} {right} {to}"
        if (left, width, to) != places[-1]:
            path += f"H{left}"
        x, y = left, to
    return path
