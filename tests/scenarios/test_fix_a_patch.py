"""A patch that no longer applies: the way that docs/how-to/fix-a-patch.md shows, wherever it is in the stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit import Patchq, commit_files, edit, git, numbered

PLACES = {"first": ("a.txt", 5), "second": ("a.txt", 30), "third": ("b.txt", 10)}


@pytest.fixture(params=list(PLACES))
def broken(request: pytest.FixtureRequest, stack: Patchq, upstream: Path) -> tuple[Patchq, str]:
    """The three patches, one of which is for lines that upstream has changed."""
    name: str = request.param
    file, line = PLACES[name]
    lines = numbered(40).splitlines(keepends=True)
    lines[line] = b"upstream's\n"
    commit_files(upstream, {file: b"".join(lines)}, "upstream's change")
    git(upstream, "tag", "v2")
    lock = stack.layout.lock.read_text()
    folder = stack.layout.stack("up", "v1")
    stack.ok("pin", "up", "--ref", "v2")
    folder.rename(stack.layout.stack("up", "v2"))
    assert lock != stack.layout.lock.read_text()
    return stack, name


def names(patchq: Patchq) -> list[str]:
    return [line.removesuffix(".patch") for line in (patchq.layout.stack("up", "v2") / "series").read_text().split()]


def test_the_page_works_for_each_place(broken: tuple[Patchq, str]) -> None:
    patchq, name = broken
    file, line = PLACES[name]
    before = {n: patchq.patch_file(n, ref="v2").read_bytes() for n in PLACES}
    output = patchq.fails(3, "apply")
    assert f"`patchq apply up --fix {name}`" in output
    output = patchq.ok("apply", "up", "--fix", name)
    assert f"`patchq export up --amend {name}`" in output
    text = (patchq.tree() / file).read_text().splitlines()
    assert (text[line - 1], text[line]) == ("changed", "upstream's")
    assert f"edited: {file}" in output
    assert "-+" not in output.split("\n", 1)[0]
    patchq.ok("export", "up", "--amend", name)
    patchq.ok("apply")
    assert names(patchq) == list(PLACES)
    fixed = patchq.patch_file(name, ref="v2").read_bytes()
    assert fixed != before[name]
    assert fixed.partition(b"\ndiff ")[0] == before[name].partition(b"\ndiff ")[0], "author, date and message stay"
    for other in before.keys() - {name}:
        if PLACES[other][0] != file:
            assert patchq.patch_file(other, ref="v2").read_bytes() == before[other]
    for path, at in PLACES.values():
        assert (patchq.tree() / path).read_text().splitlines()[at - 1] == "changed"


def test_a_hunk_that_fits_nowhere_is_named_and_kept(stack: Patchq) -> None:
    file = stack.patch_file("second")
    for n in (27, 28, 29, 30, 31, 32, 33):
        file.write_bytes(file.read_bytes().replace(b"line %d\n" % n, b"nothing like %d\n" % n))
    stack.fails(3, "apply")
    output = stack.ok("apply", "--fix", "second")
    rejected = ".patchq/rejected/up/second/a.txt.rej"
    assert f"rejected hunks, to apply by hand: {rejected}" in output
    assert "nothing like 30" in (stack.root / rejected).read_text()
    assert git(stack.tree(), "status", "--porcelain") == ""
    assert "there are no edits" in stack.fails(1, "export", "up", "--amend", "second")
    edit(stack.tree() / "a.txt", 30)
    stack.ok("export", "up", "--amend", "second")
    stack.ok("apply")


def test_edits_are_not_touched(stack: Patchq) -> None:
    edit(stack.tree() / "a.txt", 20)
    before = stack.snapshot()
    assert "was edited" in stack.fails(1, "apply", "--fix", "second")
    assert stack.snapshot() == before


def test_a_patch_above_a_broken_one_can_be_dropped(broken: tuple[Patchq, str]) -> None:
    patchq, _ = broken
    assert "did not apply from this patch on" in patchq.ok("drop", "third", "--json")
    assert names(patchq) == ["first", "second"]


def test_amend_of_one_that_is_not_the_next_is_refused(stack: Patchq) -> None:
    stack.ok("apply", "--to", "first")
    edit(stack.tree() / "a.txt", 20)
    output = stack.fails(1, "export", "up", "--amend", "third")
    assert "and neither is second, which comes before it" in output
    assert "--fix third" in output
