from __future__ import annotations

import click

from patchq.cli.common import json_option, open_project, set_option, show_exported


@click.command("reword")
@click.argument("patch")
@click.option(
    "--message",
    "-m",
    multiple=True,
    help="Subject; each further -m adds a paragraph. The trailers stay.  [default: an editor]",
)
@click.option(
    "--trailer",
    "trailers",
    multiple=True,
    metavar="'KEY: VALUE'",
    help="Trailer that replaces the patch's trailers with the same key; may be repeated.",
)
@click.option("--author", default="", metavar="'NAME <EMAIL>'", help="Author (`me`: your git identity).")
@click.option(
    "--as-rules", is_flag=True, help="Add rules to the message that make the same change as the diff; see formats.md."
)
@set_option
@json_option
def command(
    patch: str,
    message: tuple[str, ...],
    trailers: tuple[str, ...],
    author: str,
    as_rules: bool,
    set_name: str,
    as_json: bool,
) -> None:
    """Change the message, trailers or author of a patch."""
    from patchq.stacks.fix import reword
    from patchq.stacks.views import show

    project = open_project(as_json)
    text = "\n\n".join(message)
    pairs = []
    for trailer in trailers:
        key, colon, value = trailer.partition(":")
        if not colon:
            raise click.UsageError(f"--trailer {trailer!r} is not 'KEY: VALUE'")
        pairs.append((key.strip(), value.strip()))
    if not (text or pairs or author or as_rules):
        text = click.edit(show(project, patch, set_name)[1].message) or ""
        if not text:
            raise click.UsageError("the editor wrote nothing; -m gives the message without an editor")
    result = reword(project, patch, message=text, trailers=pairs, author=author, as_rules=as_rules, set_name=set_name)
    show_exported(result, as_json, "reword")
