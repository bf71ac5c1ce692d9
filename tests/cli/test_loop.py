"""The everyday loop: edit, export, check; and what each verb refuses."""

from __future__ import annotations

import json

from kit import Patchq, edit, git


def test_new_makes_a_patch_that_is_applied(stack: Patchq) -> None:
    assert "3 patches" in stack.ok("apply")
    assert (stack.tree() / "a.txt").read_bytes().splitlines()[4] == b"changed"
    out = json.loads(stack.ok("list", "--json"))
    assert [p["name"] for p in out["patches"]] == ["first", "second", "third"]
    assert stack.ok("status").count("clean") == 1


def test_export_of_an_unchanged_stack_writes_nothing(stack: Patchq) -> None:
    before = stack.snapshot()
    assert "nothing changed" in stack.ok("export", "up")
    assert stack.snapshot() == before


def test_cold_apply_gives_the_ids_of_the_warm_one(stack: Patchq) -> None:
    warm = json.loads(stack.ok("apply", "--json"))["stacks"][0]
    git(stack.layout.store, "worktree", "remove", "--force", str(stack.tree()))
    (stack.layout.state("up")).unlink()
    cold = json.loads(stack.ok("apply", "--json"))["stacks"][0]
    assert (cold["tip"], cold["tree"]) == (warm["tip"], warm["tree"])


def test_fixup_commits_are_folded(stack: Patchq) -> None:
    edit(stack.tree() / "a.txt", 6, b"also\n")
    git(stack.tree(), "commit", "-qam", "fixup! Change a.txt at 5")
    assert "rewrote first" in stack.ok("export", "up")
    assert b"+also" in stack.patch_file("first").read_bytes()
    assert "nothing changed" in stack.ok("export", "up")
    assert "up to date" in stack.ok("apply")


def test_amend_folds_edits_that_nobody_committed(stack: Patchq) -> None:
    edit(stack.tree() / "a.txt", 31, b"also\n")
    assert "rewrote second" in stack.ok("export", "up", "--amend", "second")
    assert "clean" in stack.ok("status")
    stack.ok("apply")
    assert b"+also" in stack.patch_file("second").read_bytes()


def test_amended_and_reordered_commits_keep_their_names(stack: Patchq) -> None:
    git(stack.tree(), "rebase", "-q", "-i", "HEAD~2", env={"GIT_SEQUENCE_EDITOR": "sed -i '1{h;d};2{G}'"})
    git(stack.tree(), "commit", "-q", "--amend", "-m", "A new subject\n\nWhy.")
    out = stack.ok("export", "up")
    assert [p["name"] for p in json.loads(stack.ok("list", "--json"))["patches"]] == ["first", "third", "second"]
    assert "added" not in out
    assert "removed" not in out


def test_an_edited_worktree_is_refused_and_kept(stack: Patchq) -> None:
    edit(stack.tree() / "b.txt", 20, b"mine\n")
    before = stack.snapshot()
    for verb in (["apply"], ["apply", "--to", "first"], ["drop", "third"], ["export", "up"]):
        out = stack.fails(1, *verb)
        assert "b.txt" in out
        assert "hint:" in out
    assert stack.snapshot() == before


def test_commits_in_the_worktree_are_refused_by_apply(stack: Patchq) -> None:
    edit(stack.tree() / "b.txt", 20, b"mine\n")
    git(stack.tree(), "commit", "-qam", "mine")
    head = git(stack.tree(), "rev-parse", "HEAD")
    assert "patchq export up" in stack.fails(1, "apply", "--to", "first")
    assert git(stack.tree(), "rev-parse", "HEAD") == head


def test_apply_to_stops_there_and_comes_back(stack: Patchq) -> None:
    assert "1 of 3" in stack.ok("apply", "--to", "first")
    assert "partial" in stack.ok("status")
    assert b"changed" not in (stack.tree() / "b.txt").read_bytes()
    assert "3 patches" in stack.ok("apply")


def test_drop_and_undo(stack: Patchq) -> None:
    before = stack.snapshot()
    assert "removed first" in stack.ok("drop", "first")
    assert (stack.tree() / "a.txt").read_bytes().splitlines()[4] == b"line 5"
    assert not stack.patch_file("first").exists()
    assert "undone: drop up/first" in stack.ok("undo")
    assert stack.snapshot() == before
    assert "up to date" in stack.ok("apply")


def test_why_a_patch_was_dropped_is_in_the_ledger(stack: Patchq) -> None:
    before = stack.snapshot()
    stack.ok("drop", "first", "--why", "it did more harm than good")
    (line,) = json.loads(stack.ok("ledger", "--json"))["ledgers"][0]["attempts"]
    assert (line["patch"], line["from_ref"], line["onto"], line["outcome"]) == ("first", "v1", "v1", "withdrawn")
    assert line["how"] == "it did more harm than good"
    assert len(set(line["patch_id"])) > 1
    assert stack.ok("ledger")
    stack.ok("undo")
    assert stack.snapshot() == before
    stack.ok("drop", "first")
    assert not json.loads(stack.ok("ledger", "--json"))["ledgers"], "nothing was said"


def test_undo_goes_back_step_by_step_and_new_leaves_the_edits(stack: Patchq) -> None:
    stack.ok("undo")
    assert "edited" in stack.ok("status")
    assert (stack.tree() / "b.txt").read_bytes().splitlines()[9] == b"changed"
    git(stack.tree(), "checkout", "-q", "--", ".")
    stack.ok("undo")
    git(stack.tree(), "checkout", "-q", "--", ".")
    assert [p["name"] for p in json.loads(stack.ok("list", "--json"))["patches"]] == ["first"]


def test_undo_refuses_when_the_files_were_edited_since(stack: Patchq) -> None:
    path = stack.patch_file("third")
    path.write_bytes(path.read_bytes() + b"\n")
    assert "third.patch was edited since" in stack.fails(1, "undo")


def test_move_commutes_or_says_why_not(stack: Patchq) -> None:
    stack.ok("move", "third", "--first")
    assert [p["name"] for p in json.loads(stack.ok("list", "--json"))["patches"]] == ["third", "first", "second"]
    edit(stack.tree() / "a.txt", 5, b"again\n")
    stack.ok("new", "up", "fourth", "-m", "Again")
    before = stack.snapshot()
    assert "a.txt" in stack.fails(3, "move", "fourth", "--before", "first")
    assert stack.snapshot() == before


def test_errors_have_json_and_exit_codes(stack: Patchq) -> None:
    out = json.loads(stack.fails(1, "show", "nothing", "--json"))
    assert out["schema"] == "patchq/error/1"
    assert out["hint"]
    assert "did you mean up/first" in stack.fails(1, "show", "up/frist")
    stack.fails(2, "move", "first")
    stack.fails(2, "nonsense")
