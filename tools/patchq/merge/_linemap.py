"""Line maps between two versions of a file, used to place hunks.

A hunk contains a line number and context lines, but in another version the same lines may be in another function. A
line map is git's diff of the two versions, made with the algorithm of git's merges. Consecutive unchanged lines form
a run. The lines of a run have moved together, and a hunk moves with its run. A hunk is placed only if one run
contains all its lines, and one more line on a side without context. Then upstream has changed no line of the hunk,
and git's merge would put the hunk at the same place.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from patchq.formats import diff
from patchq.git.repository import Git
from patchq.names import BlobId, TreeId
from patchq.records import dataclass

#: Length of the last run, which continues past the end of the file.
_ENDLESS = 1 << 60


@dataclass(frozen=True, slots=True)
class LineMap:
    """Lines of one version of a file that are unchanged in another version.

    :ivar runs: (old start, new start, length) of each run of unchanged lines, in order, counted from 0. Line -1
        stands for the start of the file, and the line after the last line for its end.
    """

    runs: tuple[tuple[int, int, int], ...]

    def shift(self, first: int, end: int) -> int | None:
        """Return the offset of the lines from ``first`` to ``end``; None if no single run contains them."""
        at = bisect_right(self.runs, first, key=lambda run: run[0]) - 1
        if at < 0:
            return None
        old, new, count = self.runs[at]
        if end <= old + count:
            return new - old
        return None

    def patched(self, hunks: Sequence[diff.Hunk], landed: bool) -> LineMap:
        """Return the map after the hunks have changed the old version.

        :param landed: True if the hunks have also changed the new version.
        """
        found: list[tuple[int, int, int]] = []
        places = [(*changed_lines(hunk), len(hunk.new) - len(hunk.old)) for hunk in hunks]
        for run in self.runs:
            shift = run[1] - run[0]
            for start, end, grown in _rest_of(run, places):
                moved_to = start + shift
                if landed:
                    moved_to += grown
                found.append((start + grown, moved_to, end - start))
        if landed:
            grown = 0
            for first, end, more in places:
                moved = self.shift(first - 1, end + 1)
                assert moved is not None, "a hunk landed where it has no place"
                found.append((first + grown, first + grown + moved, end - first + more))
                grown += more
        return LineMap(tuple(_joined(sorted(found))))


#: Map of an unchanged file.
SAME = LineMap(((-1, -1, _ENDLESS),))


def _rest_of(run: tuple[int, int, int], places: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield the sections of a run that the hunks leave unchanged, as (first, end, lines added before the section)."""
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
    """Join adjacent runs, and yield the resulting runs."""
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
    """Count the context lines before a hunk's first change. Lines that count as trailing context are excluded."""
    most = max(min(len(hunk.old), len(hunk.new)) - hunk.trailing, 0)
    count = 0
    while count < most and hunk.old[count] == hunk.new[count]:
        count += 1
    return count


def changed_lines(hunk: diff.Hunk) -> tuple[int, int]:
    """Return the range (first, end) of the lines that a hunk changes, counted from 0, without context lines."""
    if hunk.old:
        start = hunk.old_start - 1
    else:
        start = hunk.old_start
    return start + leading(hunk), start + len(hunk.old) - hunk.trailing


def places(content: bytes, lines: Sequence[bytes]) -> Iterator[int]:
    """Yield the byte offsets in a file at which these consecutive whole lines occur."""
    wanted = b"".join(lines)
    at = content.find(wanted)
    while at >= 0 and wanted:
        end = at + len(wanted)
        if (not at or content[at - 1 : at] == b"\n") and (wanted.endswith(b"\n") or end == len(content)):
            yield at
        at = content.find(wanted, at + 1)


def stand_alone(hunks: Iterable[diff.Hunk], content: bytes) -> bool:
    """Return whether the old lines of each hunk occur exactly once in a file."""
    for hunk in hunks:
        found = places(content, hunk.old)
        if next(found, None) is None or next(found, None) is not None:
            return False
    return True


def place(hunks: Sequence[diff.Hunk], content: bytes, lines: LineMap) -> tuple[bytes, tuple[int, ...]] | None:
    """Apply hunks at the lines given by the map; return the new file and the offset of each hunk.

    Return None if the map gives no position for a hunk.
    """
    image = diff.split_lines(content)
    parts: list[bytes] = []
    shifts = []
    done = 0
    for hunk in hunks:
        if hunk.old:
            start = hunk.old_start - 1
        else:
            start = hunk.old_start
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
    """Cache of line maps between blobs.

    :param versions: blobs in the store whose content :meth:`text` may return.
    """

    def __init__(self, git: Git, versions: Iterable[BlobId]) -> None:
        self.git, self.versions = git, versions
        self._texts: dict[BlobId, bytes] = {}
        self._known: dict[tuple[BlobId, BlobId], LineMap | None] = {}

    def read(self, before: TreeId, after: TreeId, paths: Iterable[bytes]) -> None:
        """Read the line maps of the given files between two trees, with ``git diff-tree``."""
        wanted = sorted(map(os.fsdecode, paths))
        for start in range(0, len(wanted), _MOST):  # the size of a command line is limited
            argv = ("--literal-pathspecs", "diff-tree", "-r", *_DIFF, before, after, "--")
            self._learn(self.git.run(*argv, *wanted[start : start + _MOST]))

    def of(self, before: BlobId, after: BlobId, *, ask: bool = True) -> LineMap | None:
        """Return the map between two blobs; None for binary files.

        :param ask: True if the store contains both blobs, so that a missing map can be read.
        """
        if before == after:
            return SAME
        if (before, after) not in self._known and ask:
            self._learn(self.git.run("diff", *_DIFF, before, after))
        return self._known.get((before, after))

    def text(self, version: BlobId) -> bytes:
        """Return a blob's content. The first call reads all ``versions`` with one process."""
        if not self._texts:
            self._texts = self.git.read_blobs(self.versions)
        return self._texts[version]

    def put(self, before: BlobId, after: BlobId, lines: LineMap) -> None:
        """Add the map between two blobs that may not be in the store."""
        self._known.setdefault((before, after), lines)

    def _learn(self, text: bytes) -> None:
        for part in re.split(rb"^diff --git ", text, flags=re.MULTILINE)[1:]:
            index = _INDEX.search(part)
            if index:
                key = BlobId(index[1].decode()), BlobId(index[2].decode())
                self._known[key] = parse(part[index.end() :])


def parse(text: bytes) -> LineMap | None:
    """Parse a file's diff, after its ``index`` line, into a map; return None if the file is not text."""
    runs: list[tuple[int, int, int]] = []
    old, new = -1, -1  # start of the current run
    at, there = -1, -1  # current line
    hunks = text.split(b"\n@@ ")
    if len(hunks) == 1:
        return None
    for hunk in hunks[1:]:
        lines = (b"@@ " + hunk).split(b"\n")
        match = _HUNK.match(lines[0])
        assert match, "git's diff has no hunk header"
        where = int(match[1])
        if match[2] is None or int(match[2]):  # without old lines, the header contains the previous line
            where -= 1
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
