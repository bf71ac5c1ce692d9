"""What stopped a newcomer in the first ten minutes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kit import Patchq, edit, git


def test_files_that_patch_leaves_stay_out_of_patches(patchq: Patchq) -> None:
    patchq.ok("apply")
    tree = patchq.tree()
    (tree / "a.txt.orig").write_text("old\n")
    (tree / "pkg" / "mod.py.rej").write_text("rejected\n")
    assert "nothing was edited" in patchq.fails(1, "new", "up", "one")
    edit(tree / "a.txt", 3)
    said = patchq.ok("new", "up", "one")
    assert "left out, because `patch` writes such files: a.txt.orig (`--include a.txt.orig` adds it)" in said
    assert "pkg/mod.py.rej (`--include pkg/mod.py.rej` adds it)" in said
    assert ".orig" not in patchq.patch_file("one").read_text()
    assert (tree / "a.txt.orig").exists()
    edit(tree / "a.txt", 4)
    patchq.ok("export", "up", "--amend", "one", "--include", "pkg/mod.py.rej")
    data = patchq.patch_file("one").read_text()
    assert "b/pkg/mod.py.rej" in data
    assert ".orig" not in data
    patchq.ok("undo")
    patchq.ok("redo")
    assert git(tree, "status", "--porcelain") == "?? a.txt.orig"
    assert "gone.orig is not in" in patchq.fails(1, "new", "up", "two", "--include", "gone.orig")
    assert "--include needs --amend" in patchq.fails(2, "export", "up", "--include", "a.txt.orig")


def test_a_trailer_may_be_given_twice(stack: Patchq) -> None:
    stack.ok("reword", "first", "--trailer", "Requires: up/second", "--trailer", "requires: up/third")
    text = stack.patch_file("first").read_text()
    assert text.index("Requires: up/second\n") < text.index("requires: up/third\n")
    stack.ok("reword", "first", "--trailer", "Requires: up/third")
    (patch,) = [p for p in json.loads(stack.ok("list", "--json"))["patches"] if p["name"] == "first"]
    assert "up/second" not in stack.patch_file("first").read_text()
    assert patch["subject"]


def test_rows_of_a_recipe_bear_the_names_of_their_patches(patchq: Patchq, tmp_path: Path) -> None:
    (tmp_path / "up.spec").write_text(
        "Patch0: https://example.org/fix-one.patch\nPatch1: gone.patch\n%prep\n%autosetup -p1\nsed -i s/a/b/ a.txt\n"
    )
    rows = json.loads(patchq.run("import", "up", str(tmp_path / "up.spec"), "--dry-run", "--json").output)["items"]
    assert [row["name"] for row in rows] == ["fix-one", "gone", "sed-i-s-a-b-a-txt"]


def diff(path: Path, line: int, old: str, new: str) -> None:
    """Write a diff of one line of a.txt."""
    path.write_text(f"--- a/a.txt\n+++ b/a.txt\n@@ -{line},2 +{line},2 @@\n-{old}\n+{new}\n line {line + 1}\n")


def test_a_conflict_names_the_earlier_patch_of_the_import(patchq: Patchq, tmp_path: Path) -> None:
    diff(tmp_path / "one.diff", 3, "line 3", "three")
    diff(tmp_path / "two.diff", 8, "line 8", "eight")
    diff(tmp_path / "again.diff", 8, "line 8", "EIGHT")
    files = [str(tmp_path / f"{name}.diff") for name in ("one", "two", "again")]
    said = patchq.fails(3, "import", "up", *files, "--author", "me")
    assert "again.diff doesn't apply exactly to up: it applies without the patch two of this import" in said
    assert "after two of this import, the file has, at line 8:" in said
    assert "upstream has" not in said
    said = patchq.fails(3, "import", "up", *files, "--dry-run", "--offline")
    assert "it applies without the patch two of this import" in said
    assert "applies to" not in said


def test_a_dry_run_counts_and_asks_for_the_author(patchq: Patchq, tmp_path: Path) -> None:
    folder = tmp_path / "patches"
    folder.mkdir()
    diff(folder / "one.patch", 3, "line 3", "three")
    diff(folder / "other.patch", 3, "line 3", "three")
    (folder / "series").write_text("one.patch\n")
    said = patchq.ok("import", "up", str(folder), "--dry-run")
    assert "one.patch names no author: the import needs --author 'NAME <EMAIL>' or --author me" in said
    assert "1 would be adopted, 1 left out" in said
    assert "names no author" not in patchq.ok("import", "up", str(folder), "--dry-run", "--author", "me")


def test_a_script_sees_only_what_it_names(patchq: Patchq, tmp_path: Path) -> None:
    home = tmp_path / "own"
    (home / "fixes").mkdir(parents=True)
    (home / "secret").write_text("secret\n")
    (home / "add.txt").write_text("added\n")
    (home / "fixes" / "one.txt").write_text("one\n")
    os.mkfifo(home / "fixes" / "pipe")
    (home / "fix.sh").write_text(
        'HERE=/context\ncat /context/add.txt /context/fixes/*.txt >> a.txt\nls "$HERE" >> b.txt\n'
    )
    patchq.ok("import", "up", str(home / "fix.sh"))
    patchq.ok("apply")
    assert (patchq.tree() / "a.txt").read_text().endswith("added\none\n")
    assert (patchq.tree() / "b.txt").read_text().endswith("add.txt\nfix.sh\nfixes\n")


def test_a_patch_with_fuzz_gets_the_commands(patchq: Patchq, tmp_path: Path) -> None:
    (tmp_path / "fuzzy.diff").write_text(
        "--- a/a.txt\n+++ b/a.txt\n@@ -6,5 +6,5 @@\n other\n line 7\n-line 8\n+eight\n line 9\n line 10\n"
    )
    said = patchq.fails(3, "import", "up", str(tmp_path / "fuzzy.diff"), "--author", "me")
    commands = f"`patchq apply up && patch -p1 -d .patchq/trees/up < {tmp_path}/fuzzy.diff`"
    assert commands in said
    assert "`patchq new up fuzzy`" in said


def test_a_tilde_in_quotes_is_the_home_folder(patchq: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    diff(tmp_path / "three.diff", 3, "line 3", "three")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "up: added three" in patchq.ok("import", "up", "~/three.diff", "--author", "Al <al@example.org>")
    assert f"{tmp_path}/gone.diff does not exist" in patchq.fails(1, "import", "up", "~/gone.diff")
