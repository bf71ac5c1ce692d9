from __future__ import annotations

import click

from patchq.cli.common import as_dicts, emit, json_option, open_project, set_option
from patchq.cli.terminal import echo


@click.command("publish")
@click.argument("names", nargs=-1)
@click.option(
    "--to",
    default="",
    metavar="REPOSITORY",
    help="Path, address or remote to push to.  [default: the project's repository]",
)
@click.option(
    "--on-upstream",
    is_flag=True,
    help="Base the branch on upstream's own commit, for a fork that keeps upstream's history.",
)
@click.option("--dry-run", is_flag=True, help="Print the refs that would be written; write nothing.")
@set_option
@json_option
def command(names: tuple[str, ...], to: str, on_upstream: bool, dry_run: bool, set_name: str, as_json: bool) -> None:
    """Publish applied stacks as branches and tags.

    Moves the branch patchq/SET/UPSTREAM unless someone else changed it. Never moves the tag, whose name contains the
    stack id.
    """
    from patchq.contribute.publish import publish

    project = open_project(as_json)
    stack_id, found = publish(project, to, names, set_name=set_name, on_upstream=on_upstream, dry_run=dry_run)
    if as_json:
        stacks = as_dicts(found)
        emit("publish", {"stack_id": stack_id, "to": to or ".", "written": not dry_run, "stacks": stacks})
        return
    for one in found:
        was = ""
        if one.was and one.was != one.commit:
            was = f" (was {one.was[:12]})"
        echo(f"{one.upstream} {one.ref}: {one.branch} at {one.commit[:12]}{was}, tag {one.tag}")
    word = "written"
    if dry_run:
        word = "would be written"
    echo(f"{word} to {to or 'the project itself'}; the stack id is {stack_id}")
