"""History of a set's stacks from one set to another, release by release.

The only sources are the ledgers (stops, resolutions and patches that upstream has) and the series
(patches of each release). The report lists the differences between the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from patchq.formats.ledger import CARRIED, Attempt, Ledger, hot_files
from patchq.formats.render import render
from patchq.project.project import Project
from patchq.stacks.views import read_ledgers

#: Outcomes of patches that applied without a stop. Other carried patches stopped at least once.
ALONE = ("clean", "offset", "merged", "by rule")
#: Text for a patch that upstream has.
TAKEN = "upstream has it"
_TAKEN, _GONE = "absorbed", ("obsolete", "withdrawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryStop:
    """Patch that stopped between two releases.

    :ivar hunks: number of hunks that conflicted. A deleted file counts as one. 0 if not recorded.
    :ivar files: paths of the files that conflicted.
    :ivar last: last line about the patch in the ledger.
    """

    patch: str
    hunks: int
    files: tuple[str, ...]
    last: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Straight:
    """Direct rebase from an earlier release, without the intermediate releases.

    :ivar hunks: conflicting hunks of the direct rebase.
    :ivar along: conflicting hunks of the rebases through the intermediate releases.
    """

    before: str
    tried: int
    stopped: int
    hunks: int
    along: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryStep:
    """Rebase from one release to the next.

    :ivar came: number of patches before the rebase.
    :ivar alone: patches that applied without a stop, by outcome.
    :ivar stops: patches that stopped, were resolved and are carried.
    :ivar left: patches that stopped and were neither carried nor dropped.
    :ivar taken: patches that upstream has.
    :ivar gone: patches that are no longer needed or withdrawn.
    :ivar written: patches of the release's stack that the ledger doesn't list as carried.
    :ivar missing: carried patches that the release's stack lacks.
    """

    before: str
    onto: str
    came: int
    alone: tuple[tuple[str, tuple[str, ...]], ...]
    stops: tuple[StoryStop, ...]
    left: tuple[StoryStop, ...]
    taken: tuple[Attempt, ...]
    gone: tuple[Attempt, ...]
    written: tuple[str, ...]
    missing: tuple[str, ...]
    stands: int
    straight: tuple[Straight, ...] = ()

    @property
    def by_git(self) -> int:
        """Return the number of patches that applied without a stop."""
        return sum(len(names) for _, names in self.alone)

    @property
    def hunks(self) -> int:
        """Return the number of hunks that needed review, including those of left-out patches."""
        return sum(stop.hunks for stop in (*self.stops, *self.left))

    @property
    def lines(self) -> int:
        """Return the number of patch lines that resolutions changed."""
        return sum(stop.last.lines for stop in self.stops)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryWay:
    """Rebases of an upstream's stack from one release to another.

    :ivar refs: refs from the first release to the last.
    :ivar set_out: patches of the first release, including those that left its stack later.
    :ivar lives: outcome of each patch on each later release; empty if the release lacks the patch.
    :ivar hot: files that conflicted most.
    :ivar output: the ledger has lines about these releases.
    """

    upstream: str
    refs: tuple[str, ...]
    set_out: tuple[str, ...]
    last: tuple[str, ...]
    steps: tuple[StoryStep, ...]
    lives: tuple[tuple[str, tuple[str, ...]], ...]
    hot: tuple[tuple[str, int, int], ...]
    output: bool


def tell(project: Project, before: str, after: str, names: Sequence[str] = ()) -> str:
    """Render the rebases from one set to another as Markdown.

    :param names: upstreams to include (default: all).
    :raises UserError: if a set or an upstream doesn't exist.
    """
    found = list(ways(project, before, after, names))
    return render("story/story.md.j2", before=before, after=after, ways=found, names=names, sums=_sums(found))


def ways(project: Project, before: str, after: str, names: Sequence[str] = ()) -> Iterable[StoryWay]:
    """Yield the rebases of each upstream that two sets have at different refs."""
    ledgers = read_ledgers(project, names)
    started = {stack.pin.upstream: stack for stack in project.stacks(before)}
    for stack in project.stacks(after, names):
        upstream = stack.pin.upstream
        first = started.get(upstream)
        if first is None or first.pin.ref == stack.pin.ref:
            continue
        ledger = ledgers.get(upstream, Ledger())
        series = {}
        for pin in project.lock.upstreams[upstream].pins.values():
            series[pin.ref] = _series(project, upstream, pin.ref)
        yield way(upstream, ledger, series, first.pin.ref, stack.pin.ref)


def way(upstream: str, ledger: Ledger, series: dict[str, tuple[str, ...]], start: str, end: str) -> StoryWay:
    """Return an upstream's rebases from its ledger and its stacks.

    :param series: names of each ref's patches, in order.
    """
    refs = route(ledger.attempts, start, end)
    steps = tuple(_step(ledger, series, refs, n) for n in range(1, len(refs)))
    steps = tuple(replace(s, straight=_beside(ledger, steps[: n + 1])) for n, s in enumerate(steps))
    words = [dict(_words(step)) for step in steps]
    lived = dict.fromkeys((*series[start], *(patch for message in words for patch in message)))
    lives = tuple((patch, tuple(message.get(patch, "") for message in words)) for patch in lived)
    on_it = tuple(a for a in ledger.attempts if a.onto in refs and a.from_ref in refs)
    hot = tuple(hot_files(Ledger(on_it))[:5])
    set_out = dict.fromkeys((*series[start], *(a.patch for a in on_it if a.from_ref == start != a.onto)))
    return StoryWay(
        upstream=upstream,
        refs=refs,
        set_out=tuple(set_out),
        last=series[end],
        steps=steps,
        lives=lives,
        hot=hot,
        output=bool(on_it),
    )


def route(attempts: Iterable[Attempt], start: str, end: str) -> tuple[str, ...]:
    """Return the longest chain of rebases from ``start`` to ``end``; only the two refs if none."""
    onward: dict[str, list[str]] = {}
    for attempt in attempts:
        if attempt.outcome in CARRIED and attempt.onto != attempt.from_ref:
            after = onward.setdefault(attempt.from_ref, [])
            if attempt.onto not in after:
                after.append(attempt.onto)

    def longest(ref: str, been: tuple[str, ...]) -> tuple[str, ...]:
        if ref == end:
            return (*been, ref)
        return max((longest(n, (*been, ref)) for n in onward.get(ref, ()) if n not in been), key=len, default=())

    return longest(start, ()) or (start, end)


def _series(project: Project, upstream: str, ref: str) -> tuple[str, ...]:
    from patchq.project.stack import load_stack

    return load_stack(project.layout, project.lock.upstreams[upstream].pins[ref]).names


def _step(ledger: Ledger, series: dict[str, tuple[str, ...]], refs: Sequence[str], number: int) -> StoryStep:
    before, onto = refs[number - 1], refs[number]
    earlier = refs[:number]
    known = (*CARRIED, _TAKEN, *_GONE)
    # A stop in a direct rebase from an earlier release was only a test and decides nothing.
    mine = []
    for a in ledger.attempts:
        if a.onto == onto and (a.from_ref in (before, onto) or (a.from_ref in earlier and a.outcome in known)):
            mine.append(a)
    last = {patch: a for (patch, _), a in Ledger(tuple(mine)).latest().items()}
    stack = series[onto]
    carried = {p for p, a in last.items() if a.outcome in CARRIED}
    alone = Counter(a.outcome for a in last.values())
    by_git = tuple((o, tuple(p for p, a in last.items() if a.outcome == o)) for o in ALONE if alone[o])
    stops = [_stop(mine, a) for a in last.values()]
    unknown = not mine and set(series[before]) & set(stack)
    return StoryStep(
        before=before,
        onto=onto,
        came=len(series[before]),
        alone=by_git,
        stops=tuple(s for s in stops if s.last.outcome in CARRIED and s.last.outcome not in ALONE),
        left=tuple(s for s in stops if s.last.outcome == "conflict"),
        taken=tuple(a for a in last.values() if a.outcome == _TAKEN),
        gone=tuple(a for a in last.values() if a.outcome in _GONE),
        written=tuple(p for p in stack if p not in carried and p not in (unknown or ())),
        missing=tuple(sorted(carried - set(stack))),
        stands=len(stack),
    )


def _stop(attempts: Sequence[Attempt], last: Attempt) -> StoryStop:
    """Return a stop with the files of its first attempt, because later attempts may lack them."""
    first = next((a for a in attempts if a.patch == last.patch and a.files), last)
    return StoryStop(patch=last.patch, hunks=_hunks(first), files=tuple(f.path for f in first.files), last=last)


def _beside(ledger: Ledger, steps: Sequence[StoryStep]) -> tuple[Straight, ...]:
    """Return the direct rebases onto the last step's release from earlier releases.

    Releases from which no patch was carried are left out.
    """
    found = []
    for number, step in enumerate(steps[:-1]):
        mine = {}
        for a in ledger.attempts:
            if (a.from_ref, a.onto) == (step.before, steps[-1].onto):
                mine[a.patch] = a
        if any(a.outcome in CARRIED for a in mine.values()):
            stopped = [a for a in mine.values() if a.outcome not in (*ALONE, _TAKEN)]
            hunks, along = sum(map(_hunks, stopped)), sum(s.hunks for s in steps[number:])
            found.append(Straight(before=step.before, tried=len(mine), stopped=len(stopped), hunks=hunks, along=along))
    return tuple(found)


def _hunks(attempt: Attempt) -> int:
    return sum(max(1, f.hunks) for f in attempt.files)


def _words(step: StoryStep) -> Iterable[tuple[str, str]]:
    """Yield the outcome of each patch on a release."""
    for outcome, patches in step.alone:
        for p in patches:
            yield (p, outcome)
    for stop in step.stops:
        yield stop.patch, stop.last.outcome
    for s in step.left:
        yield (s.patch, "left out")
    for a in step.taken:
        yield (a.patch, TAKEN)
    for a in step.gone:
        yield (a.patch, a.outcome)
    for p in step.written:
        yield (p, "written for it")


def _sums(found: Sequence[StoryWay]) -> dict[str, int]:
    steps = [step for way in found for step in way.steps]
    ends = [next((w for w in reversed(words) if w), "") for way in found for _, words in way.lives]
    return {
        "came": sum(len(way.set_out) for way in found),
        "stands": sum(len(way.last) for way in found),
        "written": sum(len(step.written) for step in steps),
        "alone": sum(step.by_git for step in steps),
        "stops": sum(len(step.stops) + len(step.left) for step in steps),
        "hunks": sum(step.hunks for step in steps),
        "lines": sum(step.lines for step in steps),
        "taken": ends.count(TAKEN),
        "gone": sum(end in _GONE for end in ends),
    }
