"""Line maps, beside git's own diffs of random texts; and what a hunk's place is."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from patchq.formats import diff
from patchq.git.objects import blob_id
from patchq.git.repository import Git, scratch
from patchq.merge._linemap import SAME, LineMap, LineMaps, leading, parse, place, places, stand_alone

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n", b"a\r\n"]), max_size=12)
TEXTS = st.tuples(LINES, st.booleans()).map(lambda t: b"".join(t[0]).removesuffix(b"\n" if t[1] else b""))


def written(git: Git, *texts: bytes) -> None:
    for text in texts:
        git.run("hash-object", "-w", "--stdin", data=text)


def hunks_of(git: Git, old: bytes, new: bytes) -> list[diff.Hunk]:
    """As `read_patches` has them."""
    written(git, old, new)
    args = ("--full-index", "--unified=3", "--diff-algorithm=histogram", "--no-indent-heuristic")
    text = git.run("diff", *args, blob_id(old), blob_id(new))
    for blob in (old, new):  # the diff of a path's two versions, as a patch has it
        text = text.replace(b"/" + blob_id(blob).encode(), b"/file")
    (file,) = diff.parse(text, "test")
    return file.hunks


@settings(max_examples=60)
@given(TEXTS, TEXTS)
def test_a_run_has_the_same_lines_on_both_sides(old: bytes, new: bytes) -> None:
    with scratch() as git:
        written(git, old, new)
        lines = LineMaps(git, ()).of(blob_id(old), blob_id(new))
    assert lines
    before, after = diff.split_lines(old), diff.split_lines(new)
    assert lines.runs[0][:2] == (-1, -1)  # both files begin
    assert lines.runs[-1][1] - lines.runs[-1][0] == len(after) - len(before)  # and end
    for at, there, count in lines.runs:
        for n in range(max(0, -at), min(count, len(before) - at)):
            assert before[at + n] == after[there + n]


@settings(max_examples=60)
@given(TEXTS, TEXTS, TEXTS)
def test_a_map_after_a_patch_has_the_same_lines_still(base: bytes, target: bytes, patched: bytes) -> None:
    if len({base, target, patched}) < 3:
        return
    with scratch() as git:
        written(git, base, target, patched)
        lines = LineMaps(git, ()).of(blob_id(base), blob_id(target))
        hunks = hunks_of(git, base, patched)
    assert lines
    found = place(hunks, target, lines)
    for result, after in ((found[0] if found else None, True), (target, False)):
        if result is None:
            continue
        there, here = diff.split_lines(patched), diff.split_lines(result)
        for at, other, count in lines.patched(hunks, landed=after).runs:
            for n in range(max(0, -at), min(count, len(there) - at)):
                assert there[at + n] == here[other + n]


def test_a_shift_is_of_lines_that_moved_together() -> None:
    lines = LineMap(((-1, -1, 6), (5, 8, 10), (20, 18, 99)))
    assert lines.shift(0, 5) == 0
    assert lines.shift(-1, 5) == 0
    assert lines.shift(3, 8) is None  # three lines came between
    assert lines.shift(5, 15) == 3
    assert lines.shift(14, 16) is None  # the last of them is gone
    assert lines.shift(20, 40) == -2
    assert SAME.shift(-1, 1 << 40) == 0


def test_whole_lines_are_found_only() -> None:
    content = b"xa\na\nab\na\na"
    assert list(places(content, [b"a\n"])) == [3, 8]
    assert list(places(content, [b"a"])) == [10]
    assert list(places(b"a\na\na\n", [b"a\n", b"a\n"])) == [0, 2]
    assert list(places(content, [])) == []


def hunk(old: str, new: str, trailing: int, start: int = 1) -> diff.Hunk:
    sides = [tuple(f"{c}\n".encode() for c in side) for side in (old, new)]
    return diff.Hunk(
        header=b"@@", old_start=start, new_start=start, old=sides[0], new=sides[1], trailing=trailing, context=0
    )


def test_the_context_at_the_begin_is_never_more_than_there_is() -> None:
    assert leading(hunk("abc", "abxc", 1)) == 2
    assert leading(hunk("ab", "aab", 2)) == 0  # one more `a` above: it may as well be below
    assert leading(hunk("ab", "aab", 1)) == 1
    assert leading(hunk("ab", "b", 1)) == 0
    assert leading(hunk("", "ab", 0)) == 0


def test_stand_alone() -> None:
    assert stand_alone([hunk("ab", "ax", 0)], b"c\na\nb\n")
    assert not stand_alone([hunk("ab", "ax", 0)], b"a\nb\na\nb\n")
    assert not stand_alone([hunk("ab", "ax", 0)], b"a\nc\n")
    assert not stand_alone([hunk("", "a", 0)], b"")  # nothing stands everywhere


def test_of_what_is_no_text_there_is_no_map() -> None:
    with scratch() as git:
        written(git, b"a\0b", b"a\0c")
        maps = LineMaps(git, ())
        assert maps.of(blob_id(b"a\0b"), blob_id(b"a\0c")) is None
        assert maps.of(blob_id(b"none"), blob_id(b"here"), ask=False) is None
    assert parse(b" 100644\nBinary files a/x and b/x differ\n") is None
