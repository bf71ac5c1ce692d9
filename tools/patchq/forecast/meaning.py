"""Drift in patches that apply, with the upstream commits that caused the drift."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from patchq.drift.alarms import Alarm, Kind, NotCompared, Reached
from patchq.drift.drift import drift
from patchq.drift.inside import Inside, PatchFacts, state_of
from patchq.errors import PatchqError
from patchq.forecast.plan import CarryPlan
from patchq.formats.lock import Pin
from patchq.git.objects import CommitInfo
from patchq.git.repository import Git
from patchq.names import BlobId, CommitId
from patchq.project.project import Project
from patchq.records import dataclass
from patchq.upstream.history import History, at_hand

#: Maximum number of a file's commits to read while searching for the commit that made a change.
_MOST_COMMITS = 500
#: Kinds of alarms that name a new definition of upstream.
_NAMED_BY_NEW = {Kind.CALLER.value, Kind.DUPLICATE.value, Kind.OVERRIDE.value}
#: Kinds of alarms that don't depend on a definition's body.
_WITHOUT_BODY = {
    kind.value for kind in (Kind.SIGNATURE, Kind.DEFAULT, Kind.TRAITS, Kind.GUARD, Kind.BASES, Kind.OVERRIDDEN)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DatedDrift:
    """Alarms, each with the upstream commit that caused it.

    :ivar history: True if upstream's history is available locally. Without the history, alarms name no commits.
    """

    alarms: tuple[Alarm, ...]
    unseen: tuple[NotCompared, ...]
    far: tuple[Reached, ...]
    siblings: bool
    patches: tuple[str, ...]
    stopping: tuple[str, ...]
    history: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RefDrift:
    """Alarms about the patches that apply at a ref."""

    ref: str
    alarms: tuple[Alarm, ...]
    unseen: tuple[NotCompared, ...]


def drift_with_commits(project: Project, upstream: str, old: str, new: str, *, set_name: str = "") -> DatedDrift:
    """Compare two pinned refs, and find the commits that caused the alarms; see :func:`drift`."""
    found = drift(project, upstream, old, new, set_name=set_name)
    pins = project.lock.upstreams[upstream].pins
    alarms = found.alarms
    with at_hand(project, upstream) as history:
        if history:
            alarms = tuple(dated(history, pins[old], pins[new], alarms))
        known = bool(history and history.commit(pins[old]) and history.commit(pins[new]))
    return DatedDrift(
        alarms=alarms,
        unseen=found.unseen,
        far=found.far,
        siblings=found.siblings,
        patches=found.patches,
        stopping=found.stopping,
        history=known,
    )


def drift_of_plans(
    project: Project,
    history: History | None,
    plans: Sequence[CarryPlan],
    bases: Sequence[CommitId],
    applied: Mapping[str, Iterable[str]],
) -> list[RefDrift]:
    """Return the alarms at each ref, for patches that apply at the ref and that the ref's own stack doesn't contain.

    :param applied: names of the patches that apply, by ref.
    """
    store = project.store
    facts: dict[tuple[str, ...], PatchFacts] = {}
    found = []
    for plan, base in zip(plans, bases, strict=True):
        names = [n for n in plan.order if n not in plan.known]
        if not names:
            continue
        key = (plan.base, *names)
        if key not in facts:
            changes = store.changes_of([plan.commits[n].commit for n in names])
            patches = list(zip(names, changes, strict=True))
            facts[key] = PatchFacts(plan.onto.upstream, patches, store.list_tree(plan.base), store.read_blobs)
        inside = _compare(project, facts[key], plan, base)
        wanted = set(applied.get(plan.onto.ref, ()))
        alarms = [a for a in inside.alarms if a.patch in wanted]
        if history:
            alarms = list(dated(history, plan.source.pin, plan.onto, alarms))
        unseen = tuple(u for u in inside.unseen if u.patch in wanted)
        found.append(RefDrift(ref=plan.onto.ref, alarms=tuple(alarms), unseen=unseen))
    return found


def _compare(project: Project, facts: PatchFacts, plan: CarryPlan, base: CommitId) -> Inside:
    build = project.lock.upstreams[plan.onto.upstream].build
    return facts.compare(
        project.store.list_tree(base),
        moved=lambda path: project.store.moved(plan.base, base, path),
        ignored=build.ignore if build else (),
    )


def dated(history: History, old: Pin, new: Pin, alarms: Iterable[Alarm]) -> Iterable[Alarm]:
    """Yield each alarm with the commit that caused it: the first commit between two pins that made the change.

    If no such commit is found, yield the alarm unchanged.
    """
    history.bring(new)
    base, target = history.commit(old), history.commit(new)
    for alarm in alarms:
        commit = None
        if base and target and not alarm.message:
            with suppress(PatchqError):
                commit = _first_change(history, base, target, alarm)
        if commit is None:
            yield alarm
        else:
            yield replace(alarm, commit=commit.commit, subject=commit.message.split("\n", 1)[0])


def _first_change(history: History, base: CommitId, target: CommitId, alarm: Alarm) -> CommitInfo | None:
    path = _path_of(alarm).encode()
    commits = history.git.log(f"{base}..{target}", paths=[path])
    if not commits or len(commits) > _MOST_COMMITS:
        return None
    trees = [base, *(info.commit for info in commits)]
    entries = [_entry(history.git, commit, path) for commit in trees]
    history.need(blob for blob in entries if blob)
    contents = history.git.read_blobs(blob for blob in entries if blob)
    if alarm.kind in _NAMED_BY_NEW:
        name = alarm.now.partition(", ")[0]
    else:
        name = alarm.callee
    body = alarm.kind not in _WITHOUT_BODY
    states = []
    for blob in entries:
        content = b""
        if blob:
            content = contents[blob]
        named = ""
        if name:
            named = state_of(path, content, name, body=body)
        states.append(named or state_of(path, content, alarm.function, body=body))
    for info, state in zip(commits, states[1:], strict=True):
        if state != states[0]:
            return info
    return None


def _entry(git: Git, commit: CommitId, path: bytes) -> BlobId | None:
    entry = git.list_tree(commit, [path]).get(path)
    if entry:
        return entry.blob
    return None


def _path_of(alarm: Alarm) -> str:
    """Return the file that contains the changed definition."""
    for place in (alarm.at, alarm.was):
        path, colon, line = place.partition(" ")[0].rpartition(":")
        if colon and line.isdigit():
            return path
    return alarm.path
