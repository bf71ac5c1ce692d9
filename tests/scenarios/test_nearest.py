"""`forecast` and `rebase` start from the nearest stack, count what replays, and agree patch by patch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kit import Patchq, commit_files, edit, git, numbered, release, with_lines
from patchq.merge.rerere import conflict_id


def told(patchq: Patchq, *args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(patchq.ok("forecast", "up", *args, "--json"))
    return found


def carried(patchq: Patchq, *args: str) -> dict[str, Any]:
    done = patchq.run("rebase", "up", *args, "--json")
    assert done.exit_code in (0, 3), done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def resolved_at_v2(stack: Patchq, upstream: Path) -> None:
    """v2 changes the line of `first`; a person resolves it, so that v2 has a stack."""
    release(upstream, "v2", {"a.txt": with_lines({5: b"otherwise\n"})})
    assert carried(stack, "--onto", "v2")["state"] == "stopped"
    (stack.layout.tree("up@v2") / "a.txt").write_bytes(with_lines({5: b"otherwise, changed\n"}))
    stack.ok("rebase", "up", "--continue", "--no-proof")


def test_the_next_release_is_carried_from_the_stack_beside_it(stack: Patchq, upstream: Path) -> None:
    resolved_at_v2(stack, upstream)
    release(upstream, "v2.1", {"b.txt": with_lines({30: b"else\n"})})
    found = told(stack, "--onto", "v2.1")
    assert (found["from"], found["stops"]) == ("v2", {"v2.1": 0})
    assert found["sources"][0]["why"] == "the nearest stack by history, 1 commits away"
    assert told(stack, "--onto", "v2.1", "--from", "v1")["stops"] == {"v2.1": 1}
    said = stack.ok("forecast", "up", "--onto", "v2.1")
    assert "v2.1: 3 land, none needs review\n  from v2, the nearest stack by history" in said
    assert "next: `patchq rebase up --onto v2.1`" in said
    done = carried(stack, "--onto", "v2.1")
    assert (done["state"], done["from_ref"]) == ("done", "v2")


def test_by_release_order_where_there_is_no_history(stack: Patchq, upstream: Path) -> None:
    resolved_at_v2(stack, upstream)
    release(upstream, "v9", {"a.txt": b"nothing alike\n" * 9})
    stack.ok("pin", "up", "--url", str(upstream), "--ref", "v9", "--set", "far")
    release(upstream, "v2.5", {"a.txt": with_lines({5: b"otherwise\n"}), "b.txt": with_lines({30: b"else\n"})})
    stack.ok("pin", "up", "--url", str(upstream), "--ref", "v2.5", "--set", "next")
    stack.ok("fetch", "--set", "next")
    upstream.rename(upstream.parent / "away")
    found = told(stack, "--onto", "v2.5")
    assert (found["from"], found["stops"]) == ("v2", {"v2.5": 0})
    assert found["sources"][0]["why"] == "the nearest stack by release order"


def test_a_release_branch_is_near_to_where_it_began(stack: Patchq, upstream: Path) -> None:
    """By release order v1.1 comes before v2, whose stack it would not be carried from; by history v1 is nearer."""
    resolved_at_v2(stack, upstream)
    for n in range(3):
        commit_files(upstream, {f"n{n}.txt": b"n\n"}, f"n{n}")
    git(upstream, "checkout", "-q", "v1")
    release(upstream, "v3", {"b.txt": with_lines({30: b"else\n"})})
    assert told(stack, "--onto", "v3")["from"] == "v1"


def test_from_names_a_stack_that_is_there(stack: Patchq, upstream: Path) -> None:
    git(upstream, "tag", "v2")
    said = stack.fails(1, "forecast", "up", "--onto", "v2", "--from", "v7")
    assert "up has no stack for 'v7'" in said
    assert "v1" in said
    assert "up has no stack for 'v7'" in stack.fails(1, "rebase", "up", "--onto", "v2", "--from", "v7")


def test_a_recorded_resolution_is_counted(stack: Patchq, upstream: Path) -> None:
    """And what builds on the patch that it resolves lands; without a proof a person is to look at it."""
    resolved_at_v2(stack, upstream)
    assert (stack.root / "patches" / "up" / "rr-cache").is_dir()
    found = told(stack, "--onto", "v2", "--from", "v1")
    assert [c["outcome"] for c in found["cells"]] == ["replayed", "clean", "clean"]
    assert found["cells"][0]["unproved"]
    assert found["stops"] == {"v2": 1}
    path = stack.patch_file("first")
    path.write_bytes(path.read_bytes().replace(b"Topic: test\n", b"Topic: test\nProof: tests/test_it.py\n"))
    found = told(stack, "--onto", "v2", "--from", "v1")
    assert found["stops"] == {"v2": 0}
    assert found["summaries"][0]["replays"] == ["up/first"]
    path.write_bytes(path.read_bytes().replace(b"Proof: ", b"Needs: sm121\nProof: "))
    (cell,) = [c for c in told(stack, "--onto", "v2", "--from", "v1")["cells"] if c["outcome"] == "replayed"]
    assert cell["needs_review"]
    assert "it needs sm121" in cell["message"]
    path.write_bytes(path.read_bytes().replace(b"Needs: sm121\n", b""))
    assert "v2: 2 land, 1 replays, none needs review" in stack.ok("forecast", "up", "--onto", "v2", "--from", "v1")


def test_a_conflict_is_named_as_rerere_names_it(upstream: Path) -> None:
    git(upstream, "checkout", "-q", "-b", "ours")
    commit_files(upstream, {"a.txt": with_lines({5: b"ours\n", 20: b"z\n"})})
    git(upstream, "checkout", "-q", "-b", "theirs", "v1")
    commit_files(upstream, {"a.txt": with_lines({5: b"theirs\n", 20: b"a\n", 21: b"b\n"})})
    for style in ("merge", "diff3", "zdiff3"):
        git(upstream, "checkout", "-q", "-f", "ours")
        with pytest.raises(AssertionError):
            git(upstream, "-c", "rerere.enabled=true", "-c", f"merge.conflictStyle={style}", "merge", "theirs")
        (case,) = {p.name for p in (upstream / ".git" / "rr-cache").iterdir()}
        assert conflict_id((upstream / "a.txt").read_bytes()) == case
        git(upstream, "reset", "-q", "--hard")


def test_forecast_and_rebase_agree_patch_by_patch(stack: Patchq, upstream: Path) -> None:
    """Over releases that each change something else: moved, near, the same, otherwise, gone."""
    edit(stack.tree() / "b.txt", 20, b"one thing\nanother thing\na third thing\n")
    stack.ok("new", "up", "long", "-s", "-m", "Long\n\nFor the test.")
    edit(stack.tree() / "a.txt", 5, b"on top of the first\n")
    stack.ok("new", "up", "top", "-s", "-m", "Top\n\nFor the test.")
    a, b = numbered(40), numbered(40)
    long = b.replace(b"line 20\n", b"one thing\nanother thing\na third thing\n")
    refs: dict[str, dict[str, bytes | None]] = {
        "v2": {"a.txt": b"above\n" + a},
        "v3": {"a.txt": b"above\n" + a, "b.txt": long},
        "v3.1": {"a.txt": b"above\n" + with_lines({7: b"near the first\n"}), "b.txt": long},
        "v4": {"a.txt": with_lines({5: b"otherwise\n"}), "b.txt": long},
        "v4.1": {"a.txt": with_lines({5: b"otherwise\n"}), "b.txt": b"above\n" + long},
        "v5": {"a.txt": None, "moved/a.txt": with_lines({30: b"else\n"}), "b.txt": b"above\n" + long},
        "v6": {"moved/a.txt": None, "new.txt": b"nothing alike\n" * 3, "b.txt": b},
    }
    for ref, files in refs.items():
        release(upstream, ref, files)
    sources = []
    for ref in refs:
        before = told(stack, "--onto", ref)
        after = carried(stack, "--onto", ref, "--leave-out")
        assert before["from"] == after["from_ref"]
        sources.append(before["from"])
        ahead = {c["patch"].partition("/")[2]: c["outcome"] for c in before["cells"]}
        assert ahead == {s["patch"]: s["outcome"] for s in after["steps"]}, ref
        needs = {c["patch"].partition("/")[2] for c in before["cells"] if c["needs_review"]}
        assert needs == {s["patch"] for s in after["steps"] if s["outcome"] in ("conflict", "obsolete")}, ref
    assert sources == ["v1", "v2", "v3", "v3.1", "v4", "v4.1", "v5"]


def test_a_patch_that_the_nearest_stack_lacks_is_named(stack: Patchq, upstream: Path) -> None:
    """It was made after that stack: nobody has decided to leave it out."""
    resolved_at_v2(stack, upstream)
    edit(stack.tree() / "b.txt", 35, b"later\n")
    stack.ok("new", "up", "later", "-s", "-m", "Later\n\nFor the test.")
    release(upstream, "v2.1", {"b.txt": with_lines({30: b"else\n"})})
    assert told(stack, "--onto", "v2.1")["sources"][0]["absent"] == {"later": "not yet in the stack of v2"}
    said = stack.ok("forecast", "up", "--onto", "v2.1")
    assert "next: `patchq rebase up --onto v2` first carries the patches that this stack doesn't have" in said
    carried(stack, "--onto", "v2")
    found = told(stack, "--onto", "v2.1")
    assert (found["sources"][0]["absent"], found["summaries"][0]["lands"][-1]) == ({}, "up/later")
