"""A stop takes only the patch's own, upstream's lines survive it, and `undo` comes back to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kit import Patchq, edit, git, release, with_lines

ADDED = b"assert x is not None\ncount(x)\notherwise\n"
V2 = with_lines({5: ADDED})
RIGHT = with_lines({5: ADDED + b"changed\n"})
WRONG = with_lines({5: b"changed, otherwise\n"})


@pytest.fixture
def stopped(stack: Patchq, upstream: Path) -> Patchq:
    """The first patch stops on v2, which added two lines above the one that both changed."""
    release(upstream, "v2", {"a.txt": V2})
    stack.fails(3, "rebase", "up", "--onto", "v2")
    return stack


def parked(patchq: Patchq, ref: str = "v2") -> Path:
    return patchq.layout.tree(f"up@{ref}")


def run(patchq: Patchq, code: int, *args: str) -> dict[str, Any]:
    done = patchq.run(*args, "--json")
    assert done.exit_code == code, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("verb", [("rebase", "up", "--continue"), ("resolve", "up")])
def test_lost_lines_are_named_refused_and_accepted_by_name(
    stopped: Patchq, upstream: Path, verb: tuple[str, ...]
) -> None:
    (parked(stopped) / "a.txt").write_bytes(WRONG)
    commit = git(upstream, "rev-parse", "v2")[:12]
    refused = stopped.run(*verb)
    assert refused.exit_code in (1, 5)
    for line, text in ((5, "assert x is not None"), (6, "count(x)")):
        assert f"a.txt:{line} '{text}' (upstream's {commit})" in refused.output
    assert "otherwise'" not in refused.output
    shown = stopped.ok("conflict", "up")
    assert f"the worktree lacks it: a.txt:5 (upstream's {commit}): assert x is not None" in shown
    assert stopped.run(*verb, "--drop-upstream-line", "a.txt:5").exit_code == refused.exit_code
    stopped.ok(*verb, "--drop-upstream-line", "a.txt:5", "--drop-upstream-line", "a.txt:6")
    ledger = (stopped.root / "patches" / "up" / "ledger.jsonl").read_text().splitlines()
    (line,) = [json.loads(one) for one in ledger if json.loads(one)["patch"] == "first"]
    assert [(one["path"], one["line"], one["text"]) for one in line["dropped"]] == [
        ("a.txt", 5, "assert x is not None"),
        ("a.txt", 6, "count(x)"),
    ]
    assert not [f for f in run(stopped, 1, "check")["findings"] if f["rule"] == "upstream-lines"]


def test_a_replay_that_drops_upstreams_line_stops(stack: Patchq, upstream: Path) -> None:
    """What was recorded on v2 is right there; on v3 upstream has a line more in the same conflict."""
    release(upstream, "v2", {"a.txt": with_lines({5: b"otherwise\n"})})
    stack.fails(3, "rebase", "up", "--onto", "v2")
    (parked(stack) / "a.txt").write_bytes(with_lines({5: b"changed\n"}))
    stack.ok("rebase", "up", "--continue", "--drop-upstream-line", "a.txt:5")
    release(upstream, "v3", {"a.txt": with_lines({5: b"otherwise\n"}), "new.txt": b"new\n"})
    found = run(stack, 3, "rebase", "up", "--onto", "v3", "--from", "v1")
    assert "drops lines that upstream added: a.txt:5 'otherwise'" in found["stop"]["message"]


def test_check_finds_them_in_existing_stacks(stopped: Patchq) -> None:
    (parked(stopped) / "a.txt").write_bytes(RIGHT)
    stopped.ok("rebase", "up", "--continue")
    assert not [f for f in run(stopped, 1, "check")["findings"] if f["rule"] == "upstream-lines"]
    stopped.ok("apply", "--set", "default-up-v2")
    path = stopped.tree() / "a.txt"
    path.write_bytes(path.read_bytes().replace(b"count(x)\n", b""))
    stopped.ok("export", "up", "--amend", "first")
    found = [f for f in run(stopped, 1, "check")["findings"] if f["rule"] == "upstream-lines"]
    assert [(f["ref"], f["patch"]) for f in found] == [("v2", "first")]
    assert "a.txt:6 'count(x)'" in found[0]["message"]
    cache = stopped.root / ".patchq" / "check" / "upstream-lines.json"
    before, written = cache.read_bytes(), cache.stat()
    assert [f for f in run(stopped, 1, "check")["findings"] if f["rule"] == "upstream-lines"] == found
    assert cache.stat().st_ino == written.st_ino, "the stacks are compared once"
    cache.write_bytes(before.replace(b"count(x)", b"nothing"))
    assert [f for f in run(stopped, 1, "check")["findings"] if f["rule"] == "upstream-lines"] == found
    assert cache.read_bytes() == before


# Only its own


@pytest.mark.parametrize("verb", [("rebase", "up", "--continue"), ("resolve", "up")])
def test_other_files_are_named_left_out_and_kept(stopped: Patchq, verb: tuple[str, ...]) -> None:
    folder = parked(stopped)
    (folder / "a.txt").write_bytes(RIGHT)
    (folder / "a.txt.orig").write_bytes(b"of a mergetool\n")
    edit(folder / "b.txt", 30, b"unrelated\n")
    output = stopped.ok(*verb)
    assert "left out, because the patch doesn't change these files: a.txt.orig" in output
    assert "b.txt" in output
    kept = output.partition("kept as the commit ")[2].split()[0].strip(")")
    assert git(stopped.layout.store, "show", f"{kept}:a.txt.orig") == "of a mergetool"
    assert "unrelated" in git(stopped.layout.store, "show", f"{kept}:b.txt")
    stopped.ok("apply", "--set", "default-up-v2")
    assert not (stopped.tree() / "a.txt.orig").exists()
    assert b"unrelated" not in (stopped.tree() / "b.txt").read_bytes()


@pytest.mark.parametrize("how", ["include", "add"])
def test_what_is_asked_for_or_staged_is_taken(stopped: Patchq, how: str) -> None:
    folder = parked(stopped)
    (folder / "a.txt").write_bytes(RIGHT)
    (folder / "more.txt").write_bytes(b"more\n")
    if how == "add":
        git(folder, "add", "more.txt")
    stopped.ok("rebase", "up", "--continue", *(["--include", "more.txt"] if how == "include" else []))
    assert b"more.txt" in stopped.patch_file("first", ref="v2").read_bytes()


# Back to the stop


def test_undo_comes_back_to_the_stop(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": with_lines({5: b"otherwise\n"}), "b.txt": with_lines({10: b"otherwise\n"})})
    stack.fails(3, "rebase", "up", "--onto", "v2")
    (parked(stack) / "a.txt").write_bytes(with_lines({5: b"otherwise, changed\n"}))
    assert run(stack, 3, "rebase", "up", "--continue")["stop"]["patch"] == "third"
    recorded = list((stack.root / "patches" / "up" / "rr-cache").glob("*/postimage"))
    assert recorded
    output = stack.ok("undo")
    assert "undone: resolution of up/first" in output
    assert "back at that patch" in output
    assert not list((stack.root / "patches" / "up" / "rr-cache").glob("*/postimage"))
    status = json.loads(stack.ok("status", "--json"))["rebases"][0]
    assert status["stop"]["patch"] == "first"
    assert (parked(stack) / "a.txt").read_bytes() == with_lines({5: b"otherwise, changed\n"})
    (parked(stack) / "a.txt").write_bytes(with_lines({5: b"otherwise, changed again\n"}))
    assert run(stack, 3, "rebase", "up", "--continue")["stop"]["patch"] == "third"
    (parked(stack) / "b.txt").write_bytes(with_lines({10: b"otherwise, changed\n"}))
    stack.ok("rebase", "up", "--continue")
    assert b"changed again" in stack.patch_file("first", ref="v2").read_bytes()


def test_undo_comes_back_to_a_skipped_patch(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": with_lines({5: b"otherwise\n"}), "b.txt": with_lines({10: b"otherwise\n"})})
    stack.fails(3, "rebase", "up", "--onto", "v2")
    assert run(stack, 3, "rebase", "up", "--skip")["stop"]["patch"] == "third"
    assert "undone: skip of up/first" in stack.ok("undo")
    assert json.loads(stack.ok("status", "--json"))["rebases"][0]["stop"]["patch"] == "first"
    assert b"<<<<<<<" in (parked(stack) / "a.txt").read_bytes()
    (parked(stack) / "a.txt").write_bytes(with_lines({5: b"otherwise, changed\n"}))
    assert run(stack, 3, "rebase", "up", "--continue")["stop"]["patch"] == "third"
    assert "first: " not in stack.ok("rebase", "up", "--skip", "--how", "no longer needed")
    assert b"otherwise, changed" in stack.patch_file("first", ref="v2").read_bytes()


def test_skip_names_the_files_that_would_apply(stack: Patchq, upstream: Path) -> None:
    path = stack.tree() / "a.txt"
    path.write_bytes(path.read_bytes().replace(b"line 12\n", b"changed too\n"))
    (stack.tree() / "apart.txt").write_text("apart\n")
    stack.ok("new", "up", "both", "-m", "Both", "-s")
    release(upstream, "v2", {"a.txt": with_lines({12: b"otherwise\n"})})
    stack.fails(3, "rebase", "up", "--onto", "v2")
    assert "both: its changes of apart.txt are also skipped, although they apply" in stack.ok("rebase", "up", "--skip")


def test_undo_does_not_take_edits_of_the_next_stop(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": with_lines({5: b"otherwise\n"}), "b.txt": with_lines({10: b"otherwise\n"})})
    stack.fails(3, "rebase", "up", "--onto", "v2")
    (parked(stack) / "a.txt").write_bytes(with_lines({5: b"otherwise, changed\n"}))
    stack.fails(3, "rebase", "up", "--continue")
    (parked(stack) / "b.txt").write_bytes(with_lines({10: b"precious\n"}))
    assert "holds edits of third" in stack.fails(1, "undo")
    assert (parked(stack) / "b.txt").read_bytes() == with_lines({10: b"precious\n"})


@pytest.mark.parametrize("kept", [True, False])
def test_lines_of_a_renamed_file_are_upstreams_too(stack: Patchq, upstream: Path, kept: bool) -> None:
    release(upstream, "v2", {"a.txt": None, "lib/other.txt": with_lines({5: b"assert x\nline 5, v2\n"})})
    stack.fails(3, "rebase", "up", "--onto", "v2")
    folder = parked(stack)
    (folder / "lib" / "other.txt").write_bytes(
        with_lines({5: (b"assert x\n" if kept else b"") + b"line 5, changed, v2\n"})
    )
    done = stack.run("rebase", "up", "--continue")
    assert (done.exit_code == 0) == kept
    assert ("lib/other.txt:5 'assert x'" in done.output) != kept


def test_a_file_that_the_patch_never_touched_is_upstreams(stopped: Patchq, upstream: Path) -> None:
    folder = parked(stopped)
    (folder / "a.txt").write_bytes(RIGHT)
    edit(folder / "b.txt", 1, b"")
    git(folder, "add", "b.txt")
    stopped.ok("rebase", "up", "--continue")  # the old line was there before
    stopped.ok("undo")
    release(upstream, "v3", {"a.txt": with_lines({5: b"otherwise\n"}), "extra.txt": b"upstream's\n"})
    stopped.fails(3, "rebase", "up", "--onto", "v3", "--from", "v1")
    folder = parked(stopped, "v3")
    (folder / "a.txt").write_bytes(with_lines({5: b"otherwise, changed\n"}))
    git(folder, "rm", "-q", "-f", "extra.txt")
    refused = stopped.run("rebase", "up", "--continue")
    assert refused.exit_code != 0
    assert "extra.txt:1" in refused.output
    stopped.ok("rebase", "up", "--continue", "--drop-upstream-line", "extra.txt")


def test_skip_keeps_what_was_done_at_the_stop(stopped: Patchq) -> None:
    (parked(stopped) / "notes.txt").write_bytes(b"mine\n")
    output = stopped.ok("rebase", "up", "--skip")
    kept = output.partition("kept as the commit ")[2].split()[0]
    assert git(stopped.layout.store, "show", f"{kept}:notes.txt") == "mine"
