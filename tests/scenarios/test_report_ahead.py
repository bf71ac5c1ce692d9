"""The report's first screen: what each release costs, and what was dropped, where and why."""

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


def test_each_release_by_what_lands_needs_review_and_was_dropped(stack: Patchq, upstream: Path) -> None:
    a = numbered(40).splitlines(keepends=True)
    release(stack, upstream, "v2", {"a.txt": b"".join([*a[:4], b"changed\n", *a[5:]])})
    release(stack, upstream, "v3", {"b.txt": b"nothing alike\n" * 3, "a.txt": b"".join([*a[:4], b"more\n", *a[5:]])})
    (stack.root / "patches" / "up" / "ledger.jsonl").write_text(
        ledger_line("first", "v2", "absorbed", grade="identical", evidence="e", how="retired: upstream has it (e)")
        + ledger_line("second", "v2", "clean") + ledger_line("third", "v2", "clean")
    )  # fmt: skip
    told = json.loads(stack.ok("report", "--look-ahead", "--json"))
    v2, v3 = told["ahead"]
    first = {"patch": "up/first", "ref": "v2", "reason": "upstream has it", "how": "retired: upstream has it (e)"}
    assert (v2["ref"], v2["dropped"], v2["lands"]) == ("v2", [first], ["up/second", "up/third"])
    assert (v3["ref"], v3["dropped"]) == ("v3", [first])
    assert v3["needs"] == [["up/third", ["b.txt"]]]
    assert v3["lands"] == ["up/second"]
    rows = told["matrices"][0]["rows"]
    assert [c["outcome"] for c in rows["first"]] == ["carried", "dropped", "dropped"]
    target = stack.root / "out" / "report.html"
    stack.ok("report", "--look-ahead", "--html", str(target))
    page = target.read_text()
    assert (
        page.index("What newer releases cost")
        < page.index("dropped at v2: upstream has it")
        < page.index("up v1: applied")
    )


def test_what_a_person_left_out_of_a_later_stack_needs_nobody(stack: Patchq, upstream: Path) -> None:
    release(stack, upstream, "v2", {"c.txt": b"new\n"})
    folder = stack.root / "patches" / "up"
    (folder / "v2").mkdir()
    (folder / "v2" / "second.patch").write_bytes((folder / "v1" / "second.patch").read_bytes())
    (folder / "v2" / "series").write_text("second.patch\n")
    (folder / "ledger.jsonl").write_text(
        ledger_line("first", "v2", "conflict", how="for v1 only", files=[{"path": "a.txt", "hunks": 1}])
        + ledger_line("third", "v2", "conflict", how="not carried yet", files=[{"path": "b.txt", "hunks": 1}])
    )  # fmt: skip
    (v2,) = json.loads(stack.ok("report", "--json"))["ahead"]
    assert v2["dropped"] == [{"patch": "up/first", "ref": "v2", "reason": "skipped", "how": "for v1 only"}]
    with (folder / "ledger.jsonl").open("a") as ledger:
        ledger.write(ledger_line("first", "v2", "obsolete", how="withdrawn: nobody calls it"))
    (v2,) = json.loads(stack.ok("report", "--json"))["ahead"]
    assert [(d["reason"], d["how"]) for d in v2["dropped"]] == [("no longer needed", "withdrawn: nobody calls it")]
    assert v2["needs"] == [["up/third", ["b.txt"]]]
    assert v2["lands"] == ["up/second"]


def test_an_older_release_is_not_ahead(stack: Patchq, upstream: Path) -> None:
    release(stack, upstream, "v2", {"c.txt": b"new\n"})
    release(stack, upstream, "v3", {"c.txt": b"newer\n"})
    assert [a["ref"] for a in json.loads(stack.ok("report", "--json"))["ahead"]] == ["v2", "v3"]
    assert json.loads(stack.ok("report", "--json", "--set", "set-v3"))["ahead"] == []
