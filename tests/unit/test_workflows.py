"""Workflows, those that `init` writes and this project's own: actions by commit, installs by hash, few permissions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs_commands import FENCE, PAGES
from kit import ROOT, new_project

#: The jobs that may write, each apart from the one that runs packages or code that nobody has looked at.
WRITERS = {("rebases.yml", "send"): "carry", ("unlocked.yml", "issue"): "tests"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """All workflows and actions."""
    new = new_project(tmp_path_factory.mktemp("init") / "new").root
    found = [ROOT / "action.yml"]
    for root in (ROOT, new):
        found += sorted((root / ".github").rglob("*.yml"))
    assert len(found) >= 7
    return found


@pytest.fixture(scope="module")
def workflows(files: list[Path]) -> dict[str, dict[str, Any]]:
    """The workflows, by name; `init`'s patches.yml is `new patches.yml`."""
    found: dict[str, dict[str, Any]] = {}
    for path in files:
        if path.parent.name == "workflows":
            found["new " + path.name if path.name in found else path.name] = yaml.safe_load(path.read_text())
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    raw = yaml.safe_load(path.read_text())
    jobs = raw["jobs"].values() if "jobs" in raw else [raw["runs"]]
    return [step for job in jobs for step in job["steps"]]


def test_each_action_is_one_commit(files: list[Path]) -> None:
    """A tag can be moved to other code. The version is a comment, for people and for Dependabot."""
    commits: dict[str, set[str]] = {}
    for path in files:
        lines = re.findall(r"uses: (.*)$", path.read_text(), re.MULTILINE)
        assert len(lines) == sum("uses" in step for step in steps(path))
        for line in lines:
            if not line.startswith("./"):
                match = re.fullmatch(r"([\w-]+/[\w-]+)@([0-9a-f]{40} # v\d+\.\d+\.\d+)", line)
                assert match, f"{path}: {line}"
                commits.setdefault(match[1], set()).add(match[2])
    assert {name: len(found) for name, found in commits.items()} == dict.fromkeys(commits, 1)


def test_only_jobs_that_run_no_foreign_code_may_write(workflows: dict[str, dict[str, Any]]) -> None:
    writers = {}
    for name, workflow in workflows.items():
        assert workflow["permissions"] in ({}, {"contents": "read"}), name
        for job, body in workflow["jobs"].items():
            if "write" in body.get("permissions", {}).values():
                writers[name, job] = body["needs"]
                assert "write" not in workflow["jobs"][body["needs"]].get("permissions", {}).values()
    assert writers == WRITERS
    for step in workflows["rebases.yml"]["jobs"]["send"]["steps"]:
        assert "run" not in step
        if step["uses"].startswith("./"):
            assert "send" in step["with"], "it proves nothing there"


def test_credentials_stay_where_a_branch_is_pushed_alone(workflows: dict[str, dict[str, Any]]) -> None:
    kept = []
    for name, workflow in workflows.items():
        for job, body in workflow["jobs"].items():
            for step in body["steps"]:
                if step.get("uses", "").startswith("actions/checkout@"):
                    kept += [] if step.get("with", {}).get("persist-credentials") is False else [(name, job)]
    assert kept == [("rebases.yml", "send")]


def test_what_is_installed_is_known_by_hash_or_commit(files: list[Path]) -> None:
    for path in files:
        for step in steps(path):
            for line in re.split(r"\n|&&", step.get("run", "")):
                if "pip install" in line:
                    words = line.split()
                    assert "--no-deps" in words, line
                    assert "-r" in words or "--no-build-isolation" in words, line


def test_nothing_is_put_into_a_command(files: list[Path]) -> None:
    """An input or a name in a command would be run as a part of it."""
    for path in files:
        for step in steps(path):
            allowed = path == ROOT / "action.yml"  # to run its input is what that action is for
            assert allowed or "${{" not in step.get("run", ""), f"{path}: {step['run']}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_pages_show_actions_by_commit(page: Path) -> None:
    for _, block in FENCE.findall(page.read_text()):
        for line in re.findall(r"uses: (.*)$", block, re.MULTILINE):
            assert re.search(r"@([0-9a-f]{40}|COMMIT)\b", line), line
