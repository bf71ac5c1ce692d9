"""Renderers of the report's data model: a self-contained HTML page, and Markdown for a job summary."""

from __future__ import annotations

import base64
import hashlib
import json
import operator
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from patchq.formats.ledger import say_moved
from patchq.formats.measurements import Measurement
from patchq.formats.outcomes import CellState
from patchq.formats.render import FOLDER, raw, render
from patchq.names import counted
from patchq.report.evidence import Evidence, Matrix, StackView
from patchq.report.todo import NextStep, StackTodo

#: Maximum number of ledger lines that the page shows.
MOST_LINES = 400
#: Number of refs above which a matrix is wider than a screen, and scrolls.
MOST_REFS = 9
#: Outcomes by the CSS class that colours them.
_TONES = {
    "k": ("clean", "offset", CellState.WRITTEN, "proven", "passed"),
    "g": ("merged", "by rule", "replayed", "resolved", "not run", "no proof"),
    "h": ("absorbed",),
    "x": ("conflict", "obsolete", "failed", "not proven"),
    "o": (CellState.DROPPED,),
}
_TONE: dict[str, str] = {}
for _tone, _outcomes in _TONES.items():
    _TONE.update(dict.fromkeys(_outcomes, _tone))

#: Parts of a release's bar: CSS class and label.
_BAR_LEGEND = (
    ("k", "applies"),
    ("x", "needs review"),
    ("h", "may be dropped: upstream has it"),
    ("o", "dropped"),
    ("u", "no forecast"),
)

#: Sizes of the charts in pixels.
_BAR_AREA, _VALUE_AREA, _ROW, _CHARACTER = 520, 200, 24, 7


def html(evidence: Evidence, root: Path, folder: Path) -> str:
    """Return the HTML page.

    :param root: the project's folder.
    :param folder: the folder into which the page is written. Links are relative to this folder.
    """

    def link(path: str) -> str:
        return quote(Path(os.path.relpath(root / path, folder)).as_posix())

    script = (FOLDER / "report" / "report.js").read_text()
    style = (FOLDER / "report" / "report.css").read_text()
    cells, totals = [], []
    for matrix in evidence.matrices:
        cells.append(_cells(matrix, link))
        totals.append(_totals(matrix))
    statuses: Counter[str] = Counter()
    anchors: dict[str, str] = {}
    for patch in evidence.patches:
        statuses[patch.info.status.split(" ")[0]] += 1
        anchors[patch.name] = anchor(patch.name)
    next_refs = {(todo.upstream, todo.onto) for todo in evidence.todo if todo.onto}
    ledger = sorted(evidence.ledger, key=lambda line: line.attempt.time, reverse=True)
    return render(
        "report/report.html.j2",
        e=evidence,
        matrices=evidence.matrices,
        link=link,
        url=_url,
        tone=lambda outcome: _TONE.get(outcome, ""),
        moved=say_moved,
        short=_short,
        stops=_has_stop,
        charts=_charts(evidence),
        steps=_steps(evidence),
        next_refs=next_refs,
        bar_legend=_BAR_LEGEND,
        totals=totals,
        anchors=anchors,
        most_refs=MOST_REFS,
        strengths=any(patch.strength for patch in evidence.patches),
        statuses=sorted(statuses.items()),
        ledger_lines=ledger[:MOST_LINES],
        css=raw(style),
        js=raw(script),
        cells_json=raw(_json(cells)),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def markdown(evidence: Evidence) -> str:
    """Return a summary for a CI job, such as GitHub's ``$GITHUB_STEP_SUMMARY``."""
    newest = {}
    for matrix in evidence.matrices:
        for name, row in matrix.rows.items():
            outcome = row[-1].outcome or "no forecast"
            newest[f"{matrix.upstream}/{name}"] = f"{matrix.refs[-1]}: {outcome}"
    return render("report/summary.md.j2", e=evidence, newest=newest, steps=_steps(evidence))


def _steps(evidence: Evidence) -> dict[str, tuple[str, str, str]]:
    """Return the text for each stack's next step, by upstream: a label, its CSS class and the reason."""
    stacks = {stack.upstream: stack for stack in evidence.stacks}
    found = {}
    for todo in evidence.todo:
        label, mark = _STEP_LABELS[todo.step]
        found[todo.upstream] = (label, mark, _say_step(evidence, todo, stacks[todo.upstream]))
    return found


_STEP_LABELS = {
    NextStep.NO_PATCHES: ("empty", "o"),
    NextStep.APPLY: ("not applied", "g"),
    NextStep.EXPORT: ("not exported", "g"),
    NextStep.EDITED: ("edited", "g"),
    NextStep.PROOF_FAILS: ("not proven", "x"),
    NextStep.NO_PROOF: ("no proof", "g"),
    NextStep.NOT_LOOKED_AT: ("no forecast", "o"),
    NextStep.REVIEW: ("needs review", "x"),
    NextStep.CARRY: ("ready", "k"),
    NextStep.CARRIED: ("carried", "k"),
    NextStep.NEWEST: ("newest pin", "k"),
}


def _say_step(evidence: Evidence, todo: StackTodo, stack: StackView) -> str:
    """Return the reason for a stack's next step."""
    patches = counted(len(todo.patches), "patch")
    newer = [release for release in evidence.ahead if release.upstream == todo.upstream]
    onto = _short(todo.onto)
    if todo.step is NextStep.NO_PATCHES:
        return "the stack has no patches"
    if todo.step is NextStep.APPLY:
        return f"the stack is {stack.state}, and its worktree is {stack.worktree}"
    if todo.step is NextStep.EXPORT:
        return "the worktree has commits that are not in the stack"
    if todo.step is NextStep.EDITED:
        return "the worktree has edits that are in no patch"
    if todo.step is NextStep.PROOF_FAILS:
        return f"the proofs of {patches} fail"
    if todo.step is NextStep.NO_PROOF:
        return f"{patches} without a proof: write a test that fails without the patch, then run"
    if todo.step is NextStep.NOT_LOOKED_AT:
        return f"{onto} has no forecast for {patches}"
    if todo.step in (NextStep.REVIEW, NextStep.CARRY):
        (message,) = [release.message for release in newer if release.ref == todo.onto]
        return f"{onto}: {message}"
    if newer:
        return f"to {_short(newer[-1].ref)}; check for a newer release"
    return "no newer release is pinned; check for one"


def _short(ref: str) -> str:
    is_commit = re.fullmatch("[0-9a-f]{40}", ref)
    if is_commit:
        return ref[:12]
    return ref


def _has_stop(cells: Sequence[object]) -> bool:
    return any(_TONE.get(getattr(cell, "outcome", "")) == "x" for cell in cells)


def _url(status: str) -> str:
    """Return the web address in an ``Upstream-Status:``; empty if there is none, or if it isn't http(s)."""
    match = re.search(r"https?://[^\s\[\]\"'<>]+", status)
    if match:
        return match[0]
    return ""


def _json(value: object) -> str:
    """Return JSON in which no text can end the script element that contains the JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = re.sub("[<>&]", lambda match: f"\\u{ord(match[0]):04x}", text)
    return re.sub(r"[^ -~]", _escape_unprintable, text)


def _escape_unprintable(match: re.Match[str]) -> str:
    if match[0].isprintable():
        return match[0]
    return json.dumps(match[0])[1:-1]


def _cells(matrix: Matrix, link: Callable[[str], str]) -> dict[str, object]:
    """Return the data for the dialog of a matrix's cells. Repeated texts are stored once, under the key ``s``."""
    texts: dict[str, int] = {"": 0}
    rows = []
    for cells in matrix.rows.values():
        row = {}
        for column, cell in enumerate(cells):
            if cell.evidence or cell.file:
                evidence = texts.setdefault(cell.evidence, len(texts))
                file = texts.setdefault(link(cell.file) if cell.file else "", len(texts))
                row[column] = [evidence, file, cell.line]
        rows.append(row)
    return {"u": matrix.upstream, "n": list(matrix.rows), "r": list(matrix.refs), "e": rows, "s": list(texts)}


def anchor(name: str) -> str:
    """Return the URL fragment that points to a patch's row."""
    return "p-" + re.sub(r"[^A-Za-z0-9_]+", "-", name)


def _totals(matrix: Matrix) -> list[tuple[str, str, list[int]]]:
    """Return the totals below a matrix: label, CSS class, and a count for each ref.

    Rows with only zeros are left out.
    """
    rows: dict[str, list[int]] = {}
    for tone in ("k", "g", "x", "h", "o", ""):
        rows[tone] = [0] * len(matrix.refs)
    for cells in matrix.rows.values():
        for column, cell in enumerate(cells):
            rows[_TONE.get(cell.outcome, "")][column] += 1
    applied = list(map(operator.add, rows["k"], rows["g"]))
    totals: list[tuple[str, str, list[int]]] = []
    for label, tone, counts in (
        ("apply", "k", applied),
        ("need review", "x", rows["x"]),
        ("upstream has", "h", rows["h"]),
        (CellState.DROPPED, "o", rows["o"]),
        ("no forecast", "", rows[""]),
    ):
        if any(counts) or tone == "x":
            totals.append((label, tone, counts))
    return totals


# Charts


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Bar of a chart for one measurement. ``low`` and ``high`` are the ends of its spread. Positions are in pixels."""

    label: str
    y: int
    w: float
    value: str
    reported: bool
    spread: bool
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLimit:
    """Dashed vertical line in a chart, at ``x`` pixels."""

    x: float
    value: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Chart with the bars of one test on one machine."""

    title: str
    bars: tuple[Bar, ...]
    limits: tuple[ChartLimit, ...]
    left: int
    width: int
    height: int


def _charts(evidence: Evidence) -> list[Chart]:
    """Return a chart for each machine, test and depth. The fastest measurement comes first."""
    tests: dict[tuple[str, int, str], list[Measurement]] = {}
    for measurement in evidence.measurements:
        key = (measurement.machine, measurement.depth, measurement.test)
        tests.setdefault(key, []).append(measurement)
    charts = []
    for _, measurements in sorted(tests.items()):
        charts.append(_chart(measurements, _limits(evidence, measurements[0])))
    return charts


def _limits(evidence: Evidence, test: Measurement) -> dict[str, str]:
    """Return the bounds and targets that apply to a test: a dict from the value to its label."""
    labels: dict[str, str] = {}
    if test.test.startswith("tg"):
        for bound in evidence.bounds:
            if (bound.machine, bound.depth) == (test.machine, test.depth):
                # The first of several configurations with the same bound is named.
                labels.setdefault(f"{bound.value:.1f}", f"upper bound for one request with {bound.config}")
    for target in evidence.targets:
        if (target.machine, target.test, target.depth) == (test.machine, test.test, test.depth):
            labels[f"{target.value:.1f}"] = f"target: {target.why}"
    return labels


def _chart(measurements: Sequence[Measurement], labels: Mapping[str, str]) -> Chart:
    first = measurements[0]
    longest, widest = 0.0, 0
    for m in measurements:
        longest = max(longest, m.value + m.spread)
        widest = max(widest, len(_bar_label(m)))
    scale = _BAR_AREA / max(longest, *map(float, labels), 0.0)
    left = widest * _CHARACTER + 10
    bars = []
    for row, m in enumerate(sorted(measurements, key=lambda m: -m.value)):
        bar = Bar(
            label=_bar_label(m),
            y=6 + row * _ROW,
            w=round(scale * m.value, 1),
            value=f"{m.value:.2f}",
            reported=bool(m.reported),
            spread=bool(m.spread),
            low=round(left + scale * (m.value - m.spread), 1),
            high=round(left + scale * (m.value + m.spread), 1),
        )
        bars.append(bar)
    limits = []
    for value, label in sorted(labels.items(), key=lambda item: float(item[0])):
        limits.append(ChartLimit(x=round(left + scale * float(value), 1), value=value, label=label))
    depth = ""
    if first.depth:
        depth = f" after {first.depth} tokens"
    return Chart(
        title=f"{first.machine}: {first.test}{depth}, t/s",
        bars=tuple(bars),
        limits=tuple(limits),
        left=left,
        width=left + _BAR_AREA + _VALUE_AREA,
        height=12 + _ROW * len(bars),
    )


def _bar_label(measurement: Measurement) -> str:
    return " ".join(filter(None, (measurement.engine, measurement.config)))
