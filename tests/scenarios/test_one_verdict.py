"""`forecast`, `rebase`, `report` and `follow` count the same patches, and read the ledger's decisions alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kit import Patchq, git, release, with_lines

#: The lines of `second` and `third` differ; `first` applies.
V2: dict[str, bytes | None] = {"a.txt": with_lines({30: b"otherwise\n"}), "b.txt": with_lines({10: b"otherwise\n"})}
#: The line of `first` differs, too.
V3: dict[str, bytes | None] = {"a.txt": with_lines({5: b"else\n", 30: b"otherwise\n"})}


def told(patchq: Patchq, *args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(patchq.ok(*args, "--json"))
    return found


def needs(patchq: Patchq, ref: str, folder: Path) -> dict[str, list[str]]:
    """The patches that need review on a ref, by command; `rebase` and `follow` leave the project as it was."""
    forecast = told(patchq, "forecast", "up", "--onto", ref)
    (tally,) = forecast["summaries"]
    assert len(tally["needs"]) == forecast["stops"][ref]
    assert f"{ref}: {tally['message']}" in patchq.ok("forecast", "up", "--onto", ref)
    found = {"forecast": tally["needs"]}
    for ahead in told(patchq, "report", "--look-ahead")["ahead"]:
        if ahead["ref"] == ref:
            found["report"] = [patch for patch, _ in ahead["needs"]]
    git(patchq.root, "add", "-A")
    git(patchq.root, "commit", "-q", "--allow-empty", "-m", "as it is")
    (followed,) = told(patchq, "follow", "up", "--onto", ref, "--dry-run", str(folder / ref), "--no-proof")["followed"]
    if followed["state"] == "dry run":
        count = f"{len(tally['needs'])} need" if tally["needs"] else "none needs review"
        assert count in followed["title"]
        body = followed["body"].partition("### What needs review")[2]
        found["follow"] = [f"up/{name}" for name in ("first", "second", "third") if f"- {name}: " in body]
    rebased = told(patchq, "rebase", "up", "--onto", ref, "--leave-out")
    assert rebased["dropped"] == forecast["sources"][0]["dropped"]
    found["rebase"] = [f"up/{s['patch']}" for s in rebased["steps"] if s["undecided"]]
    if rebased["state"] == "done":
        patchq.ok("undo")
    return found


@pytest.mark.parametrize("how", ["", "nothing calls it"])
def test_a_dropped_patch_is_work_for_no_one(stack: Patchq, upstream: Path, tmp_path: Path, how: str) -> None:
    git(stack.root, "init", "-q")
    release(upstream, "v2", V2)
    both = ["up/second", "up/third"]
    assert needs(stack, "v2", tmp_path) == {"forecast": both, "follow": both, "rebase": both}
    # One is dropped, the other one resolved.
    stack.fails(3, "rebase", "up", "--onto", "v2")
    stack.fails(3, "rebase", "up", "--skip", *(("--how", how) if how else ()))
    (stack.layout.tree("up@v2") / "b.txt").write_bytes(with_lines({10: b"changed otherwise\n"}))
    stack.ok("rebase", "up", "--continue", "--no-proof")
    assert needs(stack, "v2", tmp_path) == {"forecast": [], "report": [], "rebase": []}
    assert "already has every patch" in stack.ok("rebase", "up", "--onto", "v2")
    said = stack.ok("forecast", "up", "--onto", "v2", "--why")
    assert "v2: 2 already carried, 1 dropped, none needs review" in said
    assert f"v2 up/second: dropped at v2: skipped: {how or 'left out'}" in said
    # A later release inherits the decision.
    release(upstream, "v3", V3)
    stack.ok("pin", "up", "--url", str(upstream), "--ref", "v3", "--set", "next")
    every = needs(stack, "v3", tmp_path)
    assert every == {name: ["up/first"] for name in ("forecast", "report", "follow", "rebase")}
    # The user can take the decision back.
    assert told(stack, "forecast", "up", "--onto", "v3")["sources"][0]["absent"] == {"second": "dropped at v2: skipped"}
    stack.fails(3, "rebase", "up", "--onto", "v2", "--only", "second")
    stack.ok("rebase", "up", "--abort")


def test_what_is_left_for_later_stays_work(stack: Patchq, upstream: Path, tmp_path: Path) -> None:
    git(stack.root, "init", "-q")
    release(upstream, "v2", V2)
    said = stack.ok("rebase", "up", "--onto", "v2", "--leave-out")
    assert (
        "1 lands, 2 need review (2 hunks, 2 files): second, third; `patchq rebase up --onto v2` stops at each" in said
    )
    both = ["up/second", "up/third"]
    assert needs(stack, "v2", tmp_path) == {"forecast": both, "report": both, "rebase": both}


def test_a_patch_taken_out_with_a_reason_stays_out(stack: Patchq, upstream: Path, tmp_path: Path) -> None:
    git(stack.root, "init", "-q")
    release(upstream, "v2", {"c.txt": b"new\n"})
    stack.ok("rebase", "up", "--onto", "v2")
    stack.ok("drop", "up/second", "--set", "default-up-v2", "--why", "nothing calls it")
    assert needs(stack, "v2", tmp_path) == {"forecast": [], "report": [], "rebase": []}
    (source,) = told(stack, "forecast", "up", "--onto", "v2")["sources"]
    assert [(d["patch"], d["reason"], d["how"]) for d in source["dropped"]] == [
        ("second", "no longer needed", "nothing calls it")
    ]
