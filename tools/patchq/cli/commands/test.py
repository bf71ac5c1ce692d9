from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patchq.cli.common import as_dicts, emit, json_option, open_project, set_option
from patchq.cli.terminal import echo
from patchq.cli.verdicts import read_results, results_file, show_verdicts, write_reports
from patchq.names import counted
from patchq.project.project import Project

if TYPE_CHECKING:
    from patchq.mutation.strength import Budget
    from patchq.proofs.judge import CellResult, Verdict
    from patchq.proofs.plan import ProofCell

    RunCells = Callable[[Project, Sequence[ProofCell]], Iterable[CellResult]]


@click.command("test")
@click.argument("patches", nargs=-1)
@click.option("--prove", is_flag=True, help="Also run each proof without its patch: there, the proof must fail.")
@click.option("--fresh", is_flag=True, help="Run proofs even if a result for the same inputs is cached.")
@click.option("--python", default="", metavar="PATH", help="Interpreter whose installed packages the proofs import.")
@click.option("--scheduler", default="", metavar="tcp://HOST:PORT", help="Dask scheduler whose workers run the proofs.")
@click.option("--junit", type=click.Path(path_type=Path), help="JUnit XML file to write.")
@click.option("--sarif", type=click.Path(path_type=Path), help="SARIF file to write.")
@click.option(
    "--upstream",
    "upstreams_own",
    is_flag=True,
    help="Run upstream's tests of the changed files, without and with the patches.",
)
@click.option(
    "--mutate",
    "mutating",
    is_flag=True,
    help="Measure proof strength: run each proof on mutants of its patch.",
)
@click.option(
    "--at-most", type=click.IntRange(1), metavar="N", help="With --mutate: maximum number of mutants of a patch."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    metavar="S",
    help="With --mutate: time after which no more mutants are started.",
)
@click.option("--seed", type=int, help="With --mutate: seed that selects the mutants.  [default: a new one]")
@set_option
@json_option
def command(
    patches: tuple[str, ...],
    prove: bool,
    fresh: bool,
    python: str,
    scheduler: str,
    junit: Path | None,
    sarif: Path | None,
    upstreams_own: bool,
    mutating: bool,
    at_most: int | None,
    seconds: float | None,
    seed: int | None,
    set_name: str,
    as_json: bool,
) -> None:
    """Run the proofs of the patches.

    Runs the proofs on the applied stacks. With --prove, also runs each proof without its patch (and without the patches
    that need that patch): there, the proof must fail by an assertion. A proof whose hardware is missing is not run, and
    never counts as passed. Exit code 5 if a proof fails. Exit code 6 if only the environment fails; that result is not
    kept.

    With --mutate: measures proof strength and shows the mutants that survive. An interrupted run resumes.
    """
    from patchq.formats.outcomes import ProofState
    from patchq.proofs import verdicts as report
    from patchq.proofs.prove import run_installed, run_proofs
    from patchq.system.fsio import dump_json, write_atomic

    if python and (prove or fresh or scheduler or upstreams_own or mutating):
        raise click.UsageError("--python can't be combined with --prove, --fresh, --scheduler, --upstream or --mutate")
    project = open_project(as_json)
    if upstreams_own:
        _upstream(project, patches, set_name, as_json)
        return

    def tell(result: CellResult) -> None:
        if result.state == ProofState.NO_PROOF:
            return
        again = " (known)"
        if not result.cached:
            again = f" ({result.seconds:.0f} s)"
        project.say(f"{result.proof} {result.variant}: {result.state}{again}")

    runner: RunCells | None = None
    if scheduler:
        from patchq.proofs.cluster import on_workers

        runner = on_workers(scheduler, project.say)
    if mutating:
        import secrets

        from patchq.mutation.strength import Budget

        # A user repairs a proof for the mutants that it misses. Only a new sample of mutants gives an honest share
        # afterwards.
        if seed is None:
            chosen = secrets.randbelow(1_000_000)
        else:
            chosen = seed
        _mutate(project, patches, set_name, Budget(at_most or 0, seconds or 0.0, chosen), runner, as_json)
        return
    if at_most or seconds or seed is not None:
        raise click.UsageError("--at-most, --seconds and --seed need --mutate")
    if python:
        verdicts = run_installed(project, python, patches, set_name=set_name, progress=tell)
        _show(project, verdicts, junit, sarif, set_name, as_json)
        return
    verdicts = run_proofs(
        project, patches, set_name=set_name, prove=prove, fresh=fresh, run_cells=runner, progress=tell
    )
    if results := [v for v in verdicts if v.state != ProofState.NO_RESULT]:
        every = report.with_older(results, _older_results(project))
        write_atomic(results_file(project), dump_json({"version": 1, **report.proofs_json(every)}))
    _show(project, verdicts, junit, sarif, set_name, as_json)


def _show(
    project: Project,
    verdicts: Sequence[Verdict],
    junit: Path | None,
    sarif: Path | None,
    set_name: str,
    as_json: bool,
) -> None:
    """Print verdicts, write the requested reports, and exit with the code of the worst verdict."""
    from patchq.errors import EnvironmentFault
    from patchq.formats.outcomes import ProofState

    write_reports(project, verdicts, junit, sarif, set_name)
    show_verdicts(verdicts, as_json, "test")
    if any(v.fails for v in verdicts):
        raise click.exceptions.Exit(5)
    if any(v.state == ProofState.NO_RESULT for v in verdicts):
        raise click.exceptions.Exit(EnvironmentFault.exit_code)


def _older_results(project: Project) -> list[Verdict] | None:
    """Return the verdicts of earlier runs; print a message and return None if they can't be read."""
    from patchq.errors import StateError

    try:
        return read_results(project)
    except StateError as error:
        echo(f"{error.message}; the file is written again with the results of this run", err=True)
        return None


def _mutate(
    project: Project, names: tuple[str, ...], set_name: str, budget: Budget, run_cells: RunCells | None, as_json: bool
) -> None:
    from dataclasses import asdict

    from patchq.cli.boundary import INTERRUPTED
    from patchq.mutation.strength import MutantState, Tried, mutate, pool
    from patchq.mutation.strength import as_json as in_json

    def tell(patch: str, tried: Tried) -> None:
        project.say(f"{patch} {tried.mutant.path}:{tried.mutant.line} {tried.mutant.operator}: {tried.state}")

    found = mutate(project, names, set_name=set_name, budget=budget, run_cells=run_cells, progress=tell)
    if as_json:
        patches = [in_json(s) for s in found]
        emit("test-mutate", {"seed": budget.seed, "pooled": asdict(pool(found)), "patches": patches})
    else:
        for strength in found:
            echo(f"{strength.patch}: {summary(in_json(strength))}")
            for tried in strength.tried:
                if tried.state == MutantState.SURVIVED:
                    echo(f"    {tried.mutant.name} survived {', '.join(strength.proof)} ({tried.message})")
                    for line in tried.mutant.diff().splitlines():
                        echo(f"        {line}")
            if strength.count(MutantState.UNTRIED):
                echo(f"    next: the same command with --seed {budget.seed} tries the rest")
        pooled = pool(found)
        if pooled.judged:
            share = f"{100 * pooled.killed / pooled.judged:.0f} %"
            interval = f"95 % interval {100 * pooled.low:.0f} to {100 * pooled.high:.0f} %"
            echo(f"all: {pooled.killed} of {pooled.judged} killed ({share}; {interval}); --seed {budget.seed}")
        else:
            echo(f"all: no mutant has a result; --seed {budget.seed}")
    if any(strength.interrupted for strength in found):
        raise click.exceptions.Exit(INTERRUPTED)
    if any(strength.proof_fails for strength in found):
        raise click.exceptions.Exit(5)


def summary(strength: dict[str, Any]) -> str:
    """Return a short text for a patch's proof strength, given its JSON data."""
    if strength["message"]:
        return str(strength["message"])
    if strength["score"] is None:
        if not strength["mutants"]:
            return "no mutants"
        return f"{strength['not_tried']} not tried"
    judged = strength["killed"] + strength["survived"]
    message = f"{strength['killed']} of {judged} killed ({100 * strength['score']:.0f} %)"
    for key, word in (("equivalent", "equivalent"), ("not_tried", "not tried")):
        if strength[key]:
            message += f", {strength[key]} {word}"
    return message


def _upstream(project: Project, names: tuple[str, ...], set_name: str, as_json: bool) -> None:

    from patchq.proofs.upstream_tests import run_upstream_tests

    found = run_upstream_tests(project, names, set_name=set_name)
    worse: list[str] = []
    for f in found:
        worse += f.regressions
    if as_json:
        emit("test-upstream", {"ok": not worse, "files": as_dicts(found)})
    else:
        for f in found:
            sides = []
            for side in (f.before, f.after):
                sides.append(", ".join(f"{n} {word}" for word, n in sorted(side.items())) or "no test ran")
            echo(
                f"{f.upstream} {f.path}: before: {sides[0]}; after: {sides[1]}"
                + (f" ({f.message})" if f.message else "")
            )
            for test in f.regressions:
                echo(f"    regression: {test}", fg="red")
        echo(f"{counted(len(worse), 'regression')} in {len(found)} test files that cover the changed files")
    if worse:
        raise click.exceptions.Exit(5)
