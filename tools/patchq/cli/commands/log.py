from __future__ import annotations

from dataclasses import asdict

import click

from patchq.cli.changes import show_changes
from patchq.cli.common import emit, json_option, open_project
from patchq.cli.terminal import echo


@click.command("log")
@click.option("-n", "limit", type=click.IntRange(min=1), metavar="N", help="Number of operations.  [default: all]")
@json_option
def command(limit: int | None, as_json: bool) -> None:
    """List the operations and what each changed.

    The newest operation comes first. Undone operations are listed as long as `patchq redo` can carry them out.
    """
    from patchq.project.log import operations

    project = open_project(as_json)
    with project.locked("log"):
        found = operations(project, limit or 0)
    if as_json:
        emit("log", {"operations": [asdict(operation) for operation in found]})
        return
    for operation in found:
        undone = ""
        if operation.undone:
            undone = " (undone)"
        echo(f"{operation.number} {operation.time} {operation.summary}{undone}")
        for line in show_changes(operation.changes):
            echo(line)
    if not found:
        echo("no operations yet")
