from __future__ import annotations

import click

from patchq.cli.common import as_dicts, emit, json_option, open_project, set_option
from patchq.cli.terminal import echo
from patchq.names import counted


@click.command("drift")
@click.argument("upstream")
@click.option("--from", "old", required=True, metavar="REF", help="Pinned ref to start from.")
@click.option("--to", "new", required=True, metavar="REF", help="Pinned ref to compare with.")
@click.option(
    "--far",
    is_flag=True,
    help="Also list findings by names, findings two calls away, and changes that may affect the patches.",
)
@set_option
@json_option
def command(upstream: str, old: str, new: str, far: bool, set_name: str, as_json: bool) -> None:
    """Find patches that apply but changed meaning.

    Compares two pinned refs of UPSTREAM. Reports calls from the set's other upstreams whose arguments would change
    their meaning. For each patch of the old ref's stack, reports what upstream changed in the functions that the patch
    changes, in the callers of these functions, and in the definitions that the patch's lines call, read or override.
    Exit code 1 if an alarm needs a decision.
    """
    from patchq.cli.drifted import alarm_body, show_alarms, show_reached, show_unseen
    from patchq.drift.alarms import by_definition, by_kind, is_near
    from patchq.forecast.meaning import drift_with_commits

    found = drift_with_commits(open_project(as_json), upstream, old, new, set_name=set_name)
    open_ones = [a for a in found.alarms if a.state == "open"]
    if as_json:
        body = {
            "upstream": upstream,
            "from": old,
            "to": new,
            "alarms": [alarm_body(a) for a in found.alarms],
            "far": as_dicts(found.far),
            "unseen": as_dicts(found.unseen),
            "siblings": found.siblings,
            "stopping": list(found.stopping),
            "history": found.history,
        }
        emit("drift", body)
    else:
        groups = by_definition(found.alarms)
        shown = [alarms for alarms in groups if far or any(map(is_near, alarms))]
        # What a rebase doesn't show comes first.
        shown.sort(key=lambda alarms: alarms[0].patch in found.stopping)
        for alarms in shown:
            stops = ", the patch stops" if alarms[0].patch in found.stopping else ""
            show_alarms(alarms, f"{alarms[0].state}{stops}: ")
        for reached in sorted(found.far, key=lambda reached: reached.patch) if far else ():
            show_reached(reached)
        show_unseen(found.unseen)
        if not found.siblings:
            echo(f"not compared: calls from other upstreams, because upstream.lock has no [upstreams.{upstream}.build]")
        if found.alarms and not found.history:
            echo(f"the commits are unknown: no history of {upstream} is available locally (`patchq fetch --history`)")
        if not far and (found.far or len(shown) < len(groups)):
            echo(
                f"far: {counted(len(groups) - len(shown), 'finding')}, {counted(len(found.far), 'change')} that may "
                "affect patches: `--far` lists them"
            )
        about = ""
        if found.stopping:
            about = f", {len(found.stopping)} of them stop at {new}"
        elif not found.patches:
            about = ", which has no stack"
        echo(f"compared: {counted(len(found.patches), 'patch')} of {upstream} {old}{about}")
        kinds = ", ".join(f"{n} {kind}" for kind, n in by_kind(open_ones).items())
        fixed = len(found.alarms) - len(open_ones)
        echo(f"{len(open_ones)} open" + (f": {kinds}" if kinds else "") + f", {fixed} fixed by the stacks")
    if open_ones:
        raise click.exceptions.Exit(1)
