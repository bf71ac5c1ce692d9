from __future__ import annotations

from pathlib import Path

import click

from patchq.cli.common import emit, json_option, open_project, set_option
from patchq.cli.verdicts import read_results, results_file, show_verdicts, write_reports
from patchq.project.project import Project


@click.command("test")
@click.argument("patches", nargs=-1)
@click.option("--prove", is_flag=True, help="Run each also without its patch, and demand that it fails there.")
@click.option("--fresh", is_flag=True, help="Run again what has a result for the same inputs.")
@click.option(
    "--scheduler", default="", metavar="tcp://HOST:PORT", help="Send the proofs to a Dask scheduler's workers."
)
@click.option("--junit", type=click.Path(path_type=Path), help="Also write JUnit XML there.")
@click.option("--sarif", type=click.Path(path_type=Path), help="Also write SARIF there.")
@click.option(
    "--upstream", "upstreams_own", is_flag=True, help="Run upstream's own tests of what is touched, before and after."
)
@set_option
@json_option
def command(
    patches: tuple[str, ...], prove: bool, fresh: bool, scheduler: str, junit: Path | None, sarif: Path | None,
    upstreams_own: bool, set_name: str, as_json: bool,
) -> None:  # fmt: skip
    """Run the proofs of the patches.

    Against the applied stacks; with --prove also against the stacks without each patch and those that
    need it, where the proof must fail by an assertion. What needs hardware that isn't here is not run,
    and counts nowhere as passed.
    """
    from patchq.proofs import verdicts as report
    from patchq.proofs.judge import CellResult
    from patchq.proofs.prove import run_proofs
    from patchq.system.fsio import dump_json, write_atomic

    project = open_project(as_json)
    if upstreams_own:
        _upstream(project, patches, set_name, as_json)
        return

    def tell(result: CellResult) -> None:
        again = " (known)" if result.cached else f" ({result.seconds:.0f} s)"
        project.say(f"{result.proof} {result.variant}: {result.state}{again}")

    runner = None
    if scheduler:
        from patchq.proofs.cluster import on_workers

        runner = on_workers(scheduler, project.say)
    verdicts = run_proofs(
        project, patches, set_name=set_name, prove=prove, fresh=fresh, run_cells=runner, progress=tell
    )
    every = report.with_older(verdicts, read_results(project))
    write_atomic(results_file(project), dump_json({"version": 1, **report.proofs_json(every)}))
    write_reports(project, verdicts, junit, sarif, set_name)
    show_verdicts(verdicts, as_json, "test")
    if any(not v.ok and v.state != "not run" for v in verdicts):
        raise click.exceptions.Exit(5)


def _upstream(project: Project, names: tuple[str, ...], set_name: str, as_json: bool) -> None:
    from dataclasses import asdict

    from patchq.proofs.upstream_tests import run_upstream_tests

    found = run_upstream_tests(project, names, set_name=set_name)
    worse = [t for f in found for t in f.regressions]
    if as_json:
        emit("test-upstream", {"ok": not worse, "files": [asdict(f) for f in found]})
    else:
        for f in found:
            sides = [
                ", ".join(f"{n} {word}" for word, n in sorted(side.items())) or "no test ran"
                for side in (f.before, f.after)
            ]
            click.echo(
                f"{f.upstream} {f.path}: before: {sides[0]}; after: {sides[1]}" + (f" ({f.said})" if f.said else "")
            )
            for test in f.regressions:
                click.secho(f"    regression: {test}", fg="red")
        click.echo(f"{len(worse)} regressions in {len(found)} test files that cover what the stacks touch")
    if worse:
        raise click.exceptions.Exit(5)
