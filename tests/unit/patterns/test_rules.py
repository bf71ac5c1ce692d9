"""Rules in a message: written, read back, refused."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchq.errors import FormatError
from patchq.formats.header import mail_safe, parse_trailers, without_ours
from patchq.patterns.rules import (
    Rule,
    Substitution,
    decode,
    encode,
    make_rule,
    moved_to,
    parse_rule,
    rules_of,
    with_rules,
    without_rules,
)

MESSAGE = "Call it otherwise\n\nWhy.\n\nTopic: moe\n"
TEXTS = st.binary(min_size=1, max_size=60).filter(lambda data: b"\0" not in data).map(decode)


@given(TEXTS, TEXTS, st.integers(1, 99), st.booleans())
def test_a_rule_survives_its_message(find: str, new: str, times: int, regex: bool) -> None:
    if find == new:
        return
    rule = make_rule(["src/*.c", "b.c"], find, new, times=times, regex=regex)
    message = with_rules(MESSAGE, [rule, rule])
    assert mail_safe(message) == message
    assert message.encode()
    assert rules_of(message, "it") == (rule, rule)
    assert without_rules(message) == MESSAGE


def test_a_text_of_lines_is_written_as_lines() -> None:
    rule = make_rule(["a.py"], "if x:\n    y()\n", "if x:\n    z()\n    y()\n")
    message = with_rules(MESSAGE, [rule])
    assert '"find": [\n  "if x:",\n  "    y()"]' in message
    assert rules_of(message, "it") == (rule,)


def test_git_reads_the_rules_as_trailers() -> None:
    message = with_rules(MESSAGE, [make_rule(["a.py"], "if x:\n    y()\n", "if z:\n    y()\n")])
    done = subprocess.run(["git", "interpret-trailers", "--parse"], input=message.encode(), capture_output=True)
    trailers = done.stdout.decode().splitlines()
    assert [line.partition(":")[0] for line in trailers] == ["Topic", "Pattern"]
    assert trailers[1] == "Pattern: " + dict(parse_trailers(message))["Pattern"]


def test_upstream_gets_no_rules() -> None:
    assert without_ours(with_rules(MESSAGE, [make_rule(["a.py"], "x", "y")])) == "Call it otherwise\n\nWhy.\n"


def test_alternatives_are_kept() -> None:
    ways = (Substitution("a\n", "b\n"), Substitution("x\ny\n", "x\nb\ny\n"))
    rule = Rule(files=("f",), alternatives=ways, times=1, changed=1)
    assert rules_of(with_rules(MESSAGE, [rule]), "it") == (rule,)


def test_renamed_files_are_followed_in_the_message() -> None:
    message = with_rules(MESSAGE, [make_rule(["old/a.py", "b.py"], "x", "y", times=2)])
    assert rules_of(moved_to(message, {b"old/a.py": b"new/a.py"}, "it"), "it")[0].files == ("new/a.py", "b.py")
    assert moved_to(message, {b"c.py": b"d.py"}, "it") == message


def test_bytes_of_any_encoding_are_text() -> None:
    assert encode(decode(b"caf\xe9 \xc3\xa9")) == b"caf\xe9 \xc3\xa9"


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "[]",
        "{}",
        '{"files": ["a"], "find": "x"}',
        '{"files": [], "find": "x", "replace": "y"}',
        '{"files": "a", "find": "x", "replace": "y"}',
        '{"files": ["../a"], "find": "x", "replace": "y"}',
        '{"files": ["a/.git/config"], "find": "x", "replace": "y"}',
        '{"files": ["a", "a"], "find": "x", "replace": "y"}',
        '{"files": ["a"], "find": "", "replace": "y"}',
        '{"files": ["a"], "find": "x", "replace": "x"}',
        '{"files": ["a"], "find": "x", "replace": "y", "times": 0}',
        '{"files": ["a"], "find": "x", "replace": "y", "times": true}',
        '{"files": ["a"], "find": "x", "replace": "y", "changed": 1}',
        '{"files": ["*.c"], "find": "x", "replace": "y"}',
        '{"files": ["a"], "find": "x", "replace": "y", "find": "z"}',
        '{"files": ["a"], "find": "x", "replace": "y", "run": "rm"}',
        '{"files": ["a"], "find": "x\\u0000", "replace": "y"}',
        '{"files": ["a"], "find": "x\\ud800", "replace": "y"}',
        '{"files": ["a"], "find": "x", "replace": "y", "regex": 1}',
        '{"files": ["a"], "find": "x", "replace": "y", "or": ['
        + ", ".join(['{"find": "x", "replace": "z"}'] * 8)
        + "]}",
        "[" * 100_000,
    ],
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="has an invalid rule"):
        parse_rule(text, "it")
