"""Two people change a series, and git merges their branches: both patches stay, or the error says what each side has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kit import Patchq, edit, git
from patchq.cli import cli

SERIES = "patches/up/v1/series"


def merge(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *options, "pull", "-q", "--no-rebase", "--no-edit"], cwd=folder, capture_output=True, text=True
    )


def add(patchq: Patchq, name: str, line: int) -> None:
    """Add a patch on b.txt and commit it."""
    patchq.ok("apply")
    edit(patchq.tree() / "b.txt", line, f"{name}\n".encode())
    patchq.ok("new", "up", name, "-m", f"Change line {line}\n\nBecause of the test.", "--topic", "test", "-s")
    git(patchq.root, "add", "-A")
    git(patchq.root, "commit", "-qm", f"Add {name}")


@pytest.fixture
def pair(stack: Patchq, tmp_path: Path) -> tuple[Patchq, Patchq]:
    """A committed project and a clone of it."""
    git(stack.root, "init", "-q")
    git(stack.root, "add", "-A")
    git(stack.root, "commit", "-qm", "Three patches")
    git(tmp_path, "clone", "-q", str(stack.root), "clone")
    return stack, Patchq(tmp_path / "clone")


def without_union(pair: tuple[Patchq, Patchq]) -> None:
    theirs, mine = pair
    (theirs.root / ".gitattributes").unlink()
    git(theirs.root, "commit", "-qam", "No attributes")
    git(mine.root, "pull", "-q")


def conflicted(pair: tuple[Patchq, Patchq], style: str = "merge") -> Patchq:
    """The clone after a merge that git couldn't finish."""
    without_union(pair)
    theirs, mine = pair
    add(theirs, "theirs", 25)
    add(mine, "mine", 35)
    done = merge(mine.root, "-c", f"merge.conflictStyle={style}")
    assert done.returncode == 1
    assert "<<<<<<< HEAD" in (mine.root / SERIES).read_text()
    return mine


def lines(patchq: Patchq) -> list[str]:
    return (patchq.root / SERIES).read_text().splitlines()


def expect_both(patchq: Patchq) -> None:
    assert lines(patchq) == ["first.patch", "second.patch", "third.patch", "mine.patch", "theirs.patch"]
    patchq.ok("apply")
    text = (patchq.tree() / "b.txt").read_text().splitlines()
    assert (text[24], text[34]) == ("theirs", "mine")


def test_git_merges_two_new_patches(pair: tuple[Patchq, Patchq]) -> None:
    theirs, mine = pair
    assert "patches/*/*/series merge=union\n" in (mine.root / ".gitattributes").read_text()
    add(theirs, "theirs", 25)
    add(mine, "mine", 35)
    done = merge(mine.root)
    assert done.returncode == 0, done.stdout
    expect_both(mine)


@pytest.mark.parametrize("style", ["merge", "diff3"])
def test_every_verb_names_both_sides(pair: tuple[Patchq, Patchq], style: str) -> None:
    mine = conflicted(pair, style)
    theirs = git(mine.root, "rev-parse", "MERGE_HEAD")
    before = mine.snapshot()
    for args in (
        ("status",), ("list",), ("apply",), ("check",), ("new", "up", "x"), ("export", "up"), ("drop", "first"),
        ("diff", "HEAD"), ("build",),
    ):  # fmt: skip
        out = mine.fails(1, *args)
        assert f"{SERIES} has a merge conflict: HEAD has mine; {theirs} has theirs\n" in out
        assert "`patchq check --fix` keeps both sides" in out
        assert "git checkout --ours" in out
    assert json.loads(mine.fails(1, "apply", "--json"))["error"] == "SeriesConflictError"
    assert mine.snapshot() == before


@pytest.mark.parametrize("style", ["merge", "diff3", "zdiff3"])
def test_fix_keeps_both(pair: tuple[Patchq, Patchq], style: str) -> None:
    mine = conflicted(pair, style)
    out = mine.run("check", "--fix", "--text").output
    assert f"{SERIES}: rewritten" in out
    assert ".gitattributes: rewritten" in out
    expect_both(mine)
    assert "merge=union" in (mine.root / ".gitattributes").read_text()


def test_undo_brings_the_markers_back(pair: tuple[Patchq, Patchq]) -> None:
    mine = conflicted(pair)
    before = (mine.root / SERIES).read_bytes()
    mine.run("check", "--fix", "--text")
    while (mine.root / SERIES).read_bytes() != before:
        mine.ok("undo")


def test_markers_that_were_committed_are_resolved_too(pair: tuple[Patchq, Patchq]) -> None:
    mine = conflicted(pair)
    git(mine.root, "add", "-A")
    git(mine.root, "commit", "-qm", "Not looked at")
    mine.run("check", "--fix", "--text")
    expect_both(mine)


def test_a_removed_patch_does_not_come_back(pair: tuple[Patchq, Patchq]) -> None:
    """Git's own union would bring it back: the lines stand next to each other."""
    without_union(pair)
    theirs, mine = pair
    add(theirs, "theirs", 25)
    mine.ok("apply")
    mine.ok("drop", "third")
    git(mine.root, "commit", "-qam", "Drop third")
    assert merge(mine.root).returncode == 1
    before = mine.snapshot()
    out = mine.fails(1, "check", "--fix")
    assert "a side removed or moved lines: HEAD has no patch;" in out
    assert "has third, theirs\n" in out
    assert mine.snapshot() == before
    (mine.root / SERIES).write_text("first.patch\nsecond.patch\ntheirs.patch\n")
    mine.ok("apply")


def test_names_that_are_one_file_elsewhere(stack: Patchq, upstream: Path) -> None:
    edit(stack.tree() / "b.txt", 35)
    assert "First are the same file on macOS and Windows" in stack.fails(1, "new", "up", "First", "-m", "x\n\nWhy.")
    assert not stack.patch_file("First").exists()
    stack.ok("new", "up", "P4", "-m", "P4\n\nWhy.")
    edit(stack.tree() / "b.txt", 36)
    git(stack.tree(), "commit", "-qam", "p4\n\nWhy.")
    stack.ok("export", "up")
    assert lines(stack)[3:] == ["P4.patch", "p4-2.patch"]
    git(upstream, "checkout", "-q", "-b", "topic")
    edit(upstream / "b.txt", 20)
    git(upstream, "commit", "-qam", "p4", "--date", "2020-02-02T02:02:02Z")  # another commit with the same subject
    stack.ok("import", "up", str(upstream), "--range", "v1..topic")
    assert lines(stack)[5:] == ["p4-3.patch"]
    path = stack.root / SERIES
    path.write_text(path.read_text().replace("p4-2", "p4"))
    stack.patch_file("p4-2").rename(stack.patch_file("p4"))
    out = stack.fails(1, "check")
    assert "P4 and p4 are the same file on macOS and Windows" in out
    assert "rename p4.patch" in out


def test_pins_that_are_one_folder_elsewhere(stack: Patchq, upstream: Path) -> None:
    git(upstream, "tag", "V1")
    before = stack.layout.lock.read_bytes()
    out = stack.fails(1, "pin", "up", "--ref", "V1")
    assert "'v1' and 'V1' are the same folder on macOS and Windows" in out
    assert "the same folder" in stack.fails(1, "rebase", "up", "--onto", "V1")
    assert "the same folder" in stack.fails(1, "pin", "UP", "--url", str(upstream), "--ref", "v1")
    assert stack.layout.lock.read_bytes() == before


def test_a_system_without_locks(stack: Patchq) -> None:
    script = "import sys; sys.modules['fcntl'] = None; from patchq.cli import main; main()"
    for verb in (["status"], ["apply"], ["init", "other"]):
        argv = [sys.executable, "-c", script, "--project", str(stack.root), *verb]
        done = subprocess.run(argv, capture_output=True, text=True, cwd=stack.root, env=dict(os.environ))
        assert done.returncode == 1
        assert done.stderr == (
            "error: patchq needs file locks that this system doesn't have (no fcntl)\nhint: use Linux, macOS or WSL\n"
        )


def test_a_patch_that_a_union_brought_back_can_be_dropped(pair: tuple[Patchq, Patchq]) -> None:
    theirs, mine = pair
    add(theirs, "theirs", 25)
    mine.ok("drop", "third")
    git(mine.root, "commit", "-qam", "Drop third")
    assert merge(mine.root).returncode == 0
    assert lines(mine)[2:] == ["third.patch", "theirs.patch"]
    out = mine.fails(1, "apply")
    assert "names third, but" in out
    assert "`patchq drop third`" in out
    mine.ok("drop", "third")
    mine.ok("apply")
    assert lines(mine)[2:] == ["theirs.patch"]


def test_init_completes_attributes(tmp_path: Path) -> None:
    (tmp_path / ".gitattributes").write_text("*.bin binary\npatches/*/ledger.jsonl merge=ours")
    CliRunner().invoke(cli, ["init", str(tmp_path)])
    assert (tmp_path / ".gitattributes").read_text().splitlines() == [
        "*.bin binary", "patches/*/ledger.jsonl merge=ours", "patches/**/*.patch -text -whitespace",
        "patches/*/*/series merge=union", "patches/*/rr-cache/** -text -diff",
    ]  # fmt: skip
