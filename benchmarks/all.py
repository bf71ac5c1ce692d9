"""Measure the performance goals in turns with their peers, and print one Markdown table.

    python benchmarks/all.py [--refs v0.14.0,v0.33.0] [--commits 10000] [--newer-git PROGRAM] [--runs 5] [--only WORD]

Needs an applied project (`patchq apply`). A ratio is CPU seconds of patchq, child processes included, per CPU second of
the peer in the same minutes: other work on the machine changes it little. Rows that this script doesn't measure name
the command that does.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import apply
import rebase
import scale

from carrying import copy_project, timed, use_git

ROOT = Path(__file__).resolve().parent.parent
#: Runs of what takes less than a minute.
RUNS = 5
#: What was measured, and if the goal is met: None if there is no figure.
Result = tuple[str, bool | None]


def cold(size: int, most: float, runs: int) -> Result:
    """Measure `patchq apply` without a worktree, and `git worktree add` with `git am`, in turns."""
    ratios = []
    with tempfile.TemporaryDirectory(prefix="all-") as text:
        folder = Path(text)
        source = apply.make_source(folder, [size])
        bench = apply.Bench(folder, source, size)
        shutil.rmtree(bench.stack, ignore_errors=True)
        shutil.copytree(bench.patches, bench.stack)
        for number in range(runs):
            copy = folder / f"project-{number}"
            # The stack was never applied there: only the base is in the store.
            shutil.copytree(bench.project, copy, ignore=shutil.ignore_patterns("trees", "worktrees", "state"))
            argv = [*apply.PATCHQ, "--project", str(copy), "apply"]
            os.sync()  # the copy's files would be written out while patchq works
            _, ours = timed(lambda argv=argv: apply.run(*argv, cwd=folder))  # type: ignore[misc]
            bench.check(copy / ".patchq/trees/vllm")
            tree = folder / f"tree-{number}"

            def peer(tree: Path = tree) -> None:
                apply.run("git", "worktree", "add", "-q", "--detach", tree, bench.base, cwd=bench.repo)
                apply.run("git", "am", "-q", "--keep-cr", *bench.files, cwd=tree)

            os.sync()
            ratios.append(ours / timed(peer)[1])
    ratio = statistics.median(ratios)
    return f"{ratio:.2f}× ({min(ratios):.2f} to {max(ratios):.2f})", ratio <= most


def idle(runs: int) -> Result:
    """Measure commands with nothing to do, on the three stacks of this project."""
    found = {}
    for words in ("apply", "status", "list", "show blackwell-class"):
        argv = [*apply.PATCHQ, "--project", str(ROOT), *words.split()]
        found[words] = statistics.median(timed(lambda: apply.run(*argv, cwd=ROOT))[1] for _ in range(2 * runs))  # noqa: B023
    told = ", ".join(f"{words.split()[0]} {seconds:.2f}" for words, seconds in found.items())
    return f"{told} s of CPU", max(found.values()) <= 0.10


def carried(refs: list[str], newer: str, most: float) -> tuple[Result, Result]:
    """Measure `patchq rebase` and `git rebase` in turns, and a `patchq forecast` of all refs."""
    rows = rebase.compare(ROOT, "vllm", refs, newer)
    wrong = {row.ref: row.differ for row in rows if row.differ}
    if wrong:
        raise SystemExit(f"other patches than git's: {wrong}")
    ratios = ", ".join(f"{row.ref} {row.ratio:.2f}" for row in rows)
    with tempfile.TemporaryDirectory(prefix="all-") as text, use_git(newer):
        copy = Path(text) / "project"
        copy_project(ROOT, copy, "vllm", refs)
        argv = [*apply.PATCHQ, "--project", str(copy), "forecast", "vllm"]
        for ref in refs:
            argv += ["--onto", ref]
        spent = timed(lambda: subprocess.run(argv, capture_output=True, check=False))[1]
    ratio = spent / sum(row.theirs[1] for row in rows)
    return (f"{ratios}", all(row.ratio <= most for row in rows)), (f"{ratio:.2f}×, {len(refs)} refs", ratio <= 0.05)


def commits(count: int) -> tuple[Result, Result]:
    """Measure `deps` and `import --range` of many commits of one line each."""
    with tempfile.TemporaryDirectory(prefix="all-") as text:
        ((_, rows),) = scale.by_commits(Path(text), [count])
    return tuple(  # type: ignore[return-value]
        (
            f"{rows[what]['s']:.0f} s, {rows[what]['cpu_s']:.1f} s of CPU, {count:,} commits",
            # The goals are for 10,000 commits.
            rows[what]["s"] <= most if count >= 10_000 else None,
        )
        for what, most in (("deps", 20), ("import --range", 30))
    )


def distributions() -> Result:
    """Count the distributions that `pip install patchq` installs, by its lock."""
    pins = [line for line in (ROOT / "locks/patchq.txt").read_text().splitlines() if "==" in line]
    found = len({line.split("==")[0] for line in pins})
    return f"{found}", found <= 32


def elsewhere(command: str) -> Result:
    """Name the command that measures a row."""
    return f"`{command}`", None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--refs", default="v0.14.0,v0.14.1,v0.16.0,v0.18.0,v0.19.0,v0.20.0,v0.22.0,v0.24.0,v0.26.0,v0.33.0"
    )
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--newer-git", default="")
    parser.add_argument("--only", default="", help="only rows with this word")
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args()
    refs, runs = given.refs.split(","), given.runs
    rows: list[tuple[str, str, Callable[[], Result | tuple[Result, ...]]]] = [
        ("72 patches cold, worktree included / `git worktree add` + `git am`", "≤ 1.0×", lambda: cold(72, 1.0, runs)),
        ("10 patches cold / the same", "≤ 1.0×", lambda: cold(10, 1.0, runs)),
        ("a command with nothing to do, three stacks", "≤ 0.10 s", lambda: idle(runs)),
        ("`rebase` of the vLLM stack / `git rebase`; `forecast` / all of these `git rebase`",
         "≤ 0.4×; ≤ 0.05×", lambda: carried(refs, "", 0.4)),
        ("the same two with a newer git / `git rebase` of that git", "≤ 0.2×; ≤ 0.05×",
         lambda: carried(refs, given.newer_git, 0.2) if given.newer_git else elsewhere("--newer-git PROGRAM")),
        ("`deps`; `import --range`, goals for 10,000 commits", "≤ 20 s; ≤ 30 s", lambda: commits(given.commits)),
        ("distributions of `pip install patchq`", "≤ 32", distributions),
        ("absorbed, where upstream merges branches", "≥ 0.99, 1.00", lambda: elsewhere("merged_histories.py")),
        ("overlay of vLLM's wheel / `cp`; archive to a commit / `fast-import`", "≤ 1.4×; ≤ 1.15×",
         lambda: elsewhere("bulk.py")),
        ("thin wheel of vLLM 0.33.0's patches", "≤ 1 MB", lambda: elsewhere("patchq build --thin")),
        ("README's test command; `.ci/run`", "≤ 8 min; ≤ 18 min", lambda: elsewhere("pytest; .ci/run")),
    ]  # fmt: skip
    # As pip does when it installs a package.
    compileall.compile_dir(ROOT / "tools", quiet=1)
    version = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    print(
        f"Python {sys.version.split()[0]}, git {version}; medians of {runs} runs in turns, `rebase` and `forecast` once\n"
    )
    print("| what | now | goal | met |\n|---|---|---|---|")
    for what, goal, work in rows:
        if given.only not in what:
            continue
        found = work()
        results: list[Result] = [found] if isinstance(found[0], str) else list(found)  # type: ignore[list-item, arg-type]
        met = "; ".join({True: "met", False: "missed", None: ""}[ok] for _, ok in results)
        print(f"| {what} | {'; '.join(now for now, _ in results)} | {goal} | {met} |", flush=True)


if __name__ == "__main__":
    main()
