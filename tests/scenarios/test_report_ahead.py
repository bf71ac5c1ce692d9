"""The report's first screen: what each release costs, and since when upstream has what was retired."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kit import Patchq, commit_files, git, numbered


def release(patchq: Patchq, upstream: Path, tag: str, files: dict[str, bytes | None]) -> None:
    commit_files(upstream, files, tag)
    git(upstream, "tag", tag)
    patchq.ok("pin", "up", "--url", str(upstream), "--ref", tag, "--set", f"set-{tag}")


def ledger_line(patch: str, onto: str, outcome: str, **more: Any) -> str:
    return json.dumps({"v": 1, "patch": patch, "patch_id": "0" * 40, "from_ref": "v1", "onto": onto, "outcome": outcome,
                       "tool": "t", "time": "2026-11-21T00:00:00Z", **more}) + "\n"  # fmt: skip


def test_each_release_by_what_lands_needs_you_and_was_retired(stack: Patchq, upstream: Path) -> None:
    a = numbered(40).splitlines(keepends=True)
    release(stack, upstream, "v2", {"a.txt": b"".join([*a[:4], b"changed\n", *a[5:]])})
    release(stack, upstream, "v3", {"b.txt": b"nothing alike\n" * 3, "a.txt": b"".join([*a[:4], b"more\n", *a[5:]])})
    (stack.root / "patches" / "up" / "ledger.jsonl").write_text(
        ledger_line("first", "v2", "absorbed", grade="identical", evidence="e", how="retired: upstream has it (e)")
        + ledger_line("second", "v2", "clean") + ledger_line("third", "v2", "clean")
    )  # fmt: skip
    told = json.loads(stack.ok("report", "--look-ahead", "--json"))
    v2, v3 = told["ahead"]
    assert (v2["ref"], v2["retired"], v2["lands"]) == ("v2", [["up/first", "v2"]], ["up/second", "up/third"])
    assert (v3["ref"], v3["retired"]) == ("v3", [["up/first", "v2"]])
    assert v3["needs"] == [["up/third", ["b.txt"]]]
    assert v3["lands"] == ["up/second"]
    rows = told["matrices"][0]["rows"]
    assert [c["outcome"] for c in rows["first"]] == ["carried", "retired", "retired"]
    target = stack.root / "out" / "report.html"
    stack.ok("report", "--look-ahead", "--html", str(target))
    page = target.read_text()
    assert "What the releases cost" in page
    assert page.index("What the releases cost") < page.index("up v1: applied")
    assert "first (since v2)" in page
