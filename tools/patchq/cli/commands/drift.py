from __future__ import annotations

from dataclasses import asdict

import click

from patchq.cli.common import emit, json_option, open_project, set_option
from patchq.cli.terminal import echo


@click.command("drift")
@click.argument("upstream")
@click.option("--from", "old", required=True, metavar="REF", help="Pinned ref to start from.")
@click.option("--to", "new", required=True, metavar="REF", help="Pinned ref to compare with.")
@set_option
@json_option
def command(upstream: str, old: str, new: str, set_name: str, as_json: bool) -> None:
    """Find patches that apply but changed meaning.

    Compares two pinned refs of UPSTREAM: calls in other upstreams of the set whose arguments change their meaning,
    removed names, changed defaults, and functions and macros that the old ref's stack changes and whose bodies
    changed. Exit code 1 if anything needs a decision.
    """
    from patchq.drift.alarms import by_kind
    from patchq.drift.drift import drift

    alarms = drift(open_project(as_json), upstream, old, new, set_name=set_name)
    open_ones = [a for a in alarms if a.state == "open"]
    if as_json:
        emit("drift", {"upstream": upstream, "from": old, "to": new, "alarms": [asdict(a) for a in alarms]})
    else:
        for a in alarms:
            by = f" (patch {a.patch})" if a.patch else ""
            echo(
                f"{a.state}: {a.upstream} {a.path}:{a.line} {a.function}{by}: {a.kind}"
                + (f" in {a.callee}" if a.callee else "")
            )
            echo(f"    {a.said}")
        kinds = ", ".join(f"{n} {kind}" for kind, n in by_kind(open_ones).items())
        echo(
            f"{len(open_ones)} open"
            + (f": {kinds}" if kinds else "")
            + f", {len(alarms) - len(open_ones)} mended by the stacks"
        )
    if open_ones:
        raise click.exceptions.Exit(1)
