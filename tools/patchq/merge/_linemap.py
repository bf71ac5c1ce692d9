"""Where upstream's own edits put the lines of a file: what a hunk's place is judged by.

A hunk names a line and what stands around it; in another version the same words may stand in another function. The
map is git's diff of the two versions, by the algorithm that its merges use: lines that it leaves alone are in runs
that moved together, and a hunk is where its run went. Where all its lines, and one more on each side that has no
context, are in one run, upstream changed nothing that touches it, and git's merge puts it at the same place.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from patchq.formats import diff
from patchq.git.repository import Git
from patchq.names import BlobId, TreeId

#: The last run's length: it goes on past the end.
_ENDLESS = 1 << 60


@dataclass(frozen=True, slots=True)
class LineMap:
    """Lines of one version of a file that stand unchanged in another.

    :ivar runs: in their order: where a run begins in one and in the other, from 0, and how many lines it has. The
        file's begin and its end are lines too: -1, and the one after the last.
    """

    runs: tuple[tuple[int, int, int], ...]

    def shift(self, first: int, end: int) -> int | None:
        """By how many lines those from ``first`` up to ``end`` moved together; None where they did not."""
        at = bisect_right(self.runs, first, key=lambda run: run[0]) - 1
        if at < 0:
            return None
        old, new, count = self.runs[at]
        return new - old if end <= old + count else None

    def patched(self, hunks: Sequence[diff.Hunk], landed: bool) -> LineMap:
        """The map after hunks that it places have changed the one version, and the other too if they landed there."""
        found: list[tuple[int, int, int]] = []
        places = [(*changed_lines(hunk), len(hunk.new) - len(hunk.old)) for hunk in hunks]
        for run in self.runs:
            for start, end, grown_before in _rest_of(run, places):
                shift = run[1] - run[0]
                found.append((start + grown_before, start + shift + (grown_before if landed else 0), end - start))
        if landed:
            grown = 0
            for first, end, more in places:
                moved = self.shift(first - 1, end + 1)
                assert moved is not None, "a hunk landed where it has no place"
                found.append((first + grown, first + grown + moved, end - first + more))
                grown += more
        return LineMap(tuple(_joined(sorted(found))))


#: Of a file that is the same.
SAME = LineMap(((-1, -1, _ENDLESS),))


def _rest_of(run: tuple[int, int, int], places: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """A run without the lines that change, in parts: from, up to, and how many lines came before it."""
    at, last, grown = run[0], run[0] + run[2], 0
    for first, end, more in places:
        if (first < last and end > at) or (first == end and at < first < last):
            if at < first:
                yield at, first, grown
            at = max(at, end)
        elif first >= last:
            break
        grown += more
    if at < last:
        yield at, last, grown


def _joined(runs: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Runs, those as one that go on where the one before ends."""
    before: tuple[int, int, int] | None = None
    for old, new, count in runs:
        if before and before[0] + before[2] == old and before[1] + before[2] == new:
            before = (before[0], before[1], before[2] + count)
            continue
        if before:
            yield before
        before = (old, new, count)
    if before:
        yield before


def leading(hunk: diff.Hunk) -> int:
    """How many lines of context a hunk begins with; of lines that repeat, the fewest that it may be."""
    most = min(len(hunk.old), len(hunk.new)) - hunk.trailing
    return next((n for n in range(most) if hunk.old[n] != hunk.new[n]), max(most, 0))


def changed_lines(hunk: diff.Hunk) -> tuple[int, int]:
    """The lines that a hunk changes, from 0, context left away: the first, and the one after the last."""
    start = hunk.old_start - 1 if hunk.old else hunk.old_start
    return start + leading(hunk), start + len(hunk.old) - hunk.trailing


def places(content: bytes, lines: Sequence[bytes]) -> Iterator[int]:
    """Where in a file (by bytes) these whole lines stand together."""
    wanted = b"".join(lines)
    at = content.find(wanted)
    while at >= 0 and wanted:
        end = at + len(wanted)
        if (not at or content[at - 1 : at] == b"\n") and (wanted.endswith(b"\n") or end == len(content)):
            yield at
        at = content.find(wanted, at + 1)


def stand_alone(hunks: Iterable[diff.Hunk], content: bytes) -> bool:
    """Whether the old lines of each of these hunks stand in a file, and in one place of it."""
    return all(len(list(islice(places(content, hunk.old), 2))) == 1 for hunk in hunks)


def place(hunks: Sequence[diff.Hunk], content: bytes, lines: LineMap) -> tuple[bytes, tuple[int, ...]] | None:
    """A file with hunks put where the map has them, and how far each is from where it was written for.

    None where a hunk has no such place.
    """
    image = diff.split_lines(content)
    parts: list[bytes] = []
    shifts = []
    done = 0
    for hunk in hunks:
        start = hunk.old_start - 1 if hunk.old else hunk.old_start
        end = start + len(hunk.old)
        shift = lines.shift(start - (not leading(hunk)), end + (not hunk.trailing))
        if shift is None:
            return None
        if image[start + shift : end + shift] != list(hunk.old):
            return None
        parts += image[done : start + shift]
        parts += hunk.new
        done = end + shift
        shifts.append(shift)
    return b"".join([*parts, *image[done:]]), tuple(shifts)


# From git

_DIFF = (
    "-p",
    "--unified=1",
    "--diff-algorithm=histogram",
    "--no-indent-heuristic",
    "--full-index",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--inter-hunk-context=0",
)
_MOST = 1000
_INDEX = re.compile(rb"^index ([0-9a-f]+)\.\.([0-9a-f]+)", re.MULTILINE)
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? ")


class LineMaps:
    """The maps between files' versions, by their blobs.

    :param versions: those that may be asked for as text, too; the store has them.
    """

    def __init__(self, git: Git, versions: Iterable[BlobId]) -> None:
        self.git, self.versions = git, versions
        self._texts: dict[BlobId, bytes] = {}
        self._known: dict[tuple[BlobId, BlobId], LineMap | None] = {}

    def read(self, before: TreeId, after: TreeId, paths: Iterable[bytes]) -> None:
        """Learn what became of these files from one tree to another, by one process."""
        wanted = sorted(os.fsdecode(path) for path in paths)
        for start in range(0, len(wanted), _MOST):  # there is an end to the arguments that a program takes
            argv = ("--literal-pathspecs", "diff-tree", "-r", *_DIFF, before, after, "--")
            self._learn(self.git.run(*argv, *wanted[start : start + _MOST]))

    def of(self, before: BlobId, after: BlobId, *, ask: bool = True) -> LineMap | None:
        """The map from one version to another; None where there is none, as of binary files.

        :param ask: git has both versions, so that it can be asked for what isn't known yet.
        """
        if before == after:
            return SAME
        if (before, after) not in self._known and ask:
            self._learn(self.git.run("diff", *_DIFF, before, after))
        return self._known.get((before, after))

    def text(self, version: BlobId) -> bytes:
        """A version's content. They are all read when the first is asked for: a process each takes longer."""
        if not self._texts:
            self._texts = self.git.read_blobs(self.versions)
        return self._texts[version]

    def put(self, before: BlobId, after: BlobId, lines: LineMap) -> None:
        """What is known of two versions that the store may not have."""
        self._known.setdefault((before, after), lines)

    def _learn(self, text: bytes) -> None:
        for part in re.split(rb"^diff --git ", text, flags=re.MULTILINE)[1:]:
            index = _INDEX.search(part)
            if index:
                key = BlobId(index[1].decode()), BlobId(index[2].decode())
                self._known[key] = parse(part[index.end() :])


def parse(text: bytes) -> LineMap | None:
    """The map that a file's diff makes, from behind its ``index`` line; None of files that are not text."""
    runs: list[tuple[int, int, int]] = []
    old, new = -1, -1  # the run goes on from here
    at, there = -1, -1
    hunks = text.split(b"\n@@ ")
    if len(hunks) == 1:
        return None
    for hunk in hunks[1:]:
        lines = (b"@@ " + hunk).split(b"\n")
        match = _HUNK.match(lines[0])
        assert match, "a diff of git's is not one"
        first, lost = int(match[1]), int(match[2]) if match[2] is not None else 1
        where = first - 1 if lost else first
        there += where - at
        at = where
        for line in lines[1:]:
            kind = line[:1]
            if kind == b" ":
                at, there = at + 1, there + 1
                continue
            if kind not in (b"-", b"+"):
                continue
            if at > old:
                runs.append((old, new, at - old))
            at, there = at + (kind == b"-"), there + (kind == b"+")
            old, new = at, there
    runs.append((old, new, _ENDLESS))
    return LineMap(tuple(runs))
