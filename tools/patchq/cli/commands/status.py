from __future__ import annotations

from typing import TYPE_CHECKING

import click

from patchq.cli.common import as_dicts, emit, json_option, open_project, set_option
from patchq.cli.terminal import echo
from patchq.names import name_for
from patchq.project.project import Project

if TYPE_CHECKING:
    from patchq.rebase.state import Result
    from patchq.stacks.views import StackStatus


@click.command("status")
@set_option
@json_option
def command(set_name: str, as_json: bool) -> None:
    """Show the state of each stack and its worktree."""
    from patchq.stacks.views import status

    project = open_project(as_json)
    found, rebases = status(project, set_name), _rebases(project)
    if as_json:
        emit(
            "status",
            {
                "set": project.choose_set(set_name),
                "stacks": as_dicts(found),
                "rebases": as_dicts(rebases),
            },
        )
        return
    echo(f"set {project.choose_set(set_name)}")
    for s in found:
        source = ""
        if s.source:
            source = f" ({s.source})"
        echo(f"{s.upstream} {s.ref}{source}: {s.state}, {s.applied} of {s.total} applied; worktree {s.worktree}")
        for detail in s.details[:10]:
            echo(f"    {detail}")
        hint = _next(s)
        if hint:
            echo(f"    next: {hint}")
    for r in rebases:
        at = "interrupted"
        if r.stop:
            at = f"{r.stop.patch} stops in {r.worktree}"
        echo(f"{r.upstream} {r.from_ref} onto {r.onto}: a rebase is under way; {at}")
        echo(f"    next: patchq rebase {r.upstream} --continue, --skip or --abort")


def _rebases(project: Project) -> list[Result]:
    """Return the unfinished rebases. Import the rebase code only if there are any."""
    if not any((project.layout.private / "rebase").glob("*.json")):
        return []
    from patchq.rebase.state import under_way

    return under_way(project)


def _next(found: StackStatus) -> str:
    upstream = found.upstream
    if found.worktree == "edited":
        return f"patchq fold {upstream}, or patchq new {upstream} {name_for(found.details[0])}"
    if found.worktree == "commits":
        return f"patchq export {upstream}"
    if found.worktree == "missing" or found.state != "applied":
        return "patchq apply"
    return ""
