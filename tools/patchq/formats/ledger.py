"""The ledger: what became of each patch on each ref that it was carried to. One JSON object a line.

Lines are only ever added, so that two branches' ledgers merge by union; a line twice counts once. A line that
can't be read stays where it is and is reported by its number: nothing in the history of a fork is dropped
because one merge went wrong.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from typing import Any

from patchq.formats import jsonlines
from patchq.formats.jsonlines import Problem

#: The newest of a line; each line has the oldest that can say it, so that an older patchq reads what it can.
VERSION = 4
#: What can become of a patch, from the cheapest; see docs/reference/formats.md.
OUTCOMES = ("clean", "offset", "merged", "replayed", "resolved", "absorbed", "obsolete", "conflict", "withdrawn")
#: Those after which the stack of the new ref has the patch.
CARRIED = OUTCOMES[:5]
#: Of a patch that is in a ref's stack without having been carried there: it was written for that ref.
WRITTEN = "carried"
GRADES = ("", "identical", "contained", "edited")
#: Begins the ``how`` of a patch that was left for a later rebase: no one has decided to drop it.
NOT_CARRIED_YET = "not carried yet"
#: The reasons to drop a patch.
UPSTREAM_HAS_IT, NOT_NEEDED, SKIPPED = "upstream has it", "no longer needed", "skipped"
_REASONS = {"absorbed": UPSTREAM_HAS_IT, "withdrawn": NOT_NEEDED, "obsolete": NOT_NEEDED, "conflict": SKIPPED}


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """A file that stopped a patch, and how many hunks of it did; 0 where the file as a whole did."""

    path: str
    hunks: int


@dataclass(frozen=True, slots=True)
class FileOffset:
    """A file whose lines moved: by how many, hunk by hunk."""

    path: str
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DroppedLine:
    """A line that upstream added and the carried patch drops; the user accepted that by name."""

    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One patch carried from one ref onto another.

    :ivar patch_id: git's stable patch id of what was to be carried.
    :ivar files: those that conflicted, or were gone.
    :ivar grade: of what is absorbed; ``evidence`` says where it was found.
    :ivar broke: the commit or release that broke it, where known.
    :ivar how: what a person says of the resolution, or by what it was replaced.
    :ivar lines: lines of the patch that changed in the resolution.
    :ivar proof: how its proof went afterwards: ``passed``, ``proven``, ``failed``, ``not run: …``, or empty.
    :ivar time: UTC, ISO 8601.
    :ivar offsets: of ``offset``, how far; ``checked`` says by what it is known that this is the place.
    :ivar dropped: lines of upstream's that the patch drops there, accepted by name.
    """

    patch: str
    patch_id: str
    from_ref: str
    onto: str
    outcome: str
    tool: str
    time: str
    files: tuple[FileOutcome, ...] = ()
    grade: str = ""
    evidence: str = ""
    broke: str = ""
    how: str = ""
    lines: int = 0
    proof: str = ""
    offsets: tuple[FileOffset, ...] = ()
    checked: str = ""
    dropped: tuple[DroppedLine, ...] = ()

    def line(self) -> bytes:
        """The line that says it."""
        version = 3 if self.outcome == "withdrawn" else 2 if self.offsets or self.checked else 1
        version = 4 if self.dropped else version
        body = {key: value for key, value in asdict(self).items() if value not in ("", (), 0)}
        return (json.dumps({"v": version, **body}, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger as it was read, oldest line first."""

    attempts: tuple[Attempt, ...] = ()
    problems: tuple[Problem, ...] = ()

    def latest(self) -> dict[tuple[str, str], Attempt]:
        """The last word on each patch and ref."""
        return {(a.patch, a.onto): a for a in sorted(self.attempts, key=lambda a: a.time)}


def parse(data: bytes) -> Ledger:
    """Read a ledger; what is damaged becomes a problem, the rest is used."""
    return Ledger(*jsonlines.read(data, _attempt))


def stream(lines: Callable[[], Iterable[bytes]]) -> Iterator[Attempt | Problem]:
    """A ledger's attempts and problems in the order of its lines; see :func:`jsonlines.stream`."""
    return jsonlines.stream(lines, _attempt)


_NAMES = frozenset(f.name for f in fields(Attempt))
_TEXTS = _NAMES - {"files", "lines", "offsets", "dropped"}
#: What an attempt is made as: to make a frozen one takes twice as long.
_Draft = make_dataclass("_Draft", [(f.name, Any, field(default=f.default)) for f in fields(Attempt)], slots=True)
_NEEDED = ("patch", "patch_id", "from_ref", "onto", "outcome", "tool", "time")
_MUST = frozenset(_NEEDED)


def _attempt(raw: Any) -> Attempt:
    if not isinstance(raw, dict):
        raise ValueError("is not a JSON object")
    version = raw.pop("v", None)
    if version not in range(1, VERSION + 1):
        newer = isinstance(version, int) and version > VERSION
        raise ValueError(f"has format {version}" + (", which a newer patchq wrote" if newer else f", not {VERSION}"))
    # Nearly all lines: a million of them are read in seconds.
    values = raw.values()
    plain = _MUST <= raw.keys() <= _TEXTS and set(map(type, values)) == {str} and "" not in values
    if plain and raw["outcome"] in OUTCOMES and raw.get("grade", "") in GRADES:
        draft: Any = _Draft(**raw)
        draft.__class__ = Attempt
        made: Attempt = draft
        return made
    if missing := [n for n in _NEEDED if not isinstance(raw.get(n), str) or not raw[n]]:
        raise ValueError(f"lacks {', '.join(missing)}")
    if unknown := sorted(raw.keys() - _NAMES):
        raise ValueError(f"has unknown fields {', '.join(unknown)}")
    if raw["outcome"] not in OUTCOMES:
        raise ValueError(f"has the unknown outcome {raw['outcome']!r}")
    if raw.get("grade", "") not in GRADES:
        raise ValueError(f"has the unknown grade {raw['grade']!r}")
    texts = [v for k, v in raw.items() if k not in ("files", "lines", "offsets", "dropped")]
    if not all(isinstance(v, str) for v in texts) or not isinstance(raw.get("lines", 0), int):
        raise ValueError("has a field of the wrong type")
    files = tuple(FileOutcome(str(f["path"]), int(f["hunks"])) for f in raw.pop("files", ()))
    offsets = tuple(FileOffset(str(f["path"]), tuple(map(int, f["lines"]))) for f in raw.pop("offsets", ()))
    dropped = tuple(
        DroppedLine(str(line["path"]), int(line["line"]), str(line["text"])) for line in raw.pop("dropped", ())
    )
    return Attempt(**raw, files=files, offsets=offsets, dropped=dropped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """A decision to drop a patch.

    :ivar ref: the ref at which it was dropped.
    :ivar how: the ledger's own words.
    """

    patch: str
    ref: str
    reason: str
    how: str = ""

    @property
    def said(self) -> str:
        """Return it in a line, without the ledger's own words."""
        return f"dropped at {self.ref}: {self.reason}"


def drop_reason(outcome: str, how: str) -> str:
    """Return why an outcome drops a patch; empty if the patch is carried, or if no one has decided yet."""
    undecided = how.startswith(NOT_CARRIED_YET) or (outcome in ("conflict", "obsolete") and not how)
    return "" if undecided else _REASONS.get(outcome, "")


def find_drop(
    latest: Mapping[tuple[str, str], Attempt], patch: str, stacks: Mapping[str, Container[str]]
) -> Drop | None:
    """Return the decision that keeps a patch out of a ref's stack; None if there is none.

    The last stack that has the patch, or the last line about it, decides.

    :param latest: as :meth:`Ledger.latest` returns it.
    :param stacks: the patches of each stack, in the order of their refs; the ref in question is the last.
    """
    for ref in reversed(list(stacks)):
        if patch in stacks[ref]:
            return None
        if attempt := latest.get((patch, ref)):
            reason = drop_reason(attempt.outcome, attempt.how)
            return Drop(patch=patch, ref=ref, reason=reason, how=attempt.how) if reason else None
    return None


def say_offsets(offsets: Sequence[FileOffset]) -> str:
    """How far, in a word: ``+12``, or from the least to the most: ``-3..+12``; empty for none."""
    moved = [n for f in offsets for n in f.lines if n]
    low, high = min(moved, default=0), max(moved, default=0)
    return "" if not moved else f"{low:+d}" if low == high else f"{low:+d}..{high:+d}"


def say_moved(offsets: Sequence[FileOffset], checked: str) -> str:
    """How far, and by what it is known; empty for none."""
    return f"{say_offsets(offsets)}, checked against the {checked}" if offsets else ""


def line_map(before: str, after: str) -> str:
    """What an offset from one ref to another is checked against."""
    return f"line map {before}..{after}"


def add(data: bytes, attempts: Iterable[Attempt]) -> bytes:
    """The ledger's bytes with more lines; those that it has are not added again."""
    known = set(parse(data).attempts)
    return jsonlines.add(data, (a.line() for a in attempts if a not in known))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a patch has cost to carry.

    :ivar tried: refs that it was carried to, the last word on each counted.
    :ivar survived: those of them on which it lives.
    :ivar stopped: how often it stopped for a person, or for a resolution of one.
    :ivar lines: lines re-resolved.
    :ivar hot: the files that stopped it, and how often.
    """

    patch: str
    tried: int
    survived: int
    stopped: int
    lines: int
    hot: tuple[tuple[str, int], ...]
    retired: str = ""


#: What needs neither a person nor a resolution of one.
_BY_ITSELF = frozenset((*CARRIED[:3], "withdrawn"))


class Tally:
    """What patches have cost, counted attempt by attempt: it holds the last word on each patch and ref, and sums."""

    def __init__(self) -> None:
        self._last: dict[str, dict[str, tuple[str, str]]] = {}
        self._sums: dict[str, list[int]] = {}
        self._hot: dict[str, Counter[str]] = {}
        # A ref and a word stand in many attempts: each is held once.
        self._held: dict[object, Any] = {}

    def add(self, attempt: Attempt) -> None:
        """Count one."""
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
        """Each patch's cost, the dearest first: that is the one to bring upstream."""
        found = []
        for patch, last in self._last.items():
            stopped, lines = self._sums[patch]
            # In the order of their times, and of the lines where those are the same.
            ordered = sorted(last.items(), key=lambda item: item[1][0])
            retired = next((onto for onto, (_, outcome) in ordered if outcome == "absorbed"), "")
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
        """Files that stopped patches: how often, and how many patches; the hottest first."""
        times: Counter[str] = Counter()
        patches: Counter[str] = Counter()
        for hot in self._hot.values():
            times.update(hot)
            patches.update(hot.keys())
        return [(path, count, patches[path]) for path, count in times.most_common()]


def tally(attempts: Iterable[Attempt]) -> Tally:
    """All of them, counted."""
    found = Tally()
    for attempt in attempts:
        found.add(attempt)
    return found


def costs(ledger: Ledger) -> list[Cost]:
    """Each patch's cost, the dearest first."""
    return tally(ledger.attempts).costs()


def hot_files(ledger: Ledger) -> list[tuple[str, int, int]]:
    """Files that stopped patches: how often, and how many patches; the hottest first."""
    return tally(ledger.attempts).hot_files()


def changed_lines(before: Sequence[bytes], after: Sequence[bytes]) -> int:
    """How many lines two patches' diffs don't share, moves aside."""
    old, new = Counter(before), Counter(after)
    return sum(((old - new) + (new - old)).values())
