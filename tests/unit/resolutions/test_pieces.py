"""Merges of smaller pieces: what is merged, and what is left as a conflict because it would be a guess."""

from __future__ import annotations

import pytest

from patchq.resolutions._pieces import ADJACENT, BOTH, Region, resolve_region


def resolved(path: bytes, base: bytes, ours: bytes, theirs: bytes) -> tuple[str, bytes] | None:
    return resolve_region(path, Region(base, ours, theirs))


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        (b"a\nb\n", b"A\nb\n", b"a\nB\n", b"A\nB\n"),
        (b"a\n", b"A\n", b"a\nnew\n", b"A\nnew\n"),  # a line below one that upstream changes
        (b"a\n", b"new\na\n", b"A\n", b"new\nA\n"),
        (b"a\nb\nc\n", b"c\n", b"a\nb\nC\n", b"C\n"),
    ],
)
def test_adjacent_lines(base: bytes, ours: bytes, theirs: bytes, merged: bytes) -> None:
    assert resolved(b"f.txt", base, ours, theirs) == (ADJACENT, merged)


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        (b"a\n", b"b\n", b"c\n"),
        (b"", b"x\n", b"y\n"),  # the order is unclear
        (b"a\n", b"A\nmore\n", b"a\nnew\n"),
        (b"a\n", b"", b"a\nnew\n"),  # what the new line belongs to is gone
        (b"a\nb", b"A\nb", b"a\nB"),  # without a line end, the last lines would run together
    ],
)
def test_lines_that_collide(base: bytes, ours: bytes, theirs: bytes) -> None:
    assert resolved(b"f.cfg", base, ours, theirs) is None


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        (b'v = "1.2.dev"\n', b'v = "2.0.dev"\n', b'v = "1.2"\n'),  # flask
        (b"V = (1, 7, 3)\n", b"V = (1, 8, 3)\n", b"V = (1, 7, 4)\n"),  # fabric
        (b"f(one, two)\n", b"f(one, 2)\n", b"f(1, two)\n"),
    ],
)
def test_words_of_a_line_are_not_merged(base: bytes, ours: bytes, theirs: bytes) -> None:
    """Of six such merges in public histories, two were wrong."""
    assert resolved(b"f.py", base, ours, theirs) is None


@pytest.mark.parametrize("base", [b"", b"\n"])
def test_functions_that_both_sides_add(base: bytes) -> None:
    ours, theirs = b"def a():\n    pass\n\n", b"@here\ndef b():\n    pass\n\n"
    assert resolved(b"f.py", base, ours, theirs) == (BOTH, ours + theirs)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (b"def a():\n    pass\n", b"def a():\n    return 1\n"),
        (b"x = 1\n", b"y = 2\n"),  # their order may matter
        (b"def a():\n    pass\n", b"import b\n"),
    ],
)
def test_additions_that_are_not_joined(ours: bytes, theirs: bytes) -> None:
    assert resolved(b"f.py", b"", ours, theirs) is None


def test_entries_that_both_sides_add() -> None:
    assert resolved(b"CHANGES", b"", b"- one\n  more\n", b"- two\n") == (BOTH, b"- one\n  more\n- two\n")
    assert resolved(b"CHANGES", b"", b"- one\n", b"- two\n- one\n") is None
    assert resolved(b"f.rst", b"", b"A sentence.\n", b"- two\n") is None
    # paramiko: the order tells which release has the change
    assert resolved(b"f.rst", b"", b"* :release:`1.14.0 <2014-05-07>`\n", b"* :bug:`285`\n") is None
