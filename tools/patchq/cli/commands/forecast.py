from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from patchq.cli.common import as_dicts, emit, json_option, open_project, set_option
from patchq.cli.terminal import echo, echo_command, show_table
from patchq.names import counted, sh
from patchq.project.project import Project

if TYPE_CHECKING:
    from patchq.forecast.blame import Culprit
    from patchq.forecast.forecast import Forecast, From
    from patchq.forecast.summary import ForecastCell

#: Text of a cell by outcome. Other outcomes are shown by name.
_SHORT = {"absorbed": "upstream has it", "conflict": "needs review", "replayed": "replays"}


@click.command("forecast")
@click.argument("name", required=False)
@click.option("--onto", "refs", multiple=True, metavar="REF", help="Ref or release to carry to; may be repeated.")
@click.option("--releases", default="", metavar="SPEC", help="Releases to carry to, such as '>=0.14'.")
@click.option("--newest", is_flag=True, help="Carry to upstream's default branch, or to its newest release.")
@click.option(
    "--from", "from_ref", default="", metavar="REF", help="Pinned ref whose stack to carry.  [default: the nearest]"
)
@click.option(
    "--why", is_flag=True, help="Show files, evidence, offsets, drift, and definitions that two patches change."
)
@click.option("--annotate", is_flag=True, help="Print an annotation for GitHub Actions for each patch with a conflict.")
@click.option(
    "--blame",
    is_flag=True,
    help="Find the first ref at which each patch conflicts, and the ref with the fewest conflicts.",
)
@set_option
@json_option
def command(
    name: str | None,
    refs: tuple[str, ...],
    releases: str,
    newest: bool,
    from_ref: str,
    why: bool,
    annotate: bool,
    blame: bool,
    set_name: str,
    as_json: bool,
) -> None:
    """Show the cost of carrying a stack to other refs.

    Carries the patches of the nearest pinned stack to each ref, in memory. Shows the outcome of each patch: it applies,
    upstream has it, a recorded resolution resolves its conflict, the ledger drops it, or it needs review. Nothing is
    changed. Without NAME, forecasts each stack of the set.
    """
    from patchq.forecast.forecast import forecast

    project = open_project(as_json)
    if name is None and as_json:
        raise click.UsageError("--json needs exactly one upstream: name it")
    stacks = project.stacks(project.choose_set(set_name), [name] if name else [])
    for upstream in [name] if name else [s.pin.upstream for s in stacks if s.names]:
        found = forecast(
            project,
            upstream,
            refs,
            releases=releases,
            ahead=newest,
            set_name=set_name,
            from_ref=from_ref,
            shared=why,
        )
        if blame:
            culprits, trouble = _culprits(project, found, set_name)
        else:
            culprits, trouble = ([], "")
        if as_json:
            emit("forecast", _body(found, culprits, trouble))
            return
        _show(found, why)
        if annotate:
            _show_annotations(project, found)
        if blame:
            _show_blame(found, culprits, trouble)


def _culprits(project: Project, found: Forecast, set_name: str) -> tuple[list[Culprit], str]:
    """Return the upstream commits that broke patches, and a message if they can't be found."""
    from patchq.errors import SourceError
    from patchq.forecast.blame import blame

    culprits: list[Culprit] = []
    breaks = found.breaks()
    try:
        for from_ref in dict.fromkeys(s.from_ref for s in found.sources):
            refs = [s.ref for s in found.sources if s.from_ref == from_ref]
            mine = {patch: ref for patch, ref in breaks.items() if ref in refs}
            culprits += blame(project, found.upstream, mine, refs, set_name=set_name, from_ref=from_ref)
    except SourceError as error:
        return culprits, f"no commits to blame: {error.message}"
    return culprits, ""


def _body(found: Forecast, culprits: Sequence[Culprit], trouble: str) -> dict[str, object]:
    """Return the result as JSON data."""
    cells, stops, summaries = [], {}, []
    for cell in found.cells:
        paths = [file.path for file in cell.files]
        cells.append({**asdict(cell), "paths": paths, "needs_review": cell.needs_review})
    for ref in found.refs:
        stops[ref] = found.stops(ref)
        summary = found.summary(ref)
        summaries.append({**asdict(summary), "message": summary.message})
    return {
        "upstream": found.upstream,
        "from": found.from_ref,
        "refs": list(found.refs),
        "stops": stops,
        "cells": cells,
        "breaks": found.breaks(),
        "cheapest": found.cheapest,
        "culprits": as_dicts(culprits),
        "siblings": _siblings_body(found),
        "notes": [trouble] if trouble else [],
        "sources": list(map(_source_body, found.sources)),
        "summaries": summaries,
        "next": _next(found),
        "shared": as_dicts(found.shared),
        "drift": _drift_body(found),
        "history": found.history,
    }


def _source_body(source: From) -> dict[str, object]:
    absent = {patch: absence.describe() for patch, absence in source.absent.items()}
    return {**asdict(source), "why": source.why.describe(), "absent": absent}


def _siblings_body(found: Forecast) -> list[dict[str, object]]:
    body = []
    for difference in found.siblings:
        body.append({**asdict(difference), "message": difference.message})
    return body


def _drift_body(found: Forecast) -> list[dict[str, object]]:
    from patchq.cli.drifted import alarm_body

    body: list[dict[str, object]] = []
    for there in found.drift:
        alarms = list(map(alarm_body, there.alarms))
        body.append({"ref": there.ref, "alarms": alarms, "unseen": as_dicts(there.unseen)})
    return body


def _show(found: Forecast, why: bool) -> None:
    """Print the matrix with one patch per line, followed by a summary of each ref."""
    from patchq.forecast.plan import count_absent

    texts: dict[tuple[str, str], str] = {}
    names: dict[str, None] = {}
    for source in found.sources:
        for name, absence in source.absent.items():
            patch = f"{found.upstream}/{name}"
            names[patch] = None
            texts[patch, source.ref] = absence.describe()
    for cell in found.cells:
        names[cell.patch] = None
        texts[cell.patch, cell.ref] = _say(cell)
    table = []
    for patch in found.rows:
        if patch in names:
            row = [patch.partition("/")[2]]
            for ref in found.refs:
                row.append(texts.get((patch, ref), ""))
            table.append(row)
    show_table(("patch", *found.refs), table, found.upstream)
    if why:
        _show_why(found)
    for ref in found.refs:
        source = found.source(ref)
        echo(f"{ref}: {found.summary(ref).message}", bold=True)
        echo(f"  from {source.from_ref}, {source.why.describe()}")
        if source.absent:
            echo(f"  not carried: {count_absent(source.absent.values())}")
    for difference in found.siblings:
        echo(f"{difference.ref}: {difference.message}")
    echo(f"next: {_next(found)}")


def _say(cell: ForecastCell) -> str:
    """Return the text of a cell of the matrix."""
    from patchq.formats.ledger import say_offsets

    if cell.known:
        return "already carried"
    if cell.needs_review:
        if cell.outcome != "obsolete":
            return f"needs review ({cell.hunks})"
        return "needs review: file gone"
    return " ".join(filter(None, (_SHORT.get(cell.outcome, cell.outcome), say_offsets(cell.offsets))))


def _show_why(found: Forecast) -> None:
    """Print the reasons for the outcomes."""
    from patchq.drift.shared import grouped

    for cell in found.cells:
        head = f"{cell.ref} {cell.patch}"
        if cell.files:
            gone = ""
            if cell.outcome == "obsolete":
                gone = "gone: "
            files = []
            for f in cell.files:
                files.append(f.path + (f" ({len(f.lines)} hunks)" if len(f.lines) > 1 else ""))
            echo(f"{head}: {gone}{', '.join(files)}")
        if cell.message:
            echo(f"{head}: {cell.message}")
        if cell.grade:
            echo(f"{head}: upstream has {cell.evidence}")
    for source in found.sources:
        for drop in source.dropped:
            echo(f"{source.ref} {found.upstream}/{drop.patch}: {drop.message}" + (f": {drop.how}" if drop.how else ""))
    for one, others in grouped(found.shared):
        place = f"{one.ref} {one.definition} in {one.path}"
        echo(f"{place}: changed by {', '.join(others)} and by {one.patch}: {one.message}")
    _show_drift(found)
    for checked in dict.fromkeys(c.checked for c in found.cells if c.checked):
        echo(f"offsets: checked against the {checked}")


def _show_drift(found: Forecast) -> None:
    """Print the drift in patches that apply."""
    from patchq.cli.drifted import show_alarm, show_unseen

    for there in found.drift:
        for alarm in there.alarms:
            show_alarm(alarm, f"{there.ref} drift: ")
        show_unseen(there.unseen)
    if any(there.alarms for there in found.drift) and not found.history:
        echo(f"the commits are unknown: no history of {found.upstream} is available locally (`patchq fetch --history`)")


def _next(found: Forecast) -> str:
    """Return the next command to run, for the ref with the fewest conflicts."""
    summary, source = found.summary(found.cheapest), found.source(found.cheapest)
    if len(source.dropped) < len(source.absent):
        return (
            f"`patchq rebase {found.upstream} --onto {sh(source.from_ref)}` first carries the patches that this "
            "stack doesn't have"
        )
    if len(summary.known) == len(found.of(found.cheapest)):
        return f"nothing: {found.upstream} {found.cheapest} already has every patch"
    start = f"patchq rebase {found.upstream} --onto {sh(found.cheapest)}"
    return f"`{start}`" + ("; `--why` shows where it stops" if summary.needs else "")


def _show_blame(found: Forecast, culprits: Sequence[Culprit], trouble: str) -> None:
    by_patch = {c.patch: c for c in culprits}
    for patch, ref in found.breaks().items():
        echo(f"{patch} conflicts first at {ref}")
        if culprit := by_patch.get(patch):
            pull = ""
            if culprit.pull_request:
                pull = f", pull request {culprit.pull_request}"
            echo(f"    by {culprit.commit[:12]} {culprit.subject} ({culprit.author}{pull})")
    if trouble:
        echo(trouble, err=True)
    echo(f"cheapest: {found.cheapest}, {counted(found.stops(found.cheapest), 'conflict')}")


def _show_annotations(project: Project, found: Forecast) -> None:
    """Print an annotation for GitHub Actions for each patch that needs review."""
    from patchq.project.stack import load_stack
    from patchq.proofs.verdicts import annotation

    pins = project.lock.upstreams[found.upstream].pins
    for cell in found.cells:
        if cell.needs_review and not cell.known:
            details = [file.path for file in cell.files]
            if cell.grade:
                details.append(f"upstream has it: {cell.grade}")
            message = "; ".join(details)
            stack = load_stack(project.layout, pins[found.source(cell.ref).from_ref])
            path = stack.relative(project.layout, cell.patch.partition("/")[2])
            echo_command(annotation(path, f"{cell.patch} on {cell.ref}: {cell.outcome}", message or cell.outcome))
