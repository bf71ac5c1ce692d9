from __future__ import annotations

import click

from patchq.cli.common import as_dicts, emit, exported_json, json_option, open_project, show_exported
from patchq.cli.terminal import echo


@click.command("fold")
@click.argument("upstream")
@click.option(
    "--partial",
    is_flag=True,
    help="Skip edits that belong to no patch or to several patches; they stay in the worktree.",
)
@json_option
def command(upstream: str, partial: bool, as_json: bool) -> None:
    """Fold your edits into the patches that own the edited lines.

    Each edit goes into the patch that wrote the edited lines (for an insertion: the adjacent lines). Afterwards, the
    tree of the stack is the edited tree. Refuses an edit whose lines belong to no patch or to several patches.
    """
    from patchq.editing.fold import fold

    result = fold(open_project(as_json), upstream, partial=partial)
    if as_json:
        body = {**exported_json(result.exported), "edits": as_dicts(result.edits)}
        emit("fold", body | {"left": as_dicts(result.left), "empty": list(result.empty)})
        return
    for edit in result.edits:
        echo(f"{upstream}: {edit.place} (-{edit.removed} +{edit.added}) into {edit.owners[0]}")
    show_exported(result.exported, as_json, "fold")
    for name in result.empty:
        echo(f"{upstream}: {name} changes nothing now: `patchq drop {upstream}/{name}` removes it")
    for edit in result.left:
        owners = " and ".join(edit.owners) or "no patch"
        echo(f"{upstream}: left in the worktree: {edit.place}, lines of {owners}")
