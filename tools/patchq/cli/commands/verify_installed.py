from __future__ import annotations

import sys
from dataclasses import asdict

import click

from patchq.cli.common import emit, json_option, set_option


@click.command("verify-installed")
@click.argument("distributions", nargs=-1)
@click.option(
    "--python", default=sys.executable, metavar="PATH", help="The environment's interpreter.  [default: this one]"
)
@click.option("--stack", "expected", default="", metavar="ID", help="The stack id it must be, or its beginning.")
@set_option
@json_option
def command(distributions: tuple[str, ...], python: str, expected: str, set_name: str, as_json: bool) -> None:
    """Check what an environment really runs.

    Inside a project that is applied, the packages must be of its stack. Elsewhere (in an image, say)
    every package with a manifest is looked at; --stack says which stack it must be.
    """
    from patchq.cli.targets import packages_to_verify
    from patchq.environment.verify import verify

    packages, wanted = packages_to_verify(distributions, set_name)
    verdict = verify(python, packages, expected or wanted)
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
        click.echo(
            f"{p.distribution} {p.version}: {p.state}" + (f", stack {p.stack_id[:8]}, {p.origin}" if p.stack_id else "")
        )
        for patch in p.patches:
            click.echo(f"    live: {patch}")
        for patch in p.left_out:
            click.echo(f"    left out, as it must be compiled: {patch}")
        for problem in p.problems:
            click.secho(f"    problem: {problem}", fg="red")
    for note in verdict.notes:
        click.echo(f"note: {note}")
    if not verdict.packages:
        click.secho(f"problem: no package that patchq built in {verdict.python}", fg="red")
    elif not verdict.ok:
        click.echo("next: pip install --force-reinstall --no-deps dist/*.whl, and take other copies off the path")
