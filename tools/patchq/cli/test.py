from __future__ import annotations

from pathlib import Path

import click

from patchq.cli.common import emit, json_option, open_project, set_option


@click.command("test")
@click.argument("patches", nargs=-1)
@click.option("--prove", is_flag=True, help="Run each also without its patch, and demand that it fails there.")
@click.option("--fresh", is_flag=True, help="Run again what has a result for the same inputs.")
@click.option(
    "--scheduler", default="", metavar="tcp://HOST:PORT", help="Send the proofs to a Dask scheduler's workers."
)
@click.option("--junit", type=click.Path(path_type=Path), help="Also write JUnit XML there.")
@click.option("--sarif", type=click.Path(path_type=Path), help="Also write SARIF there.")
@set_option
@json_option
def command(
    patches: tuple[str, ...], prove: bool, fresh: bool, scheduler: str, junit: Path | None, sarif: Path | None,
    set_name: str, as_json: bool,
) -> None:  # fmt: skip
    """Run the proofs of the patches.

    Against the applied stacks; with --prove also against the stacks without each patch and those that
    need it, where the proof must fail by an assertion. What needs hardware that isn't here is not run,
    and counts nowhere as passed.
    """
    from patchq import report
    from patchq.fsio import write_atomic
    from patchq.prove import CellResult, run_proofs

    project = open_project(as_json)

    def tell(result: CellResult) -> None:
        again = " (known)" if result.cached else f" ({result.seconds:.0f} s)"
        project.say(f"{result.proof} {result.variant}: {result.state}{again}")

    runner = None
    if scheduler:
        from patchq.cluster import on_workers

        runner = on_workers(scheduler, project.say)
    verdicts = run_proofs(
        project, patches, set_name=set_name, prove=prove, fresh=fresh, run_cells=runner, progress=tell
    )
    write_atomic(project.layout.private / "results" / "last.json", report_json(verdicts))
    if junit:
        write_atomic(junit.resolve(), report.junit(verdicts))
    if sarif:
        paths = {
            f"{s.pin.upstream}/{n}": s.relative(project.layout, n)
            for s in project.stacks(project.choose_set(set_name))
            for n in s.names
        }
        write_atomic(sarif.resolve(), report.sarif_bytes(verdicts, paths))
    if as_json:
        emit("test", report.proofs_json(verdicts))
    else:
        for v in verdicts:
            click.secho(
                f"{v.state:<10} ",
                fg={"proven": "green", "passed": "green", "not run": "yellow"}.get(v.state, "red"),
                nl=False,
            )
            click.echo(f"{v.proof.name}: {v.said}")
            if not v.ok:
                click.echo(f"           {'on a machine that has it' if v.state == 'not run' else 'again'}: {v.command}")
        click.echo(", ".join(f"{n} {state}" for state, n in report.counts(verdicts).items()) or "no patches")
    if any(not v.ok and v.state != "not run" for v in verdicts):
        raise click.exceptions.Exit(5)


def report_json(verdicts: object) -> bytes:
    """The last run, for ``report``."""
    from patchq import report
    from patchq.fsio import dump_json

    return dump_json({"version": 1, **report.proofs_json(verdicts)})  # type: ignore[arg-type]
