"""The weekly run with unlocked versions tells of itself in one issue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kit import ROOT

TITLE = "The tests fail with unlocked versions"
#: The part of GitHub's `gh issue` that the job uses, on a file.
GH = """\
#!{python}
import argparse, json, pathlib, sys
file = pathlib.Path({file!r})
issues = json.loads(file.read_text())
parser = argparse.ArgumentParser()
verbs = parser.add_subparsers(dest="noun", required=True).add_parser("issue").add_subparsers(dest="verb", required=True)
listed = verbs.add_parser("list")
for option in ("--state", "--limit", "--json"):
    listed.add_argument(option)
made = verbs.add_parser("create")
made.add_argument("--title", required=True)
edited, closed = verbs.add_parser("edit"), verbs.add_parser("close")
for verb in (edited, closed):
    verb.add_argument("number", type=int)
for verb in (made, edited):
    verb.add_argument("--body-file", required=True, type=pathlib.Path)
closed.add_argument("--comment")
args = parser.parse_args()
if args.verb == "list":
    keys = args.json.split(",")
    print(json.dumps([{{k: i[k] for k in keys}} for i in issues if i["state"] == args.state][: int(args.limit)]))
elif args.verb == "create":
    issues.insert(0, dict(number=len(issues) + 1, title=args.title, body=args.body_file.read_text(), state="open"))
else:
    issue = next(i for i in issues if i["number"] == args.number)
    if args.verb == "edit":
        issue["body"] = args.body_file.read_text()
    else:
        issue.update(state="closed", comment=args.comment)
file.write_text(json.dumps(issues))
"""


class Tracker:
    """A place with issues, and the job that writes there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "issues.json"
        self.file.write_text(json.dumps([{"number": 1, "title": "Another", "body": "", "state": "open"}]))
        (folder / "gh").write_text(GH.format(python=sys.executable, file=str(self.file)))
        (folder / "gh").chmod(0o755)

    def tell(self, result: str, body: str) -> list[tuple[int, str, str]]:
        """What the issues are after a run with this result: number, state and body, but the first."""
        (self.folder / "body.md").write_text(body)
        env = {**os.environ, "PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}"}
        command = [str(ROOT / ".ci" / "issue"), TITLE, result, str(self.folder / "body.md")]
        subprocess.run(command, env=env, check=True, capture_output=True)
        issues = json.loads(self.file.read_text())
        assert {"number": 1, "title": "Another", "body": "", "state": "open"} in issues
        return sorted((i["number"], i["state"], i["body"]) for i in issues if i["title"] == TITLE)


@pytest.fixture
def tracker(tmp_path: Path) -> Tracker:
    return Tracker(tmp_path)


def test_a_failure_is_one_issue_until_it_passes(tracker: Tracker) -> None:
    assert tracker.tell("success", "") == []
    assert tracker.tell("failure", "first") == [(2, "open", "first")]
    assert tracker.tell("failure", "second") == [(2, "open", "second")]
    assert tracker.tell("cancelled", "third") == [(2, "open", "second")]
    assert tracker.tell("success", "") == [(2, "closed", "second")]
    assert tracker.tell("success", "") == [(2, "closed", "second")]
    assert tracker.tell("failure", "again") == [(2, "closed", "second"), (3, "open", "again")]


def test_what_runs_unlocked_packages_may_not_write() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/unlocked.yml").read_text())
    assert jobs["permissions"] == {"contents": "read"}
    may_write = [name for name, job in jobs["jobs"].items() if "write" in job.get("permissions", {}).values()]
    assert may_write == ["issue"]
    steps = jobs["jobs"]["issue"]["steps"]
    assert [step["run"].split()[0] for step in steps if "run" in step] == [".ci/issue"]
    assert TITLE in steps[-1]["run"]


def test_no_workflow_installs_this_project_by_name() -> None:
    """The name isn't this project's on the index: whoever registers it would run there."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            for step in job["steps"]:
                words = step.get("run", "").split()
                assert "install" not in words or "patchq" not in words, f"{path.name}: {step['run']}"
