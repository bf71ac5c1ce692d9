from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from patchq.cli.common import emit, json_option, open_project, set_option, without_proof
from patchq.cli.terminal import echo
from patchq.cli.verdicts import read_results, results_file, show_verdicts, write_reports
from patchq.names import counted


@click.command("report")
@click.option("--html", "page", type=click.Path(path_type=Path), help="HTML file to write.")
@click.option(
    "--markdown",
    type=click.Path(path_type=Path),
    help="File to append a Markdown summary to, such as $GITHUB_STEP_SUMMARY.",
)
@click.option("--junit", type=click.Path(path_type=Path), help="JUnit XML file to write.")
@click.option("--sarif", type=click.Path(path_type=Path), help="SARIF file to write.")
@click.option("--look-ahead", is_flag=True, help="Forecast pinned refs that the ledgers don't cover.")
@set_option
@json_option
def command(
    page: Path | None,
    markdown: Path | None,
    junit: Path | None,
    sarif: Path | None,
    look_ahead: bool,
    set_name: str,
    as_json: bool,
) -> None:
    """Show proof results; write all evidence as a page or JSON.

    The page shows sets, pins, stacks, the matrix of patches and refs, dependencies, ledgers, measurements, and proofs
    that were not run.
    """
    from patchq.errors import UserError
    from patchq.proofs.verdicts import proofs_json
    from patchq.system.fsio import read_or_none, write_output

    project = open_project(as_json)
    last = read_results(project)
    files = (page, markdown, junit, sarif)
    if last is None and not (any(files) or as_json):
        raise UserError(
            "there are no results yet",
            hint="`patchq test --prove` runs the proofs; `patchq report --html report.html` shows everything else",
        )
    if any(files) or as_json:
        from patchq.report.evidence import gather

        results = ""
        if last is not None:
            results = results_file(project).relative_to(project.layout.root).as_posix()
        found = gather(project, last or [], set_name=set_name, look_ahead=look_ahead, results_file=results)
        stops = [(name, path, ref, f"{c.outcome}; {c.evidence}") for name, path, ref, c in found.stops_ahead]
        write_reports(project, found.verdicts, junit, sarif, set_name, stops)
        if page:
            from patchq.report.page import html

            write_output(page.resolve(), html(found, project.layout.root, page.resolve().parent).encode())
        if markdown:
            from patchq.report.page import markdown as summary

            write_output(markdown.resolve(), (read_or_none(markdown.resolve()) or b"") + summary(found).encode())
        if as_json:
            body = asdict(found)
            body.pop("verdicts")  # `proofs` already contains them
            emit("report", {**proofs_json(found.verdicts), **body})
            return
    verdicts = last or []
    if last is None:
        echo("no proof was run yet")
    else:
        show_verdicts(verdicts, as_json, "report")
    set_name = project.choose_set(set_name)
    count = sum(len(stack.names) for stack in project.stacks(set_name))
    echo(f"no proof: {len(without_proof(project, set_name))} of {counted(count, 'patch')} in the set {set_name}")
    for written in files:
        if written:
            echo(written)
