from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from patchq.cli.common import emit, json_option, open_project, set_option
from patchq.cli.terminal import echo, show_table
from patchq.project.project import Project

if TYPE_CHECKING:
    from patchq.carry.forecast import Forecast


@click.command("forecast")
@click.argument("name", required=False)
@click.option("--onto", "refs", multiple=True, metavar="REF", help="A ref or a release; may be given again.")
@click.option("--releases", default="", metavar="SPEC", help="All releases that fit: '>=0.14'.")
@click.option("--newest", is_flag=True, help="Upstream's default branch, or its newest release.")
@click.option("--annotate", is_flag=True, help="Also an annotation (GitHub Actions) for each patch that stops.")
@click.option("--blame", is_flag=True, help="Also at which ref each patch stops first, and which ref is cheapest.")
@set_option
@json_option
def command(
    name: str | None, refs: tuple[str, ...], releases: str, newest: bool, annotate: bool, blame: bool, set_name: str,
    as_json: bool,
) -> None:  # fmt: skip
    """What carrying a stack onto other refs would come to.

    Patch by ref, in memory: clean, offset (lines moved), merged, absorbed (upstream has it), obsolete
    (what it changes is gone) or conflict. Nothing is moved. Without NAME, each upstream of the set that has patches.
    """
    project = open_project(as_json)
    if name is None and as_json:
        raise click.UsageError("--json answers for one upstream: NAME")
    stacks = project.stacks(project.choose_set(set_name), [name] if name else [])
    for upstream in [name] if name else [s.pin.upstream for s in stacks if s.names]:
        _one(project, upstream, refs, releases, newest, annotate, blame, set_name, as_json)


def _one(
    project: Project, name: str, refs: tuple[str, ...], releases: str, newest: bool, annotate: bool, blame: bool,
    set_name: str, as_json: bool,
) -> None:  # fmt: skip
    from patchq.carry.blame import blame as find_culprits
    from patchq.carry.forecast import forecast
    from patchq.errors import SourceError

    found = forecast(project, name, refs, releases=releases, ahead=newest, set_name=set_name)
    culprits, trouble = [], ""
    if blame:
        try:
            culprits = find_culprits(project, name, found.breaks(), found.refs, set_name=set_name)
        except SourceError as error:
            trouble = f"no commits to blame: {error.message}"
    stops = {ref: found.stops(ref) for ref in found.refs}
    if as_json:
        cells = [{**asdict(c), "paths": [f.path for f in c.files]} for c in found.cells]
        emit("forecast", {
            "upstream": found.upstream, "from": found.from_ref, "refs": list(found.refs), "stops": stops,
            "cells": cells, "siblings": [{**asdict(d), "said": d.said} for d in found.siblings],
            "breaks": found.breaks(), "cheapest": found.cheapest,
            "culprits": [asdict(c) for c in culprits], "notes": [trouble] if trouble else [],
        })  # fmt: skip
        return
    _show_cells(found, stops)
    if annotate:
        _show_annotations(project, found, name, set_name)
    if blame:
        by_patch = {c.patch: c for c in culprits}
        for patch, ref in found.breaks().items():
            echo(f"{patch} stops first at {ref}")
            if culprit := by_patch.get(patch):
                pull = f", pull request {culprit.pull_request}" if culprit.pull_request else ""
                echo(f"    by {culprit.commit[:12]} {culprit.subject} ({culprit.author}{pull})")
        if trouble:
            echo(trouble, err=True)
        echo(f"cheapest: {found.cheapest}, {stops[found.cheapest]} stops")


def _show_cells(found: Forecast, stops: Mapping[str, int]) -> None:
    """The matrix, and what is to be said of its cells."""
    from patchq.formats.ledger import say_offsets

    outcome = {
        (c.patch, c.ref): " ".join(filter(None, (c.outcome, say_offsets(c.offsets), c.grade and f"({c.grade})")))
        for c in found.cells
    }
    rows = [
        (patch.partition("/")[2], *(outcome[patch, ref] for ref in found.refs))
        for patch in dict.fromkeys(c.patch for c in found.cells)
    ]
    rows.append(("stops for a person", *(str(stops[ref]) for ref in found.refs)))
    show_table(("patch", *found.refs), rows, f"{found.upstream}, from {found.from_ref}")
    for cell in found.cells:
        if cell.files:
            gone = "gone: " if cell.outcome == "obsolete" else ""
            files = [f.path + (f" ({len(f.lines)} hunks)" if len(f.lines) > 1 else "") for f in cell.files]
            echo(f"{cell.ref} {cell.patch}: {gone}{', '.join(files)}")
        if cell.said:
            echo(f"{cell.ref} {cell.patch}: {cell.said}")
        if cell.grade:
            echo(f"{cell.ref} {cell.patch}: upstream has {cell.evidence}")
    for difference in found.siblings:
        echo(f"{difference.ref}: {difference.said}")
    for checked in dict.fromkeys(c.checked for c in found.cells if c.checked):
        echo(f"offsets: checked against the {checked}")


def _show_annotations(project: Project, found: Forecast, name: str, set_name: str) -> None:
    """A line for GitHub Actions of each patch that stops."""
    from patchq.carry.landing import STOPS
    from patchq.proofs.verdicts import annotation

    stack = project.stacks(project.choose_set(set_name), [name])[0]
    for cell in found.cells:
        if cell.outcome in STOPS:
            said = "; ".join(
                [*(f.path for f in cell.files), *([f"upstream has it: {cell.grade}"] if cell.grade else [])]
            )
            path = stack.relative(project.layout, cell.patch.partition("/")[2])
            echo(annotation(path, f"{cell.patch} on {cell.ref}: {cell.outcome}", said or cell.outcome))
