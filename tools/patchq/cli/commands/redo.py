from __future__ import annotations

from dataclasses import asdict

import click

from patchq.cli.commands.log import show_changes
from patchq.cli.common import emit, json_option, open_project
from patchq.cli.terminal import echo


@click.command("redo")
@click.option("--dry-run", is_flag=True, help="Print what the command would change.")
@json_option
def command(dry_run: bool, as_json: bool) -> None:
    """Redo the operation that was undone last.

    Run the command again to redo the next operation. After any other operation, undone operations can't be redone.
    """
    from patchq.project.log import changes_of

    project = open_project(as_json)
    with project.locked("redo"):
        if dry_run:
            plan = project.journal.plan_redo()
        else:
            plan = project.journal.redo()
        changes = changes_of(project.journal, plan.record)
    summary = str(plan.record["summary"])
    if as_json:
        emit("redo", {"redone": summary, "dry_run": dry_run, "changes": asdict(changes)})
        return
    echo(f"{'would redo' if dry_run else 'redone'}: {summary}")
    if dry_run:
        for line in show_changes(changes):
            echo(line)
