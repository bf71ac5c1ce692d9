from __future__ import annotations

import click

from patchq.cli.common import json_option, open_project, set_option, show_exported


@click.command("move")
@click.argument("patch")
@click.option("--before", default="", metavar="PATCH")
@click.option("--after", default="", metavar="PATCH")
@click.option("--first", is_flag=True, help="Move to the start of the stack.")
@set_option
@json_option
def command(patch: str, before: str, after: str, first: bool, set_name: str, as_json: bool) -> None:
    """Move a patch within its stack.

    Refuses the move if a patch conflicts in the new order.
    """
    from patchq.stacks.edit import move

    if bool(before) + bool(after) + first != 1:
        raise click.UsageError("give exactly one of --before, --after and --first")
    show_exported(move(open_project(as_json), patch, before=before, after=after, set_name=set_name), as_json, "move")
