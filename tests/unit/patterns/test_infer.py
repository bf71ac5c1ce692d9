"""Rules inferred from a change, and where upstream's later changes leave them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchq.patterns._infer import infer
from patchq.patterns.regenerate import RuleStop, TextTree, regenerate

OLD = b"""def first(a):
    check(a)
    run(a, mode=1)
    return a

def second(a):
    check(a)
    run(a, mode=2)
    return a
"""


def carried(new: bytes, upstream: bytes) -> bytes:
    rules = infer(b"f.py", OLD, new)
    assert rules
    assert regenerate(rules, TextTree({b"f.py": OLD})) == {b"f.py": new}
    return regenerate(rules, TextTree({b"f.py": upstream}))[b"f.py"]


def test_a_changed_word_is_found_in_a_changed_line() -> None:
    new = OLD.replace(b"mode=2", b"mode=3")
    upstream = OLD.replace(b"run(a, mode=2)", b"run(a, mode=2, fast=True)")
    assert carried(new, upstream) == OLD.replace(b"run(a, mode=2)", b"run(a, mode=3, fast=True)")


def test_an_added_line_is_found_by_the_other_neighbour() -> None:
    new = OLD.replace(b"\ndef second", b"third = 3\n\ndef second")
    upstream = OLD.replace(b"def second(a):", b"def second(a, b):")
    assert carried(new, upstream) == upstream.replace(b"\ndef second", b"third = 3\n\ndef second")


def test_a_neighbour_that_is_gone_stops() -> None:
    new = OLD.replace(b"    run(a, mode=2)\n", b"    run(a, mode=2)\n    log(a)\n")
    with pytest.raises(RuleStop, match="matches 0 times"):
        carried(new, OLD.replace(b"mode=2)\n    return a", b"mode=2)\n    more()"))


def test_lines_between_both_neighbours_stop() -> None:
    new = OLD.replace(b"def second", b"third = 3\n\ndef second")
    with pytest.raises(RuleStop, match="matches 0 times"):
        carried(new, OLD.replace(b"\ndef second", b"fourth = 4\n\n\n# more\ndef second"))


def test_a_place_that_occurs_twice_stops() -> None:
    new = OLD.replace(b"mode=1", b"mode=9")
    with pytest.raises(RuleStop, match="matches 2 times"):
        carried(new, OLD + b"\n" + OLD)


def test_a_file_with_crlf_has_rules() -> None:
    old, new = OLD.replace(b"\n", b"\r\n"), OLD.replace(b"mode=1", b"mode=9").replace(b"\n", b"\r\n")
    rules = infer(b"f.py", old, new)
    assert regenerate(rules, TextTree({b"f.py": old})) == {b"f.py": new}
    assert not any("\r" in way.find for rule in rules for way in rule.alternatives)


def test_a_place_that_nothing_identifies_has_none() -> None:
    assert infer(b"f", b"x\n" * 50, b"x\n" * 25 + b"y\n" + b"x\n" * 25) == []


LINES = st.lists(st.sampled_from([b"a(b)\n", b"c d e\n", b"\n", b"}\n", b"f = 1\n", b"g\r\n", b"h"]), max_size=14)


@given(LINES, LINES)
def test_inferred_rules_make_the_change_or_there_are_none(before: list[bytes], after: list[bytes]) -> None:
    old, new = b"".join(before), b"".join(after)
    if old == new:
        return
    rules = infer(b"f", old, new)
    if rules:
        assert regenerate(rules, TextTree({b"f": old})) == {b"f": new}
