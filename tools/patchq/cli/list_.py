from __future__ import annotations

from dataclasses import asdict

import click

from patchq.cli.common import emit, json_option, open_project, set_option


@click.command("list")
@click.argument("names", nargs=-1)
@click.option("--topic", default="", help="Only of this topic.")
@set_option
@json_option
def command(names: tuple[str, ...], topic: str, set_name: str, as_json: bool) -> None:
    """The patches of each stack, in order."""
    from patchq.inspect import list_patches

    found = list_patches(open_project(as_json), names, set_name, topic)
    if as_json:
        emit("list", {"patches": [asdict(p) for p in found]})
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("patch", overflow="fold")
    table.add_column("topic", no_wrap=True)
    table.add_column("upstream", no_wrap=True)
    table.add_column("subject", overflow="fold")
    for p in found:
        word = p.status.split(" ")[0]
        table.add_row(*(escape(x) for x in (f"{p.upstream}/{p.name}", p.topic, word, p.problem or p.subject)))
    if found:
        Console().print(table)
    else:
        click.echo("no patches")
