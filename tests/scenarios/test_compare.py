"""`compare`: two forks of one upstream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kit import Patchq, edit, git, new_project, release, with_lines


def new(patchq: Patchq, name: str, *changes: tuple[str, int, bytes]) -> None:
    for path, line, text in changes:
        edit(patchq.tree() / path, line, text)
    patchq.ok("new", "up", name, "-m", f"Change {name}\n\nBecause.", "--topic", "test", "-s")


@pytest.fixture
def other(upstream: Path, tmp_path: Path) -> Patchq:
    """Another project that pins the upstream at v1, without patches."""
    fork = new_project(tmp_path / "fork")
    fork.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    fork.ok("apply")
    return fork


def compared(patchq: Patchq, other: str, *args: str) -> dict[str, Any]:
    before = patchq.snapshot()
    answer = json.loads(patchq.ok("compare", other, *args, "--json"))
    after = patchq.snapshot()
    # The store keeps the base of the other project's pin, as a fetch does.
    assert {k: v for k, v in after.items() if k != "refs"} == {k: v for k, v in before.items() if k != "refs"}
    (upstream,) = answer["upstreams"]
    found: dict[str, Any] = upstream
    return found


def relations(found: dict[str, Any]) -> dict[str, tuple[str, list[str]]]:
    return {("" if p["is_ours"] else "other/") + p["name"]: (p["relation"], p["partners"]) for p in found["patches"]}


def order(found: dict[str, Any]) -> list[str]:
    return [("" if p["is_ours"] else "other/") + p["name"] for p in found["union"]]


def test_same_conflict_and_apart(stack: Patchq, other: Patchq) -> None:
    new(other, "twin", ("a.txt", 5, b"changed\n"))
    new(other, "clash", ("a.txt", 30, b"otherwise\n"))
    new(other, "own", ("b.txt", 35, b"own\n"))
    found = compared(stack, str(other.root))
    assert relations(found) == {
        "first": ("same", ["twin"]),
        "second": ("conflict", ["clash"]),
        "third": ("apart", []),
        "other/twin": ("same", ["first"]),
        "other/clash": ("conflict", ["second"]),
        "other/own": ("apart", []),
    }
    assert [p["grade"] for p in found["patches"] if p["relation"] == "same"] == ["identical", "identical"]
    assert order(found) == ["first", "second", "third", "other/own"]
    assert found["left_out"] == [{"name": "clash", "is_ours": False, "outcome": "conflict"}]
    said = stack.ok("compare", str(other.root))
    assert f"{other.root}: clash: conflicts with second: a.txt\n" in said
    assert "here could drop these patches, because the other side has them: first\n" in said
    assert stack.ok("compare", str(other.root), "--union").splitlines()[-1] == f"up/own  # {other.root}, clean"


def test_one_patch_with_the_effect_of_two(stack: Patchq, other: Patchq) -> None:
    new(other, "both", ("a.txt", 5, b"changed\n"), ("a.txt", 30, b"changed\n"))
    found = relations(compared(stack, str(other.root)))
    assert found["first"] == ("same", ["both"])
    assert found["second"] == ("same", ["both"])
    assert found["other/both"] == ("same", ["first", "second"])


def test_two_changes_of_one_function(stack: Patchq, other: Patchq, upstream: Path) -> None:
    body = b"def f():\n    a = 1\n" + b"    a += 2\n" * 8 + b"    return a\n"
    release(upstream, "v2", {"pkg/mod.py": body})
    for patchq in (stack, other):
        patchq.ok("pin", "up", "--ref", "v2", "--set", "next")
        patchq.ok("apply", "--set", "next")
    for patchq, line in ((stack, 2), (other, 11)):
        edit(patchq.tree() / "pkg/mod.py", line, b"    print()\n")
        patchq.ok("new", "up", f"line-{line}", "-m", "Print\n\nBecause.", "--topic", "test", "-s")
    found = compared(stack, str(other.root), "--set", "next", "--other-set", "next")
    (mine,) = [p for p in found["patches"] if p["name"] == "line-2"]
    assert (mine["relation"], mine["partners"], mine["definitions"]) == ("overlap", ["line-11"], ["pkg/mod.py: f"])
    assert order(found)[-1] == "other/line-11"


def test_forks_on_two_refs(stack: Patchq, other: Patchq, upstream: Path) -> None:
    """The later ref has one of the patches, and moved the lines of another."""
    release(upstream, "v2", {"a.txt": b"new\n" + with_lines({5: b"changed\n"})})
    other.ok("pin", "up", "--ref", "v2", "--set", "next")
    other.ok("apply", "--set", "next")
    new(other, "twin", ("b.txt", 10, b"changed\n"))
    found = compared(stack, str(other.root), "--other-set", "next")
    assert not found["same_base"]
    said = relations(found)
    assert said["first"][0] == "same"
    assert said["second"] == ("apart", [])
    assert said["third"] == ("same", ["twin"])


def test_a_bundle_and_a_branch(stack: Patchq, other: Patchq, tmp_path: Path) -> None:
    new(other, "twin", ("a.txt", 5, b"changed\n"))
    other.ok("bundle", str(tmp_path / "fork.patchq"))
    assert relations(compared(stack, str(tmp_path / "fork.patchq")))["first"] == ("same", ["twin"])
    git(stack.root, "init", "-q")
    git(stack.root, "add", "-A")
    git(stack.root, "commit", "-q", "-m", "Three")
    stack.ok("drop", "second")
    found = relations(compared(stack, "HEAD"))
    assert found["other/first"] == ("same", ["first"])
    assert found["other/second"] == ("apart", [])


def test_a_patch_that_needs_one_that_conflicts(stack: Patchq, other: Patchq) -> None:
    """The union begins with the fork that then leaves out fewer patches."""
    new(other, "clash", ("a.txt", 30, b"otherwise\n"), ("run.sh", 2, b"echo more\n"))
    new(other, "after", ("run.sh", 2, b"echo most\n"))
    found = compared(stack, str(other.root))
    said = relations(found)
    assert said["other/clash"] == ("conflict", ["second"])
    assert said["other/after"] == ("needs", ["clash"])
    assert order(found) == ["other/clash", "other/after", "first", "third"]
    assert [p["name"] for p in found["left_out"]] == ["second"]


def test_what_is_no_fork(stack: Patchq, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "holds no patchq project" in stack.fails(1, "compare", str(tmp_path / "empty"))
    assert "neither a revision of this project" in stack.fails(1, "compare", "nothing")
    alien = new_project(tmp_path / "alien")
    upstream = tmp_path / "other-upstream"
    upstream.mkdir()
    git(upstream, "init", "-q")
    (upstream / "x").write_text("x\n")
    git(upstream, "add", "-A")
    git(upstream, "commit", "-q", "-m", "x")
    git(upstream, "tag", "v1")
    alien.ok("pin", "else", "--url", str(upstream), "--ref", "v1")
    assert "no upstream in common" in stack.fails(1, "compare", str(alien.root))
