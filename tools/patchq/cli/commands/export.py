from __future__ import annotations

import click

from patchq.cli.common import json_option, open_project, show_exported


@click.command("export")
@click.argument("upstream")
@click.option("--amend", default="", metavar="PATCH", help="Fold uncommitted edits into PATCH.")
@click.option(
    "--include", multiple=True, metavar="PATH", help="*.orig or *.rej file in the worktree to include; may be repeated."
)
@json_option
def command(upstream: str, amend: str, include: tuple[str, ...], as_json: bool) -> None:
    """Write commits back to the stack.

    Writes to the stack that is applied. `patchq apply --set` applies the stack of another set.

    Amended, reordered and reworded commits keep the names of their patches. fixup!, squash! and amend! commits are
    folded into the commits that they name.
    """
    from patchq.stacks.export import export

    if include and not amend:
        raise click.UsageError("--include needs --amend.")
    result = export(open_project(as_json), upstream, amend=amend, include=include)
    show_exported(result, as_json, "export")
