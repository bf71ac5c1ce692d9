from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from patchq.cli.common import as_dicts, emit, json_option, open_project
from patchq.cli.terminal import echo

if TYPE_CHECKING:
    from patchq.project.log import Changes

#: Maximum number of names in one line.
_MOST = 8


@click.command("log")
@click.option("-n", "limit", type=click.IntRange(min=1), metavar="N", help="Number of operations.  [default: all]")
@json_option
def command(limit: int | None, as_json: bool) -> None:
    """List the operations and the changes that each made.

    The newest operation comes first. Undone operations are listed as long as `patchq redo` can redo them.
    """
    from patchq.project.log import operations

    project = open_project(as_json)
    with project.locked("log"):
        found = operations(project, limit or 0)
    if as_json:
        emit("log", {"operations": as_dicts(found)})
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


def show_changes(changes: Changes) -> Iterator[str]:
    """Yield a line for each kind of change that an operation made."""
    for word, names in (
        ("added", changes.added),
        ("edited", changes.edited),
        ("moved", changes.moved),
        ("dropped", changes.dropped),
        ("pinned", changes.pinned),
        ("unpinned", changes.unpinned),
        ("set", changes.set_pins),
        ("wrote", changes.files),
        ("worktree", changes.worktrees),
    ):
        if names:
            yield f"    {word}: {_list(names)}"


def _list(names: Sequence[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")
