"""Blocks of a patch, and the test for whether upstream made the same change.

A block consists of consecutive removed and added lines without context. Upstream has the block if upstream made the
same change after the base. Then upstream's file contains the added lines together more often than the base does, and
the removed lines less often. Blank lines and indentation are ignored, so moved or reindented code is found. Code that
was already in the base is not counted. For a block that is not distinctive (one or two lines, or repeated lines), a
neighbouring line must match, too, because upstream may have added the same line for another reason.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import field
from functools import cached_property, lru_cache
from operator import itemgetter

from patchq.formats import diff
from patchq.records import dataclass

#: Number of distinctive lines that identify a block without a neighbour.
_DISTINCT_LINES = 3
#: Number of letters that make a line distinctive.
_LETTERS = 4
#: Number of distinctive lines that make a block long. An edited copy of a long block is found too.
_LONG = 5
#: Share of a long block's lines that upstream must have added in an edited copy.
_MOST = 0.75


@dataclass(frozen=True, slots=True)
class Block:
    """Removed and added lines at one place, and the nearest lines around them, with normalized blanks.

    :ivar wide: up to two lines above and up to two lines below, in the file after the patch.
    """

    removed: tuple[bytes, ...]
    added: tuple[bytes, ...]
    above: bytes = b""
    below: bytes = b""
    wide: tuple[tuple[bytes, ...], tuple[bytes, ...]] = field(default=((), ()), compare=False)


class Text:
    """Lines of one version of a file, normalized and without blank lines."""

    def __init__(self, content: bytes | None) -> None:
        self.there = content is not None
        self.lines = _plain_lines(diff.split_lines(content or b""))

    @cached_property
    def _counts(self) -> Counter[bytes]:
        return Counter(self.lines)

    def find(self, lines: Sequence[bytes]) -> list[int]:
        """Return the positions at which these consecutive lines occur."""
        if not lines:
            return []
        wanted = list(lines)
        # The rarest line has the fewest positions to compare.
        rarest = min(range(len(wanted)), key=lambda n: self.count(wanted[n]))
        found = []
        at = -1
        for _ in range(self.count(wanted[rarest])):
            at = self.lines.index(wanted[rarest], at + 1)
            start = at - rarest
            if start >= 0 and self.lines[start : start + len(wanted)] == wanted:
                found.append(start)
        return found

    def count(self, line: bytes) -> int:
        """Return the number of times that a line occurs."""
        return self._counts[line]

    def line(self, at: int) -> bytes:
        """Return the line at a position; ``b""`` if the position is outside the file."""
        if 0 <= at < len(self.lines):
            return self.lines[at]
        return b""

    def neighbours(self, block: Block, at: int) -> int:
        """Count how many of a block's two neighbouring lines match, if the block's added lines start at ``at``."""
        above = self.line(at - 1) == block.above
        below = self.line(at + len(block.added)) == block.below
        return above + below


@lru_cache(maxsize=256)
def text_of(content: bytes | None) -> Text:
    """Return a file's content as :class:`Text`. The result is cached, because the patches of a stack share files."""
    return Text(content)


def _plain_lines(lines: Iterable[bytes]) -> list[bytes]:
    """Replace each sequence of blanks in a line by one space, and drop empty lines."""
    return [b" ".join(words) for words in map(bytes.split, lines) if words]


def word_of(line: bytes) -> bytes:
    """Return the longest word in a line. A text that doesn't contain this word can't contain the line."""
    return max(line.split(), key=len)


def blocks(hunks: Sequence[diff.Hunk]) -> list[Block]:
    """Return the blocks of a file's hunks."""
    return list(map(itemgetter(0), blocks_both(hunks)))


def blocks_both(hunks: Sequence[diff.Hunk]) -> list[tuple[Block, Block]]:
    """Return the blocks of a file's hunks, each with the block of the inverse change."""
    found = []
    for hunk in hunks:
        old, new = hunk.old, hunk.new
        for kind, i, j, k, end in _opcodes(old, new):
            if kind == "equal":
                continue
            removed = tuple(_plain_lines(old[i:j]))
            added = tuple(_plain_lines(new[k:end]))
            if removed == added:
                continue
            block = _block(removed, added, before=new[:k], after=new[end:])
            inverse = _block(added, removed, before=old[:i], after=old[j:])
            found.append((block, inverse))
    return found


def _opcodes(old: Sequence[bytes], new: Sequence[bytes]) -> Sequence[tuple[str, int, int, int, int]]:
    return difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()


def _block(
    removed: tuple[bytes, ...],
    added: tuple[bytes, ...],
    *,
    before: Sequence[bytes],
    after: Sequence[bytes],
) -> Block:
    """Build a block from its lines, and from the hunk's lines before and after the added lines."""
    above = tuple(_plain_lines(before)[-2:])
    below = tuple(_plain_lines(after)[:2])
    return Block(
        removed,
        added,
        above=above[-1] if above else b"",
        below=below[0] if below else b"",
        wide=(above, below),
    )


def is_there(block: Block, base: Text, now: Text, times: int = 1) -> bool:
    """Return whether upstream made this change between two versions of the file.

    :param times: number of times that the patch makes the change.
    """
    if not block.added:
        return _is_removed(block, base, now, times)
    places = now.find(block.added)
    before = len(base.find(block.added))
    if len(places) < before + times:
        return False
    if block.removed:
        allowed = max(0, len(base.find(block.removed)) - times)
        if len(now.find(block.removed)) > allowed:
            return False
    unique = not before and len(places) == times
    if unique and len(telling(block.added)) >= _DISTINCT_LINES:
        return True
    needed = 2
    if unique:
        needed = 1
    matching = []
    for at in places:
        if now.neighbours(block, at) >= needed:
            matching.append(at)
    if len(matching) < times:
        return False
    # The same lines between the same neighbours may belong to another place in the file.
    return unique or not any(block.wide) or _in_place(block, now) > _in_place(block, base)


def _is_removed(block: Block, base: Text, now: Text, times: int) -> bool:
    """Return whether upstream made a change that only removes lines."""
    if len(now.find(block.removed)) > len(base.find(block.removed)) - times:
        return False
    if not block.above:
        return True
    # The only trace of a removal is that its neighbours are now adjacent.
    return any(now.line(at + 1) == block.below for at in now.find([block.above]))


def _in_place(block: Block, text: Text) -> int:
    """Count how often a block's added lines occur together with all their surrounding lines."""
    above, below = block.wide
    return len(text.find((*above, *block.added, *below)))


def seems_made(block: Block, base: Callable[[], bytes], now: bytes) -> bool:
    """Return whether upstream added a block's lines anywhere in the file.

    :param base: function that returns the base version. It is called only if ``now`` may contain the lines.
    """
    if not block.added or not all(word in now for word in map(word_of, block.added)):
        return False
    return len(text_of(now).find(block.added)) > len(text_of(base()).find(block.added))


def is_twice(block: Block, base: Callable[[], bytes], now: bytes, merged: bytes, *, times: int = 1) -> bool:
    """Return whether a merge adds lines that upstream has already added.

    A block that is not distinctive counts only if upstream has it between the same neighbouring lines.

    :param times: number of times that the patch makes the addition.
    """
    if not seems_made(block, base, now):
        return _is_twice_edited(block, base, now, merged)
    text = text_of(now)
    places = text.find(block.added)
    before = len(text_of(base()).find(block.added))
    if len(text_of(merged).find(block.added)) <= max(before + times, len(places)):
        return False
    if not before and len(telling(block.added)) >= _DISTINCT_LINES:
        return True
    return any(text.neighbours(block, at) == 2 for at in places)


def _is_twice_edited(block: Block, base: Callable[[], bytes], now: bytes, merged: bytes) -> bool:
    """Return True if a merge adds a long block, and upstream already has an edited copy of this block."""
    lines = telling(block.added)
    if len(lines) < _LONG:
        return False
    likely = sum(word_of(line) in now for line in lines)
    if likely < _MOST * len(lines):
        return False
    old, new, result = text_of(base()), text_of(now), text_of(merged)
    own = []
    for line in lines:
        if not old.count(line):
            own.append(line)
    repeated = 0
    for line in own:
        if 0 < new.count(line) < result.count(line):
            repeated += 1
    return len(own) >= _LONG and repeated >= _MOST * len(own)


def mark_added(ours: bytes, merged: bytes, twice: Sequence[Block], labels: tuple[str, str]) -> bytes:
    """Return a merged file with diff3 conflict markers around the blocks that it contains twice.

    :param ours: content of the file before the merge.
    :param labels: labels of the markers for our side and for the patch.
    """
    old, new = diff.split_lines(ours), diff.split_lines(merged)
    wanted = {block.added for block in twice}
    changes = _opcodes(old, new)
    edits, chosen = set(), set()
    for change in changes:
        kind, _, _, k, end = change
        if kind != "equal":
            edits.add(change)
            if _has_run(_plain_lines(new[k:end]), wanted):
                chosen.add(change)
    if not chosen:
        # The diff split a block because its lines resemble those around it: mark every change.
        chosen = edits
    found: list[bytes] = []
    for change in changes:
        _, i, j, k, end = change
        if change not in chosen:
            found += new[k:end]
            continue
        before = _ended(old[i:j])
        found += [b"<<<<<<< %s\n" % labels[0].encode(), *before]
        found += [b"||||||| base\n", *before]
        found += [b"=======\n", *_ended(new[k:end])]
        found.append(b">>>>>>> %s\n" % labels[1].encode())
    return b"".join(found)


def _has_run(lines: Sequence[bytes], runs: Collection[tuple[bytes, ...]]) -> bool:
    """Return whether ``lines`` contains at least one of the sequences ``runs``."""
    for start in range(len(lines)):
        for run in runs:
            if tuple(lines[start : start + len(run)]) == run:
                return True
    return False


def _ended(lines: Iterable[bytes]) -> list[bytes]:
    """End every line with a newline, so that a marker can follow."""
    return [line.rstrip(b"\n") + b"\n" for line in lines]


def telling(lines: Sequence[bytes]) -> set[bytes]:
    """Return the distinctive lines, which contain more than brackets and blanks."""
    found: set[bytes] = set()
    for line in lines:
        if len(re.sub(rb"\W", b"", line)) >= _LETTERS:
            found.add(line)
    return found


def share(found: Sequence[Block], base: Text, now: Text) -> float:
    """Return the share of the blocks' lines that upstream also added or removed. Each line is counted separately."""
    added: Counter[bytes] = Counter()
    removed: Counter[bytes] = Counter()
    for block in found:
        added.update(block.added)
        removed.update(block.removed)
    total = sum(added.values()) + sum(removed.values())
    have = 0
    for line, times in added.items():
        have += _counted(times, base.count(line), now.count(line))
    if added and not have:
        # Removed lines prove nothing if upstream has none of the added lines.
        return 0.0
    for line, times in removed.items():
        have += _counted(times, now.count(line), base.count(line))
    if total:
        return have / total
    return 0.0


def _counted(times: int, before: int, after: int) -> int:
    """Count how often upstream has added a line, up to ``times``.

    If the base already contains the line, return 0 for fewer than ``times`` additions. To count removals, swap
    ``before`` and ``after``.

    :param times: number of times that the patch adds the line.
    :param before: number of times that the line occurs in the base.
    :param after: number of times that the line occurs in upstream's file.
    """
    more = max(0, min(times, after - before))
    if not before or more == times:
        return more
    return 0
