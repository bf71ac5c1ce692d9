from __future__ import annotations

import click

from patchq.cli.common import json_option, open_project, show_exported


@click.command("new")
@click.argument("upstream")
@click.argument("name")
@click.option(
    "--message", "-m", multiple=True, help="Subject, then paragraphs; trailers are kept.  [default: from the name]"
)
@click.option("--topic", default="", help="Topic: of the patch.")
@click.option("--proof", default="", metavar="PATH", help="Proof: of the patch, a test under tests/stacks/.")
@click.option("--author", default="", metavar="'NAME <EMAIL>'", help="[default: you]")
@click.option("--signoff", "-s", is_flag=True, help="Add the author's sign-off.")
@click.option("--allow-empty", is_flag=True, help="Allow a patch that changes nothing.")
@json_option
def command(
    upstream: str,
    name: str,
    message: tuple[str, ...],
    topic: str,
    proof: str,
    author: str,
    signoff: bool,
    allow_empty: bool,
    as_json: bool,
) -> None:
    """Make a patch from your edits.

    The patch contains all edited and added files in the worktree of UPSTREAM. It goes on top of the applied
    patches, below those that are not applied.
    """
    from patchq.stacks.edit import new

    result = new(
        open_project(as_json),
        upstream,
        name,
        message="\n\n".join(message),
        topic=topic,
        proof=proof,
        author=author,
        signoff=signoff,
        allow_empty=allow_empty,
    )
    show_exported(result, as_json, "new")
