from __future__ import annotations

from dataclasses import asdict

import click

from patchq.cli.common import emit, json_option, open_project, set_option, show_table


@click.command("list")
@click.argument("names", nargs=-1)
@click.option("--topic", default="", help="Only of this topic.")
@set_option
@json_option
def command(names: tuple[str, ...], topic: str, set_name: str, as_json: bool) -> None:
    """The patches of each stack, in order."""
    from patchq.stacks.views import list_patches

    found = list_patches(open_project(as_json), names, set_name, topic)
    if as_json:
        emit("list", {"patches": [asdict(p) for p in found]})
        return
    if not found:
        click.echo("no patches")
        return
    rows = [(f"{p.upstream}/{p.name}", p.topic, p.status.split(" ")[0], p.problem or p.subject) for p in found]
    show_table(("patch", "topic", "upstream", "subject"), rows)
