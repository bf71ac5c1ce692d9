from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from patchq.cli.common import emit, json_option, open_project, stopped_upstream
from patchq.cli.terminal import echo

if TYPE_CHECKING:
    from patchq.carry.brief import Brief


@click.command("conflict")
@click.argument("name", required=False)
@click.option("--history", "fetch", is_flag=True, help="Fetch upstream's history, for the commits behind it.")
@json_option
def command(name: str | None, fetch: bool, as_json: bool) -> None:
    """The patch at which a rebase stops, as a brief.

    What it is for, the three sides with the lines that collide, upstream's commits that made them where history is at
    hand, who depends on it, resolutions that are there already, and how its proof is run.
    """
    from patchq.carry.brief import brief

    project = open_project(as_json)
    found = brief(project, stopped_upstream(project, name), fetch=fetch)
    if as_json:
        emit("conflict", asdict(found))
    else:
        _show(found)


def _show(found: Brief) -> None:
    echo(f"{found.upstream}/{found.patch} ({found.from_ref}) onto {found.onto}: {found.outcome}", bold=True)
    echo(f"{found.subject}\n")
    for line in found.why.splitlines():
        echo(f"  {line}" if line else "")
    echo(f"\ntopic {found.topic or 'none'}; upstream: {found.status or 'unknown'}")
    if found.said:
        echo(found.said)
    if found.evidence:
        echo(f"upstream has it, {found.grade or 'in part'}: {found.evidence}")
    for file in found.files:
        echo(f"\n{file.path}: {file.kind}", bold=True)
        for clash in file.collisions:
            echo(f"  line {clash.line} of {found.worktree}/{file.path}")
            for word, lines in (("it was", clash.base), (found.onto, clash.ours), ("the patch", clash.theirs)):
                for line in lines or ("(nothing)",):
                    echo(f"  {word:>12} | {line}")
    echo("")
    for cause in found.causes:
        echo(f"upstream's {cause.commit[:12]} {cause.date} {cause.subject} ({cause.author})")
    if not found.causes:
        echo("no commit of upstream's is known to have made these lines" + (f"; {found.hint}" if found.hint else ""))
    echo("it is needed by: " + (", ".join(found.dependents) or "no other patch"))
    for one in found.suggestions:
        echo(f"\n{one.said}: `{one.command}`")
        echo(one.diff, nl=False)
    echo("")
    needs = f" (needs {', '.join(found.needs)})" if found.needs else ""
    echo(f"proof: {', '.join(found.proofs) or 'none'}{needs}")
    echo(f"edit {found.worktree}; `{found.command}` judges it, and without --dry-run keeps it if its proof passes")
