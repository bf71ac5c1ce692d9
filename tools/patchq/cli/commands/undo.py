from __future__ import annotations

import click

from patchq.cli.common import emit, json_option, open_project
from patchq.cli.terminal import echo
from patchq.names import CommitId, sh


@click.command("undo")
@click.option("--pending", is_flag=True, help="Abandon the interrupted command instead of finishing it.")
@json_option
def command(pending: bool, as_json: bool) -> None:
    """Undo the last operation."""
    from patchq.rebase.resolve import undo_resolution

    project = open_project(as_json)
    kept: list[str] = []
    commits: list[CommitId] = []
    worktree = ""
    with project.locked("undo", finish=not pending):
        if pending:
            summary, kept = project.journal.give_up()
        elif back := undo_resolution(project):
            summary, worktree = back
        else:
            summary, commits = project.journal.undo()
    if as_json:
        emit("undo", {"undone": summary, "kept": kept, "commits": commits})
        return
    echo(f"{'given up' if pending else 'undone'}: {summary}")
    if worktree:
        echo(f"  the rebase is back at that patch; {worktree} holds your resolution")
    for path in kept:
        echo(f"  {path} was edited meanwhile and stays as it is")
    for commit in commits:
        echo(f"  your edits are kept as {commit}: `git -C {sh(project.layout.store)} show {commit}`")
