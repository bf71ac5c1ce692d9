from __future__ import annotations

from dataclasses import asdict

import click

from patchq.cli.common import emit, json_option, offline_option, open_project
from patchq.cli.terminal import echo


@click.command("check")
@click.argument("names", nargs=-1)
@click.option("--text", "text_only", is_flag=True, help="Only what needs no upstream: no zero fuzz, no stable bytes.")
@offline_option
@json_option
def command(names: tuple[str, ...], text_only: bool, offline: bool, as_json: bool) -> None:
    """Check the hygiene of all stacks.

    Trailers, zero fuzz, stable bytes, names, paths, sign-offs, requirements, self-references.
    """
    from patchq.stacks.check import check

    project = open_project(as_json)
    found = check(project, names, offline=offline, text_only=text_only)
    if as_json:
        emit("check", {"findings": [asdict(f) for f in found]})
    else:
        for f in found:
            where = "/".join(x for x in (f.upstream, f.ref, f.patch) if x)
            echo(f"{where}: {f.message} [{f.rule}]\n    {f.hint}")
        count = sum(len(s.names) for s in project.stacks(project.choose_set("")))
        echo(
            f"{len(found)} finding{'s' * (len(found) > 1)}"
            if found
            else f"all good: {count} patches in the default set"
        )
    if found:
        raise click.exceptions.Exit(1)
