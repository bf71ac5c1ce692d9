"""Choice of the stack that is rebased onto a ref: the nearest pinned stack, combined with the ref's own stack.

The nearest stack is used for two reasons: upstream has changed less since a nearby release than since the
set's release, and conflicts that were resolved for that stack need not be resolved again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from patchq.errors import UserError
from patchq.formats import ledger as ledgers
from patchq.formats.ledger import Drop
from patchq.formats.lock import Pin
from patchq.git.objects import CommitInfo
from patchq.names import CommitId, sh
from patchq.project.project import Project
from patchq.project.refs import age, older_first
from patchq.project.stack import Stack, find_patch, load_stack, read_ledger
from patchq.records import dataclass
from patchq.stacks.apply import Carried, carried_stacks
from patchq.upstream.history import History


class SourceReason(Enum):
    """Reason for the choice of the stack that is carried."""

    #: The user named the ref.
    ASKED = "as requested"
    #: The ref is the set's ref, so the stack is the set's own stack.
    OWN = "the stack that the set {0.set_name} uses"
    #: No other stack is known to be nearer than the set's stack.
    SET = "the stack of the set {0.set_name}"
    HISTORY = "the nearest stack by history, {0.commits} commits away"
    RELEASES = "the nearest stack by release order"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChoice:
    """Choice of the stack that is carried.

    :ivar commits: number of commits between the stack's ref and the new ref; only set if the reason is ``HISTORY``.
    """

    reason: SourceReason
    set_name: str = ""
    commits: int = 0

    def describe(self) -> str:
        """Return the reason in words."""
        return self.reason.value.format(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """Reason why a patch is not carried.

    :ivar drop: decision in the ledger to drop the patch; None if the patch isn't in the source stack.
    :ivar source: ref of the source stack.
    """

    source: str
    drop: Drop | None = None

    def describe(self) -> str:
        """Return the reason in words."""
        if self.drop:
            return self.drop.message
        return f"not yet in the stack of {self.source}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryPlan:
    """Plan of a rebase onto a ref.

    :ivar source: stack that is carried.
    :ivar why: reason for choosing this stack.
    :ivar base: base commit of the source stack.
    :ivar order: patches of the new stack, including the patches of the ref's own stack (``known``).
    :ivar commits: commit of each patch. If the ref's own stack contains the patch, its commit is used.
    :ivar absent: patches that are not carried, each with its reason.
    """

    onto: Pin
    source: Stack
    why: SourceChoice
    base: CommitId
    order: tuple[str, ...]
    commits: Mapping[str, CommitInfo]
    known: tuple[str, ...]
    absent: Mapping[str, Absence]

    @property
    def from_ref(self) -> str:
        """Return the ref whose stack is carried."""
        return self.source.pin.ref

    @property
    def dropped(self) -> tuple[Drop, ...]:
        """Return the ledger's decisions that keep patches out of the new stack."""
        return tuple(filter(None, (absence.drop for absence in self.absent.values())))

    @property
    def message(self) -> str:
        """Return one line with the source of the patches and the number of patches left out."""
        line = f"{self.onto.upstream} {self.onto.ref}: from {self.from_ref}, {self.why.describe()}"
        if not self.absent:
            return line
        line += f"; not carried: {count_absent(self.absent.values())}"
        rebase = f"patchq rebase {self.onto.upstream} --onto"
        dropped = self.dropped
        if len(dropped) < len(self.absent):
            line += f" (`{rebase} {sh(self.from_ref)}` first carries the missing patches to that stack)"
        if dropped:
            line += f" (`{rebase} {sh(self.onto.ref)} --only {sh(dropped[0].patch)}` carries this patch anyway)"
        return line


def count_absent(absent: Iterable[Absence]) -> str:
    """Return each reason why patches are not carried, with the number of patches."""
    counts = Counter(map(Absence.describe, absent))
    return ", ".join(f"{count} {reason}" for reason, count in counts.items())


class Planner:
    """Planner of rebases of one upstream's stack onto any number of refs.

    :param asked: pinned ref to start from (default: the nearest).
    :param alone: True to ignore the refs' own stacks.
    :param only: missing patches to carry, even if the ledger drops them (default: all missing patches that the ledger
        doesn't drop).
    :raises UserError: if ``asked`` has no stack, or if a patch in ``only`` is in no stack.
    """

    def __init__(
        self,
        project: Project,
        upstream: str,
        set_name: str,
        history: History | None,
        *,
        asked: str = "",
        alone: bool = False,
        only: Sequence[str] = (),
    ) -> None:
        self.project, self.upstream, self.set_name, self.history = project, upstream, set_name, history
        self.asked, self.alone = asked, alone
        (self.own,) = project.stacks(set_name, [upstream])
        pins = project.lock.upstreams[upstream].pins
        self.stacks = {ref: stack for ref, pin in pins.items() if (stack := load_stack(project.layout, pin)).names}
        if asked and asked not in self.stacks:
            having = ", ".join(self.stacks) or "none"
            raise UserError(
                f"{upstream} has no stack for {asked!r}", hint=f"use `--from` with one of these refs: {having}"
            )
        self.only = {find_patch([self._having(name)], name)[1] for name in only}
        self.latest = read_ledger(project.layout, upstream).latest()
        self._carried: dict[str, Carried] = {}

    def _having(self, name: str) -> Stack:
        """Return a stack that contains a patch, preferably the set's stack."""
        short = name.rpartition("/")[2]
        every = [self.own, *self.stacks.values()]
        return next((stack for stack in every if short in stack.names), self.own)

    def plan(self, onto: Pin, *, newest: bool = False) -> CarryPlan:
        """Plan the rebase onto a ref.

        :param newest: True if the ref is newer than every pin.
        """
        source, why = self._source(onto, newest)
        carried = self._commits(source)
        commits = dict(carried.commits)
        target = self._target(onto, source)
        if target:
            commits |= dict(self._commits(target).commits)
        if target:
            known = target.names
        else:
            known = ()
        merged = _merged_order(source.names, known)
        every = dict.fromkeys((*self.own.names, *merged))
        drops = self._drops([name for name in every if name not in known], source, onto)
        order = self._order(merged, known, drops)
        absent: dict[str, Absence] = {}
        for name in every:
            if name not in order and (name in drops or name in self.own.names):
                absent[name] = Absence(source=source.pin.ref, drop=drops.get(name))
        return CarryPlan(
            onto=onto,
            source=source,
            why=why,
            base=carried.base,
            order=tuple(order),
            commits=commits,
            known=known,
            absent=absent,
        )

    def _drops(self, names: Iterable[str], source: Stack, onto: Pin) -> dict[str, Drop]:
        """Return, by patch, the decisions that keep patches out of the stack of ``onto``."""
        found: dict[str, Drop] = {}
        for name in names:
            drop = self._drop(name, source, onto)
            if drop:
                found[name] = drop
        return found

    def _order(self, merged: Sequence[str], known: Sequence[str], drops: Mapping[str, Drop]) -> list[str]:
        """Return the patches to carry, in the order of ``merged``.

        These are the patches in ``known``, and the requested patches (without a request, all patches that are not
        dropped).
        """
        order = []
        for name in merged:
            if self.only:
                wanted = name in self.only
            else:
                wanted = name not in drops
            if name in known or wanted:
                order.append(name)
        return order

    def _drop(self, name: str, source: Stack, onto: Pin) -> Drop | None:
        """Return the ledger's decision that keeps a patch out of the stack of ``onto``; None if there is none."""
        pins = self.project.lock.upstreams[self.upstream].pins.values()
        refs = refs_up_to(pins, onto)
        if name in source.names:
            # Stacks of refs in between are not the nearest: their drops do not affect this ref.
            between = []
            if source.pin.ref in refs and not self.asked:
                between = refs[refs.index(source.pin.ref) + 1 :]
            refs = [*(ref for ref in between if ref not in self.stacks and ref != onto.ref), onto.ref]
        else:
            earlier = [ref for ref in refs_up_to(pins, source.pin) if ref != onto.ref]
            refs = [*earlier, *(ref for ref in refs if ref not in earlier)]
        names = {}
        for ref, stack in self.stacks.items():
            if not (self.alone and ref == onto.ref):
                names[ref] = stack.names
        return ledgers.find_drop(self.latest, name, {ref: names.get(ref, ()) for ref in refs})

    def _target(self, onto: Pin, source: Stack) -> Stack | None:
        """Return the ref's own stack; None if the ref has none, or if that stack is the source."""
        there = self.stacks.get(onto.ref)
        if self.alone or there is None or there.pin.ref == source.pin.ref:
            return None
        return there

    def _commits(self, stack: Stack) -> Carried:
        if stack.pin.ref not in self._carried:
            (self._carried[stack.pin.ref],) = carried_stacks(self.project, [stack], self.set_name)
        return self._carried[stack.pin.ref]

    def _source(self, onto: Pin, newest: bool) -> tuple[Stack, SourceChoice]:
        """Return the stack from which to carry, and the reason for the choice."""
        own = self.own
        if self.asked:
            return self.stacks[self.asked], SourceChoice(reason=SourceReason.ASKED)
        if own.pin.ref == onto.ref:
            return own, SourceChoice(reason=SourceReason.OWN, set_name=self.set_name)
        others = []
        for ref, s in self.stacks.items():
            if ref != onto.ref and self.only <= set(s.names):
                others.append(s)
        if others and others != [own] and (nearest := self._nearest(onto, others, newest)):
            return nearest
        return own, SourceChoice(reason=SourceReason.SET, set_name=self.set_name)

    def _nearest(self, onto: Pin, stacks: Sequence[Stack], newest: bool) -> tuple[Stack, SourceChoice] | None:
        """Return the stack whose ref has the fewest commits between it and ``onto``.

        Without a history, return the stack of the newest earlier release (or of the oldest release, if all are later).
        Return None if the refs can't be compared by release either.
        """
        if self.history and (target := self.history.commit(onto)):
            counts = [(self._distance(target, stack), stack) for stack in stacks]
            if all(count is not None for count, _ in counts):
                count, found = min(counts, key=lambda pair: (pair[0] or 0, pair[1] is not self.own))
                return found, SourceChoice(reason=SourceReason.HISTORY, commits=count or 0)
        want = age(onto)
        dated = sorted((s for s in stacks if len(age(s.pin)) > 1), key=lambda s: age(s.pin))
        if not dated or (len(want) == 1 and not newest):
            return None
        found = dated[0]
        for stack in dated:
            if newest or age(stack.pin) <= want:
                found = stack
        return found, SourceChoice(reason=SourceReason.RELEASES)

    def _distance(self, target: CommitId, stack: Stack) -> int | None:
        assert self.history
        commit = self.history.commit(stack.pin)
        if commit:
            return self.history.distance(commit, target)
        return None


def refs_up_to(pins: Iterable[Pin], last: Pin) -> list[str]:
    """Return the refs of all releases before a pin, oldest first, followed by the pin's own ref.

    If the pin is not a release, return only its own ref.
    """
    before = []
    for pin in older_first(pins):
        if len(age(pin)) > 1 and age(pin) < age(last):
            before.append(pin.ref)
    return [*(before if len(age(last)) > 1 else ()), last.ref]


def _merged_order(source: Sequence[str], target: Sequence[str]) -> list[str]:
    """Return the patches of both stacks in the order of the source.

    A patch that only the target contains follows its predecessor in the target.
    """
    order = list(source)
    for n, name in enumerate(target):
        if name not in order:
            at = 0
            if n:
                at = order.index(target[n - 1]) + 1
            order.insert(at, name)
    return order
