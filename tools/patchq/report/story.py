"""History of the rebases that lead from one set to another set, release by release.

The data comes from the ledgers (stops, resolutions, and patches that upstream has) and from the series (patches of each
release). If ledgers and series contradict each other, the report lists the differences.
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

    :ivar hunks: number of hunks that conflicted; 0 if the number isn't recorded. A deleted file counts as one hunk.
    :ivar files: paths of the files that conflicted.
    :ivar last: last attempt in the ledger to carry the patch.
    """

    patch: str
    hunks: int
    files: tuple[str, ...]
    last: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Straight:
    """Direct rebase from an earlier release, without the intermediate releases.

    :ivar hunks: number of conflicting hunks in the direct rebase.
    :ivar along: number of conflicting hunks in the rebases through the intermediate releases.
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
    :ivar gone: patches that are no longer needed, or that were withdrawn.
    :ivar written: patches of the release's stack that the ledger doesn't list as carried.
    :ivar missing: patches that the ledger lists as carried, but that the release's stack doesn't contain.
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
        count = 0
        for _, names in self.alone:
            count += len(names)
        return count

    @property
    def hunks(self) -> int:
        """Return the number of hunks that needed review, including hunks of patches that were left out."""
        return sum(stop.hunks for stop in (*self.stops, *self.left))

    @property
    def lines(self) -> int:
        """Return the number of patch lines that resolutions changed."""
        return sum(stop.last.lines for stop in self.stops)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryWay:
    """All rebases of an upstream's stack on the way from one release to another.

    :ivar refs: refs from the first release to the last.
    :ivar set_out: patches of the first release, including those that were removed from its stack later.
    :ivar lives: outcomes of each patch, one for each release after the first; empty if the release has no outcome for
        the patch.
    :ivar hot: files that conflicted most.
    :ivar output: True if the ledger contains lines about these releases.
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
    """Yield the rebases of each upstream whose ref is not the same in both sets."""
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
    steps: list[StoryStep] = []
    words: list[dict[str, str]] = []
    lived = dict.fromkeys(series[start])
    for number in range(1, len(refs)):
        steps.append(_step(ledger, series, refs, number))
        steps[-1] = replace(steps[-1], straight=_beside(ledger, steps))
        words.append(dict(_words(steps[-1])))
        lived.update(dict.fromkeys(words[-1]))
    lives = []
    for patch in lived:
        lives.append((patch, tuple(outcomes.get(patch, "") for outcomes in words)))
    on_it: list[Attempt] = []
    set_out = dict.fromkeys(series[start])
    for attempt in ledger.attempts:
        if attempt.onto in refs and attempt.from_ref in refs:
            on_it.append(attempt)
            if attempt.from_ref == start != attempt.onto:
                set_out[attempt.patch] = None
    hot = tuple(hot_files(Ledger(tuple(on_it)))[:5])
    return StoryWay(
        upstream=upstream,
        refs=refs,
        set_out=tuple(set_out),
        last=series[end],
        steps=tuple(steps),
        lives=tuple(lives),
        hot=hot,
        output=bool(on_it),
    )


def route(attempts: Iterable[Attempt], start: str, end: str) -> tuple[str, ...]:
    """Return the refs of the longest chain of rebases from ``start`` to ``end``.

    Without a chain, return only these two refs.
    """
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
    mine = _attempts_onto(ledger, refs, number)
    last = {patch: a for (patch, _), a in Ledger(tuple(mine)).latest().items()}
    stack = series[onto]
    by_git: dict[str, list[str]] = {}
    carried: set[str] = set()
    stops, left, taken, gone = [], [], [], []
    for patch, a in last.items():
        if a.outcome in CARRIED:
            carried.add(patch)
        if a.outcome in ALONE:
            by_git.setdefault(a.outcome, []).append(patch)
        elif a.outcome in CARRIED:
            stops.append(_stop(mine, a))
        elif a.outcome == "conflict":
            left.append(_stop(mine, a))
        elif a.outcome == _TAKEN:
            taken.append(a)
        elif a.outcome in _GONE:
            gone.append(a)
    alone = []
    for outcome in ALONE:
        if outcome in by_git:
            alone.append((outcome, tuple(by_git[outcome])))
    explained = set(carried)
    if not mine:  # the ledger has no line about this step
        explained.update(series[before])
    return StoryStep(
        before=before,
        onto=onto,
        came=len(series[before]),
        alone=tuple(alone),
        stops=tuple(stops),
        left=tuple(left),
        taken=tuple(taken),
        gone=tuple(gone),
        written=tuple(patch for patch in stack if patch not in explained),
        missing=tuple(sorted(carried - set(stack))),
        stands=len(stack),
    )


def _attempts_onto(ledger: Ledger, refs: Sequence[str], number: int) -> list[Attempt]:
    """Return the attempts that decide the stack of a ref.

    A stop in a direct rebase from an earlier release was only a trial, and doesn't affect the stack.
    """
    before, onto = refs[number - 1], refs[number]
    known = (*CARRIED, _TAKEN, *_GONE)
    found = []
    for a in ledger.attempts:
        decides = a.from_ref in (before, onto) or (a.from_ref in refs[:number] and a.outcome in known)
        if a.onto == onto and decides:
            found.append(a)
    return found


def _stop(attempts: Sequence[Attempt], last: Attempt) -> StoryStop:
    """Return a stop. Its files come from the patch's first attempt, because later attempts may list no files."""
    first = next((a for a in attempts if a.patch == last.patch and a.files), last)
    return StoryStop(patch=last.patch, hunks=_hunks(first), files=tuple(f.path for f in first.files), last=last)


def _beside(ledger: Ledger, steps: Sequence[StoryStep]) -> tuple[Straight, ...]:
    """Return the direct rebases from earlier releases to the release of the last step.

    Releases from which no patch was carried are left out.
    """
    found = []
    for number, step in enumerate(steps[:-1]):
        mine = {}
        for a in ledger.attempts:
            if (a.from_ref, a.onto) == (step.before, steps[-1].onto):
                mine[a.patch] = a
        stopped = hunks = carried = 0
        for a in mine.values():
            carried += a.outcome in CARRIED
            if a.outcome not in (*ALONE, _TAKEN):
                stopped += 1
                hunks += _hunks(a)
        if carried:
            along = sum(later.hunks for later in steps[number:])
            found.append(Straight(before=step.before, tried=len(mine), stopped=stopped, hunks=hunks, along=along))
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
    """Return totals over all upstreams, under the names that the template uses."""
    sums: Counter[str] = Counter()
    for each in found:
        sums["came"] += len(each.set_out)
        sums["stands"] += len(each.last)
        for step in each.steps:
            sums["written"] += len(step.written)
            sums["alone"] += step.by_git
            sums["stops"] += len(step.stops) + len(step.left)
            sums["hunks"] += step.hunks
            sums["lines"] += step.lines
        for _, outcomes in each.lives:
            end = next(filter(None, reversed(outcomes)), "")
            sums["taken"] += end == TAKEN
            sums["gone"] += end in _GONE
    return sums
