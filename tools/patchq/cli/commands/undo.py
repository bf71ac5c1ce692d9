"""``undo``: undo the last operation, or the last resolution of a rebase, or give up an interrupted change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from patchq.cli.commands.log import show_changes
from patchq.cli.common import emit, json_option, open_project
from patchq.cli.terminal import echo
from patchq.names import CommitId, sh
from patchq.project.project import Project


@click.command("undo")
@click.option("--pending", is_flag=True, help="Abandon the interrupted command instead of finishing it.")
@click.option("--dry-run", is_flag=True, help="Print what the command would restore.")
@json_option
def command(pending: bool, dry_run: bool, as_json: bool) -> None:
    """Undo the last operation."""
    from patchq.rebase.resolve import undo_resolution

    if pending and dry_run:
        raise click.UsageError("give either --pending or --dry-run")
    project = open_project(as_json)
    if dry_run:
        _show_plan(project, as_json)
        return
    kept: list[str] = []
    commits: Sequence[CommitId] = ()
    worktree = ""
    with project.locked("undo", finish=not pending):
        if pending:
            summary, kept = project.journal.give_up()
        elif back := undo_resolution(project):
            summary, worktree = back
        else:
            plan = project.journal.undo()
            summary, commits = str(plan.record["summary"]), plan.kept
    if as_json:
        emit("undo", {"undone": summary, "kept": kept, "commits": list(commits), "dry_run": False, "changes": None})
        return
    echo(f"{'abandoned' if pending else 'undone'}: {summary}")
    if worktree:
        echo(f"  the rebase is back at that patch; {worktree} contains your files")
    for path in kept:
        echo(f"  {path} was edited after that command, and is kept")
    for commit in commits:
        echo(f"  your edits are kept as {commit}: `git -C {sh(project.layout.store)} show {commit}`")


def _show_plan(project: Project, as_json: bool) -> None:
    from patchq.project.log import changes_of
    from patchq.rebase.resolve import find_resolution

    with project.locked("undo"):
        plan = project.journal.plan_undo()
        changes = changes_of(project.journal, plan.record, reverse=True)
        rebase = find_resolution(project)
    summary = str(plan.record["summary"])
    if as_json:
        emit("undo", {"undone": summary, "kept": [], "commits": [], "dry_run": True, "changes": asdict(changes)})
        return
    echo(f"would undo: {summary}")
    for line in show_changes(changes):
        echo(line)
    if rebase:
        echo(f"    rebase: {rebase.upstream} would return to {rebase.settled[-1].stop.patch}")
    for commit in plan.kept:
        echo(f"    your edits in the worktree would be kept as {commit}")
