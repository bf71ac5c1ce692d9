"""Command ``build``: build wheels of the patched trees.

Each wheel has a local version derived from the stack id of the whole set, and contains ``_patchq.json``. Each wheel
requires the exact versions of its patched siblings, so that an installer can't replace them with upstream's wheels. An
upstream without patches isn't built, because its own release has the same content.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from patchq.build import platforms as machines
from patchq.build._overlay import build_overlay
from patchq.build._source import build_source
from patchq.build.dist import Built, drop, find, keep, write_beside
from patchq.build.job import Job, Unpatched
from patchq.errors import BuildError, UserError
from patchq.formats.lock import parse as parse_lock
from patchq.formats.lockedit import with_build
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.sources.packages import build_of_tree
from patchq.stacks import siblings
from patchq.stacks.applied import (
    NO_VERSION,
    Applied,
    compute_stack_id,
    patched_upstreams,
    read_applied,
    version_at,
)
from patchq.system import project_files
from patchq.system.paths import LOCK_NAME


@dataclass(frozen=True, slots=True)
class BuildResult:
    """Wheels that were built, and the upstreams that have no patches to build."""

    wheels: tuple[Built, ...]
    unpatched: tuple[Unpatched, ...]


def build(
    project: Project,
    names: Sequence[str] = (),
    *,
    set_name: str = "",
    profile: str = "",
    wheel_tag: str = "",
    isolation: bool = True,
    offline: bool = False,
    platforms: Sequence[str] = (),
) -> BuildResult:
    """Build wheels of a set's patched upstreams into ``dist/SET``.

    :param names: upstreams to build; default: all with build settings.
    :param profile: ``overlay``, ``source`` or ``empty``; default: the profile that the lock names.
    :param wheel_tag: part of the file name of the release wheel to overlay; default: the wheel for
        this machine.
    :param isolation: build in a separate environment with the lock's pinned requirements.
    :param platforms: target machines (``aarch64``); default: this one.
    :raises UserError: if a stack's applied state doesn't match its files, or if an upstream requires another
        upstream in a version that the set doesn't pin.
    :raises BuildError: if a build fails, or its wheel contains the unpatched version of a file.
    """
    set_name = project.choose_set(set_name)
    with project.locked("build"):
        _infer_builds(project, set_name, names)
        job = job_of(project, set_name, wheel_tag=wheel_tag, isolation=isolation, offline=offline)
        applied = job.applied
        bases = {}
        chosen = {}
        for a in applied:
            upstream = a.stack.pin.upstream
            bases[upstream] = a.state.base
            if a.build and (not names or upstream in names):
                chosen[upstream] = a
        project.check_names([a.stack.pin for a in applied], names, set_name)
        siblings.refuse(project, set_name, bases)
        for name in names:
            if name not in chosen:
                raise UserError(
                    f"{name} has no build settings, and no pyproject.toml that names a distribution",
                    hint=f'`distribution = "{name}"` below [upstreams.{name}.build] in upstream.lock',
                )
        if not chosen:
            first = applied[0].stack.pin.upstream
            raise UserError(
                f"nothing to build: no upstream of {set_name} has build settings, and no pyproject.toml names a "
                "distribution",
                hint=f'`distribution = "{first}"` below [upstreams.{first}.build] in upstream.lock; see '
                "docs/reference/formats.md",
            )
        unpatched = tuple(u for u in job.unpatched if u.upstream in chosen)
        for own in unpatched:
            drop(job, own.distribution)
        patched = [upstream for upstream in chosen if upstream in job.versions]
        built: list[Built] = []
        for number, upstream in enumerate(patched):
            project.count(f"wheels of {set_name}", number, len(patched), "upstreams")
            built += _build_each(job, chosen[upstream], profile, platforms)
        project.count(f"wheels of {set_name}", len(patched), len(patched), "upstreams")
        if built or job.dist.is_dir():
            write_beside(job)
        return BuildResult(tuple(built), unpatched)


def _infer_builds(project: Project, set_name: str, names: Sequence[str]) -> None:
    """Guess missing build settings of applied upstreams from their base trees, and add them to the lock.

    :param names: upstreams to add settings for. If empty, settings are added for all upstreams of the set, but only if
        none of them has settings yet.
    """
    upstreams = project.lock.upstreams
    applied = read_applied(project, set_name)
    lacking = []
    for a in applied:
        upstream = a.stack.pin.upstream
        if a.build:
            if not names:
                return
        elif not upstreams[upstream].into and (not names or upstream in names):
            lacking.append(a)
    data = before = project_files.read(project.layout.root, project.layout.lock) or b""
    for item in lacking:
        upstream = item.stack.pin.upstream
        found = build_of_tree(project.store, item.state.base)
        if found:
            data = with_build(data, upstream, found)
            project.say(
                f"{upstream}: wheels of {found.distribution}, package {found.package}, are built from source; "
                "upstream.lock has these settings now"
            )
    if data != before:
        parse_lock(data)
        project.journal.perform(Change(verb="build", summary="add build settings", files={LOCK_NAME: data}))
        project.__dict__.pop("lock", None)


def job_of(
    project: Project, set_name: str, *, wheel_tag: str = "", isolation: bool = True, offline: bool = False
) -> Job:
    """Return the build job of an applied set. The caller must hold the project's lock.

    :raises UserError: if a stack's applied state doesn't match its files.
    """
    applied = read_applied(project, set_name)
    stack_id = compute_stack_id(applied)
    patched = patched_upstreams(project, applied)
    versions = {}
    for a in applied:
        if a.build and a.stack.pin.upstream in patched:
            upstream, version = a.stack.pin.upstream, version_at(project, a.stack.pin, a.state.base)
            versions[upstream] = f"{version}+patchq.{stack_id[:8]}"
            if version == NO_VERSION:
                project.say(
                    f"{upstream}: neither the ref {a.stack.pin.ref} nor a file of its tree states a version, so the "
                    f"wheel's version is {versions[upstream]}; pin a release tag to use the release's version"
                )
    return Job(
        project=project,
        set_name=set_name,
        applied=applied,
        stack_id=stack_id,
        versions=versions,
        wheel_tag=wheel_tag,
        isolation=isolation,
        offline=offline,
    )


def _build_each(job: Job, item: Applied, profile: str, platforms: Sequence[str]) -> Iterator[Built]:
    """Yield an upstream's wheel for each platform. If one wheel fits all platforms, yield only this wheel."""
    profile = profile or (item.build.profile if item.build else "")
    here = machines.here()
    if profile == "overlay":
        for platform in platforms or ("",):
            yield _build(replace(job, platform="" if platform == here else platform), item, profile)
        return
    others = [p for p in platforms if p != here]
    released = set(map(machines.of_wheel, item.stack.pin.wheels))
    if others and released and machines.ANY not in released:
        _refuse_source(item, profile, others)
    made = _build(job, item, profile)
    if others and machines.of_wheel(made.path.name) != machines.ANY:
        _refuse_source(item, profile, others)
    yield made


def _refuse_source(item: Applied, profile: str, others: Sequence[str]) -> NoReturn:
    raise BuildError(
        f"{item.stack.pin.upstream}: profile {profile} compiles for this machine ({machines.here()}), "
        f"not for {', '.join(others)}",
        hint=f"`patchq build {item.stack.pin.upstream} --profile {profile}` on such a machine, or --profile overlay",
    )


def _build(job: Job, item: Applied, profile: str) -> Built:
    if done := find(job, item, profile):
        return done
    upstream, config = item.stack.pin.upstream, item.build
    assert config
    job.project.say(f"{upstream}: building ({profile})")
    version = job.versions[upstream] + (".empty" if profile == "empty" else "")
    if profile == "overlay":
        made = build_overlay(job, item, config, version)
    else:
        made = build_source(job, item, config, version, profile)
    return keep(job, item, profile, version, made)
