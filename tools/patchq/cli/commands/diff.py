from __future__ import annotations

import click

from patchq.cli.common import as_dicts, emit, json_option, open_project, set_option
from patchq.cli.terminal import echo
from patchq.names import counted


@click.command("diff")
@click.argument("old")
@click.argument("new", default=".")
@click.option("--stat", is_flag=True, help="List the changed patches without their differences.")
@set_option
@json_option
def command(old: str, new: str, stat: bool, set_name: str, as_json: bool) -> None:
    """Compare two versions of stacks.

    Each of OLD and NEW is NAME@REF (the stack of a pin), a git revision of the project (all stacks of the set
    in that revision), or . (the current stacks).
    """
    from patchq.stacks.rangediff import SAME, compare

    found = compare(open_project(as_json), old, new, set_name)
    if as_json:
        emit("diff", {"pairs": as_dicts(found)})
        return
    for p in found:
        if p.kind == SAME and p.old == p.new and not p.moved:
            continue
        name = p.new or p.old
        was = ""
        if p.old and p.new and p.old != p.new:
            was = f", was {p.old}"
        if p.moved and p.kind == SAME:
            words = "moved"
        else:
            words = p.kind + (", moved" if p.moved else "")
        echo(f"{p.upstream}/{name}: {'renamed' if words == SAME else words}{was}")
        if p.text and not stat:
            echo("".join(f"    {line}\n" for line in p.text.splitlines()), nl=False)
    same = sum(p.kind == SAME for p in found)
    echo(f"{same} of {counted(len(found), 'patch')} are the same")
