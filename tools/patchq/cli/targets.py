"""Which packages to verify, asked for, a project's, or whatever carries a manifest; and against what."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchq.errors import UserError
from patchq.project.project import Project

if TYPE_CHECKING:
    from patchq.environment.installed import Reference
    from patchq.environment.verify import Verdict


def packages_to_verify(distributions: Sequence[str], set_name: str) -> tuple[dict[str, str], str]:
    """Distribution to import name (empty: unknown), and the stack id that they should be of (empty: any)."""
    from patchq.stacks.applied import applied_stack_id

    ctx = click.get_current_context()
    try:
        project = Project.find(Path(ctx.obj["project"]))
    except UserError:
        return dict.fromkeys(distributions, ""), ""
    builds = {u.build.distribution: u.build.package for u in project.lock.upstreams.values() if u.build}
    unknown = [d for d in distributions if d not in builds]
    if unknown:
        raise UserError(
            f"no upstream builds {unknown[0]}", hint=f"upstream.lock has {', '.join(builds) or 'no builds'}"
        )
    chosen = {d: p for d, p in builds.items() if not distributions or d in distributions}
    return chosen, applied_stack_id(project, set_name)


def look(
    python: str, distributions: Sequence[str] = (), set_name: str = "", expected: str = "", folder: Path | None = None
) -> Verdict:
    """What ``verify-installed`` finds: against the wheels in ``folder``, else those of the project's ``dist/SET``.

    :param expected: the stack id or its beginning; empty for the project's, if there is one and it is applied.
    :raises UserError: if the folder that is named has no wheel that can be read.
    """
    from patchq.build.reference import wheels_in, wheels_of
    from patchq.environment.verify import verify

    packages, wanted = packages_to_verify(distributions, set_name)
    wheels: list[Reference] = []
    wrong: list[str] = []
    if folder is not None:
        wheels, wrong = wheels_in(folder)
        if not wheels:
            said = "; ".join(wrong) or f"{folder} holds no wheels"
            raise UserError(said, hint="--dist DIR names the folder of the wheels that were built")
    else:
        with contextlib.suppress(UserError):
            wheels, wrong = wheels_of(Project.find(Path(click.get_current_context().obj["project"])), set_name)
    verdict = verify(python, packages, expected or wanted, wheels)
    return replace(verdict, notes=(*verdict.notes, *wrong))
