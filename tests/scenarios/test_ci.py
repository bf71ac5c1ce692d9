"""What is given to users for their CI runs as it is: the workflow's commands, the annotations, the pre-commit hook."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kit import ROOT, Patchq, commit_files, git, numbered
from patchq.proofs.verdicts import annotation


@pytest.fixture
def with_patchq(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has this patchq."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "patchq").write_text(f'#!/bin/sh\nexec {sys.executable} -m patchq "$@"\n')
    (folder / "patchq").chmod(0o755)
    return {
        **os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "tools"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "PRE_COMMIT_HOME": str(tmp_path / "pre-commit"),
    }  # fmt: skip


def finished(stack: Patchq) -> None:
    """Give each patch what `check` asks for."""
    proof = stack.root / "tests" / "stacks" / "test_it.py"
    proof.write_text("def test_it(trees):\n    assert trees\n")
    for name in ("first", "second", "third"):
        file = stack.patch_file(name)
        file.write_bytes(file.read_bytes().replace(b"Topic: test\n", b"Topic: test\nProof: tests/stacks/test_it.py\n"))


def test_the_workflow_that_init_writes_runs(
    stack: Patchq, upstream: Path, with_patchq: dict[str, str], tmp_path: Path
) -> None:
    finished(stack)
    lines = numbered(40).splitlines(keepends=True)
    lines[4] = b"otherwise\n"
    commit_files(upstream, {"a.txt": b"".join(lines)}, "newer")
    workflow = yaml.safe_load((stack.root / ".github" / "workflows" / "patches.yml").read_text())
    said = ""
    for step in workflow["jobs"]["patches"]["steps"]:
        command = step.get("run", "")
        if command and "pip install" not in command:
            done = subprocess.run(
                ["bash", "-eo", "pipefail", "-c", command],
                cwd=stack.root,
                env=with_patchq,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            said += done.stdout
    assert "all good: 3 patches" in said
    assert "::warning file=patches/up/v1/first.patch,title=up/first on main%3A conflict::a.txt" in said
    assert (stack.root / "report" / "index.html").read_text().startswith("<!doctype html>")
    assert "| up/first |" in (tmp_path / "summary.md").read_text()


def test_gitlabs_jobs_run(stack: Patchq, with_patchq: dict[str, str]) -> None:
    """The commands of ``docs/ci/gitlab-ci.yml``, as GitLab's shell would run them, less the installation."""
    finished(stack)
    jobs = yaml.safe_load((ROOT / "docs" / "ci" / "gitlab-ci.yml").read_text())
    for line in jobs["default"]["before_script"]:
        assert "--no-deps" in line
    assert (stack.root / ".github" / "patchq.txt").is_file()
    for name in ("patches", "newest"):
        commands = [*jobs[name]["script"], *jobs[name].get("after_script", [])]
        done = subprocess.run(["bash", "-e", "-c", "\n".join(commands)], cwd=stack.root, env=with_patchq,
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    assert (stack.root / "report" / "index.html").is_file()


def test_nothing_in_an_annotation_becomes_a_command() -> None:
    line = annotation("a,b:c\n::error::x", "t\r\n", "100 %\n::set-env name=X::y")
    assert line.splitlines() == [line]
    # What follows the second "::" of the line is text to the runner, to the line's end.
    assert line == "::warning file=a%2Cb%3Ac%0A%3A%3Aerror%3A%3Ax,title=t%0D%0A::100 %25%0A::set-env name=X::y"


def test_the_pre_commit_hook_runs(stack: Patchq, with_patchq: dict[str, str]) -> None:
    finished(stack)
    git(stack.root, "init", "-q")
    git(stack.root, "add", "-A")

    def run() -> subprocess.CompletedProcess[str]:
        config = ROOT / "docs" / "ci" / "pre-commit-config.yaml"
        argv = [sys.executable, "-m", "pre_commit", "run", "--config", str(config), "--all-files"]
        return subprocess.run(argv, cwd=stack.root, env=with_patchq, capture_output=True, text=True, check=False)

    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    file = stack.patch_file("first")
    file.write_bytes(file.read_bytes().replace(b"Topic: test\n", b""))
    git(stack.root, "add", "-A")
    done = run()
    assert done.returncode == 1
    assert "Topic: is missing" in done.stdout


@pytest.mark.parametrize(
    "name",
    ["x\n::error::pwned", "x\r::error::pwned", "\n::set-env name=A::b", "::error::pwned", "x\x85::error::y", "x\u2028::error::y"],
)  # fmt: skip
def test_a_name_in_a_forecast_becomes_no_command(empty: Patchq, tmp_path: Path, name: str) -> None:
    """A file's name of upstream's choosing, in a patch that stops: the runner sees warnings on patches alone."""
    upstream = tmp_path / "upstream"
    upstream.mkdir()
    git(upstream, "init", "-q")
    commit_files(upstream, {f"a{name}": b"1\n2\n3\n", "b.txt": b"1\n"})
    git(upstream, "tag", "v1")
    empty.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    empty.ok("apply")
    (empty.tree() / f"a{name}").write_bytes(b"1\nmine\n3\n")
    empty.ok("new", "up", "first", "-m", "Change it\n\nWhy.")
    commit_files(upstream, {f"a{name}": b"1\n::error::theirs\n3\n"}, "::error::subject (#1)")
    git(upstream, "tag", "v2")
    said = empty.ok("forecast", "up", "--onto", "v2", "--annotate", "--blame")
    commands = [line for line in re.split("[\n\r\x0b\x0c\x85\u2028\u2029]", said) if line.lstrip().startswith("::")]
    assert len(commands) == 1
    assert commands[0].startswith("::warning file=patches/up/v1/first.patch,title=up/first on v2%3A conflict::a")
