"""Rules applied to a tree: exact counts or nothing."""

from __future__ import annotations

import pytest

from patchq.patterns import _matches
from patchq.patterns.regenerate import RuleFailure, RuleStop, TextTree, count, matches_glob, regenerate
from patchq.patterns.rules import Rule, Substitution, decode, make_rule, parse_rule


def apply(rule: Rule, moved: dict[bytes, bytes] | None = None, **files: bytes) -> dict[bytes, bytes]:
    return regenerate([rule], TextTree({name.replace("__", "/").encode(): text for name, text in files.items()}), moved)


def reason(rule: Rule, **files: bytes) -> tuple[RuleFailure, int]:
    with pytest.raises(RuleStop) as caught:
        apply(rule, **files)
    return caught.value.reason, caught.value.found


def test_a_rule_changes_each_match() -> None:
    assert apply(make_rule(["a"], "x", "yy", times=2), a=b"x+x\n", b=b"x") == {b"a": b"yy+yy\n"}


@pytest.mark.parametrize(("text", "found"), [(b"x\nx\n", 2), (b"", 0), (b"x" * 4, 4)])
def test_another_number_of_matches_stops(text: bytes, found: int) -> None:
    assert reason(make_rule(["a"], "x", "y", times=3), a=text) == (RuleFailure.TIMES, found)


def test_matches_that_overlap_stop() -> None:
    assert reason(make_rule(["a"], "aa", "b", times=2), a=b"aaa") == (RuleFailure.OVERLAP, 0)


def test_each_named_file_must_match() -> None:
    rule = make_rule(["a", "b"], "x", "y", times=2)
    assert apply(rule, a=b"x", b=b"x") == {b"a": b"y", b"b": b"y"}
    assert reason(rule, a=b"xx", b=b"") == (RuleFailure.CHANGED, 1)
    assert reason(rule, a=b"xx")[0] == RuleFailure.NO_FILE


def test_a_glob_has_the_number_of_its_files() -> None:
    text = '{"files": ["src/**/*.c"], "find": "x", "replace": "y", "times": 3, "changed": 2}'
    rule = parse_rule(text, "it")
    files = {"src__a.c": b"x", "src__d__b.c": b"xx", "src__d__c.c": b"z", "a.c": b"x"}
    assert apply(rule, **files) == {b"src/a.c": b"y", b"src/d/b.c": b"yy"}
    assert reason(rule, **{**files, "src__d__b.c": b"x", "src__d__c.c": b"x"}) == (RuleFailure.CHANGED, 3)
    assert count(rule, TextTree({b"src/a.c": b"xx"})).times == 2


def test_a_text_that_ends_with_a_newline_is_whole_lines() -> None:
    rule = make_rule(["a"], "foo()\n", "bar()\n")
    assert apply(rule, a=b"xfoo()\nfoo()\n") == {b"a": b"xfoo()\nbar()\n"}
    assert reason(rule, a=b"foo()") == (RuleFailure.TIMES, 0)


def test_lines_match_files_with_crlf() -> None:
    rule = make_rule(["a"], "one\ntwo\n", "one\nmore\ntwo\n")
    assert apply(rule, a=b"one\r\ntwo\r\n") == {b"a": b"one\r\nmore\r\ntwo\r\n"}
    assert reason(rule, a=b"one\r\ntwo\n") == (RuleFailure.TIMES, 0)
    assert apply(make_rule(["a"], "one\r\n", "two\r\n"), a=b"one\r\n") == {b"a": b"two\r\n"}


def test_bytes_that_are_no_utf8_match() -> None:
    assert apply(make_rule(["a"], decode(b"\xe9"), "e"), a=b"caf\xe9") == {b"a": b"cafe"}


def test_renamed_files_are_followed() -> None:
    assert apply(make_rule(["a"], "x", "y"), {b"a": b"new"}, new=b"x") == {b"new": b"y"}


def test_rules_see_the_results_of_earlier_ones() -> None:
    rules = [make_rule(["a"], "x", "y"), make_rule(["a"], "yy", "z")]
    assert regenerate(rules, TextTree({b"a": b"xy"})) == {b"a": b"z"}


def test_alternatives_that_match_must_agree() -> None:
    ways = (Substitution("a\n", "a\nnew\n"), Substitution("b\n", "new\nb\n"))
    rule = Rule(files=("f",), alternatives=ways, times=1, changed=1)
    assert apply(rule, f=b"a\nb\n") == {b"f": b"a\nnew\nb\n"}
    assert apply(rule, f=b"a\nc\n") == {b"f": b"a\nnew\nc\n"}
    assert reason(rule, f=b"a\nc\nb\n")[0] == RuleFailure.DIFFERENT
    assert apply(rule, f=b"a\nb\nb\n") == {b"f": b"a\nnew\nb\nb\n"}
    assert reason(rule, f=b"b\nb\n") == (RuleFailure.TIMES, 2)
    assert reason(rule, f=b"c\n") == (RuleFailure.TIMES, 0)


def test_an_expression_has_groups_and_lines() -> None:
    rule = make_rule(["a"], r"^(\w+)\((\d+)\)$", r"\2\g<1>", times=2, regex=True)
    assert apply(rule, a=b"f(1)\n f(2)\ng(3)\n") == {b"a": b"1f\n f(2)\n3g\n"}
    assert reason(rule, a=b"f(1)\n") == (RuleFailure.TIMES, 1)


@pytest.mark.parametrize(("find", "new"), [("(", "x"), ("x*", "y"), ("x", r"\1"), ("(?=x)", "y")])
def test_an_expression_that_is_wrong_stops(find: str, new: str) -> None:
    assert reason(make_rule(["a"], find, new, regex=True), a=b"xx")[0] == RuleFailure.REGEX


def test_an_expression_that_takes_too_long_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_matches, "SECONDS", 1)
    rule = make_rule(["a"], r"(x+x+)+y", "z", regex=True)
    with pytest.raises(RuleStop, match="more than 1 seconds"):
        apply(rule, a=b"x" * 60)


@pytest.mark.parametrize(
    ("path", "glob", "fits"),
    [
        ("a/b.c", "a/*.c", True),
        ("a/b/c.c", "a/*.c", False),
        ("a/b/c.c", "**/*.c", True),
        ("c.c", "**/c.c", True),
        ("a/[id].ts", "a/[id].ts*", True),
        ("a/i.ts", "a/[id].ts*", False),
        ("abc", "a?c", True),
        ("x" * 200, "*x" * 40 + "y", False),
    ],
)
def test_globs(path: str, glob: str, fits: bool) -> None:
    assert matches_glob(path.encode(), glob.encode()) is fits
