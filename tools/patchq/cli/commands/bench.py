from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchq.cli.common import as_dicts, emit, json_option, open_project
from patchq.cli.terminal import echo
from patchq.names import counted

if TYPE_CHECKING:
    from patchq.formats.measurements import Bound, Measurement, Target


@click.group("bench")
def command() -> None:
    """Record measurements, each tied to the measured build."""


@command.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--machine", required=True, metavar="NAME", help="Name of the measured machine, such as GB10.")
@click.option("--python", default="", metavar="PATH", help="Interpreter of the measured environment.")
@click.option(
    "--stack", "expected", default="", metavar="ID", help="Stack id of the measured build, or its first characters."
)
@click.option("--reported", default="", metavar="WHO", help="Source of figures that you didn't measure.")
@click.option("--engine", default="", metavar="NAME", help="Engine of results whose file doesn't give one.")
@click.option("--config", default="", metavar="TEXT", help="Configuration of results whose file doesn't give one.")
@json_option
def import_(
    files: tuple[Path, ...],
    machine: str,
    python: str,
    expected: str,
    reported: str,
    engine: str,
    config: str,
    as_json: bool,
) -> None:
    """Add result files to the ledger.

    Reads the JSON of vllm bench serve and throughput, the JSON and Markdown of llama-bench, and the tables of
    llama-benchy. Refuses an environment that does not run the patched build.
    """
    from patchq.report.bench import import_files

    found = import_files(
        open_project(as_json),
        files,
        machine=machine,
        python=python,
        expected=expected,
        reported=reported,
        engine=engine,
        config=config,
    )
    if as_json:
        emit("bench-import", {"measurements": as_dicts(found)})
        return
    for m in found:
        echo(f"{m.test}{_at(m.depth)}: {m.value:g} t/s, {m.file} {m.place}")
    echo(counted(len(found), "measurement") + (f" of stack {found[0].stack_id[:8]}" if found and python else ""))


@command.command("show")
@click.option("--machine", default="", metavar="NAME", help="Machine to show; default: all.")
@click.option("--test", default="", metavar="TEST", help="Test to show, such as tg32; default: all.")
@json_option
def show(machine: str, test: str, as_json: bool) -> None:
    """Show measured and reported speeds, targets and bounds."""
    from patchq.formats.measurements import differ_in_one
    from patchq.report.bench import read_goals, read_measurements

    project = open_project(as_json)
    measurements, problems = read_measurements(project)
    chosen = []
    for m in measurements:
        if machine in ("", m.machine) and test in ("", m.test):
            chosen.append(m)
    goals = read_goals(project)
    bounds = [bound for bound in goals.bounds if machine in ("", bound.machine)]
    targets = []
    for t in goals.targets:
        if machine in ("", t.machine) and test in ("", t.test):
            targets.append(t)
    gains = differ_in_one(chosen)
    if as_json:
        pairs = [{"patch": patch, "without": asdict(a), "with": asdict(b)} for patch, a, b in gains]
        body = {
            "measurements": as_dicts(chosen),
            "bounds": as_dicts(bounds),
            "gains": pairs,
            "targets": as_dicts(targets),
            "problems": as_dicts(problems),
        }
        emit("bench", body)
        return
    for key in sorted({(m.machine, m.test, m.depth) for m in chosen}):
        _show_test(key, chosen, targets)
    _show_bounds(bounds)
    for patch, before, after in gains:
        echo(f"{patch}: {after.test} {before.value:g} -> {after.value:g} t/s")
    for problem in problems:
        echo(f"measurements/ledger.jsonl:{problem.number}: {problem.message}", fg="red", err=True)


def _at(depth: int) -> str:
    if depth:
        return f" @ d{depth}"
    return ""


def _show_bounds(bounds: Sequence[Bound]) -> None:
    for name in dict.fromkeys(bound.machine for bound in bounds):
        echo(f"{name}: upper bounds for one request", bold=True)
        for bound in bounds:
            if bound.machine == name:
                why = ""
                if bound.why:
                    why = f" ({bound.why})"
                echo(f"  {bound.value:>9.2f}  {bound.config}{_at(bound.depth)}{why}")


def _show_test(key: tuple[str, str, int], measurements: Sequence[Measurement], targets: Sequence[Target]) -> None:
    machine, test, depth = key
    echo(f"{machine} {test}{_at(depth)}", bold=True)
    for target in targets:
        if (target.machine, target.test, target.depth) == key:
            echo(f"  {target.value:>9.2f}  target ({target.why})")
    for m in sorted(measurements, key=lambda m: -m.value):
        if (m.machine, m.test, m.depth) == key:
            spread = ""
            if m.spread:
                spread = f" ± {m.spread:g}"
            if m.reported:
                origin = f"reported: {m.reported}"
            else:
                origin = f"stack {m.stack_id[:8]}"
            name = " ".join(word for word in (m.engine, m.config) if word)
            echo(f"  {m.value:>9.2f}{spread}  {name} ({origin})")
