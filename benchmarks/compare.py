"""Compare the speed of two commits of patchq on a generated project.

    python benchmarks/compare.py main HEAD [--patches 300] [--rounds 5] [--limit 1.2]

Both commits are checked out. Each command runs with both in turns, in a process of its own and in a copy of the same
project, so that other work on the machine slows both. Prints the medians, their ratio and the range of the ratios. A
change within that range means nothing. Exits with 1 if the median ratio of a command is above the limit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: What is timed, and what sets the scene for it, in its order: each begins with what the one before left.
COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("--version", ("--version",)),
    ("apply, cold", ("apply",)),
    ("apply, nothing changed", ("apply",)),
    ("status", ("status",)),
    ("list", ("list",)),
    ("check", ("check",)),
    ("export, nothing changed", ("export", "up")),
    ("move one", ("move", "up/p10", "--before", "p2")),
    ("undo", ("undo",)),
    ("drop one", ("drop", "up/p5")),
    ("deps", ("deps",)),
)
#: Of which another exit code is an answer too.
ANSWERS = {"check": (0, 1)}
PATCH = """From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: Bench <bench@example.org>
Date: Fri, 2 Jan 2026 03:04:05 +0100
Subject: Change number {n}

Because the benchmark needs a change.

Upstream-Status: Pending
Topic: bench
---
diff --git a/{path} b/{path}
--- a/{path}
+++ b/{path}
@@ -{at},3 +{at},3 @@
 line {at} of {path}
-line {next} of {path}
+changed by {n}
 line {last} of {path}
"""


class Side:
    """A checked-out commit and its copy of the project."""

    def __init__(self, commit: str, folder: Path) -> None:
        self.commit, self.tree, self.project = commit, folder / "patchq", folder / "project"
        folder.mkdir()
        git(ROOT, "worktree", "add", "-q", "--detach", str(self.tree), commit)
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PYTHONPATH"))},
            "PYTHONPATH": str(self.tree / "tools"), "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_AUTHOR_NAME": "B", "GIT_AUTHOR_EMAIL": "b@example.org",
            "GIT_COMMITTER_NAME": "B", "GIT_COMMITTER_EMAIL": "b@example.org",
        }  # fmt: skip

    def run(self, args: Sequence[str], codes: Sequence[int] = (0,)) -> float:
        """Run a command and return its wall seconds."""
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "patchq", "--project", str(self.project), *args],
            env=self.env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        seconds = time.perf_counter() - start
        if done.returncode not in codes:
            raise SystemExit(f"{self.commit}: patchq {' '.join(args)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return seconds


def git(folder: Path, *args: str) -> None:
    subprocess.run(["git", "-C", str(folder), *args], check=True, capture_output=True)


def make_upstream(folder: Path, files: int) -> Path:
    repo = folder / "upstream"
    repo.mkdir()
    for number in range(files):
        path = f"d{number // 50}/f{number}.py"
        (repo / path).parent.mkdir(exist_ok=True)
        (repo / path).write_text("".join(f"line {n} of {path}\n" for n in range(1, 100)))
    git(repo, "init", "-q")
    git(repo, "add", "-A")
    git(repo, "-c", "user.name=B", "-c", "user.email=b@example.org", "commit", "-qm", "first")
    git(repo, "tag", "v1")
    return repo


def set_up(side: Side, upstream: Path, patches: int, files: int) -> None:
    """Make a new project with this many patches of one line each."""
    shutil.rmtree(side.project, ignore_errors=True)
    side.run(["init", str(side.project)])
    side.run(["pin", "up", "--url", str(upstream), "--ref", "v1"])
    folder = side.project / "patches" / "up" / "v1"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(patches):
        at = 5 + 10 * (number // files)
        path = f"d{number % files // 50}/f{number % files}.py"
        text = PATCH.format(n=number, path=path, at=at, next=at + 1, last=at + 2)
        (folder / f"p{number}.patch").write_text(text)
    (folder / "series").write_text("".join(f"p{number}.patch\n" for number in range(patches)))


def compare(sides: Sequence[Side], upstream: Path, patches: int, rounds: int) -> dict[str, list[tuple[float, ...]]]:
    """Return the seconds of each command with each side by round. The sides take turns to be first."""
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name, _ in COMMANDS}
    files = max(patches // 8, 1)
    for number in range(rounds):
        order = list(sides) if number % 2 else list(reversed(sides))
        for side in order:
            set_up(side, upstream, patches, files)
        for name, args in COMMANDS:
            found = {side.tree: side.run(args, ANSWERS.get(name, (0,))) for side in order}
            times[name].append(tuple(found[side.tree] for side in sides))
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--patches", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=1.2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="patchq-compare-") as text:
        folder = Path(text)
        sides = []
        try:
            for name, commit in (("before", given.before), ("after", given.after)):
                sides.append(Side(commit, folder / name))
            upstream = make_upstream(folder, max(given.patches // 8, 1))
            times = compare(sides, upstream, given.patches, given.rounds)
        finally:
            for side in sides:
                git(ROOT, "worktree", "remove", "--force", str(side.tree))
    print(f"{given.patches} patches, {given.rounds} rounds, taking turns; medians\n")
    print(f"| command | {given.before} s | {given.after} s | ratio | of the rounds |\n|---|---|---|---|---|")
    slower = []
    for name, rows in times.items():
        ratios = sorted(after / before for before, after in rows)
        middle = statistics.median(ratios)
        before, after = (statistics.median(row[n] for row in rows) for n in (0, 1))
        print(f"| {name} | {before:.2f} | {after:.2f} | {middle:.2f} | {ratios[0]:.2f} to {ratios[-1]:.2f} |")
        if middle > given.limit:
            slower.append(name)
    if slower:
        print(f"\nslower than {given.limit}: {', '.join(slower)}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
