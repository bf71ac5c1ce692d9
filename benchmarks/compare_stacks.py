"""Compare the speed of two commits of patchq on this project's own stacks; compare.py uses a generated project.

    python benchmarks/compare_stacks.py BEFORE [AFTER] [--runs 7] [--only NAME]

Each version works on its own clone of BEFORE's lock and stacks. The default of AFTER is the work tree. The versions take
turns, so that other work on the machine slows both. A ratio is the median of AFTER's runs divided by that of BEFORE's,
for wall seconds and for CPU seconds, child processes included. On a busy machine, trust the CPU ratio.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from same_answers import ROOT, checkout

REFS = ("v0.14.0", "v0.20.0", "v0.33.0")
Timed = tuple[float, float]


class Version:
    """Code of one commit, and its own copy of the project."""

    def __init__(self, code: Path, project: Path) -> None:
        self.code, self.project = code, project
        self.env = {**os.environ, "PYTHONPATH": str(code / "tools")}
        # Written once: the first run of a module isn't what is compared.
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(code / "tools")], check=True)
        for line in ("fetch", "apply", f"forecast vllm {' '.join(f'--onto {r}' for r in REFS)}"):
            self.patchq(line)

    def patchq(self, line: str, project: Path | None = None, answers: tuple[int, ...] = (0,)) -> Timed:
        """Run a command line whose exit code is one of `answers`; return its wall and CPU seconds."""
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        argv = [sys.executable, "-m", "patchq", "--project", str(project or self.project), *line.split()]
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode not in answers:
            raise SystemExit(f"{line}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    @contextmanager
    def copied(self) -> Iterator[Path]:
        """Yield a copy of the project that a command may change."""
        with tempfile.TemporaryDirectory(dir=self.project.parent) as folder:
            copy = Path(folder) / "copy"
            shutil.copytree(self.project, copy, symlinks=True, ignore=shutil.ignore_patterns("trees"))
            for administration in (copy / ".patchq").glob("*.git/worktrees/*"):
                shutil.rmtree(administration)
            yield copy

    def cold(self) -> Timed:
        """Apply with only the bases in the store, and without worktrees."""
        with self.copied() as copy:
            (store,) = (copy / ".patchq").glob("*.git")
            refs = subprocess.run(
                ["git", "for-each-ref", "--format=delete %(refname)"],
                cwd=store, capture_output=True, text=True, check=True,
            ).stdout  # fmt: skip
            kept = "".join(f"{r}\n" for r in refs.splitlines() if not r.startswith("delete refs/patchq/base/"))
            subprocess.run(["git", "update-ref", "--stdin"], cwd=store, input=kept, text=True, check=True)
            return self.patchq("apply", copy)

    def rebase(self) -> Timed:
        with self.copied() as copy:
            # What is replayed is proven, and the proofs' time isn't patchq's.
            for part in ("v0.14.0", "rr-cache"):
                shutil.rmtree(copy / "patches/vllm" / part)
            return self.patchq("rebase vllm --onto v0.14.0 --leave-out", copy)


WORK: dict[str, Callable[[Version], Timed]] = {
    "--version": lambda v: v.patchq("--version"),
    "apply, nothing changed": lambda v: v.patchq("apply"),
    "apply, cold": Version.cold,
    "status": lambda v: v.patchq("status"),
    "list": lambda v: v.patchq("list"),
    # A later version may have rules that an earlier one's stacks don't keep.
    "check": lambda v: v.patchq("check", answers=(0, 1)),
    f"forecast vllm onto {len(REFS)} refs": lambda v: v.patchq(f"forecast vllm {' '.join(f'--onto {r}' for r in REFS)}"),
    "rebase vllm onto v0.14.0": Version.rebase,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after", nargs="?", help="default: the tree as it is")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--only", default="", help="only what has this in its name")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="compare-") as text:
        folder = Path(text)
        stacks = checkout(options.before, folder / "before")
        codes = [stacks, checkout(options.after, folder / "after") if options.after else ROOT]
        versions = []
        for number, code in enumerate(codes):
            project = folder / f"project-{number}"
            project.mkdir()
            for name in ("upstream.lock", "patches", "tests", "measurements"):
                path = stacks / name
                (shutil.copytree if path.is_dir() else shutil.copy)(path, project / name)
            versions.append(Version(code, project))
        print("| what | before s (CPU) | after s (CPU) | wall | CPU |\n|---|---|---|---|---|")
        for name, work in WORK.items():
            if options.only not in name:
                continue
            spent: list[list[Timed]] = [[], []]
            for turn in range(options.runs):
                for index in (0, 1) if turn % 2 else (1, 0):
                    spent[index].append(work(versions[index]))
            (bw, bc), (aw, ac) = ([statistics.median(x) for x in zip(*s, strict=True)] for s in spent)
            print(f"| {name} | {bw:.3f} ({bc:.3f}) | {aw:.3f} ({ac:.3f}) | {aw / bw:.2f} | {ac / bc:.2f} |", flush=True)


if __name__ == "__main__":
    main()
