"""What counts as upstream's having a patch; benchmarks/absorbed.py measures it on real releases."""

from __future__ import annotations

import difflib

import pytest

from patchq.formats import diff
from patchq.upstream.match import FileSight, judge, look

BASE = b"".join(b"line %d\n" % n for n in range(1, 31))


def hunks(old: bytes, new: bytes) -> list[diff.Hunk]:
    """The hunks between two contents, three lines of context, by difflib."""
    a, b = (text.decode().splitlines(keepends=True) for text in (old, new))
    lines = list(difflib.unified_diff(a, b, "a/f", "b/f"))
    return diff.parse(b"diff --git a/f b/f\n" + "".join(lines).encode(), "test")[0].hunks


def with_lines(changed: dict[int, bytes], base: bytes = BASE) -> bytes:
    lines = base.splitlines(keepends=True)
    for n, text in changed.items():
        lines[n - 1] = text
    return b"".join(lines)


def see(patched: bytes, *versions: bytes | None, base: bytes = BASE) -> FileSight:
    named = [(f"r{n}", v) for n, v in enumerate(versions, 1)]
    return look("f", hunks(base, patched), patched, base, named)


PATCHED = with_lines({10: b"one thing\nanother thing\na third thing\n"})


@pytest.mark.parametrize(
    ("what", "now", "grade"),
    [
        ("the very file", PATCHED, "identical"),
        ("with other changes", with_lines({25: b"else\n"}, PATCHED.replace(b"line 30\n", b"")), "contained"),
        ("reindented", PATCHED.replace(b"one thing", b"    one thing").replace(b"another", b"\tanother"), "contained"),
        (
            "moved within the file",
            BASE.replace(b"line 10\n", b"") + b"one thing\nanother thing\na third thing\n",
            "contained",
        ),
        ("not at all", BASE, ""),
        ("a line otherwise", PATCHED.replace(b"a third", b"a fourth"), "edited"),
        ("a line too few", PATCHED.replace(b"another thing\n", b""), "edited"),
        ("but what it replaces stayed", BASE + b"one thing\nanother thing\na third thing\n", "edited"),
        ("the file is gone", None, ""),
    ],
)
def test_one_version(what: str, now: bytes | None, grade: str) -> None:
    assert see(PATCHED, now).grade == grade, what


def test_what_stood_there_all_along_is_no_evidence() -> None:
    base = BASE + b"one thing\nanother thing\na third thing\n"
    patched = with_lines({10: b"one thing\nanother thing\na third thing\n"}, base)
    assert see(patched, base.replace(b"line 10\n", b""), base=base).grade == ""
    assert see(patched, with_lines({20: b"else\n"}, patched), base=base).grade == "contained"


def test_a_line_that_could_stand_anywhere_needs_its_neighbour() -> None:
    patched = with_lines({10: b"line 10\nreturn\n"})
    assert see(patched, with_lines({20: b"line 20\nreturn\n"})).grade != "contained"
    assert see(patched, with_lines({20: b"else\n"}, patched)).grade == "contained"


def test_twice_is_not_once() -> None:
    patched = with_lines({10: b"line 10\nreturn early(now)\n", 20: b"line 20\nreturn early(now)\n"})
    once = with_lines({10: b"line 10\nreturn early(now)\n"})
    assert see(patched, once).grade == "edited"
    assert see(patched, with_lines({5: b"else\n"}, patched)).grade == "contained"


def test_a_removal_is_seen_by_what_then_stands_together() -> None:
    patched = BASE.replace(b"line 10\nline 11\n", b"")
    assert see(patched, patched + b"more\n").grade == "contained"
    assert see(patched, with_lines({10: b"other\n", 11: b"things\n"})).grade != "contained"


def test_where_it_was_first_seen_and_that_it_was_taken_back() -> None:
    assert see(PATCHED, BASE, PATCHED, PATCHED + b"more\n").where == "r2"
    back = see(PATCHED, PATCHED, BASE)
    assert (back.grade, back.where, back.reverted) == ("", "r1", True)
    assert judge([back], ["r1", "r2"]).grade == "edited"
    assert judge([back], ["r1", "r2"]).message == "f: was there at r1, and is not any more"


def test_a_file_that_comes_or_goes() -> None:
    assert look("f", [], None, BASE, [("r1", None)]).grade == "identical"
    assert look("f", [], None, BASE, [("r1", BASE)]).grade == ""
    assert look("f", [], b"\0new", b"\0old", [("r1", b"\0new")]).grade == "identical"
    assert look("f", [], b"\0new", b"\0old", [("r1", b"\0other")]).grade == ""


def test_a_patch_is_what_its_least_file_is() -> None:
    whole, part = (
        FileSight(path="a", grade="contained", where="r1", share=1.0),
        FileSight(path="b", grade="identical", where="r2", share=1.0),
    )
    none = FileSight(path="c", grade="", where="", share=0.0)
    labels = ["r1", "r2"]
    assert (judge([whole, part], labels).grade, judge([whole, part], labels).where) == ("contained", "r2")
    assert judge([whole, part], labels).retirable
    assert judge([whole, none], labels).grade == "edited"
    assert not judge([whole, none], labels).retirable
    assert judge([none], labels).grade == ""
    assert judge([], labels).grade == ""
