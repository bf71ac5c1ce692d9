"""Owners of lines: edits are made in each version that has the lines, and change no other patch."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from patchq.editing._owners import LineEdits, ReplacedLines, Version
from patchq.formats.diff import split_lines

#: An edit of a file: where it begins, how many lines it replaces, and by how many.
EDITS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 3), st.integers(0, 3)), max_size=3)
#: Few words, so that lines repeat.
WORDS = st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b""]), min_size=40, max_size=40)


def edited(content: bytes, edits: Sequence[tuple[int, int, int]], words: list[bytes]) -> bytes:
    lines = split_lines(content)
    for start, removed, added in edits:
        new = [words.pop() + b"\n" for _ in range(min(added, len(words)))]
        lines[start : start + removed] = new
    return b"".join(lines)


def changed(before: bytes, after: bytes) -> list[ReplacedLines]:
    matcher = difflib.SequenceMatcher(None, split_lines(before), split_lines(after), autojunk=False)
    found = []
    for kind, start, end, new_start, new_end in matcher.get_opcodes():
        if kind != "equal":
            found.append(ReplacedLines(start=start, end=end, new_start=new_start, new_end=new_end))
    return found


def added(before: bytes, after: bytes) -> dict[bytes, int]:
    """How many more of each line there are."""
    counts = Counter(split_lines(after))
    counts.subtract(Counter(split_lines(before)))
    return {line: count for line, count in counts.items() if count}


@given(st.lists(EDITS, min_size=1, max_size=4), EDITS, WORDS)
def test_edits_change_their_patch_and_no_other(
    patches: list[list[tuple[int, int, int]]], edits: list[tuple[int, int, int]], words: list[bytes]
) -> None:
    contents = [b"".join(b"%d\n" % n for n in range(8))]
    first = Version().patched([ReplacedLines(start=0, end=0, new_start=0, new_end=8)], contents[0], 0)
    for line in first.lines:
        line.owner = None
    versions = [first]
    for number, patch in enumerate(patches, 1):
        contents.append(edited(contents[-1], patch, words))
        versions.append(versions[-1].patched(changed(*contents[-2:]), contents[-1], number))
        assert b"".join(line.text for line in versions[-1].lines) == contents[-1]
        assert len(versions[-1].gaps) == len(versions[-1].lines) + 1
    target = edited(contents[-1], edits, words)
    placed = []
    for region in changed(contents[-1], target):
        owners = versions[-1].owners(region)
        if len(owners) != 1:
            return
        placed.append((min(owners), region))
    made = []
    for number, version in enumerate(versions):
        lines = LineEdits()
        for owner, region in placed:
            if owner <= number:
                lines.add(versions[-1], region, split_lines(target), owner)
        made.append(lines.made(version))
    assert made[0] == contents[0]
    assert made[-1] == target
    owning = {owner for owner, _ in placed}
    for number in range(1, len(versions)):
        if number not in owning:
            assert added(*made[number - 1 : number + 1]) == added(*contents[number - 1 : number + 1])
