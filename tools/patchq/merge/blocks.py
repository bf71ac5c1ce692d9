"""Blocks of a patch, and whether upstream made the same change; never a yes on a guess.

A block is lines removed and lines added in one place, without context. It is there if upstream itself made that
change after the base: its added lines stand together more often than they did, its removed ones less often. Blank
lines and indentation don't count, so that what moved or was reindented is found; what stood in the file all along
never is. A block that isn't unlike all else (a line or two, or what is there twice) needs a neighbour of its own as
well: the same line may have come for another reason.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from patchq.formats import diff

#: Lines of some letters from which a block that is there once is told apart from all else by itself.
_DISTINCT_LINES, _LETTERS = 3, 4
#: Such lines from which on most of them are a sign, too.
_LONG = 5
#: The share of such a block's lines that upstream must have added for it to be upstream's, edited.
_MOST = 0.75


@dataclass(frozen=True, slots=True)
class Block:
    """Lines removed and added in one place, and the nearest lines around them; all without blanks.

    :ivar wide: up to two lines above, the nearest last, and below, as the patch leaves them.
    """

    removed: tuple[bytes, ...]
    added: tuple[bytes, ...]
    above: bytes = b""
    below: bytes = b""
    wide: tuple[tuple[bytes, ...], tuple[bytes, ...]] = field(default=((), ()), compare=False)


class Text:
    """A version of a file as lines that count."""

    def __init__(self, content: bytes | None) -> None:
        self.there = content is not None
        self.lines = [line for line in (_plain(raw) for raw in diff.split_lines(content or b"")) if line]

    @cached_property
    def _places(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for at, line in enumerate(self.lines):
            found.setdefault(line, []).append(at)
        return found

    def find(self, lines: Sequence[bytes]) -> list[int]:
        """Where these lines stand together."""
        if not lines:
            return []
        size, want = len(lines), list(lines)
        rarest = min(range(size), key=lambda n: len(self._places.get(lines[n], ())))
        starts = (at - rarest for at in self._places.get(lines[rarest], ()))
        return [at for at in starts if at >= 0 and self.lines[at : at + size] == want]

    def count(self, line: bytes) -> int:
        """How often a line is there."""
        return len(self._places.get(line, ()))

    def line(self, at: int) -> bytes:
        """A line, or nothing outside the file."""
        return self.lines[at] if 0 <= at < len(self.lines) else b""


@lru_cache(maxsize=256)
def text_of(content: bytes | None) -> Text:
    """A version; the patches of a stack look at the same ones."""
    return Text(content)


def _plain(line: bytes) -> bytes:
    return b" ".join(line.split())


def word_of(line: bytes) -> bytes:
    """The longest word of a line that counts: a version without it, however spaced, lacks the line."""
    return max(line.split(), key=len)


def blocks(hunks: Sequence[diff.Hunk]) -> list[Block]:
    """The blocks of a file's hunks."""
    return [block for block, _ in blocks_both(hunks)]


def blocks_both(hunks: Sequence[diff.Hunk]) -> list[tuple[Block, Block]]:
    """The blocks of a file's hunks, each with the one that takes it back."""
    found = []
    for hunk in hunks:
        old, new = hunk.old, hunk.new
        for kind, i, j, k, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if kind == "equal":
                continue
            removed, added = (tuple(t for t in map(_plain, side) if t) for side in (old[i:j], new[k:end]))
            if removed != added:
                found.append((_block(removed, added, new, k, end), _block(added, removed, old, i, j)))
    return found


def _block(removed: tuple[bytes, ...], added: tuple[bytes, ...], lines: Sequence[bytes], start: int, end: int) -> Block:
    """A block whose added lines are these of a file's; around them, lines that count."""
    above = [t for t in map(_plain, lines[:start]) if t][-2:]
    below = [t for t in map(_plain, lines[end:]) if t][:2]
    nearest = (above[-1] if above else b"", below[0] if below else b"")
    return Block(removed, added, *nearest, (tuple(above), tuple(below)))


def is_there(block: Block, base: Text, now: Text, times: int = 1) -> bool:
    """Whether upstream made this change between two versions of the file.

    :param times: how often the patch makes it.
    """
    if not block.added:
        if len(now.find(block.removed)) > len(base.find(block.removed)) - times:
            return False
        # All that is left of a removal is that what stood around it now stands together.
        return any(now.line(at + 1) == block.below for at in now.find([block.above])) if block.above else True
    places, before = now.find(block.added), len(base.find(block.added))
    if len(places) < before + times:
        return False
    if block.removed and len(now.find(block.removed)) > max(0, len(base.find(block.removed)) - times):
        return False
    unique = not before and len(places) == times
    if unique and len(telling(block.added)) >= _DISTINCT_LINES:
        return True
    size, needed = len(block.added), 1 if unique else 2
    neighbours = [(now.line(at - 1) == block.above) + (now.line(at + size) == block.below) for at in places]
    if sum(n >= needed for n in neighbours) < times:
        return False
    # The same lines between the same neighbours may be another place's.
    return unique or not any(block.wide) or _in_place(block, now) > _in_place(block, base)


def _in_place(block: Block, text: Text) -> int:
    """How often a block's added lines stand between all the lines that the patch has around them."""
    above, below = block.wide
    return len(text.find((*above, *block.added, *below)))


def seems_made(block: Block, base: Callable[[], bytes], now: bytes) -> bool:
    """Whether upstream added a block's lines, anywhere: then this may be the same change.

    :param base: reads the file as it was; where a line of the block is not there now, nobody needs to.
    """
    words = [word_of(line) for line in block.added]
    if not words or not all(word in now for word in words):
        return False
    return len(text_of(now).find(block.added)) > len(text_of(base()).find(block.added))


def is_twice(block: Block, base: Callable[[], bytes], now: bytes, merged: bytes, times: int = 1) -> bool:
    """Whether upstream made an addition, there or elsewhere, and a merge makes it once more.

    A block that isn't unlike all else counts only where upstream has it between the same neighbours.

    :param times: how often the patch makes it.
    """
    if not seems_made(block, base, now):
        return _is_twice_edited(block, base, now, merged)
    before, places = len(text_of(base()).find(block.added)), text_of(now).find(block.added)
    if len(text_of(merged).find(block.added)) <= max(before + times, len(places)):
        return False
    if not before and len(telling(block.added)) >= _DISTINCT_LINES:
        return True
    text, size = text_of(now), len(block.added)
    return any(text.line(at - 1) == block.above and text.line(at + size) == block.below for at in places)


def _is_twice_edited(block: Block, base: Callable[[], bytes], now: bytes, merged: bytes) -> bool:
    """The same of a long addition most of whose lines upstream added: it has them edited."""
    words = {line: word_of(line) for line in telling(block.added)}
    if len(words) < _LONG or sum(word in now for word in words.values()) < _MOST * len(words):
        return False
    old, new, result = text_of(base()), text_of(now), text_of(merged)
    own = [line for line in words if not old.count(line)]
    there = [line for line in own if new.count(line) and result.count(line) > new.count(line)]
    return len(own) >= _LONG and len(there) >= _MOST * len(own)


def mark_added(ours: bytes, merged: bytes, twice: Sequence[Block], labels: tuple[str, str]) -> bytes:
    """A merged file, with conflict markers (as git's, with what was there in the middle) where these blocks are added.

    :param ours: the file before.
    :param labels: for ours and for the patch.
    """
    old, new = diff.split_lines(ours), diff.split_lines(merged)
    wanted = {b.added for b in twice}
    changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    plain = [tuple(t for t in map(_plain, new[k:end]) if t) for _, _, _, k, end in changes]
    chosen = [
        change[0] != "equal" and any(added[n : n + len(w)] == w for w in wanted for n in range(len(added)))
        for change, added in zip(changes, plain, strict=True)
    ]
    if not any(chosen):  # lines around it are like its own: then all that changed is to be looked at
        chosen = [change[0] != "equal" for change in changes]
    found: list[bytes] = []
    for (_, i, j, k, end), marked in zip(changes, chosen, strict=True):
        if not marked:
            found += new[k:end]
            continue
        sides = (
            (b"<<<<<<< %s\n" % labels[0].encode(), old[i:j]),
            (b"||||||| base\n", old[i:j]),
            (b"=======\n", new[k:end]),
        )
        for mark, lines in sides:
            found += [mark, *(line.rstrip(b"\n") + b"\n" for line in lines)]
        found.append(b">>>>>>> %s\n" % labels[1].encode())
    return b"".join(found)


def telling(lines: Sequence[bytes]) -> set[bytes]:
    """Those that hold more than brackets and blanks."""
    return {line for line in lines if len(re.sub(rb"\W", b"", line)) >= _LETTERS}


def share(found: Sequence[Block], base: Text, now: Text) -> float:
    """Which part of the blocks' lines upstream has added or removed as well, each line for itself."""
    added = Counter(line for b in found for line in b.added)
    removed = Counter(line for b in found for line in b.removed)
    total = sum(added.values()) + sum(removed.values())
    have = sum(_counted(n, base.count(line), now.count(line)) for line, n in added.items())
    if added and not have:
        return 0.0  # that lines are gone which the patch replaces says nothing
    have += sum(_counted(n, now.count(line), base.count(line)) for line, n in removed.items())
    return have / total if total else 0.0


def _counted(times: int, before: int, after: int) -> int:
    """How many of a line's changes are there; where it stands for other reasons too, all or none."""
    more = max(0, min(times, after - before))
    return more if not before or more == times else 0
