"""The report as a page that needs nothing but itself, and as Markdown for a job's summary, from one model."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from patchq.formats.ledger import WRITTEN, say_moved
from patchq.formats.measurements import Measurement
from patchq.formats.render import FOLDER, raw, render
from patchq.report.evidence import Evidence, Matrix, PatchView

#: Of the ledger, so many lines are on the page.
MOST_LINES = 400
#: Past so many nodes a drawing helps nobody; the table stays.
MOST_NODES = 150
_TONES = {
    "k": ("clean", "offset", WRITTEN, "proven", "passed"), "g": ("merged", "replayed", "resolved", "not run"),
    "h": ("absorbed", "retired"), "x": ("conflict", "obsolete", "withdrawn", "failed", "not proven"),
}  # fmt: skip
_TONE = {word: tone for tone, words in _TONES.items() for word in words}


def html(evidence: Evidence, root: Path, folder: Path) -> str:
    """The page.

    :param root: the project's folder; ``folder`` is where the page is to lie, which links are relative to.
    """

    def link(path: str) -> str:
        return quote(Path(os.path.relpath(root / path, folder)).as_posix())

    script = (FOLDER / "report" / "report.js").read_text()
    cells = [_cells(m, link) for m in evidence.matrices]
    return render(
        "report/report.html.j2", e=evidence, matrices=evidence.matrices, link=link, url=_url,
        tone=lambda word: _TONE.get(word, ""), moved=say_moved,
        graph=_graph(evidence.patches), charts=_charts(evidence),
        statuses=sorted(Counter(p.info.status.split(" ")[0] for p in evidence.patches).items()),
        ledger_lines=sorted(evidence.ledger, key=lambda x: x.attempt.time, reverse=True)[:MOST_LINES],
        css=raw((FOLDER / "report" / "report.css").read_text()), js=raw(script), cells_json=raw(_json(cells)),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )  # fmt: skip


def markdown(evidence: Evidence) -> str:
    """A summary for a job: GitHub's ``$GITHUB_STEP_SUMMARY``, for one."""
    newest = {f"{m.upstream}/{name}": f"{m.refs[-1]}: {row[-1].outcome or 'not looked'}"
              for m in evidence.matrices for name, row in m.rows.items()}  # fmt: skip
    return render("report/summary.md.j2", e=evidence, newest=newest)


def _url(status: str) -> str:
    """The address in an ``Upstream-Status:``; only such as a browser may open."""
    match = re.search(r"https?://[^\s\[\]\"'<>]+", status)
    return match[0] if match else ""


def _json(value: object) -> str:
    """JSON that can stand in a script element, whatever it says."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _cells(matrix: Matrix, link: Callable[[str], str]) -> dict[str, object]:
    """What the cells of a matrix say, for the dialog: by row and column, only where there is something."""
    texts: dict[str, int] = {"": 0}  # the same words stand in many cells
    rows = [
        {
            n: [
                texts.setdefault(c.evidence, len(texts)),
                texts.setdefault(link(c.file) if c.file else "", len(texts)),
                c.line,
            ]
            for n, c in enumerate(cells)
            if c.evidence or c.file
        }
        for cells in matrix.rows.values()
    ]
    return {"u": matrix.upstream, "n": list(matrix.rows), "r": list(matrix.refs), "e": rows, "s": list(texts)}


# Drawings


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    x: int
    y: int
    w: int


@dataclass(frozen=True, slots=True)
class Edge:
    x1: int
    y1: int
    x2: int
    y2: int
    said: bool


@dataclass(frozen=True, slots=True)
class Graph:
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    width: int = 0
    height: int = 0


def _graph(patches: Sequence[PatchView]) -> Graph:
    """Patches that need others or are needed, in columns by how far they are from needing none."""
    arrows = [(p.name, other, False) for p in patches for other in p.needs]
    arrows += [(p.name, r, True) for p in patches for r in p.info.requires if r not in p.needs]
    names = {name for a, b, _ in arrows for name in (a, b)} & {p.name for p in patches}
    arrows = [a for a in arrows if a[0] in names and a[1] in names]
    if not names or len(names) > MOST_NODES:
        return Graph()
    depth: dict[str, int] = {}
    for p in patches:  # in the order of the series: what a patch needs comes before it, but for other upstreams
        if p.name in names:
            depth[p.name] = max((depth.get(b, 0) + 1 for a, b, _ in arrows if a == p.name), default=0)
    columns: dict[int, list[str]] = {}
    for name, column in depth.items():
        columns.setdefault(column, []).append(name)
    nodes, x = {}, 10
    for column in sorted(columns):
        width = max(len(n) for n in columns[column]) * 7 + 12
        for row, name in enumerate(columns[column]):
            nodes[name] = Node(name, x, 10 + row * 28, width)
        x += width + 60
    edges = [Edge(nodes[a].x, nodes[a].y + 10, nodes[b].x + nodes[b].w, nodes[b].y + 10, said) for a, b, said in arrows]
    return Graph(tuple(nodes.values()), tuple(edges), x, 20 + 28 * max(len(c) for c in columns.values()))


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    y: int
    w: float
    value: str
    reported: bool
    spread: bool
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Limit:
    x: float
    value: str
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    bars: tuple[Bar, ...]
    limits: tuple[Limit, ...]
    left: int
    width: int
    height: int


def _charts(evidence: Evidence) -> list[Chart]:
    """Bars of each machine's tests, the fastest first; decoding beside what its memory allows."""
    keys = sorted({(m.machine, m.test, m.depth) for m in evidence.measurements}, key=lambda k: (k[0], k[2], k[1]))
    found = []
    for key in keys:
        limits = dict(evidence.bounds.get(key[0], {})) if key[1].startswith("tg") and not key[2] else {}
        words = {
            f"{value:.1f}": f"what the memory allows one request with {name}"
            for name, value in reversed(limits.items())
        }
        words |= {
            f"{t.value:.1f}": f"to reach: {t.why}" for t in evidence.targets if (t.machine, t.test, t.depth) == key
        }
        found.append(_chart([m for m in evidence.measurements if (m.machine, m.test, m.depth) == key], words))
    return found


def _chart(measurements: list[Measurement], words: Mapping[str, str]) -> Chart:
    first = measurements[0]
    limits = sorted(words.items(), key=lambda item: float(item[0]))
    top = max([m.value + m.spread for m in measurements] + [float(value) for value, _ in limits])
    labels = [" ".join(filter(None, (m.engine, m.config))) for m in measurements]
    left = max(len(label) for label in labels) * 7 + 10
    scale = 520 / top
    bars = []
    for row, (label, m) in enumerate(sorted(zip(labels, measurements, strict=True), key=lambda item: -item[1].value)):
        low, high = (left + scale * (m.value + sign * m.spread) for sign in (-1, 1))
        bars.append(
            Bar(label, 6 + row * 24, round(scale * m.value, 1), f"{m.value:.2f}", bool(m.reported), bool(m.spread),
                round(low, 1), round(high, 1))
        )  # fmt: skip
    title = f"{first.machine}: {first.test}" + (f" after {first.depth} tokens" if first.depth else "") + ", t/s"
    drawn = tuple(Limit(round(left + scale * float(value), 1), value, name) for value, name in limits)
    return Chart(title, tuple(bars), drawn, left, left + 720, 12 + 24 * len(bars))
