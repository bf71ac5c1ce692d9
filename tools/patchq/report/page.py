"""The report as a page that needs nothing but itself, and as Markdown for a job's summary, from one model."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from patchq.formats.ledger import WRITTEN, say_moved
from patchq.formats.measurements import Measurement
from patchq.formats.render import FOLDER, raw, render
from patchq.report.ahead import DROPPED
from patchq.report.evidence import Evidence, Matrix
from patchq.report.graph import draw

#: Of the ledger, so many lines are on the page.
MOST_LINES = 400
#: Past so many refs a matrix is wider than a screen, and scrolls.
MOST_REFS = 9
_TONES = {
    "k": ("clean", "offset", WRITTEN, "proven", "passed"), "g": ("merged", "replayed", "resolved", "not run"),
    "h": ("absorbed",), "x": ("conflict", "obsolete", "failed", "not proven"), "o": (DROPPED,),
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
        short=lambda ref: ref[:12] if re.fullmatch("[0-9a-f]{40}", ref) else ref,
        stops=lambda cells: any(_TONE.get(c.outcome) == "x" for c in cells),
        graph=draw(evidence.patches), charts=_charts(evidence), totals=[_totals(m) for m in evidence.matrices],
        anchors={p.name: anchor(p.name) for p in evidence.patches}, most_refs=MOST_REFS,
        strengths=any(p.strength for p in evidence.patches),
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
    text = re.sub("[<>&]", lambda m: f"\\u{ord(m[0]):04x}", text)
    return re.sub(r"[^ -~]", lambda m: m[0] if m[0].isprintable() else json.dumps(m[0])[1:-1], text)


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


def anchor(name: str) -> str:
    """The fragment of a patch's row."""
    return "p-" + re.sub(r"[^A-Za-z0-9_]+", "-", name)


def _totals(matrix: Matrix) -> list[tuple[str, str, list[int]]]:
    """What the columns of a matrix come to: words, tone, and a count a ref; only rows that count something."""
    counts = [
        Counter(_TONE.get(cells[n].outcome, "") for cells in matrix.rows.values()) for n in range(len(matrix.refs))
    ]
    rows = [
        ("land", "k", [c["k"] + c["g"] for c in counts]),
        ("stop", "x", [c["x"] for c in counts]),
        ("upstream has", "h", [c["h"] for c in counts]),
        (DROPPED, "o", [c["o"] for c in counts]),
        ("not looked at", "", [c[""] for c in counts]),
    ]
    return [row for row in rows if any(row[2]) or row[1] == "x"]


# Drawings


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
