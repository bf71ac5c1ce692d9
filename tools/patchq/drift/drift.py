"""``drift``: find patches and calls that a new version of an upstream breaks, although the patches still apply.

Two refs of the upstream are compared. In other upstreams, alarms are raised for calls that bind differently, fail or
get another default, and for imported names that no longer exist. In the upstream itself (``inside``), alarms are raised
for changes to definitions that its patches change, call, read or override, and for changes to their callers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchq.drift._api.calls import scan_source
from patchq.drift._api.signatures import Api, SignatureChange, changes, load_api
from patchq.drift.alarms import Alarm, NotCompared, Reached
from patchq.drift.inside import PatchFacts
from patchq.errors import UserError
from patchq.extras import need
from patchq.formats.lock import Pin
from patchq.git.repository import Git, copy_tree
from patchq.merge.patches import STOPS, read_patches
from patchq.merge.threeway import carry
from patchq.names import CommitId, sh, show_path
from patchq.project.project import Project
from patchq.project.stack import Remembered, load_stack, load_state
from patchq.sources.pins import Fetcher
from patchq.stacks.apply import Carried, bases_of, carried_stacks, plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Result of a comparison.

    :ivar unseen: parts of the patches that were not compared.
    :ivar far: changed definitions that are related to a patch, the nearest first.
    :ivar siblings: True if calls from other upstreams were compared. This needs a ``package`` in upstream.lock.
    :ivar patches: names of the compared patches: the stack of the old ref.
    :ivar stopping: names of those that don't apply to the new ref.
    """

    alarms: tuple[Alarm, ...]
    unseen: tuple[NotCompared, ...]
    far: tuple[Reached, ...]
    siblings: bool
    patches: tuple[str, ...]
    stopping: tuple[str, ...]


def drift(project: Project, upstream: str, old_ref: str, new_ref: str, *, set_name: str = "") -> Drift:
    """Return the alarms for moving ``upstream`` from ``old_ref`` to ``new_ref``.

    The alarms are about the stack of ``upstream`` and about calls from the other upstreams of the set.

    :raises UserError: for a ref that isn't pinned, or if the extra ``drift`` is not installed.
    """
    need("drift", "patchq drift")
    with project.locked("drift"):
        set_name = project.choose_set(set_name)
        pins = [_pin(project, upstream, ref) for ref in (old_ref, new_ref)]
        fetcher = Fetcher(project.layout, project.lock, say=project.say, progress=project.progress)
        bases = [b.commit for b in fetcher.fetch(pins)]
        (carried,) = carried_stacks(project, [load_stack(project.layout, pins[0])], set_name)
    project.say(f"comparing {upstream} {old_ref} and {new_ref}; for many changes, this takes minutes")
    # What follows only reads commits that exist now, so other commands may run.
    store = project.store
    alarms = []
    config = project.lock.upstreams[upstream].build
    if config:
        with tempfile.TemporaryDirectory(prefix="patchq-") as text:
            trees = []
            for number, base in enumerate(bases):
                trees.append(Path(text) / f"api{number}")
                _copy_package(store, base, trees[-1], config.package)
            old, new = (load_api(config.package, tree) for tree in trees)
        for_new = project.lock.sets[set_name].get(upstream) == new_ref
        with project.locked("drift"):
            alarms += _call_alarms(project, set_name, upstream, old, new, for_new=for_new)
    changes = store.changes_of([info.commit for _, info in carried.commits])
    patches = [(name, made) for (name, _), made in zip(carried.commits, changes, strict=True)]
    facts = PatchFacts(upstream, patches, store.list_tree(carried.base), store.read_blobs)
    found = facts.compare(
        store.list_tree(bases[1]),
        moved=lambda path: store.moved(carried.base, bases[1], path),
        ignored=config.ignore if config else (),
        far=True,
        count=project.count,
    )
    return Drift(
        alarms=(*alarms, *found.alarms),
        unseen=found.unseen,
        far=found.far,
        siblings=config is not None,
        patches=tuple(name for name, _ in patches),
        stopping=_stopping(store, carried, bases[1]),
    )


def _stopping(store: Git, carried: Carried, base: CommitId) -> tuple[str, ...]:
    """Return the names of the patches that don't apply to another base."""
    (column,) = carry(store, read_patches(store, carried.commits), [base], carried.base)
    return tuple(landing.patch for landing in column.landings.values() if landing.outcome in STOPS)


def _pin(project: Project, upstream: str, ref: str) -> Pin:
    if upstream not in project.lock.upstreams:
        raise UserError(
            f"no upstream {upstream!r} in upstream.lock", hint=f"it has {', '.join(project.lock.upstreams)}"
        )
    pins = project.lock.upstreams[upstream].pins
    if ref not in pins:
        hint = f"run `patchq pin {upstream} --ref {sh(ref)} …`; pinned refs: {', '.join(pins)}"
        for pin in pins:
            if pin.removeprefix("v") == ref.removeprefix("v"):
                hint = f"did you mean {pin}?"
        raise UserError(f"{upstream} {ref} is not pinned", hint=hint)
    return pins[ref]


def _copy_package(store: Git, commit: CommitId, target: Path, package: str) -> None:
    copy_tree(store, commit, target)
    if not (target / package).is_dir():
        raise UserError(f"{commit[:12]} has no package {package}", hint="correct `package` in upstream.lock")


def _call_alarms(project: Project, set_name: str, upstream: str, old: Api, new: Api, *, for_new: bool) -> list[Alarm]:
    changed, gone = changes(old, new)
    if not changed and not gone:
        return []
    stacks = [s for s in project.stacks(set_name) if s.pin.upstream != upstream]
    states = {s.pin.upstream: load_state(project.layout, s.pin.upstream) for s in stacks}
    found: list[Alarm] = []
    for stack, base in zip(stacks, bases_of(project, stacks, states, False), strict=True):
        name = stack.pin.upstream
        after = plan(project, stack, base, states[name], set_name).after
        before = _scan(project.store, name, base.commit, old, changed, gone)
        if not after.patches:
            found += before
            continue
        written = {a.call for a in before}
        # Calls that the stack adds are written for the ref that the set pins. If they fit this ref, they are correct.
        now = []
        for a in _scan(project.store, name, after.tip, old, changed, gone):
            if not (for_new and a.fits and a.call not in written):
                now.append(a)
        places, known = {a.place() for a in now}, {a.place() for a in before}
        for a in before:
            if a.place() in places:
                found.append(a)
            else:
                found.append(replace(a, state="fixed"))
        for a in now:
            if a.place() not in known:
                found.append(replace(a, patch=_patch_of(project.store, after.patches, a)))
    return found


def _patch_of(store: Git, patches: Sequence[Remembered], alarm: Alarm) -> str:
    """Return the name of the last patch that touches the alarm's file; empty if no patch does."""
    for remembered in reversed(patches):
        applied = remembered.applied
        out = store.run("diff-tree", "-r", "-z", "--name-only", "--no-commit-id", applied.commit)
        if alarm.path.encode() in out.split(b"\0"):
            return applied.name
    return ""


def _scan(
    store: Git, upstream: str, commit: CommitId, old: Api, changed: Sequence[SignatureChange], gone: frozenset[str]
) -> list[Alarm]:
    """Return the alarms of all Python files that import the upstream's package, in the tree of ``commit``."""
    entries = store.list_tree(commit)
    patterns = ("-e", f"import {old.package}", "-e", f"from {old.package}")
    command = ("grep", "-l", "-z", "-F", *patterns, commit, "--", "*.py")
    names = store.run(*command, ok_codes=(0, 1))
    paths = []
    for p in names.split(b"\0"):
        if p:
            paths.append(p.split(b":", 1)[1])
    blobs = store.read_blobs(entries[p].blob for p in paths)
    found: list[Alarm] = []
    for path in paths:
        found += scan_source(blobs[entries[path].blob], show_path(path), upstream, old, changed, gone)
    return found
