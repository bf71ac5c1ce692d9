"""`diff`: two versions of a stack, by revisions of a real project and by pins of a real upstream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit import Patchq, commit_files, edit, git, release


def pairs(patchq: Patchq, *args: str) -> list[tuple[str, str, str, bool]]:
    found = json.loads(patchq.ok("diff", *args, "--json"))["pairs"]
    return [(p["kind"], p["old"], p["new"], p["moved"]) for p in found]


@pytest.fixture
def kept(stack: Patchq) -> Patchq:
    """Three patches, committed."""
    git(stack.root, "init", "-q")
    git(stack.root, "add", "-A")
    git(stack.root, "commit", "-q", "-m", "Three patches")
    return stack


def test_nothing_changed(kept: Patchq) -> None:
    assert kept.ok("diff", "HEAD") == "3 of 3 patches are the same\n"


def test_an_edited_an_added_and_a_removed_patch(kept: Patchq) -> None:
    edit(kept.tree() / "a.txt", 5, b"otherwise\n")
    kept.ok("export", "up", "--amend", "first")
    kept.ok("drop", "third")
    edit(kept.tree() / "b.txt", 30)
    kept.ok("new", "up", "fourth", "-s", "-m", "Fourth\n\nMore.")
    assert sorted(pairs(kept, "HEAD")) == [
        ("added", "", "fourth", False),
        ("changed", "first", "first", False),
        ("removed", "third", "", False),
        ("same", "second", "second", False),
    ]
    said = kept.ok("diff", "HEAD", ".")
    assert "up/first: changed\n" in said
    assert "-+changed" in said.replace("    ", "")
    assert "++otherwise" in said.replace("    ", "")
    assert said.endswith("1 of 4 patches are the same\n")
    assert "otherwise" not in kept.ok("diff", "HEAD", ".", "--stat")


def test_a_move_is_told_and_only_of_what_moved(kept: Patchq) -> None:
    kept.ok("move", "third", "--first")
    assert sorted(pairs(kept, "HEAD")) == [
        ("same", "first", "first", False),
        ("same", "second", "second", False),
        ("same", "third", "third", True),
    ]
    assert "up/third: moved\n" in kept.ok("diff", "HEAD")


def test_another_name_for_the_same_patch(kept: Patchq) -> None:
    folder = kept.layout.stack("up", "v1")
    (folder / "second.patch").rename(folder / "other.patch")
    series = folder / "series"
    series.write_text(series.read_text().replace("second", "other"))
    assert "up/other: renamed, was second\n" in kept.ok("diff", "HEAD")


def test_two_pins(kept: Patchq, upstream: Path) -> None:
    """Another ref, where a line above moved all hunks; git's range-diff has them the same."""
    commit_files(upstream, {"b.txt": b"new first line\n" + (upstream / "b.txt").read_bytes()}, "second")
    git(upstream, "tag", "v2")
    kept.ok("pin", "up", "--url", str(upstream), "--ref", "v2")
    old, new = kept.layout.stack("up", "v1"), kept.layout.stack("up", "v2")
    new.mkdir()
    for name in ("series", "first.patch", "second.patch"):
        text = (old / name).read_text()
        (new / name).write_text(text.replace("third.patch\n", ""))
    assert sorted(pairs(kept, "up@v1", "up@v2")) == [
        ("removed", "third", "", False),
        ("same", "first", "first", False),
        ("same", "second", "second", False),
    ]


def test_an_empty_stack_on_either_side(kept: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"b.txt": b"other\n"})
    kept.ok("pin", "up", "--ref", "v2")
    kept.ok("fetch", "--all")
    assert kept.ok("diff", "up@v1", "up@v2") == (
        "up/first: removed\nup/second: removed\nup/third: removed\n0 of 3 patches are the same\n"
    )
    assert [p[:3] for p in pairs(kept, "up@v2", "up@v1")] == [
        ("added", "", "first"), ("added", "", "second"), ("added", "", "third"),
    ]  # fmt: skip
    assert kept.ok("diff", "up@v2", "up@v2") == "0 of 0 patches are the same\n"


def test_nothing_is_touched(kept: Patchq) -> None:
    before = kept.snapshot()
    kept.ok("diff", "HEAD")
    assert kept.snapshot() == before


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("nowhere",), "neither a revision of this project"),
        (("up@v9", "up@v1"), "up has no pin v9"),
        (("--output=x",), "No such option"),
    ],
)
def test_what_names_nothing_is_an_error(kept: Patchq, args: tuple[str, ...], words: str) -> None:
    done = kept.run("diff", *args)
    assert done.exit_code in (1, 2)
    assert words in done.output
