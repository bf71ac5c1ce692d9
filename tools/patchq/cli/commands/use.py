from __future__ import annotations

from dataclasses import asdict

import click

from patchq.cli.common import emit, json_option, open_project
from patchq.cli.terminal import echo
from patchq.names import counted


@click.command("use")
@click.argument("set_name", metavar="SET")
@click.option("--as", "name", default="", metavar="NAME", help="New name of the set.")
@click.option("--replaces", multiple=True, metavar="SET", help="Another set to remove; may be repeated.")
@click.option("--keep", is_flag=True, help="Keep the replaced sets.")
@json_option
def command(set_name: str, name: str, replaces: tuple[str, ...], keep: bool, as_json: bool) -> None:
    """Make a set the default and remove older sets.

    Removes the older sets that were rebased into this set, and the pins and stacks that no other set uses. Refuses to
    remove files that aren't committed.
    """
    from patchq.rebase.switch import use

    found = use(open_project(as_json), set_name, name=name, keep=keep, replaces=replaces)
    if as_json:
        emit("use", asdict(found))
        return
    was = ""
    if found.before != found.set_name:
        was = f" (it was {found.before})"
    echo(f"the default set is {found.set_name}{was}")
    for word, names in (("set", found.sets), ("pin", found.pins)):
        for one in names:
            echo(f"removed the {word} {one}")
    if found.files:
        count = counted(len(found.files), "file")
        echo(f"removed {count} of the pins' stacks; git's history still has them, and `patchq undo` restores them")
    for note in found.notes:
        echo(note)
    echo("next: patchq apply")
