from __future__ import annotations

from dataclasses import asdict

import click

from patchq.cli.common import emit, json_option, open_project, set_option
from patchq.cli.terminal import echo


@click.command("deps")
@click.argument("names", nargs=-1)
@click.option("--dot", is_flag=True, help="Print the graph in Graphviz's DOT format.")
@set_option
@json_option
def command(names: tuple[str, ...], dot: bool, set_name: str, as_json: bool) -> None:
    """Show the dependencies between patches.

    Finds dependencies by carrying each patch without the others, in memory. Also shows the dependencies that patches
    declare by Requires: trailers.
    """
    from patchq.stacks.deps import as_dot, commuting, dependencies

    found = dependencies(open_project(as_json or dot), names, set_name)
    if as_json:
        free = commuting(found)
        emit("deps", {"patches": [{**asdict(n), "commutes": free[n.patch]} for n in found]})
    elif dot:
        echo(as_dot(found), nl=False)
    else:
        for n in found:
            upstream = n.patch.split("/")[0] + "/"
            needed = [other.removeprefix(upstream) for other in n.direct]
            message = [other for other in n.requires if other not in n.needs]
            words = []
            if needed:
                words = [f"needs {', '.join(needed)}"]
            if message:
                words += [f"declares Requires: {', '.join(message)}"]
            echo(f"{n.patch}: {'; '.join(words) or 'needs no other patch'}")
