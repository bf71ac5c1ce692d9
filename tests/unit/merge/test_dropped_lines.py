"""Lines that upstream added and a carried patch drops: named, and nothing else is."""

from __future__ import annotations

import pytest

from patchq.merge.upstream_lines import dropped_lines

OLD = ["def f(x):", "    y = x", "    return y", "", "def g():", "    pass"]
PATCHED = ["def f(x):", "    y = x + 1", "    return y", "", "def g():", "    pass"]
NEW = ["def f(x):", "    assert x is not None", "    count(x)", "    y = x", "    return y", "", "def g():", "    pass"]


def text(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def dropped(result: list[str], new: list[str] = NEW, old: list[str] = OLD, patched: list[str] = PATCHED) -> list[int]:
    found = dropped_lines(old_before=text(old), old_after=text(patched), new_before=text(new), new_after=text(result))
    return [number for number, _ in found]


def with_change(lines: list[str]) -> list[str]:
    return [line.replace("y = x", "y = x + 1") for line in lines]


def test_a_right_resolution_drops_nothing() -> None:
    assert dropped(with_change(NEW)) == []


def test_each_lost_line_is_named() -> None:
    assert dropped(PATCHED) == [2, 3]
    assert dropped(with_change([line for line in NEW if "count" not in line])) == [3]


@pytest.mark.parametrize(
    "result",
    [
        [NEW[0], NEW[3].replace("x", "x + 1"), NEW[1], NEW[2], *NEW[4:]],
        [NEW[0], "    if x:", "        assert x is not None", "        count(x)", "    y = x + 1", *NEW[4:]],
        [NEW[0], "    assert x is not None", "    count(", "        x)", "    y = x + 1", *NEW[4:]],
    ],
    ids=["moved", "indented", "wrapped"],
)
def test_what_is_moved_indented_or_wrapped_is_still_there(result: list[str]) -> None:
    assert dropped(result) == []


def test_what_the_patch_itself_removes_is_its_own() -> None:
    patched = [line for line in OLD if "pass" not in line]
    assert dropped([line for line in NEW if "pass" not in line], patched=patched) == []


def test_a_line_that_both_changed() -> None:
    """The result has what both put into it; without upstream's part it is named."""
    old, patched = ["a", "call(x)", "b"], ["a", "call(x, mine=1)", "b"]
    new = ["a", "call(x, theirs=2)", "b"]
    assert dropped(["a", "call(x, theirs=2, mine=1)", "b"], new, old, patched) == []
    assert dropped(["a", "call(x, mine=1)", "b"], new, old, patched) == [2]


def test_one_of_two_same_lines() -> None:
    old, patched = ["a", "log()", "b"], ["a", "log()", "c"]
    new = ["a", "log()", "x", "log()", "b"]
    assert dropped(["a", "log()", "x", "c"], new, old, patched) == [4]
    assert dropped(["a", "log()", "x", "log()", "c"], new, old, patched) == []


def test_blank_lines_and_brackets_do_not_count() -> None:
    assert dropped(["a", "c"], ["a", "", "}", "b"], ["a", "b"], ["a", "c"]) == []
