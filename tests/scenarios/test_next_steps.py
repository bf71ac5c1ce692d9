"""The commands that messages suggest work, and hold no placeholder for a known value."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from kit import Patchq, commit_files, git, release, with_lines


@pytest.fixture
def moved(stack: Patchq, upstream: Path) -> Patchq:
    """The stack's upstream with a branch ``next`` and a tag v2 on another commit."""
    release(upstream, "v2", {"a.txt": with_lines({20: b"upstream changed this\n"})})
    git(upstream, "branch", "next")
    return stack


def suggested(said: str, start: str) -> list[str]:
    """Return the first command in backticks that starts with these words, without ``patchq``."""
    found = re.search(rf"`patchq ({re.escape(start)}[^`]*)`", said)
    assert found, said
    return shlex.split(found[1])


def patches(patchq: Patchq, *args: str) -> list[str]:
    return [patch["name"] for patch in json.loads(patchq.ok("list", "--json", *args))["patches"]]


def test_a_pin_of_another_ref_names_the_stack_that_stays(moved: Patchq) -> None:
    said = moved.ok("pin", "up", "--ref", "next")
    assert "up next has no patches yet; the stack of v1 (3 patches) is still in patches/up/v1" in said
    assert patches(moved) == []
    moved.ok(*suggested(said, "rebase"))
    assert patches(moved) == ["first", "second", "third"]
    assert moved.project.lock.sets == {"default": {"up": "next"}}
    assert json.loads(moved.ok("pin", "up", "--ref", "next", "--json"))["left"] is None


def test_a_pin_in_another_set_names_the_command_for_that_set(moved: Patchq) -> None:
    answer = json.loads(moved.ok("pin", "up", "--ref", "v2", "--set", "other", "--json"))
    assert answer["left"] == {
        "ref": "v1",
        "patches": ["first", "second", "third"],
        "command": "patchq rebase up --onto v2",
    }
    moved.ok(*shlex.split(answer["left"]["command"])[1:])
    assert patches(moved, "--set", "other") == ["first", "second", "third"]
    moved.ok("pin", "up", "--ref", "v2")
    assert patches(moved) == ["first", "second", "third"]
    said = moved.ok("pin", "up", "--ref", "next", "--set", "third")
    moved.ok(*suggested(said, "rebase"))
    assert patches(moved, "--set", "third") == ["first", "second", "third"]


def test_a_rebase_onto_the_pinned_ref_names_the_stacks_to_carry(moved: Patchq) -> None:
    moved.ok("pin", "up", "--ref", "next")
    said = moved.ok("rebase", "up", "--onto", "next")
    assert "up is at next in the set default" in said
    moved.ok(*suggested(said, "rebase"))
    assert patches(moved) == ["first", "second", "third"]
    assert "carries" not in moved.ok("rebase", "up", "--onto", "next")


def test_the_step_after_a_rebase_works_without_proofs(moved: Patchq) -> None:
    said = moved.ok("rebase", "up", "--onto", "v2", "--new-set", "carried")
    assert "test --prove" not in said
    assert "no patch names a proof" in said
    moved.ok(*suggested(said, "apply"))
    moved.ok(*suggested(said, "use"))
    assert "patchq use" not in moved.ok("rebase", "up", "--onto", "next", "--new-set", "carried")


def test_a_check_of_a_set_looks_only_at_its_stacks(moved: Patchq) -> None:
    moved.ok("rebase", "up", "--onto", "v2", "--new-set", "carried")
    refs = {f["ref"] for f in json.loads(moved.run("check", "--json").output)["findings"]}
    assert refs == {"v1", "v2"}
    done = moved.run("check", "--set", "carried", "--json")
    assert {f["ref"] for f in json.loads(done.output)["findings"]} == {"v2"}
    assert "3 of 3 patches in the set carried" in moved.fails(1, "check", "--set", "carried")
    assert "no set 'gone'" in moved.fails(1, "check", "--set", "gone")
    assert "leave out --set" in moved.fails(2, "check", "--set", "carried", "--fix")


def test_warnings_of_one_patch_are_one_line(empty: Patchq, upstream: Path) -> None:
    functions = b"".join(b"def f%d():\n    return %d\n\n\n" % (n, n) for n in range(6))
    commit_files(upstream, {"pkg/mod.py": functions}, "mod")
    git(upstream, "tag", "v3")
    empty.ok("pin", "up", "--url", str(upstream), "--ref", "v3")
    empty.ok("apply")
    module = empty.tree() / "pkg/mod.py"
    for name, old, new in (("first", "return ", "return 1 + "), ("second", "1 + ", "2 + ")):
        module.write_text(module.read_text().replace(old, new))
        empty.ok("new", "up", name, "-m", f"Change {name}\n\nBecause of the test.\n", "--topic", "test", "-s")
    findings = json.loads(empty.run("check", "--json").output)["findings"]
    assert len([f for f in findings if f["rule"] == "one-definition"]) == 6
    said = empty.run("check").output
    assert said.count("[one-definition]") == 1
    assert "up/second and up/first change the same 6 definitions: f0 in pkg/mod.py" in said
    assert "and 3 more (--verbose lists all)" in said
    assert "6 warnings" in said
    assert empty.run("check", "--verbose").output.count("[one-definition]") == 6


def test_a_set_that_the_lock_does_not_have_is_refused(stack: Patchq) -> None:
    assert "no set 'gone'" in stack.fails(1, "verify-installed", "--set", "gone")


def test_a_typo_names_the_near_word(stack: Patchq) -> None:
    assert "hint: did you mean v1? `git ls-remote" in stack.fails(1, "pin", "up", "--ref", "v11")
    assert "hint: did you mean first?" in stack.fails(1, "export", "up", "--amend", "frist")
    assert "No such command 'biuld': did you mean build?" in stack.fails(2, "biuld")


def test_a_missing_argument_of_pin_is_explained(stack: Patchq) -> None:
    assert "the tag, branch or commit of up to pin" in stack.fails(2, "pin", "up")
    assert "name an upstream (up, or a new one)" in stack.fails(2, "pin")


def test_a_patch_without_a_proof_gets_the_commands_to_add_one(stack: Patchq) -> None:
    said = stack.fails(5, "test", "first", "--prove")
    assert "again:" not in said
    assert "write tests/stacks/up/test_first.py, then" in said
    stack.ok(*suggested(said, "reword"))
    assert "Proof: tests/stacks/up/test_first.py" in stack.patch_file("first").read_text()
