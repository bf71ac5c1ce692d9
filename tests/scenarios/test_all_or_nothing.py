"""Apply is all-or-nothing over the set, and its errors say what a person needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit import ROOT, Patchq, commit_files, edit, git, numbered


@pytest.fixture
def two(stack: Patchq, tmp_path: Path) -> Patchq:
    """A second upstream beside ``up``: ``other``, with one patch."""
    folder = tmp_path / "other-upstream"
    folder.mkdir()
    git(folder, "init", "-q")
    commit_files(folder, {"o.txt": numbered(20)})
    git(folder, "tag", "v7")
    stack.ok("pin", "other", "--url", str(folder), "--ref", "v7")
    stack.ok("apply")
    edit(stack.tree("other") / "o.txt", 3)
    stack.ok("new", "other", "mine", "-m", "Mine\n\nWhy.")
    return stack


def spoil(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


def test_a_failing_stack_leaves_every_other_as_it_was(two: Patchq) -> None:
    # `up` would change (its second patch moves a line), `other` fails.
    spoil(two.patch_file("second"), b"+changed", b"+changed again")
    spoil(two.patch_file("mine", "other", "v7"), b"-line 3\n", b"-line three\n")
    before = two.snapshot()
    out = two.fails(3, "apply")
    assert two.snapshot() == before
    for said in ("other", "mine", "o.txt", "@@ -1,6 +1,6 @@", "| line three", "| line 3", "hint: `patchq"):
        assert said in out
    told = json.loads(two.fails(3, "apply", "--json"))
    assert told["conflicts"][0]["found"][2] == "line 3"
    assert told["conflicts"][0]["expected"][2] == "line three"
    # Mended, both move.
    spoil(two.patch_file("mine", "other", "v7"), b"-line three\n", b"-line 3\n")
    two.ok("apply")
    assert b"changed again" in (two.tree() / "a.txt").read_bytes()


def test_no_fuzz(stack: Patchq) -> None:
    """A hunk whose outer context differs: patch(1) would take it with fuzz 1."""
    stack.ok("apply", "--to", "second")
    spoil(stack.patch_file("third"), b" line 7\n", b" line seven\n")
    assert "third" in stack.fails(3, "apply")


def test_moved_lines_are_an_offset_and_export_mends_them(stack: Patchq) -> None:
    spoil(stack.patch_file("third"), b"@@ -7,7 +7,7 @@", b"@@ -5,7 +5,7 @@")
    assert "third: offset +2 lines in b.txt" in stack.ok("apply")
    assert "[offset]" in stack.fails(1, "check")
    stack.ok("export", "up")
    assert "offset" not in stack.ok("apply")


def test_what_upstream_has_already_is_said(stack: Patchq, upstream: Path) -> None:
    commit_files(upstream, {"b.txt": (stack.tree() / "b.txt").read_bytes()}, "upstream took it")
    git(upstream, "tag", "v2")
    stack.ok("pin", "up", "--ref", "v2")
    new = stack.layout.stack("up", "v2")
    new.mkdir()
    (new / "third.patch").write_bytes(stack.patch_file("third").read_bytes())
    (new / "series").write_text("third.patch\n")
    reason = "the hunk's new lines are in the file, and the hunk's old lines are not"
    assert f"{reason}: upstream may have this change already" in stack.fails(3, "apply")
    assert f"`{reason}`" in (ROOT / "docs" / "how-to" / "fix-a-patch.md").read_text()
    assert json.loads(stack.fails(3, "apply", "--json"))["conflicts"][0]["kind"] == "applied"


def test_a_missing_file_is_looked_for(stack: Patchq, upstream: Path) -> None:
    git(upstream, "mv", "b.txt", "pkg/b.txt")
    git(upstream, "commit", "-qm", "moved")
    git(upstream, "tag", "v2")
    stack.ok("pin", "up", "--ref", "v2")
    new = stack.layout.stack("up", "v2")
    new.mkdir()
    (new / "third.patch").write_bytes(stack.patch_file("third").read_bytes())
    (new / "series").write_text("third.patch\n")
    assert "a file of that name is at pkg/b.txt" in stack.fails(3, "apply")
    assert json.loads(stack.fails(3, "apply", "--json"))["conflicts"][0]["kind"] == "moved"


def test_a_git_only_patch_fails_as_cleanly(stack: Patchq) -> None:
    (stack.tree() / "x.bin").write_bytes(bytes(range(256)))
    stack.ok("new", "up", "binary", "-m", "Binary\n\nWhy.")
    (stack.tree() / "x.bin").write_bytes(bytes(range(255, -1, -1)))
    stack.ok("new", "up", "binary-two", "-m", "Binary again\n\nWhy.")
    stack.ok("apply", "--to", "third")
    series = stack.layout.stack("up", "v1") / "series"
    series.write_text(series.read_text().replace("binary.patch\n", ""))
    before = stack.snapshot()
    out = stack.fails(3, "apply")
    assert "binary-two" in out
    assert "x.bin" in out
    assert stack.snapshot() == before


def test_a_file_in_the_way_moves_nothing(two: Patchq) -> None:
    """A file that nobody committed, where a patch makes one: no stack moves, the file is kept."""
    (two.tree("other") / "made.txt").write_text("made\n")
    two.ok("new", "other", "makes", "-m", "Make a file\n\nWhy.")
    two.ok("apply", "--to", "other/mine")
    (two.tree("other") / "made.txt").write_text("precious\n")
    spoil(two.patch_file("second"), b"+changed", b"+changed again")
    before = two.snapshot()
    assert "made.txt" in two.fails(1, "apply")
    assert two.snapshot() == before
    (two.tree("other") / "made.txt").unlink()
    two.ok("apply")
