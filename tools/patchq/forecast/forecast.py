"""``forecast``: result of carrying a stack onto other refs, patch by patch, in memory.

No worktree, branch or stack is changed. Missing bases are fetched from the git host or package index that
``project.refs.pin_at`` finds, and stay in the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain

from patchq.drift.shared import Shared, Stacked, shared_beside
from patchq.environment.machine import this_machine
from patchq.errors import UserError
from patchq.forecast.meaning import RefDrift, drift_of_plans
from patchq.forecast.plan import Absence, CarryPlan, Planner, SourceChoice
from patchq.forecast.summary import ForecastCell, RefTally
from patchq.forecast.summary import summary as count
from patchq.formats.header import parse_trailers
from patchq.formats.ledger import Drop, line_map
from patchq.formats.lock import Pin
from patchq.formats.outcomes import Grade, Outcome
from patchq.git.repository import scratch
from patchq.merge import rerere
from patchq.merge.patches import STOPS, Patch, read_patches
from patchq.merge.target import Column
from patchq.merge.threeway import carry, carry_each, look_at
from patchq.names import BlobId, CommitId
from patchq.project.project import Project
from patchq.project.refs import newest, pin_at, releases_of, version_of
from patchq.records import dataclass
from patchq.sources.index import same_pages
from patchq.sources.pins import Fetcher, Hosts
from patchq.stacks.siblings import SiblingDifference, differences
from patchq.upstream.commits import Landed
from patchq.upstream.history import History, at_hand
from patchq.upstream.match import Asked, matches, once_more, verdict
from patchq.upstream.releases import Releases, on_the_way
from patchq.upstream.status import UpstreamCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class From:
    """Source of the patches that are carried to a ref.

    :ivar from_ref: ref of the source stack.
    :ivar why: reason for the choice of the source stack.
    :ivar absent: patches that are not carried, each with its reason.
    :ivar dropped: decisions in the ledger to drop patches.
    """

    ref: str
    from_ref: str
    why: SourceChoice
    absent: Mapping[str, Absence]
    dropped: tuple[Drop, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Forecast of one upstream's stack: a cell for each patch and ref.

    :ivar refs: refs in the order of the request.
    :ivar cells: cells in the order of the series.
    :ivar from_ref: ref of the first source stack. ``sources`` contains the source stack for each ref.
    :ivar rows: all patches, from the set's stack and from the other source stacks.
    """

    upstream: str
    from_ref: str
    refs: tuple[str, ...]
    cells: tuple[ForecastCell, ...]
    sources: tuple[From, ...] = ()
    rows: tuple[str, ...] = ()
    #: For each ref, differences between its requirements and the set's other pins.
    siblings: tuple[SiblingDifference, ...] = ()
    #: Definitions that more than one patch changes, if requested.
    shared: tuple[Shared, ...] = ()
    #: Drift in patches that apply, if requested.
    drift: tuple[RefDrift, ...] = ()
    #: True if upstream's history is available locally.
    history: bool = False

    def of(self, ref: str) -> list[ForecastCell]:
        """Return the cells of a ref."""
        return [c for c in self.cells if c.ref == ref]

    def source(self, ref: str) -> From:
        """Return the source of a ref's patches."""
        return next(s for s in self.sources if s.ref == ref)

    def summary(self, ref: str) -> RefTally:
        """Return the summary of a ref's outcomes."""
        return count(ref, self.of(ref), [f"{self.upstream}/{drop.patch}" for drop in self.source(ref).dropped])

    def stops(self, ref: str) -> int:
        """Return the number of patches that need review at a ref."""
        return len(self.summary(ref).needs)

    @property
    def cheapest(self) -> str:
        """Return the ref with the fewest stops. If several refs have the fewest, return the last one."""
        return min(reversed(self.refs), key=self.stops)

    def breaks(self) -> dict[str, str]:
        """Return the first ref at which each patch needs review. Patches that never need review are left out."""
        found: dict[str, str] = {}
        for ref in self.refs:
            for name in self.summary(ref).needs:
                found.setdefault(name, ref)
        return found


def forecast(
    project: Project,
    upstream: str,
    refs: Sequence[str],
    *,
    releases: str = "",
    ahead: bool = False,
    set_name: str = "",
    from_ref: str = "",
    shared: bool = False,
) -> Forecast:
    """Carry the stack of the nearest pinned ref onto each ref.

    A patch that conflicts is left out, and later patches are carried without it.

    :param refs: pinned refs, refs of the git host if the host is reachable, or releases of the pin's archive
        (``v0.14.0`` or ``0.14.0``).
    :param releases: version specifier such as ``>=0.14``. All matching releases with a source archive are added.
    :param ahead: add upstream's default branch, or its newest release.
    :param from_ref: pinned ref of the stack to carry. If it is given, the refs' own stacks are ignored.
    :param shared: also find definitions that two patches of the set change, and drift in patches that apply.
    :raises UserError: if there is no ref, if a ref is not found, or if ``from_ref`` has no stack.
    """
    set_name = project.choose_set(set_name)
    with project.locked("forecast"), at_hand(project, upstream) as history:
        planner = Planner(project, upstream, set_name, history, asked=from_ref, alone=bool(from_ref))
        pin = planner.own.pin
        last = None
        if ahead:
            last = newest(project, pin)[0]
        wanted = [*refs, *(releases_of(pin, releases) if releases else ()), *([last.ref] if last else ())]
        wanted = list(dict.fromkeys(wanted))
        if not wanted:
            raise UserError(
                "no target ref is given",
                hint="name a tag or branch with `--onto`, or use `--newest` or `--releases '>=1.2'`",
            )
        known, hosts = {last.ref: last} if last else {}, Hosts()
        with same_pages(), ThreadPoolExecutor(8) as pool:  # lookups wait for the network
            pins = list(pool.map(lambda ref: known.get(ref) or pin_at(project, pin, ref, hosts), wanted))
        fetcher = Fetcher(project.layout, project.lock, say=project.say, progress=project.progress)
        bases = [base.commit for base in fetcher.fetch(pins)]
        apart = []
        plans = []
        for found_pin, base in zip(pins, bases, strict=True):
            apart += _apart(project, set_name, found_pin, base)
            plans.append(planner.plan(found_pin, newest=bool(last and found_pin.ref == last.ref)))
        cells: list[ForecastCell] = []
        stacked: list[Stacked] = []
        for numbers in _alike(plans):
            alike = [plans[n] for n in numbers]
            found, landed = _carried(project, upstream, history, alike, [bases[n] for n in numbers], shared)
            cells += found
            stacked += landed
        stacked.sort(key=lambda s: wanted.index(s.ref))
        definitions = shared_beside(project, stacked, set_name)
        applied = {}
        for s in stacked:
            applied[s.ref] = [name for name, _ in s.patches]
        drifted = []
        if shared:
            drifted = drift_of_plans(project, history, plans, bases, applied)
    rows = tuple(f"{upstream}/{name}" for name in _rows(planner.own.names, plans))
    cells.sort(key=lambda cell: (rows.index(cell.patch), wanted.index(cell.ref)))
    sources = tuple(
        From(ref=p.onto.ref, from_ref=p.from_ref, why=p.why, absent=p.absent, dropped=p.dropped) for p in plans
    )
    return Forecast(
        upstream=upstream,
        from_ref=sources[0].from_ref,
        refs=tuple(wanted),
        cells=tuple(cells),
        sources=sources,
        rows=rows,
        siblings=tuple(apart),
        shared=tuple(definitions),
        drift=tuple(drifted),
        history=history is not None,
    )


def _stacked(plan: CarryPlan, column: Column) -> Stacked:
    """Return the patches that apply at a ref, with the definitions that they change."""
    contents = column.contents  # the attribute is replaced when a patch is searched

    def read(blobs: Sequence[BlobId]) -> Mapping[BlobId, bytes]:
        lacking = [blob for blob in blobs if blob not in contents]
        return contents | column.git.read_blobs(lacking)

    landed = [(patch, column.landings[number]) for number, patch in enumerate(column.patches)]
    there = []
    for p, landing in landed:
        if landing.outcome not in STOPS:
            there.append((p.name, p.commit.message, landing.changes))
    return Stacked(plan.onto.upstream, plan.onto.ref, there, read)


def _apart(project: Project, set_name: str, pin: Pin, base: CommitId) -> list[SiblingDifference]:
    """Return the differences between a ref's requirements and the set's other pins.

    Differences that the lock accepts are left out.
    """
    found: list[SiblingDifference] = []
    for d in differences(project, set_name, {pin.upstream: base}, instead=pin):
        if not d.meant:
            found.append(d)
    return found


def _alike(plans: Sequence[CarryPlan]) -> list[list[int]]:
    """Group the plans that carry the same commits. Return the indices of each group."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, plan in enumerate(plans):
        key = (plan.from_ref, *plan.known, "", *(plan.commits[name].commit for name in plan.order))
        groups.setdefault(key, []).append(number)
    return list(groups.values())


def _rows(own: Sequence[str], plans: Sequence[CarryPlan]) -> Iterable[str]:
    """Return the patches of the set's stack, followed by patches that only other stacks contain."""
    names = dict.fromkeys(own)
    for plan in plans:
        names.update(dict.fromkeys((*plan.order, *plan.absent)))
    return names


def _carried(
    project: Project,
    upstream: str,
    history: History | None,
    plans: Sequence[CarryPlan],
    bases: Sequence[CommitId],
    shared: bool,
) -> tuple[list[ForecastCell], list[Stacked]]:
    """Return the cells of several refs. All plans carry the same patches.

    :param shared: also return, for each ref, the patches that apply there.
    """
    plan = plans[0]
    patches = read_patches(project.store, [(name, plan.commits[name]) for name in plan.order])
    if not patches:
        return [], []
    recorded = rerere.Recorded(project.store, project.layout, upstream)
    columns = (carry if shared else carry_each)(project.store, patches, bases, plan.base, recorded)
    pasts = []
    for p in plans:
        if history:
            pasts.append(history.past(p.source.pin, p.onto, patches))
        else:
            pasts.append(None)
    for n, past in enumerate(pasts):
        if taken := once_more(patches, columns[n], past):
            (columns[n],) = carry(project.store, patches, [bases[n]], plan.base, recorded, taken)
    stacked = []
    if shared:
        stacked = list(map(_stacked, plans, columns))
    (tree,) = project.store.tree_of([plan.base])
    first = Column(project.store, tree, patches)
    versions = [(p.onto.ref, column) for p, column in zip(plans, columns, strict=True)]
    found = []
    with _ways(project, plans, bases, patches, first, versions, pasts) as ways:
        for number in range(len(patches)):
            found += _cells(upstream, plan, number, first, ways)
    return found, stacked


@dataclass(frozen=True, slots=True)
class _Way:
    """Versions of upstream between the source stack's ref and a new ref.

    :ivar versions: releases between the two refs, oldest first, followed by the new ref.
    :ivar asked: evidence about the patches at the new ref.
    """

    versions: Sequence[tuple[str, Column]]
    asked: Asked


@contextmanager
def _ways(
    project: Project,
    plans: Sequence[CarryPlan],
    bases: Sequence[CommitId],
    patches: Sequence[Patch],
    first: Column,
    versions: Sequence[tuple[str, Column]],
    pasts: Sequence[Landed | None],
) -> Iterator[list[_Way]]:
    """Yield, for each ref, the versions of upstream between the source stack's ref and this ref.

    The releases in between are only read if a patch stops.
    """
    outcomes: set[str] = set()
    for _, column in versions:
        outcomes.update(landing.outcome for landing in column.landings.values())
    if outcomes.isdisjoint(STOPS):
        yield [_Way([version], Asked(past, None)) for version, past in zip(versions, pasts, strict=True)]
        return
    known = {p.onto.ref: commit for p, commit in zip(plans, bases, strict=True)}
    between = [on_the_way(project, p.source.pin, p.onto, known) for p in plans]
    columns = dict(zip(bases, (column for _, column in versions), strict=True))
    commits = dict.fromkeys(release.commit for release in chain.from_iterable(between))
    more = [commit for commit in commits if commit not in columns]
    if more:
        found_columns = look_at(project.store, patches, more, plans[0].base, read=False)
        columns.update(zip(more, found_columns, strict=True))
    with scratch(project.store) as git:
        found = []
        for n, (way, past) in enumerate(zip(between, pasts, strict=True)):
            releases = [(r.ref, columns[r.commit]) for r in way]
            # Refs that are not releases have no version to sort by: keep the order of the request.
            before = []
            for v in versions[:n]:
                if version_of(v[0]) is None:
                    before.append(v)
            ask = None
            if not past:
                ask = Releases(git, first, [*releases, versions[n]], patches)
            found.append(_Way([*releases, *before, versions[n]], Asked(past, ask)))
        yield found


def _cells(upstream: str, plan: CarryPlan, number: int, base: Column, ways: Sequence[_Way]) -> list[ForecastCell]:
    """Return the cells of a patch. If the patch stops at a ref, search upstream for the patch's change."""
    patch = base.patches[number]
    replays = any(way.versions[-1][1].landings[number].outcome == Outcome.REPLAYED for way in ways)
    unproved = ""
    if replays:
        unproved = _unproved(patch)
    found = []
    for way in ways:
        ref, column = way.versions[-1]
        landing = column.landings[number]
        outcome, grade, evidence, message = landing.outcome, Grade.NONE, "", landing.message
        commits: tuple[UpstreamCommit, ...] = ()
        if outcome in STOPS:
            last = len(way.versions) - 1
            seen = way.asked.about(patch, matches(patch, base, way.versions, [last])[last])
            outcome, grade, evidence = verdict(landing, seen, ref)
            commits = seen.commits
        elif outcome == Outcome.REPLAYED and unproved:
            message = f"by a recorded resolution that no proof confirms: {unproved}"
        checked = ""
        if landing.offsets:
            checked = line_map(plan.from_ref, ref)
        found.append(
            ForecastCell(
                patch=f"{upstream}/{patch.name}",
                ref=ref,
                outcome=outcome,
                files=landing.files,
                grade=grade,
                evidence=evidence,
                offsets=landing.offsets,
                checked=checked,
                message=message,
                known=patch.name in plan.known,
                unproved=outcome == Outcome.REPLAYED and bool(unproved),
                commits=commits,
            )
        )
    return found


def _unproved(patch: Patch) -> str:
    """Return the reason why a patch's proof can't run on this machine; empty if the proof can run."""
    trailers = parse_trailers(patch.commit.message)
    if not any(key == "Proof" for key, _ in trailers):
        return "the patch names no proof"
    needs = []
    for key, value in trailers:
        if key == "Needs":
            needs += value.replace(",", " ").split()
    lacking = []
    if needs:
        for need in needs:
            if need not in this_machine().can:
                lacking.append(need)
    if lacking:
        return f"it needs {', '.join(lacking)}"
    return ""
