"""The ledger: what is written is read, what is damaged is told and kept, branches merge by union."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchq.formats.ledger import (
    Attempt,
    Drop,
    FileOffset,
    FileOutcome,
    Ledger,
    add,
    changed_lines,
    costs,
    find_drop,
    hot_files,
    parse,
    stream,
    summary,
)
from patchq.formats.outcomes import Grade, Outcome

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=20)
FILES = st.lists(st.builds(FileOutcome, WORDS, st.integers(0, 9)), max_size=3).map(tuple)
OFFSETS = st.lists(
    st.builds(FileOffset, WORDS, st.lists(st.integers(-9, 9), min_size=1, max_size=3).map(tuple)), max_size=2
).map(tuple)
ATTEMPTS = st.builds(
    Attempt,
    patch=WORDS,
    patch_id=WORDS,
    from_ref=WORDS,
    onto=WORDS,
    outcome=st.sampled_from(Outcome),
    tool=WORDS,
    time=WORDS,
    files=FILES,
    grade=st.sampled_from(Grade),
    evidence=st.text(max_size=9),
    broke=st.text(max_size=9),
    how=st.text(max_size=9),
    lines=st.integers(0, 99),
    proof=st.text(max_size=9),
    offsets=OFFSETS,
    checked=st.text(max_size=9),
    undecided=st.booleans(),
)


def attempt(patch: str, onto: str, outcome: str, time: str = "2026-01-01T00:00:00Z", **rest: object) -> Attempt:
    return Attempt(
        patch=patch,
        patch_id="0" * 40,
        from_ref="v1",
        onto=onto,
        outcome=Outcome(outcome),
        tool="patchq 0",
        time=time,
        **rest,
    )  # type: ignore[arg-type]


def old_line(one: Attempt) -> bytes:
    """The line as version 1 wrote it."""
    return json.dumps({**json.loads(one.line()), "v": 1}).encode() + b"\n"


@given(st.lists(ATTEMPTS, max_size=6))
def test_what_is_written_is_read(attempts: list[Attempt]) -> None:
    data = add(b"", attempts)
    assert parse(data).attempts == tuple(dict.fromkeys(attempts))
    assert parse(data).problems == ()
    assert add(data, attempts) == data


@given(st.lists(ATTEMPTS, max_size=4), st.lists(ATTEMPTS, max_size=4), st.randoms())
def test_two_branches_merge_by_union(mine: list[Attempt], theirs: list[Attempt], dice: random.Random) -> None:
    lines = add(b"", mine).splitlines(keepends=True) + add(b"", theirs).splitlines(keepends=True)
    dice.shuffle(lines)
    assert set(parse(b"".join(lines)).attempts) == {*mine, *theirs}


@given(
    st.lists(st.one_of(ATTEMPTS.map(Attempt.line), st.sampled_from([b"{\n", b"\n", b"[]\n"])), max_size=8), st.randoms()
)
def test_one_by_one_it_is_the_same_as_at_once(lines: list[bytes], dice: random.Random) -> None:
    lines += dice.choices(lines, k=3) if lines else []  # what a merge by union leaves
    whole = parse(b"".join(lines))
    found = list(stream(lambda: lines))
    assert tuple(x for x in found if isinstance(x, Attempt)) == whole.attempts
    assert tuple(x for x in found if not isinstance(x, Attempt)) == whole.problems
    assert summary(whole.attempts).costs() == costs(whole)


def test_one_by_one_no_line_is_read_before_it_is_asked_for() -> None:
    lines = [attempt(str(n), "v2", "clean").line() for n in range(100)]
    given_out = []

    def once() -> Iterator[bytes]:
        for line in lines:
            given_out.append(line)
            yield line

    found = stream(once)
    assert len(given_out) == 100, "looked through once for doubles"
    next(found)
    assert len(given_out) == 101


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{half", "Expecting"),
        (b"[]", "is not a JSON object"),
        (b'{"v": 7}', "has format 7, which a newer patchq wrote"),
        (b'{"v": 1, "patch": "a"}', "lacks patch_id, from_ref, onto, outcome, tool, time"),
        (attempt("a", "v2", "clean").line().replace(b'"clean"', b'"lost"'), "has the unknown outcome 'lost'"),
        (attempt("a", "v2", "clean").line().replace(b"}", b', "x": 1}'), "has unknown fields x"),
        (attempt("a", "v2", "clean").line().replace(b"}", b', "lines": "two"}'), "has a field of the wrong type"),
        (attempt("a", "v2", "clean").line().replace(b"}", b', "files": [{"path": "a"}]}'), "is malformed"),
        (attempt("a", "v2", "clean").line().replace(b"}", b', "offsets": [{"path": "a"}]}'), "is malformed"),
        (attempt("a", "v2", "clean").line().replace(b"}", b', "how": "\\ud800"}'), "surrogates not allowed"),
        (b"<<<<<<< HEAD", "Expecting value"),
        (b"\xff\xfe", "codec can't decode"),
    ],
)
def test_a_damaged_line_is_told_by_its_number_and_kept(line: bytes, message: str) -> None:
    good = attempt("a", "v2", "clean").line()
    data = good + line.rstrip(b"\n") + b"\n" + attempt("b", "v2", "clean").line()
    found = parse(data)
    assert [a.patch for a in found.attempts] == ["a", "b"]
    ((number, words),) = [(p.number, p.message) for p in found.problems]
    assert number == 2
    assert message in words
    assert add(data, [attempt("c", "v2", "clean")]).startswith(data)


#: What stands around a value, and in its place; \x0c is a blank of Python's, not of JSON's.
ODD = [b" ", b"\t", b"\r", b"\x0c", b"\xef\xbb\xbf", "\u00a0".encode(), b"x", b"{}", b",", b"\xff", b""]
GOOD = [
    attempt("a", "v2", "clean"),
    attempt("\u00e4", "v2", "clean", how="\u2028"),
    attempt("a", "v2", "merged", lines=3),
]


@given(
    st.lists(
        st.tuples(st.sampled_from(ODD), st.sampled_from([b"", b"[", *(a.line().rstrip(b"\n") for a in GOOD)]), st.sampled_from(ODD)),
        max_size=6,
    )
)  # fmt: skip
def test_a_line_is_what_json_says_that_it_is(parts: list[tuple[bytes, bytes, bytes]]) -> None:
    lines = [b"".join(part) for part in parts]
    wrong = {}
    for number, line in enumerate(lines, 1):
        try:
            raw = json.loads(line.decode()) if line.strip() else None
        except ValueError as error:
            wrong[number] = str(error)
            continue
        if raw is not None and "v" not in raw:
            wrong[number] = "has format None, not 6"
    found = parse(b"\n".join(lines))
    assert {p.number: p.message for p in found.problems} == wrong
    good = [n for n, line in enumerate(lines, 1) if line.strip() and n not in wrong]
    assert list(found.attempts) == list(
        dict.fromkeys(a for n in good for a in GOOD if a.line().strip() == parts[n - 1][1])
    )


def test_what_is_read_is_as_what_is_made() -> None:
    made = attempt("a", "v2", "clean", how="so")
    (read,) = parse(made.line()).attempts
    assert (type(read), read, hash(read)) == (Attempt, made, hash(made))
    with pytest.raises(FrozenInstanceError):
        read.how = "otherwise"  # type: ignore[misc]
    # A text that says nothing is as one that isn't there.
    raw = {**json.loads(made.line()), "grade": "", "broke": ""}
    assert parse(json.dumps(raw).encode()).attempts == (made,)
    assert parse(json.dumps({**raw, "tool": ""}).encode()).problems[0].message == "lacks tool"


def test_a_last_line_without_an_end_is_not_glued_to() -> None:
    data = attempt("a", "v2", "clean").line().rstrip(b"\n")
    assert [a.patch for a in parse(add(data, [attempt("b", "v2", "clean")])).attempts] == ["a", "b"]


def test_the_dearest_is_first_and_the_last_word_counts() -> None:
    file = (FileOutcome("hot.py", 2),)
    ledger = parse(
        add(b"", [
            attempt("cheap", "v2", "clean"),
            attempt("dear", "v2", "conflict", "2026-01-01T00:00:00Z", files=file),
            attempt("dear", "v2", "resolved", "2026-01-02T00:00:00Z", files=file, lines=7),
            attempt("dear", "v3", "replayed", files=file),
            attempt("gone", "v2", "absorbed", grade="identical"),
        ])
    )  # fmt: skip
    found = {c.patch: (c.tried, c.survived, c.stopped, c.lines, c.retired) for c in costs(ledger)}
    assert next(iter(found)) == "dear"
    assert found == {"dear": (2, 2, 3, 7, ""), "gone": (1, 0, 1, 0, "v2"), "cheap": (1, 1, 0, 0, "")}
    assert hot_files(ledger) == [("hot.py", 3, 1)]


def test_changed_lines_are_those_that_the_two_don_t_share() -> None:
    assert changed_lines([b"+a", b"+b", b"+b"], [b"+b", b"+c"]) == 3


@pytest.mark.parametrize(
    ("outcome", "how", "reason"),
    [
        ("absorbed", "", "upstream has it"), ("absorbed", "not carried yet: upstream has it (e)", ""),
        ("withdrawn", "nothing calls it", "no longer needed"), ("obsolete", "left out", "no longer needed"),
        ("conflict", "left out", "skipped"), ("conflict", "", ""), ("obsolete", "", ""),
        ("conflict", "not carried yet", ""), ("resolved", "by hand", ""), ("clean", "", ""),
    ],
)  # fmt: skip
def test_which_old_lines_drop_a_patch(outcome: str, how: str, reason: str) -> None:
    latest = parse(old_line(attempt("a", "v2", outcome, how=how))).latest()
    found = find_drop(latest, "a", {"v1": ["a"], "v2": [], "v3": []})
    assert found == (Drop(patch="a", ref="v2", reason=reason, how=how) if reason else None)
    assert find_drop(latest, "a", {"v1": ["a"], "v2": [], "v3": ["a"]}) is None, "its stack has it"
    assert find_drop(latest, "a", {"v1": ["a"], "v2": [], "v3": ["a"], "v4": []}) is None, "a later one has it"
    assert find_drop(latest, "b", {"v1": [], "v2": []}) is None


def test_a_later_line_takes_a_decision_back() -> None:
    lines = (attempt("a", "v2", "conflict", how="x"), attempt("a", "v3", "conflict", how="x", undecided=True))
    assert find_drop(Ledger(lines).latest(), "a", {"v2": [], "v3": []}) is None


@pytest.mark.parametrize("undecided", [False, True])
@pytest.mark.parametrize("how", ["", "not carried yet", "x"])
def test_no_word_of_a_new_line_decides(how: str, undecided: bool) -> None:
    latest = parse(attempt("a", "v2", "conflict", how=how, undecided=undecided).line()).latest()
    assert (find_drop(latest, "a", {"v2": []}) is None) == undecided
