"""`check --with`: branches that are green alone, merged in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kit import ROOT, Patchq, commit_files, edit, git, new_project

PROOF = b"def test_it(trees):\n    assert trees\n"
Change = Callable[[Patchq], None]


@pytest.fixture
def team(tmp_path: Path) -> Patchq:
    """A project with one patch, committed to main, and applied."""
    upstream = tmp_path / "python"
    upstream.mkdir()
    git(upstream, "init", "-q")
    functions = [f"def step_{n}(left, right):\n    return left + right * {n}\n" for n in range(8)]
    files: dict[str, bytes | None] = {
        "pkg/__init__.py": b"from .ops import step_3\n",
        "pkg/ops.py": "\n\n".join(["import math\n", *functions]).encode(),
        "pkg/base.py": b"class Base:\n    def run(self, count):\n        return count\n",
        "pkg/user.py": b'"""Users."""\n\nLIMIT = 3\n',
        "pkg/größe.py": b"FIRST = 1\n" + b"# more\n" * 20 + b"LAST = 1\n",
    }
    commit_files(upstream, files, "first")
    git(upstream, "tag", "v1")
    patchq = new_project(tmp_path / "team")
    patchq.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    (patchq.root / "tests/stacks/test_it.py").write_bytes(PROOF)
    patchq.ok("apply")
    new(patchq, "first", "pkg/user.py", "LIMIT = 3\n", "LIMIT = 4\n")
    git(patchq.root, "init", "-q")
    commit(patchq, "First")
    return patchq


def commit(patchq: Patchq, message: str) -> None:
    git(patchq.root, "add", "-A")
    git(patchq.root, "commit", "-q", "-m", message)


def new(patchq: Patchq, name: str, path: str, old: str, text: str, proof: str = "tests/stacks/test_it.py") -> None:
    """Make a patch that replaces text of a file, or adds it at the end."""
    file = patchq.tree() / path
    before = file.read_text() if file.exists() else ""
    assert old in before
    file.write_text(before.replace(old, text, 1) if old else before + text)
    message = f"Change {path}\n\nBecause of the test."
    patchq.ok("new", "up", name, "-m", message, "--topic", "test", "-s", "--proof", proof)


def branches(patchq: Patchq, **changes: Change) -> None:
    """Make branches from main, each green alone, and stay on the first."""
    for name, change in changes.items():
        git(patchq.root, "checkout", "-q", "main")
        patchq.ok("apply")
        git(patchq.root, "checkout", "-q", "-b", name)
        change(patchq)
        patchq.ok("check")
        commit(patchq, name)
    git(patchq.root, "checkout", "-q", next(iter(changes)))


def found(patchq: Patchq, *refs: str, code: int = 1) -> list[dict[str, Any]]:
    """The findings of `check --with`, without those on the format of merged patches."""
    options = [word for ref in refs for word in ("--with", ref)]
    before = patchq.snapshot()
    done = patchq.run("check", *options, "--json")
    assert done.exit_code == code, done.output
    assert patchq.snapshot() == before
    assert git(patchq.root, "status", "--porcelain") == ""
    answer = json.loads(done.output)
    findings: list[dict[str, Any]] = answer["findings"]
    return [f for f in findings if f["rule"] not in ("bytes", "offset")]


def adds(name: str, path: str, text: str, old: str = "") -> Change:
    return lambda patchq: new(patchq, name, path, old, text)


def test_branches_that_go_together(team: Patchq) -> None:
    branches(
        team,
        one=adds("more", "pkg/ops.py", "\n\ndef more(value):\n    return value\n"),
        two=adds("other", "pkg/base.py", "\n\ndef other(value):\n    return value\n"),
    )
    assert found(team, "two", code=0) == []
    assert team.ok("check", "--with", "two") == "all good: 3 patches in the default set\n"


def test_one_branch_renames_what_the_other_calls(team: Patchq) -> None:
    branches(
        team,
        one=adds("rename", "pkg/ops.py", "def stride_5(left, right)", "def step_5(left, right)"),
        two=adds("call", "pkg/user.py", "\n\ndef use():\n    from pkg.ops import step_5\n\n    return step_5(1, 2)\n"),
    )
    (clash, *_) = found(team, "two")
    assert (clash["rule"], clash["patch"], clash["level"]) == ("drift-between", "call", "problem")
    assert "up/call of two" in clash["message"]
    assert "with one by up/rename" in clash["message"]
    git(team.root, "checkout", "-q", "two")
    assert [f["patch"] for f in found(team, "one")] == [f["patch"] for f in found(team, "one")]
    assert found(team, "one")[0]["rule"] == "drift-between"


def test_a_parameter_that_is_optional_or_required(team: Patchq) -> None:
    branches(
        team,
        optional=adds("optional", "pkg/ops.py", "def step_3(left, right, more=0)", "def step_3(left, right)"),
        required=adds("required", "pkg/ops.py", "def step_3(left, right, more)", "def step_3(left, right)"),
        call=adds("call", "pkg/user.py", "import pkg\n\nTWICE = pkg.step_3(2, 3)\n"),
    )
    assert all(f["level"] == "warning" for f in found(team, "call", code=0))
    git(team.root, "checkout", "-q", "required")
    (clash,) = found(team, "call")
    assert "more must now be passed" in clash["message"]


def test_a_method_that_a_new_subclass_overrides(team: Patchq) -> None:
    text = "from pkg.base import Base\n\n\nclass Mine(Base):\n    def run(self, count):\n        return 1\n"
    branches(
        team,
        one=adds("change", "pkg/base.py", "def run(self, count, step)", "def run(self, count)"),
        two=adds("subclass", "pkg/user.py", text),
    )
    (clash,) = found(team, "two")
    assert "overrides" in clash["message"]


@pytest.mark.parametrize("text", ["def again(value):\n    return {}\n", "class Again:\n    size = {}\n"])
def test_both_add_one_definition(team: Patchq, text: str) -> None:
    branches(
        team,
        one=adds("one", "pkg/ops.py", f"import math\n\n\n{text.format(1)}", "import math\n"),
        two=adds("two", "pkg/ops.py", "\n\n" + text.format(2)),
    )
    (clash,) = [f for f in found(team, "two") if f["level"] == "problem"]
    assert clash["rule"] == "same-definition"
    assert "up/one and up/two" in clash["message"]


def test_both_add_one_file(team: Patchq) -> None:
    branches(team, one=adds("one", "pkg/new.py", "A = 1\n"), two=adds("two", "pkg/new.py", "A = 2\n"))
    assert [f["rule"] for f in found(team, "two")] == ["applies"]


def test_both_amend_one_patch(team: Patchq) -> None:
    def amend(path: str, line: int) -> Change:
        def change(patchq: Patchq) -> None:
            edit(patchq.tree() / path, line, b"A = 1\n")
            patchq.ok("export", "up", "--amend", "first")

        return change

    branches(team, one=amend("pkg/__init__.py", 1), two=amend("pkg/ops.py", 1))
    assert {f["rule"] for f in found(team, "two")} <= {"merge", "same-patch"}


def test_one_drops_what_the_other_requires(team: Patchq) -> None:
    def require(patchq: Patchq) -> None:
        new(patchq, "second", "pkg/base.py", "", "A = 1\n")
        patchq.ok("reword", "second", "--trailer", "Requires: up/first")

    branches(team, drop=lambda patchq: patchq.ok("drop", "first"), require=require)
    assert {f["rule"] for f in found(team, "require")} & {"requires", "series"}


def test_a_proof_that_both_change(team: Patchq) -> None:
    def proof(first: bytes, last: bytes) -> Change:
        def change(patchq: Patchq) -> None:
            (patchq.root / "tests/stacks/test_it.py").write_bytes(first + PROOF + last)

        return change

    (team.root / "tests/stacks/test_it.py").write_bytes(PROOF * 4)
    commit(team, "Longer")
    branches(
        team, one=proof(b"A = 1\n", PROOF * 3), two=proof(b"", PROOF * 3 + b"B = 1\n"), three=proof(b"C = 1\n", b"")
    )
    (clash,) = found(team, "two", code=0)
    assert (clash["rule"], clash["level"]) == ("shared-proof", "warning")
    (clash,) = found(team, "three")
    assert clash["rule"] == "merge"


def test_several_branches_and_the_proofs_to_run(team: Patchq) -> None:
    branches(
        team,
        one=adds("one", "pkg/ops.py", "import math\n\nA = 1\n", "import math\n"),
        two=adds("two", "pkg/ops.py", "\n\nB = 1\n"),
        three=adds("three", "pkg/base.py", "\n\nC = 1\n"),
    )
    said = team.ok("check", "--with", "two", "--with", "three")
    assert "after the merge, run:\npatchq test --prove up/one up/two\n" in said
    assert "all good: 4 patches in the default set" in said
    assert found(team, "two", "three", code=0) == []


def test_one_file_of_both_branches_is_exported_again(team: Patchq) -> None:
    branches(
        team,
        one=adds("one", "pkg/ops.py", "import math\n\nA = 1\n", "import math\n"),
        two=adds("two", "pkg/ops.py", "\n\nB = 1\n"),
    )
    said = team.ok("check", "--with", "two")
    assert "after the merge: `patchq check --fix`" in said
    git(team.root, "merge", "-q", "-m", "merge", "two")
    team.fails(1, "check")
    team.ok("check", "--fix")


def test_a_file_whose_name_git_quotes(team: Patchq) -> None:
    branches(
        team,
        one=adds("one", "pkg/größe.py", "FIRST = 2\n", "FIRST = 1\n"),
        two=adds("two", "pkg/größe.py", "LAST = 2\n", "LAST = 1\n"),
    )
    assert b'"a/pkg/gr\\303' in (team.root / "patches/up/v1/one.patch").read_bytes()
    assert "after the merge, run:\npatchq test --prove up/one up/two\n" in team.ok("check", "--with", "two")


@pytest.fixture
def second_release(team: Patchq, tmp_path: Path) -> Patchq:
    """``team`` with a second patch and a release to carry both patches to."""
    new(team, "second", "pkg/base.py", "", "\n\nB = 1\n")
    commit(team, "Second")
    commit_files(tmp_path / "python", {"pkg/late.py": b"L = 1\n"}, "later")
    git(tmp_path / "python", "tag", "v2")
    return team


def carry(patchq: Patchq) -> None:
    patchq.ok("rebase", "up", "--onto", "v2")


def test_one_adds_a_patch_to_a_stack_that_the_other_carries(second_release: Patchq) -> None:
    branches(second_release, carry=carry, more=adds("more", "pkg/ops.py", "\n\nM = 1\n"))
    (clash,) = [f for f in found(second_release, "more", code=0) if f["rule"] == "left-behind"]
    assert clash["message"] == "more adds or changes more; carry carries the stack to v2 without that change"


def test_one_drops_a_patch_that_the_other_carries(second_release: Patchq) -> None:
    branches(second_release, carry=carry, drop=lambda patchq: patchq.ok("drop", "first"))
    (clash,) = [f for f in found(second_release, "drop", code=0) if f["rule"] == "left-behind"]
    assert clash["message"] == "drop removes first; carry carries the stack to v2 with that patch"
    assert "`patchq drop first --set SET`" in clash["hint"]


def test_both_drop_a_patch_and_one_carries_the_stack(second_release: Patchq) -> None:
    def drop_and_carry(patchq: Patchq) -> None:
        patchq.ok("drop", "first")
        carry(patchq)

    branches(second_release, carry=drop_and_carry, drop=lambda patchq: patchq.ok("drop", "first"))
    assert [f for f in found(second_release, "drop", code=0) if f["rule"] == "left-behind"] == []


def test_what_is_no_branch(team: Patchq) -> None:
    assert "is not a revision" in team.fails(1, "check", "--with", "nothing")
    team.fails(2, "check", "--with", "main", "--fix")


@pytest.fixture
def merged(team: Patchq, tmp_path: Path) -> dict[str, str]:
    """Two branches that clash, the second merged into the first, and an environment with patchq."""
    branches(
        team,
        one=adds("rename", "pkg/ops.py", "def stride_5(left, right)", "def step_5(left, right)"),
        two=adds("call", "pkg/user.py", "\n\ndef use():\n    from pkg.ops import step_5\n\n    return step_5(1, 2)\n"),
    )
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "patchq").write_text(f'#!/bin/sh\nexec {sys.executable} -m patchq "$@"\n')
    (folder / "patchq").chmod(0o755)
    git(team.root, "update-ref", "refs/pull/7/head", "two")
    base = git(team.root, "rev-parse", "one")
    git(team.root, "checkout", "-q", "-b", f"gh-readonly-queue/main/pr-7-{base}")
    git(team.root, "merge", "-q", "--no-ff", "-m", "merge", "two")
    git(team.root, "remote", "add", "origin", str(team.root))
    return {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "tools"),
        "BASE": base,
        "GROUP": git(team.root, "symbolic-ref", "HEAD"),
        "CI_COMMIT_SHA": git(team.root, "rev-parse", "HEAD"),
    }


def script_of(name: str) -> str:
    """The commands of a workflow that check."""
    workflow = yaml.safe_load((ROOT / "docs" / "ci" / name).read_text())
    if "jobs" in workflow:
        return str(workflow["jobs"]["together"]["steps"][-1]["run"])
    return "\n".join(workflow["patches together"]["script"])


@pytest.mark.parametrize("name", ["merge-queue.yml", "merge-trains.gitlab-ci.yml"])
def test_a_queue_checks_an_entry_with_those_before_it(team: Patchq, merged: dict[str, str], name: str) -> None:
    argv = ["bash", "-eo", "pipefail", "-c", script_of(name)]
    done = subprocess.run(argv, cwd=team.root, env=merged, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "drift-between" in done.stdout
