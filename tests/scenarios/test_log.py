"""``log``, ``redo`` and ``undo --dry-run``: what each operation changed, and back to it."""

from __future__ import annotations

import json

from kit import Patchq, edit, git


def newest(patchq: Patchq) -> dict[str, list[str]]:
    operation = json.loads(patchq.ok("log", "-n", "1", "--json"))["operations"][0]
    return {name: found for name, found in operation["changes"].items() if found and name != "worktrees"}


def test_each_kind_of_change_is_named(stack: Patchq) -> None:
    stack.ok("move", "third", "--first")
    assert newest(stack)["moved"] == ["up/v1/third"]
    stack.ok("drop", "second")
    assert newest(stack)["dropped"] == ["up/v1/second"]
    edit(stack.tree() / "b.txt", 25)
    stack.ok("new", "up", "fourth", "-m", "Fourth\n\nWhy.")
    assert newest(stack) == {"added": ["up/v1/fourth"]}
    stack.ok("reword", "fourth", "-m", "Other\n\nWhy.")
    assert newest(stack) == {"edited": ["up/v1/fourth"]}
    stack.ok("pin", "up", "--ref", "v1", "--set", "other")
    assert newest(stack) == {"set_pins": ["other: up/v1"]}
    lines = [line for line in stack.ok("log").splitlines() if not line.startswith(" ")]
    assert [line.split(" ", 2)[2] for line in lines[:3]] == ["pin up v1", "reword up/fourth", "new up/fourth"]


def test_a_dry_run_changes_nothing_and_names_what_returns(stack: Patchq) -> None:
    stack.ok("drop", "second")
    before = stack.snapshot()
    said = stack.ok("undo", "--dry-run")
    assert "would undo: drop up/second" in said
    assert "added: up/v1/second" in said
    assert stack.snapshot() == before
    stack.ok("undo")
    undone = stack.snapshot()
    assert "would redo: drop up/second" in stack.ok("redo", "--dry-run")
    assert "(undone)" in stack.ok("log").splitlines()[0]
    assert stack.snapshot() == undone
    assert stack.ok("redo") == "redone: drop up/second\n"
    assert stack.snapshot() == before


def test_another_operation_ends_what_can_be_redone(stack: Patchq) -> None:
    stack.ok("drop", "second")
    stack.ok("undo")
    stack.ok("drop", "third")
    assert "there is nothing to redo" in stack.fails(1, "redo")
    stack.ok("undo")
    assert stack.ok("redo") == "redone: drop up/third\n"


def test_redo_keeps_edits_made_since(stack: Patchq) -> None:
    edit(stack.tree() / "b.txt", 25, b"mine\n")
    stack.ok("new", "up", "fourth", "-m", "Fourth\n\nWhy.")
    stack.ok("undo")
    edit(stack.tree() / "b.txt", 26, b"more\n")
    before = stack.snapshot()
    assert "the worktree was edited" in stack.fails(1, "redo")
    assert stack.snapshot() == before


def test_redo_writes_edits_again_that_were_discarded(stack: Patchq) -> None:
    edit(stack.tree() / "b.txt", 25, b"mine\n")
    stack.ok("new", "up", "fourth", "-m", "Fourth\n\nWhy.")
    before = stack.snapshot()
    stack.ok("undo")
    git(stack.tree(), "checkout", "--", "b.txt")
    stack.ok("redo")
    assert stack.snapshot() == before
