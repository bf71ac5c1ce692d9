"""Apply a series to the real vLLM tree with patchq, git am, git am -3, quilt and gbp pq.

    python benchmarks/apply.py [--sizes 10,100,300,1000] [--runs 3] [--markdown FILE]

All rows of a column must give the same tree. The floor is `git read-tree -m -u` from the base's commit to the tip's.
Times are wall seconds of whole commands, process start included. Each is the median of all runs, in one session on one
machine: read the ratios. Missing programs are listed and skipped. This is not a test.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from carrying import timed

ROOT = Path(__file__).resolve().parent.parent
PATCHQ = [sys.executable, "-m", "patchq"]
IDENTITY = {"GIT_AUTHOR_NAME": "B", "GIT_AUTHOR_EMAIL": "b@example.org", "GIT_COMMITTER_NAME": "B",
            "GIT_COMMITTER_EMAIL": "b@example.org", "EMAIL": "b@example.org", "DEBFULLNAME": "B"}  # fmt: skip
ENV = {**{k: v for k, v in os.environ.items() if not k.startswith("GIT_")}, **IDENTITY}
ENV["PYTHONPATH"] = str(ROOT / "tools")


def run(*argv: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([str(a) for a in argv], cwd=cwd, env={**ENV, **(env or {})}, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, argv))[:300]} failed:\n{done.stdout.decode()}{done.stderr.decode()}")
    return done.stdout.decode().strip()


def make_history(repo: Path, count: int) -> None:
    """Make ``count`` commits on top of the vLLM tree. Each changes a few lines of one to three files."""
    choose = random.Random(42)
    files = [f for f in run("git", "ls-files", "*.py", cwd=repo).splitlines() if (repo / f).stat().st_size > 2000]
    for number in range(count):
        for name in choose.sample(files, choose.choice([1, 1, 1, 2, 3])):
            path = repo / name
            lines = path.read_text().split("\n")
            for _ in range(choose.choice([1, 1, 2, 4])):
                at = choose.randrange(3, len(lines) - 3)
                change = choose.choice(["replace", "insert", "delete"])
                if change == "replace":
                    lines[at] = f"# changed by patch {number}"
                elif change == "insert":
                    lines.insert(at, f"# inserted by patch {number}")
                else:
                    del lines[at]
            path.write_text("\n".join(lines))
        run("git", "commit", "-qam", f"Change number {number}\n\nGenerated.", cwd=repo)


def make_source(folder: Path, sizes: Sequence[int]) -> Path:
    """Make a repository of vLLM's release with generated commits. Tag the base, and the tip for each number of them."""
    tree = ROOT / ".patchq/trees/vllm"
    if not tree.is_dir():
        raise SystemExit("no vLLM tree: run `patchq apply` first")
    source = folder / "source"
    source.mkdir()
    run("git", "init", "-q", "-b", "main", cwd=source)
    base = run("git", "log", "--reverse", "--format=%H", "HEAD", cwd=tree).splitlines()[0]
    archive = subprocess.run(["git", "archive", base], cwd=tree, capture_output=True, check=True).stdout
    subprocess.run(["tar", "x"], cwd=source, input=archive, check=True)
    run("git", "add", "-Af", cwd=source)
    run("git", "commit", "-qm", "base", cwd=source)
    run("git", "tag", "base", cwd=source)
    print(f"making {max(sizes)} commits", file=sys.stderr)
    make_history(source, max(sizes))
    commits = run("git", "rev-list", "--reverse", "base..HEAD", cwd=source).splitlines()
    for size in sizes:
        run("git", "tag", f"p{size}", commits[size - 1], cwd=source)
    run("git", "gc", "-q", cwd=source)
    run("git", "checkout", "-q", "base", cwd=source)
    return source


class Bench:
    """Generated series of ``count`` patches, and the ways to apply it."""

    def __init__(self, folder: Path, source: Path, count: int) -> None:
        self.folder, self.count = folder, count
        self.repo = folder / "repo"
        run("git", "clone", "-q", "--shared", source, self.repo, cwd=folder)
        self.base, self.tip = (run("git", "rev-parse", r, cwd=source) for r in ("base", f"p{count}"))
        self.tree = run("git", "rev-parse", f"{self.tip}^{{tree}}", cwd=source)
        self.patches = folder / "patches"
        form = ("--zero-commit", "--full-index", "--no-signature", "--no-stat", "--keep-subject")
        run("git", "format-patch", "-q", *form, "-o", self.patches, f"{self.base}..{self.tip}", cwd=source)
        self.files = sorted(self.patches.iterdir())
        (self.patches / "series").write_text("".join(f"{p.name}\n" for p in self.files))
        self.project = folder / "project"
        self._make_project(source)

    def _make_project(self, source: Path) -> None:
        run(*PATCHQ, "init", self.project, cwd=self.folder)
        self.patchq("pin", "vllm", "--url", source, "--ref", "base")
        self.patchq("apply")
        self.stack = self.project / "patches/vllm/base"

    def patchq(self, *args: str | Path) -> str:
        return run(*PATCHQ, "--project", self.project, *args, cwd=self.folder)

    def reset(self) -> None:
        """Check out the base in a clean repository, with a fresh index."""
        for rest in ("rebase-apply", "rebase-merge"):
            shutil.rmtree(self.repo / ".git" / rest, ignore_errors=True)
        run("git", "checkout", "-q", "-f", "-B", "work", self.base, cwd=self.repo)
        run("git", "clean", "-fdxq", cwd=self.repo)
        run("git", "update-index", "-q", "--refresh", cwd=self.repo)

    def check(self, folder: Path, staged: bool = False) -> None:
        if staged:
            run("git", "add", "-A", cwd=folder)
            found = run("git", "write-tree", cwd=folder)
        else:
            found = run("git", "rev-parse", "HEAD^{tree}", cwd=folder)
        assert found == self.tree, f"{found} is not {self.tree}"

    # Each way: prepare untimed, work timed, check untimed.

    def floor(self) -> tuple[float, float]:
        self.reset()
        spent = timed(lambda: run("git", "read-tree", "-m", "-u", self.base, self.tip, cwd=self.repo))
        self.check(self.repo, staged=True)
        return spent

    def git_am(self, *options: str) -> tuple[float, float]:
        self.reset()
        spent = timed(lambda: run("git", "am", "-q", "--keep-cr", *options, *self.files, cwd=self.repo))
        self.check(self.repo)
        return spent

    def quilt(self) -> tuple[float, float]:
        self.reset()
        pc = self.folder / "pc"
        shutil.rmtree(pc, ignore_errors=True)
        env = {"QUILT_PATCHES": str(self.patches), "QUILT_PC": str(pc)}
        spent = timed(lambda: run("quilt", "push", "-aq", cwd=self.repo, env=env))
        self.check(self.repo, staged=True)
        return spent

    def gbp(self) -> tuple[float, float]:
        self.reset()
        for branch in ("patch-queue/work",):
            subprocess.run(["git", "branch", "-qD", branch], cwd=self.repo, capture_output=True, check=False)
        shutil.copytree(self.patches, self.repo / "debian" / "patches")
        (self.repo / "debian" / "control").write_text(
            "Source: vllm\nMaintainer: B <b@example.org>\n\nPackage: vllm\nArchitecture: all\n"
        )
        (self.repo / "debian" / "source").mkdir()
        (self.repo / "debian" / "source" / "format").write_text("3.0 (quilt)\n")
        run("git", "add", "-f", "debian", cwd=self.repo)
        run("git", "commit", "-qm", "debian", cwd=self.repo)
        spent = timed(lambda: run("gbp", "pq", "import", cwd=self.repo))
        run("git", "rm", "-rqf", "debian", cwd=self.repo)
        self.check(self.repo, staged=True)
        return spent

    def patchq_cold(self) -> tuple[float, float]:
        if self.stack.exists():
            shutil.rmtree(self.stack)
            self.patchq("apply")
        shutil.copytree(self.patches, self.stack)
        run("git", "update-index", "-q", "--refresh", cwd=self.project / ".patchq/trees/vllm")
        spent = timed(lambda: self.patchq("apply"))
        self.check(self.project / ".patchq/trees/vllm")
        return spent

    def patchq_again(self) -> tuple[float, float]:
        return timed(lambda: self.patchq("apply"))

    def patchq_last(self) -> tuple[float, float]:
        """Apply again after the message and the content of the last patch were changed."""
        last = self.stack / self.files[-1].name
        text = last.read_text()
        at = text.rindex("by patch")
        last.write_text(text[:at] + "BY patch" + text[at + 8 :])
        spent = timed(lambda: self.patchq("apply"))
        last.write_text(text)
        self.patchq("apply")
        return spent


WAYS: list[tuple[str, str, Callable[[Bench], tuple[float, float]]]] = [
    ("floor: git read-tree -m -u", "git", Bench.floor),
    ("patchq apply, cold", "git", Bench.patchq_cold),
    ("git am", "git", Bench.git_am),
    ("git am -3", "git", lambda b: b.git_am("-3")),
    ("quilt push -a", "quilt", Bench.quilt),
    ("gbp pq import", "gbp", Bench.gbp),
    ("patchq apply, nothing changed", "git", Bench.patchq_again),
    ("patchq apply, last patch edited", "git", Bench.patchq_last),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="10,100,300,1000")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    sizes = [int(s) for s in options.sizes.split(",")]
    results: dict[tuple[str, int], tuple[float, float]] = {}
    with tempfile.TemporaryDirectory(prefix="patchq-bench-") as text:
        folder = Path(text)
        source = make_source(folder, sizes)
        for size in sizes:
            work = folder / f"n{size}"
            work.mkdir()
            bench = Bench(work, source, size)
            for name, program, way in WAYS:
                if shutil.which(program) is None:
                    continue
                spent = [way(bench) for _ in range(options.runs)]
                results[name, size] = tuple(statistics.median(x) for x in zip(*spent, strict=True))  # type: ignore[assignment]
                print(f"{size:5d}  {name:34s} {results[name, size][0]:8.2f} s", file=sys.stderr)
    table = render(results, sizes, options.runs)
    print(table)
    if options.markdown:
        options.markdown.write_text(table + "\n")


def render(results: dict[tuple[str, int], tuple[float, float]], sizes: list[int], runs: int) -> str:
    """Return a Markdown table: wall seconds (CPU seconds), ratio to the floor and to git am."""
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    lines = [
        f"Python {platform.python_version()}, git {git}, {os.cpu_count()} cores, medians of {runs} runs; "
        "wall s (CPU s), × floor, × git am",
        "",
        "| how | " + " | ".join(f"{s} patches" for s in sizes) + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for name, program, _ in WAYS:
        cells = []
        for size in sizes:
            if (name, size) not in results:
                cells.append(f"no {program} here")
                continue
            wall, cpu = results[name, size]
            floor, am = results["floor: git read-tree -m -u", size][0], results["git am", size][0]
            cells.append(f"{wall:.2f} ({cpu:.2f}), {wall / floor:.1f}×, {wall / am:.2f}×")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
