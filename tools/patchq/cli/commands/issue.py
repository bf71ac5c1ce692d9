from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from patchq.cli.common import emit, json_option, open_project, set_option
from patchq.cli.terminal import confirm, echo


@click.command("issue")
@click.argument("patch")
@click.option(
    "--onto",
    default="",
    metavar="REF",
    help="Upstream's ref on which to reproduce the bug.  [default: its default branch or newest release]",
)
@click.option("--write", "target", type=click.Path(path_type=Path), help="Also write the report to this file.")
@click.option("--no-run", is_flag=True, help="Don't run the reproducer.")
@click.option("--open", "opening", is_flag=True, help="Open the issue with gh, after asking.")
@set_option
@json_option
def command(
    patch: str, onto: str, target: Path | None, no_run: bool, opening: bool, set_name: str, as_json: bool
) -> None:
    """Prepare an upstream bug report for a patch.

    Runs the reproducer on upstream's ref without patches, and fills in upstream's own form. Nothing is sent without
    --open.
    """
    from patchq.contribute.bugreport import bug_report, title, write_report
    from patchq.contribute.proposal import repository_of
    from patchq.contribute.submit import open_issue
    from patchq.errors import UserError

    project = open_project(as_json)
    report = bug_report(project, patch, onto=onto, set_name=set_name, run=not no_run)
    folder = write_report(project, report, target)
    url = ""
    if opening:
        if not repository_of(report.url):
            raise UserError(f"{report.url!r} is not the URL of a git host", hint="send title.txt and body.md by hand")
        echo(f"{title(report)}\n  to {repository_of(report.url)}", err=True)
        confirm("Open this issue?")
        url = open_issue(project, report)
    if as_json:
        body = asdict(report)
        body.pop("rules")
        emit("issue", {**body, "title": title(report), "folder": str(folder), "opened": url})
        return
    echo(title(report), bold=True)
    echo(f"{report.upstream} {report.ref}" + (f", reproducer {report.reproducer_name}" if report.reproducer else ""))
    for name, row in report.facts:
        echo(f"  {name}: " + ", ".join(f"{c}: {v}" for c, v in zip(report.columns, row, strict=True)))
    for line in report.outcomes:
        echo(f"  {line}")
    if no_run:
        echo("  not run: the reproducer, so the report has no evidence")
    echo(url or f"{folder}: title.txt, body.md, and owner.toml for the sender")
