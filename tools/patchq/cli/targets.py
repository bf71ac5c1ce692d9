"""Selection of the packages to verify, and of the wheels to compare them with."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchq.errors import UserError
from patchq.project.project import Project

if TYPE_CHECKING:
    from patchq.environment.installed import Reference
    from patchq.environment.verify import InstallVerdict


def packages_to_verify(distributions: Sequence[str], set_name: str) -> tuple[dict[str, str], str, set[str]]:
    """Return the packages to verify.

    :returns: import names by distribution (empty: unknown), the expected stack id (empty: any), and
        the distributions that no patch of the set changes.
    """
    from patchq.stacks.applied import compute_stack_id, patched_upstreams, read_applied

    ctx = click.get_current_context()
    try:
        project = Project.find(Path(ctx.obj["project"]))
    except UserError:
        return dict.fromkeys(distributions, ""), "", set()
    if set_name:
        project.choose_set(set_name)
    builds = {}
    for u in project.lock.upstreams.values():
        if u.build:
            builds[u.build.distribution] = u.build.package
    builds_alone = set(builds)
    builds |= kernel_packages()
    unknown = [d for d in distributions if d not in builds]
    if unknown:
        raise UserError(
            f"no upstream builds {unknown[0]}", hint=f"upstream.lock builds {', '.join(builds) or 'nothing'}"
        )
    chosen = {d: p for d, p in builds.items() if d in (distributions or builds_alone)}
    try:
        applied = read_applied(project, project.choose_set(set_name), edits_matter=False)
    except UserError:
        return chosen, "", set()
    patched = patched_upstreams(project, applied)
    unpatched = set()
    for a in applied:
        if a.build and a.stack.pin.upstream not in patched:
            unpatched.add(a.build.distribution)
    return chosen, compute_stack_id(applied), unpatched


def kernel_packages() -> dict[str, str]:
    """Return the import names of the project's kernel packages, by distribution; empty without a project."""
    from patchq.kernels.wanted import every_wanted

    try:
        project = Project.find(Path(click.get_current_context().obj["project"]))
    except UserError:
        return {}
    return {wanted.distribution: wanted.package for wanted in every_wanted(project).values()}


def wheels_folder(set_name: str, folder: Path | None = None) -> str:
    """Return ``folder`` if it is given; else the folder of the set's wheels, relative to the current folder."""
    if folder is not None:
        return str(folder)
    with contextlib.suppress(UserError):
        project = Project.find(Path(click.get_current_context().obj["project"]))
        return os.path.relpath(project.layout.root / "dist" / project.choose_set(set_name))
    return f"dist/{set_name or 'SET'}"


def build_needed(set_name: str, folder: Path | None = None) -> str:
    """Return the command that builds the wheels of the applied stacks; empty if ``dist/SET`` already contains them.

    :param folder: folder that the user named; None for ``dist/SET``. With a folder, the command is empty.
    """
    from patchq.build.reference import is_built

    with contextlib.suppress(UserError):
        project = Project.find(Path(click.get_current_context().obj["project"]))
        stack_id = packages_to_verify((), set_name)[1]
        set_name = project.choose_set(set_name)
        if folder is None and not is_built(project, set_name, stack_id):
            set_option = project.set_option(set_name)
            return f"patchq build{set_option}"
    return ""


def other_folders(verdict: InstallVerdict, set_name: str) -> list[tuple[str, str]]:
    """Return other folders below ``dist`` whose wheels have the installed versions, with their sets.

    :param set_name: set whose folder was already compared; it is left out.
    :returns: for each folder, its set (empty if the lock has no such set) and its path.
    """
    versions = {package.version for package in verdict.packages if package.stack_id}
    found: list[tuple[str, str]] = []
    with contextlib.suppress(UserError):
        project = Project.find(Path(click.get_current_context().obj["project"]))
        for folder in sorted(project.layout.dist.glob("*/")):
            wheels = " ".join(path.name for path in folder.glob("*.whl"))
            has_all = bool(versions) and all(f"-{version}-" in wheels for version in versions)
            if has_all and folder.name != project.choose_set(set_name):
                known = folder.name if folder.name in project.lock.sets else ""
                found.append((known, os.path.relpath(folder)))
    return found


def look(
    python: str, distributions: Sequence[str] = (), set_name: str = "", expected: str = "", folder: Path | None = None
) -> InstallVerdict:
    """Compare installed packages with the wheels in ``folder``, or with the wheels in ``dist/SET``.

    :param expected: expected stack id, or its first characters (default: the id of the project's applied stack).
    :raises UserError: if the named folder has no readable wheel.
    """
    from patchq.build.reference import wheels_in, wheels_of
    from patchq.environment.differences import Code, Difference, Level
    from patchq.environment.verify import verify

    packages, wanted, unpatched = packages_to_verify(distributions, set_name)
    rules = None
    with contextlib.suppress(UserError):
        rules = Project.find(Path(click.get_current_context().obj["project"])).lock.verify
    wheels: list[Reference] = []
    wrong: list[str] = []
    if folder is not None:
        wheels, wrong = wheels_in(folder)
        if not wheels:
            message = "; ".join(wrong) or f"{folder} holds no wheels"
            raise UserError(message, hint="`--dist` takes the folder that `patchq build` wrote, such as dist/default")
    else:
        with contextlib.suppress(UserError):
            wheels, wrong = wheels_of(Project.find(Path(click.get_current_context().obj["project"])), set_name)
    verdict = verify(
        python, packages, expected or wanted, wheels, optional={} if distributions else kernel_packages(),
        unpatched=unpatched, rules=rules,
    )  # fmt: skip
    unread = tuple(Difference(code=Code.WHEEL_UNREADABLE, level=Level.NOTE, paths=(), words=(one,)) for one in wrong)
    return replace(verdict, differences=(*verdict.differences, *unread))
