from __future__ import annotations

import click

from patchq.cli.common import emit, json_option, open_project


@click.command("undo")
@json_option
def command(as_json: bool) -> None:
    """Take back the last operation of patchq."""
    project = open_project(as_json)
    with project.locked("undo"):
        summary = project.journal.undo()
    if as_json:
        emit("undo", {"undone": summary})
    else:
        click.echo(f"undone: {summary}")
