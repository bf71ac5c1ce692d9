"""Ledger: the outcome of each patch on each ref to which it was carried. Each line is one JSON object.

Lines are only appended, so git can merge the ledgers of two branches with ``merge=union``. A repeated line counts once.
A damaged line stays in the file and is reported by its number, so a bad merge loses no history.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, fields, make_dataclass
from typing import Any

from patchq.formats import jsonlines
from patchq.formats.jsonlines import Problem
from patchq.formats.outcomes import DropReason, Grade, Outcome
from patchq.records import dataclass

#: Newest format of a line. Each line uses the oldest format that can express it, so that an older
#: patchq reads what it can.
VERSION = 6
#: Outcomes after which the stack of the new ref has the patch.
CARRIED = tuple(Outcome)[:6]
#: Beginning of ``how`` for an undecided patch. Lines before format version 6 have no field for this.
NOT_CARRIED_YET = "not carried yet"
_REASONS = {
    Outcome.ABSORBED: DropReason.UPSTREAM_HAS_IT,
    Outcome.WITHDRAWN: DropReason.NOT_NEEDED,
    Outcome.OBSOLETE: DropReason.NOT_NEEDED,
    Outcome.CONFLICT: DropReason.SKIPPED,
}


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """File that conflicts, and the number of hunks that conflict; 0 if the file conflicts as a whole."""

    path: str
    hunks: int


@dataclass(frozen=True, slots=True)
class FileOffset:
    """File whose hunks applied at other lines. ``lines`` contains the offset of each hunk."""

    path: str
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DroppedLine:
    """Line that upstream added and the carried patch removes. The user has accepted this removal."""

    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Attempt to carry one patch from one ref to another.

    :ivar patch_id: git's stable patch id of the carried patch.
    :ivar files: files that conflicted or no longer exist.
    :ivar grade: how similar upstream's code is to an absorbed patch.
    :ivar evidence: place where the upstream code was found.
    :ivar broke: upstream commit or release that made the patch conflict, if known.
    :ivar how: the user's note about the resolution, or the name of what replaces the patch.
    :ivar lines: number of lines of the patch that changed in the resolution.
    :ivar proof: result of the patch's proof after the attempt: ``passed``, ``proven``, ``failed``, ``not run: …``, or
        empty.
    :ivar time: UTC, ISO 8601.
    :ivar offsets: for the outcome ``offset``, the files whose hunks applied at other lines.
    :ivar checked: evidence that the new lines are right, such as ``line map v1.0..v1.1``.
    :ivar dropped: upstream's lines that the patch removes. The user has accepted each removal.
    :ivar undecided: True if the patch was left for a later rebase, without a decision to drop it.
    """

    patch: str
    patch_id: str
    from_ref: str
    onto: str
    outcome: Outcome
    tool: str
    time: str
    files: tuple[FileOutcome, ...] = ()
    grade: Grade = Grade.NONE
    evidence: str = ""
    broke: str = ""
    how: str = ""
    lines: int = 0
    proof: str = ""
    offsets: tuple[FileOffset, ...] = ()
    checked: str = ""
    dropped: tuple[DroppedLine, ...] = ()
    undecided: bool = False

    def line(self) -> bytes:
        """Return this attempt as a line of the ledger."""
        version = 1
        if self.outcome == Outcome.WITHDRAWN:
            version = 3
        elif self.offsets or self.checked:
            version = 2
        if self.dropped:
            version = 4
        if self.outcome == Outcome.BY_RULE:
            version = 5
        if self.undecided or _is_undecided(self.outcome, self.how):
            version = 6
        body = {key: value for key, value in asdict(self).items() if value not in ("", (), 0)}
        return (json.dumps({"v": version, **body}, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Ledger:
    """Entries and problems of a ledger, in the order of its lines."""

    attempts: tuple[Attempt, ...] = ()
    problems: tuple[Problem, ...] = ()

    def latest(self) -> dict[tuple[str, str], Attempt]:
        """Return the latest attempt for each ``(patch, ref)``."""
        return {(a.patch, a.onto): a for a in sorted(self.attempts, key=lambda a: a.time)}


def parse(data: bytes) -> Ledger:
    """Parse a ledger. Damaged lines become problems; the other lines are used."""
    return Ledger(*jsonlines.read(data, _attempt))


def stream(lines: Callable[[], Iterable[bytes]]) -> Iterator[Attempt | Problem]:
    """Yield a ledger's attempts and problems in line order; see :func:`jsonlines.stream`."""
    return jsonlines.stream(lines, _attempt)


_NAMES = frozenset(f.name for f in fields(Attempt))
_TEXTS = _NAMES - {"files", "lines", "offsets", "dropped", "undecided"}
#: Mutable form of an attempt: creating a frozen one takes twice as long.
_Draft = make_dataclass("_Draft", [(f.name, Any, field(default=f.default)) for f in fields(Attempt)], slots=True)
_NEEDED = ("patch", "patch_id", "from_ref", "onto", "outcome", "tool", "time")
_MUST = frozenset(_NEEDED)
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_GRADES = {grade.value: grade for grade in Grade}


def _attempt(raw: Any) -> Attempt:
    if not isinstance(raw, dict):
        raise ValueError("is not a JSON object")
    version = raw.pop("v", None)
    if version not in range(1, VERSION + 1):
        newer = isinstance(version, int) and version > VERSION
        raise ValueError(f"has format {version}" + (", which a newer patchq wrote" if newer else f", not {VERSION}"))
    # Fast path for nearly all lines: a million of them take seconds.
    values = raw.values()
    plain = _MUST <= raw.keys() <= _TEXTS and set(map(type, values)) == {str} and "" not in values
    if plain and raw["outcome"] in _OUTCOMES and raw.get("grade", "") in _GRADES:
        draft: Any = _Draft(**raw)
        draft.outcome, draft.grade = _OUTCOMES[draft.outcome], _GRADES[draft.grade]
        draft.undecided = version < 6 and _is_undecided(draft.outcome, draft.how)
        draft.__class__ = Attempt
        made: Attempt = draft
        return made
    if missing := [n for n in _NEEDED if not isinstance(raw.get(n), str) or not raw[n]]:
        raise ValueError(f"lacks {', '.join(missing)}")
    if unknown := sorted(raw.keys() - _NAMES):
        raise ValueError(f"has unknown fields {', '.join(unknown)}")
    if raw["outcome"] not in _OUTCOMES:
        raise ValueError(f"has the unknown outcome {raw['outcome']!r}")
    if raw.get("grade", "") not in tuple(_GRADES):
        raise ValueError(f"has the unknown grade {raw['grade']!r}")
    undecided = raw.pop("undecided", False)
    texts = [v for k, v in raw.items() if k in _TEXTS]
    right = all(isinstance(v, str) for v in texts) and isinstance(raw.get("lines", 0), int)
    if not right or not isinstance(undecided, bool):
        raise ValueError("has a field of the wrong type")
    files = tuple(FileOutcome(str(f["path"]), int(f["hunks"])) for f in raw.pop("files", ()))
    offsets = tuple(FileOffset(str(f["path"]), tuple(map(int, f["lines"]))) for f in raw.pop("offsets", ()))
    dropped = tuple(
        DroppedLine(str(line["path"]), int(line["line"]), str(line["text"])) for line in raw.pop("dropped", ())
    )
    raw["outcome"], raw["grade"] = _OUTCOMES[raw["outcome"]], _GRADES[raw.get("grade", "")]
    if version < 6:
        undecided = _is_undecided(raw["outcome"], raw.get("how", ""))
    return Attempt(**raw, files=files, offsets=offsets, dropped=dropped, undecided=undecided)


def _is_undecided(outcome: Outcome, how: str) -> bool:
    """Return True if an attempt's outcome and note leave open whether the patch is dropped.

    Lines before format version 6 have no field for this.
    """
    return how.startswith(NOT_CARRIED_YET) or (outcome in (Outcome.CONFLICT, Outcome.OBSOLETE) and not how)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Decision to drop a patch.

    :ivar ref: ref at which the patch was dropped.
    :ivar how: the user's note in the ledger.
    """

    patch: str
    ref: str
    reason: DropReason
    how: str = ""

    @property
    def message(self) -> str:
        """Single-line description of the decision, without the user's note."""
        return f"dropped at {self.ref}: {self.reason}"


def drop_reason(outcome: Outcome, *, undecided: bool) -> DropReason | None:
    """Return why an outcome drops a patch.

    Return None if the outcome doesn't drop the patch, or if the user hasn't decided yet.
    """
    if undecided:
        return None
    return _REASONS.get(outcome)


def find_drop(
    latest: Mapping[tuple[str, str], Attempt], patch: str, stacks: Mapping[str, Container[str]]
) -> Drop | None:
    """Return the drop decision for a patch that is in effect at the last ref of ``stacks``; None if there is none.

    The refs are searched from the last to the first. If a ref's stack contains the patch, the search ends, and no
    decision is in effect. If the ledger has an attempt with the patch for a ref, the search ends, and the latest such
    attempt decides.

    :param latest: result of :meth:`Ledger.latest`.
    :param stacks: patches of each stack, by ref in ascending order.
    """
    for ref in reversed(list(stacks)):
        if patch in stacks[ref]:
            return None
        if attempt := latest.get((patch, ref)):
            reason = drop_reason(attempt.outcome, undecided=attempt.undecided)
            if reason:
                return Drop(patch=patch, ref=ref, reason=reason, how=attempt.how)
            return None
    return None


def say_offsets(offsets: Sequence[FileOffset]) -> str:
    """Format offsets as ``+12``, or as the range of their values, ``-3..+12``; empty if there are none."""
    moved = []
    for f in offsets:
        for n in f.lines:
            if n:
                moved.append(n)
    low, high = min(moved, default=0), max(moved, default=0)
    if not moved:
        return ""
    if low == high:
        return f"{low:+d}"
    return f"{low:+d}..{high:+d}"


def say_moved(offsets: Sequence[FileOffset], checked: str) -> str:
    """Format offsets with the evidence for them: ``+12, checked against the line map …``; empty if there are none."""
    if offsets:
        return f"{say_offsets(offsets)}, checked against the {checked}"
    return ""


def line_map(before: str, after: str) -> str:
    """Return the name of a line map, as evidence for offsets: ``line map v1.0..v1.1``."""
    return f"line map {before}..{after}"


def add(data: bytes, attempts: Iterable[Attempt]) -> bytes:
    """Return a ledger's bytes with lines for more attempts. Skip attempts that the ledger already contains."""
    known = set(parse(data).attempts)
    return jsonlines.add(data, (a.line() for a in attempts if a not in known))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of carrying a patch.

    :ivar tried: number of refs to which the patch was carried. For each ref, only the latest attempt counts.
    :ivar survived: number of these refs to which the patch was carried successfully, so that their stack contains it.
    :ivar stopped: number of attempts that needed the user's decision or a recorded resolution.
    :ivar lines: number of lines changed in resolutions.
    :ivar hot: files with conflicts, each with the number of attempts in which the file conflicted.
    :ivar retired: first ref that already contained the patch; empty if there is none.
    """

    patch: str
    tried: int
    survived: int
    stopped: int
    lines: int
    hot: tuple[tuple[str, int], ...]
    retired: str = ""


#: Outcomes that need neither the user nor a recorded resolution.
_BY_ITSELF = frozenset((*CARRIED[:4], Outcome.WITHDRAWN))


class Tally:
    """Summary of the costs of patches. Add the attempts with :meth:`add`, in any number.

    Only the sums and the latest outcome of each patch on each ref are kept in memory.
    """

    def __init__(self) -> None:
        self._last: dict[str, dict[str, tuple[str, str]]] = {}
        self._sums: dict[str, list[int]] = {}
        self._hot: dict[str, Counter[str]] = {}
        # Refs and outcomes occur in many attempts: keep one copy of each.
        self._held: dict[object, Any] = {}

    def add(self, attempt: Attempt) -> None:
        """Add an attempt to the summary."""
        patch = attempt.patch
        last = self._last.get(patch)
        if last is None:
            last, self._sums[patch], self._hot[patch] = {}, [0, 0], Counter()
            self._last[patch] = last
        before = last.get(attempt.onto)
        if before is None or attempt.time >= before[0]:
            word = (attempt.time, attempt.outcome)
            last[self._held.setdefault(attempt.onto, attempt.onto)] = self._held.setdefault(word, word)
        sums = self._sums[patch]
        sums[0] += attempt.outcome not in _BY_ITSELF
        sums[1] += attempt.lines
        for file in attempt.files:
            self._hot[patch][file.path] += 1

    def costs(self) -> list[Cost]:
        """Return the cost of each patch, highest first. Patches with a high cost are the best to submit upstream."""
        found = []
        for patch, last in self._last.items():
            stopped, lines = self._sums[patch]
            # Sorted by time; attempts of the same time keep their order in the ledger.
            ordered = sorted(last.items(), key=lambda item: item[1][0])
            retired = next((onto for onto, (_, outcome) in ordered if outcome == Outcome.ABSORBED), "")
            survived = sum(outcome in CARRIED for _, outcome in last.values())
            hot = tuple(self._hot[patch].most_common())
            found.append(
                Cost(
                    patch=patch,
                    tried=len(last),
                    survived=survived,
                    stopped=stopped,
                    lines=lines,
                    hot=hot,
                    retired=retired,
                )
            )
        return sorted(found, key=lambda c: (-c.lines, -c.stopped, c.patch))

    def hot_files(self) -> list[tuple[str, int, int]]:
        """Return the files with conflicts (path, number of attempts, number of patches), most attempts first."""
        times: Counter[str] = Counter()
        patches: Counter[str] = Counter()
        for hot in self._hot.values():
            times.update(hot)
            patches.update(hot.keys())
        return [(path, count, patches[path]) for path, count in times.most_common()]


def summary(attempts: Iterable[Attempt]) -> Tally:
    """Return the summary of all attempts."""
    found = Tally()
    for attempt in attempts:
        found.add(attempt)
    return found


def costs(ledger: Ledger) -> list[Cost]:
    """Return the cost of each patch, highest first."""
    return summary(ledger.attempts).costs()


def hot_files(ledger: Ledger) -> list[tuple[str, int, int]]:
    """Return the files with conflicts (path, number of attempts, number of patches), most attempts first."""
    return summary(ledger.attempts).hot_files()


def changed_lines(before: Sequence[bytes], after: Sequence[bytes]) -> int:
    """Count the changed lines that occur in only one of two versions of a patch. Moved lines don't count."""
    old, new = Counter(before), Counter(after)
    return sum(((old - new) + (new - old)).values())
