"""Definitions that two patches change, in all sets of the lock. Results are cached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, fields
from pathlib import Path

from patchq.drift import bodies, shared
from patchq.drift.shared import Shared, Stacked, Versions, compare, is_source, packages_of, report_unread
from patchq.errors import PatchqError
from patchq.git.repository import Git
from patchq.project.cached import ResultCache
from patchq.project.project import Project
from patchq.project.stack import Stack, load_state
from patchq.stacks.apply import ApplyPlan, bases_of
from patchq.stacks.apply import plan as plan_stack

#: Upstream and ref.
_At = tuple[str, str]

#: Packages that decide which definitions are found.
_PARSERS = ("tree-sitter", "tree-sitter-cuda")

_FIELDS = [field.name for field in fields(Shared)]


def shared_in_sets(
    project: Project,
    names: Sequence[str] = (),
    *,
    set_name: str = "",
    offline: bool = False,
    plans: Mapping[_At, ApplyPlan] | None = None,
) -> list[Shared]:
    """Return the definitions that several patches change, for all sets of the lock.

    Stacks that don't apply are skipped; ``check`` reports them. Results for unchanged stacks come
    from the cache.

    :param names: upstreams to return definitions of; all if empty.
    :param set_name: set to compare; empty for all sets.
    :param plans: known apply results, by upstream and ref.
    """
    found: dict[Shared, None] = {}
    chosen = [name for name in project.lock.sets if set_name in ("", name)]
    report_unread(project, (stack for name in chosen for stack in project.stacks(name)))
    with project.locked("check"):
        applied: dict[_At, ApplyPlan | None] = dict(plans or {})
        stacks: dict[_At, Stacked] = {}
        versions = Versions()
        packages = packages_of(project)
        modules = (Path(bodies.__file__), Path(shared.__file__))
        known = ResultCache(project.layout, "one-definition", modules=modules, packages=_PARSERS)
        for name in chosen:
            there: dict[_At, ApplyPlan] = {}
            for stack in project.stacks(name):
                at = (stack.pin.upstream, stack.pin.ref)
                if at not in applied:
                    applied[at] = _plan_or_none(project, stack, offline)
                if (made := applied[at]) and made.after.patches:
                    there[at] = made
            message = [[*at, made.after.base, *_commits(made)] for at, made in there.items()]
            if (rows := known.find(name, [message, packages])) is None:
                new = {at: made for at, made in there.items() if at not in stacks}
                stacks.update(_stacked(project.store, new, versions))
                here = compare([stacks[at] for at in there], packages)
                rows = known.add(name, [astuple(s) for s in dict.fromkeys(here)])
            for row in rows:
                found[Shared(**dict(zip(_FIELDS, row, strict=True)))] = None
        known.keep(forget=not set_name)
    sets: list[Shared] = []
    for s in found:
        if not names or s.upstream in names:
            sets.append(s)
    return sets


def _plan_or_none(project: Project, stack: Stack, offline: bool) -> ApplyPlan | None:
    """Return the result of applying a stack; None if it has no patches or doesn't apply."""
    state = load_state(project.layout, stack.pin.upstream)
    usable = None
    if state and state.ref == stack.pin.ref:
        usable = state
    with suppress(PatchqError):
        if stack.names:
            (base,) = bases_of(project, [stack], {stack.pin.upstream: usable}, offline)
            return plan_stack(project, stack, base, usable, "")
    return None


def _commits(plan: ApplyPlan) -> list[tuple[str, str]]:
    return [(patch.applied.name, patch.applied.commit) for patch in plan.after.patches]


def _stacked(store: Git, plans: Mapping[_At, ApplyPlan], versions: Versions) -> dict[_At, Stacked]:
    """Read the changes of each stack's patches. Git runs once for all stacks together."""
    commits = list(dict.fromkeys(p.applied.commit for plan in plans.values() for p in plan.after.patches))
    if not commits:
        return {}
    messages = {info.commit: info.message for info in store.log("--no-walk=unsorted", *commits)}
    changes = dict(zip(commits, store.changes_of(commits), strict=True))
    sources = [change for made in changes.values() for change in made if is_source(change)]
    contents = store.read_blobs(entry.blob for change in sources for entry in (change.old, change.new) if entry)
    found = {}
    for (upstream, ref), plan in plans.items():
        made = [(p.applied.name, messages[p.applied.commit], changes[p.applied.commit]) for p in plan.after.patches]
        found[upstream, ref] = Stacked(upstream, ref, made, lambda blobs: {b: contents[b] for b in blobs}, versions)
    return found
