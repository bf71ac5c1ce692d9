from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from patchq.cli.common import emit, json_option, set_option
from patchq.cli.terminal import echo


@click.command("verify-installed")
@click.argument("distributions", nargs=-1)
@click.option(
    "--python", default=sys.executable, metavar="PATH", help="The environment's interpreter.  [default: this one]"
)
@click.option(
    "--stack", "--stack-id", "expected", default="", metavar="ID", help="The stack id it must be, or its beginning."
)
@click.option(
    "--dist",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="The wheels that it must be installed from.  [default: the project's dist/SET]",
)
@set_option
@json_option
def command(
    distributions: tuple[str, ...], python: str, expected: str, folder: Path | None, set_name: str, as_json: bool
) -> None:
    """Check what an environment really runs.

    Every file of each package is looked at. Inside a project that is applied, the packages must be of its stack, and
    as in its wheels. Elsewhere (in an image, say) every package with a manifest is looked at; --stack says which stack
    it must be, --dist which wheels it must come from.
    """
    from patchq.cli.targets import look

    verdict = look(python, distributions, set_name, expected, folder)
    if as_json:
        emit("verify-installed", {"ok": verdict.ok, **asdict(verdict)})
    else:
        show(verdict)
    if not verdict.ok:
        raise click.exceptions.Exit(1)


def show(verdict: object) -> None:
    """Print a verdict for people."""
    from patchq.environment.verify import Verdict

    assert isinstance(verdict, Verdict)
    for p in verdict.packages:
        echo(
            f"{p.distribution} {p.version}: {p.state}" + (f", stack {p.stack_id[:8]}, {p.origin}" if p.stack_id else "")
        )
        for patch in p.patches:
            echo(f"    live: {patch}")
        for patch in p.left_out:
            echo(f"    left out, as it must be compiled: {patch}")
        if p.against:
            echo(f"    checked against: {p.against}")
        for note in p.notes:
            echo(f"    note: {note}")
        for problem in p.problems:
            echo(f"    problem: {problem}", fg="red")
    for found in verdict.differences:
        if found.level == "problem":
            echo(f"problem: {found.said}", fg="red")
    for note in verdict.notes:
        echo(f"note: {note}")
    if not verdict.packages:
        echo(f"problem: no package that patchq built in {verdict.python}", fg="red")
    elif not verdict.ok:
        echo(
            "next: pip install --force-reinstall --no-deps -r dist/SET/requirements.txt; take other copies off the path"
        )
