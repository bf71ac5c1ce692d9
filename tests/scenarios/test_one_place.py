"""A hunk lands where its header says, or in the one place where its lines are; else it stops, and says where they are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kit import Patchq, commit_files, edit, git

BLOCK = b"def f():\n    x = 1\n    y = 2\n    z = 3\n    return x\n\n"


@pytest.fixture
def blocks(empty: Patchq, tmp_path: Path) -> Patchq:
    """A project with a patch of the second of three blocks that are the same."""
    folder = tmp_path / "upstream"
    folder.mkdir()
    git(folder, "init", "-q")
    text = b"# head\n" * 5 + BLOCK * 3 + b"# tail\n" * 5
    commit_files(folder, {"f.py": text, "g.py": b"".join(b"line %d\n" % n for n in range(40))}, "first")
    git(folder, "tag", "v1")
    empty.ok("pin", "up", "--url", str(folder), "--ref", "v1")
    empty.ok("apply")
    edit(empty.tree() / "f.py", 14, b"    y = 20\n")
    edit(empty.tree() / "g.py", 20, b"changed\n")
    empty.ok("new", "up", "twenty", "-m", "Make it twenty\n\nWhy.")
    return empty


def rewrite(patchq: Patchq, *pairs: tuple[bytes, bytes]) -> Path:
    path = patchq.patch_file("twenty")
    data = path.read_bytes()
    for old, new in pairs:
        assert data.count(old) == 1, (old, data)
        data = data.replace(old, new)
    path.write_bytes(data)
    return path


HERE = b"@@ -11,7 +11,7 @@"


def test_lines_that_are_in_several_places_stop(blocks: Patchq) -> None:
    blocks.ok("apply")
    want = git(blocks.tree(), "rev-parse", "HEAD^{tree}")
    before = {p: d for p, d in blocks.snapshot().items() if not p.endswith("twenty.patch")}
    rewrite(blocks, (HERE, b"@@ -9,7 +9,7 @@"))
    said = blocks.fails(3, "apply")
    assert "in more than one place (lines 11 and 17), but not in line 9, where the header places them" in said
    assert "git would guess line 11" in said
    assert "the file contains these lines more than once, at lines 11, 17" in said
    assert "after the + of @@ -9,7 +9,7 @@" in said
    assert {p: d for p, d in blocks.snapshot().items() if not p.endswith("twenty.patch")} == before
    body = json.loads(blocks.run("apply", "--json").stdout)
    assert body["conflicts"][0]["places"] == [11, 17]
    # What the hint says.
    rewrite(blocks, (b"@@ -9,7 +9,7 @@", b"@@ -9,7 +11,7 @@"))
    blocks.ok("apply")
    assert git(blocks.tree(), "rev-parse", "HEAD^{tree}") == want


def test_lines_that_are_in_one_place_are_found_there(blocks: Patchq) -> None:
    want = git(blocks.tree(), "rev-parse", "HEAD^{tree}")
    rewrite(blocks, (b"@@ -17,7 +17,7 @@", b"@@ -20,7 +20,7 @@"))
    assert "twenty: offset -3 lines in g.py" in blocks.ok("apply")
    assert git(blocks.tree(), "rev-parse", "HEAD^{tree}") == want


def test_a_form_that_only_git_reads_lands_where_it_says(blocks: Patchq) -> None:
    want = git(blocks.tree(), "rev-parse", "HEAD^{tree}")
    rewrite(blocks, (b"--- a/g.py\n", b"--- a/g.py\t2026-01-02 03:04:05\n"))
    blocks.ok("apply")
    assert git(blocks.tree(), "rev-parse", "HEAD^{tree}") == want
    rewrite(blocks, (b"@@ -17,7 +17,7 @@", b"@@ -20,7 +20,7 @@"))
    said = blocks.fails(3, "apply")
    assert "git would apply hunk 1 at line 17, -3 lines from its position" in said
    assert "the header in line" in said


def test_text_beside_something_binary_may_move(blocks: Patchq) -> None:
    (blocks.tree() / "x.bin").write_bytes(bytes(range(256)))
    blocks.ok("export", "up", "--amend", "twenty")
    assert b"GIT binary patch" in blocks.patch_file("twenty").read_bytes()
    want = git(blocks.tree(), "rev-parse", "HEAD^{tree}")
    rewrite(blocks, (b"@@ -17,7 +17,7 @@", b"@@ -20,7 +20,7 @@"))
    assert "twenty: offset -3 lines in g.py" in blocks.ok("apply")
    assert git(blocks.tree(), "rev-parse", "HEAD^{tree}") == want
    rewrite(blocks, (HERE, b"@@ -9,7 +9,7 @@"))
    assert "in more than one place (lines 11 and 17)" in blocks.fails(3, "apply")


def test_a_path_twice_after_something_binary_may_not_move(blocks: Patchq) -> None:
    (blocks.tree() / "a.bin").write_bytes(bytes(range(256)))
    blocks.ok("export", "up", "--amend", "twenty")
    again = b"diff --git a/g.py b/g.py\nindex 1..2 100644\n--- a/g.py\n+++ b/g.py\n"
    again += b"@@ -33,3 +33,3 @@\n line 29\n-line 30\n+other\n line 31\n"
    data = rewrite(blocks, (b"diff --git a/g.py b/g.py\n", again + b"diff --git a/g.py b/g.py\n")).read_bytes()
    assert data.index(b"GIT binary patch") < data.index(again)
    said = " ".join(blocks.fails(3, "apply").split())
    assert "can't check that no other place fits, because the patch contains a path twice" in said
    rewrite(blocks, (b"@@ -33,3 +33,3 @@", b"@@ -30,3 +30,3 @@"))
    blocks.ok("apply")


def test_a_hunk_with_wrong_counts_is_told_in_words(blocks: Patchq) -> None:
    rewrite(blocks, (HERE, b"@@ -11,8 +11,8 @@"))
    said = blocks.fails(1, "apply")
    assert "its line counts don't match its lines" in said
    assert re.search(r"corrupt patch at (line |<stdin>:)", said), said  # as older and newer gits say it
    rewrite(blocks, (b"@@ -11,8 +11,8 @@", b"@@ -11,6 +11,6 @@"))
    assert "git would silently skip them" in blocks.fails(1, "apply")


def test_a_header_of_two_minds_is_git_s(blocks: Patchq) -> None:
    """git believes the names over the first line."""
    rewrite(blocks, (b"diff --git a/g.py b/g.py\n", b"diff --git a/f.py b/f.py\n"))
    want = git(blocks.tree(), "rev-parse", "HEAD^{tree}")
    blocks.ok("apply")
    assert git(blocks.tree(), "rev-parse", "HEAD^{tree}") == want
    rewrite(blocks, (b"--- a/g.py\n", b"new file mode 100644\n--- a/g.py\n"))
    assert "git's message: " in blocks.fails(1, "apply")
