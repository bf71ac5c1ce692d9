from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
                "stacks": list(map(_as_json, found)),
                "rebases": as_dicts(rebases),
            },
        )
        return
    echo(f"set {project.choose_set(set_name)}")
    for s in found:
        source = ""
        if s.source:
            source = f" ({s.source})"
        body = _as_json(s)
        echo(
            f"{s.upstream} {s.ref}{source}: {body['state']}, {s.applied} of {s.total} applied; "
            f"worktree {body['worktree']}"
        )
        for detail in body["details"][:10]:
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


def _as_json(found: StackStatus) -> dict[str, Any]:
    """Return the JSON object of a stack, with its state in words."""
    from patchq.stacks.views import StackState, WorktreeState

    state, worktree, details = found.state.value, found.worktree.value, found.edited
    if found.state is StackState.OTHER_REF:
        state = f"other ref ({found.applied_ref})"
    if found.worktree is WorktreeState.BUSY:
        worktree = f"in a git {found.operation}"
    elif found.worktree is WorktreeState.COMMITS:
        details = ("commits that are not in the stack",)
    elif found.worktree is WorktreeState.CLEAN:
        details = tuple(f"{path} (in no patch)" for path in found.untracked)
    return {
        "upstream": found.upstream,
        "ref": found.ref,
        "commit": found.commit,
        "source": found.source,
        "applied": found.applied,
        "total": found.total,
        "state": state,
        "worktree": worktree,
        "path": found.path,
        "details": details,
        "tree": found.tree,
    }


def _next(found: StackStatus) -> str:
    from patchq.stacks.views import StackState, WorktreeState

    upstream = found.upstream
    if found.worktree is WorktreeState.EDITED:
        return f"patchq fold {upstream}, or patchq new {upstream} {name_for(found.edited[0])}"
    if found.worktree is WorktreeState.COMMITS:
        return f"patchq export {upstream}"
    if found.worktree is WorktreeState.MISSING or found.state is not StackState.APPLIED:
        return "patchq apply"
    return ""
