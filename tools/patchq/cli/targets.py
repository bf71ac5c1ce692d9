"""Which packages to verify: asked for, a project's, or whatever carries a manifest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from patchq.errors import UserError
from patchq.project.project import Project


def packages_to_verify(distributions: Sequence[str], set_name: str) -> tuple[dict[str, str], str]:
    """Distribution to import name, and the stack id that they should be of (empty: any)."""
    from patchq.stacks.applied import applied_stack_id

    ctx = click.get_current_context()
    try:
        project = Project.find(Path(ctx.obj["project"]))
    except UserError:
        return {d: d.replace("-", "_") for d in distributions}, ""
    builds = {u.build.distribution: u.build.package for u in project.lock.upstreams.values() if u.build}
    unknown = [d for d in distributions if d not in builds]
    if unknown:
        raise UserError(
            f"no upstream builds {unknown[0]}", hint=f"upstream.lock has {', '.join(builds) or 'no builds'}"
        )
    chosen = {d: p for d, p in builds.items() if not distributions or d in distributions}
    return chosen, applied_stack_id(project, set_name)
