"""Measure time and memory by the size of a project: patches, tree, refs, ledger.

    python benchmarks/scale.py [--small] [--json benchmarks/scale.json] [patches commits tree refs ledger project]

Each curve increases one size up to 5,000 patches, 10,000 commits, a tree of 1 GB, 200 refs or a ledger of a million
lines. Each row is a whole command in its own process: wall seconds (the least of three runs, or of one run that takes
over ten seconds), CPU seconds with child processes, and the peak memory of the largest process. Trust the CPU seconds on
a busy machine. `grows` is the exponent between the last two sizes, without the start of the process: 1 is linear, 2
quadratic. This is not a test.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]
from kit import Patchq, git  # noqa: E402
from patchq.formats.ledger import Attempt  # noqa: E402

ENV = {**{k: v for k, v in os.environ.items() if not k.startswith("GIT_")}, "PYTHONPATH": str(ROOT / "tools")}
MAIL = """From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
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
@@ -{at},7 +{at},7 @@
{diff}"""


def command(
    patchq: Patchq, *args: str, codes: tuple[int, ...] = (0,), once: bool = False, argv: Sequence[str] = ()
) -> dict[str, float]:
    """Return the wall and CPU seconds and the peak MiB of a patchq command, or of ``argv``."""
    best: dict[str, float] = {}
    for _ in range(3):
        start = time.perf_counter()
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen(
                argv or [sys.executable, "-m", "patchq", "--project", str(patchq.root), *args],
                env=ENV,
                stdout=out,
                stderr=out,
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            wall = time.perf_counter() - start
            if process.returncode not in codes:
                out.seek(0)
                raise SystemExit(f"patchq {' '.join(args)}: {process.returncode}\n{out.read().decode()[-2000:]}")
        if not best or wall < best["s"]:
            cpu = usage.ru_utime + usage.ru_stime
            best = {"s": round(wall, 3), "cpu_s": round(cpu, 3), "mib": round(usage.ru_maxrss / 1024)}
        if wall > 10 or once or args[0] in ("apply", "undo", "drop", "move", "export"):
            break  # what changes something is run once
    return best


def project(folder: Path, upstream: Path) -> Patchq:
    patchq = Patchq(folder / "project")
    subprocess.run([sys.executable, "-m", "patchq", "init", str(patchq.root)], env=ENV, check=True, capture_output=True)
    patchq.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    return patchq


def upstream(folder: Path, files: int, lines: int = 200, width: int = 40) -> Path:
    """Make a repository of ``files`` text files, a hundred in each folder."""
    repo = folder / "upstream"
    for number in range(files):
        path = repo / f"d{number // 100}" / f"f{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"line {n} of file {number} {'x' * width}\n" for n in range(1, lines + 1)))
    git(repo, "init", "-q")
    git(repo, "add", "-A")
    git(repo, "-c", "user.name=B", "-c", "user.email=b@example.org", "commit", "-qm", "first")
    git(repo, "tag", "v1")
    return repo


def write_stack(patchq: Patchq, count: int, files: int, width: int = 40) -> None:
    """Write ``count`` patches of one line each. No two change the same line."""
    folder = patchq.layout.stack("up", "v1")
    folder.mkdir(parents=True)
    choose = random.Random(1)
    places = choose.sample([(f, at) for f in range(files) for at in range(10, 180, 10)], count)
    for number, (file, at) in enumerate(places):

        def line(n: int, file: int = file) -> str:
            return f"line {n} of file {file} {'x' * width}\n"

        diff = "".join(" " + line(n) for n in range(at, at + 3)) + "-" + line(at + 3) + f"+changed by {number}\n"
        diff += "".join(" " + line(n) for n in range(at + 4, at + 7))
        text = MAIL.format(n=number, path=f"d{file // 100}/f{file}.py", at=at, diff=diff)
        (folder / f"p{number:05d}.patch").write_text(text)
    (folder / "series").write_text("".join(f"p{n:05d}.patch\n" for n in range(count)))


def by_patches(folder: Path, sizes: list[int]) -> Iterator[tuple[int, dict[str, dict[str, float]]]]:
    repo = upstream(folder, 1000)
    for count in sizes:
        here = folder / str(count)
        here.mkdir()
        patchq = project(here, repo)
        write_stack(patchq, count, 1000)
        middle = f"p{count // 2:05d}"
        yield (
            count,
            {
                "apply, cold": command(patchq, "apply"),
                "apply, nothing changed": command(patchq, "apply"),
                "status": command(patchq, "status"),
                "list": command(patchq, "list"),
                "check": command(patchq, "check", codes=(0, 1)),
                "export, all rewritten": command(patchq, "export", "up"),
                "export, nothing changed": command(patchq, "export", "up"),
                "drop one": command(patchq, "drop", middle),
                "undo": command(patchq, "undo"),
                "move one": command(patchq, "move", middle, "--first"),
                "deps": command(patchq, "deps"),
                "report --markdown": command(patchq, "report", "--markdown", str(here / "r.md")),
            },
        )
        shutil.rmtree(here)


def by_commits(folder: Path, sizes: list[int]) -> Iterator[tuple[int, dict[str, dict[str, float]]]]:
    """Import a branch of one-line commits as patches, and find their dependencies."""
    repo = upstream(folder, 1000)
    for count in sizes:
        here = folder / str(count)
        here.mkdir()
        write_branch(repo, count, 1000)
        patchq = project(here, repo)
        yield (
            count,
            {
                "import --range": command(patchq, "import", "up", str(repo), "--range", f"v1..work{count}", once=True),
                "apply, cold": command(patchq, "apply"),
                "deps": command(patchq, "deps", once=True),
            },
        )
        shutil.rmtree(here)


def write_branch(repo: Path, count: int, files: int, width: int = 40) -> None:
    """Write a branch ``work<count>`` of ``count`` commits."""
    choose = random.Random(3)
    texts: dict[int, list[str]] = {}
    stream = []
    for number in range(count):
        file = choose.randrange(files)
        lines = texts.setdefault(file, [f"line {n} of file {file} {'x' * width}\n" for n in range(1, 201)])
        lines[choose.randrange(200)] = f"changed by {number}\n"
        message, data = f"Change number {number}\n\nBecause the benchmark needs it.\n", "".join(lines)
        stream.append(
            f"commit refs/heads/work{count}\ncommitter Bench <bench@example.org> {1767323045 + number} +0100\n"
            f"data {len(message)}\n{message}" + ("" if number else "from refs/tags/v1^0\n")
            + f"M 100644 inline d{file // 100}/f{file}.py\ndata {len(data)}\n{data}\n"
        )  # fmt: skip
    subprocess.run(["git", "-C", str(repo), "fast-import", "--quiet"], input="".join(stream).encode(), check=True)


def by_tree(folder: Path, sizes: list[int]) -> Iterator[tuple[int, dict[str, dict[str, float]]]]:
    for megabytes in sizes:
        here = folder / str(megabytes)
        here.mkdir()
        files = megabytes * 20
        repo = upstream(here, files, lines=200, width=220)  # 51 KB a file
        patchq = project(here, repo)
        write_stack(patchq, 40, files, width=220)
        peer = here / "peer.git"
        git(here, "init", "-q", "--bare", str(peer))
        fetch = ["git", "-C", str(peer), "fetch", "-q", "--depth=1", f"file://{repo}", "v1"]
        yield (
            megabytes,
            {
                "git fetch --depth=1, the floor": command(patchq, "git", once=True, argv=fetch),
                "fetch": command(patchq, "fetch", once=True),
                "apply, cold": command(patchq, "apply"),
                "apply, nothing changed": command(patchq, "apply"),
                "status": command(patchq, "status"),
                "check": command(patchq, "check", codes=(0, 1)),
                "fetch, all there": command(patchq, "fetch"),
            },
        )
        shutil.rmtree(here)


def by_refs(folder: Path, sizes: list[int]) -> Iterator[tuple[int, dict[str, dict[str, float]]]]:
    repo = upstream(folder, 1000)
    choose = random.Random(2)
    for number in range(2, max(sizes) + 2):
        for file in choose.sample(range(1000), 20):
            path = repo / f"d{file // 100}" / f"f{file}.py"
            lines = path.read_text().splitlines(keepends=True)
            lines[choose.randrange(len(lines))] = f"upstream's, in v{number}\n"
            path.write_text("".join(lines))
        git(repo, "-c", "user.name=B", "-c", "user.email=b@example.org", "commit", "-qam", f"v{number}")
        git(repo, "tag", f"v{number}")
    for count in sizes:
        here = folder / str(count)
        here.mkdir()
        patchq = project(here, repo)
        write_stack(patchq, 40, 1000)
        patchq.ok("apply")
        refs = [f"--onto=v{n}" for n in range(2, count + 2)]
        first = command(patchq, "forecast", "up", *refs, codes=(0, 1, 3), once=True)
        again = command(patchq, "forecast", "up", *refs, codes=(0, 1, 3))
        yield count, {"forecast, 40 patches, refs to be fetched": first, "forecast, 40 patches": again}
        shutil.rmtree(here)


def by_ledger(folder: Path, sizes: list[int]) -> Iterator[tuple[int, dict[str, dict[str, float]]]]:
    repo = upstream(folder, 20)
    patchq = project(folder, repo)
    write_stack(patchq, 20, 20)
    patchq.ok("apply")
    path = patchq.root / "patches" / "up" / "ledger.jsonl"
    for count in sizes:
        with path.open("wb") as out:
            for n in range(count):
                attempt = Attempt(
                    patch=f"p{n % 20:05d}", patch_id=f"{n % 20:040x}", from_ref=f"v{n // 20}", onto=f"v{n // 20 + 1}", outcome="clean", tool="patchq 0.1.0",
                    time="2026-01-02T03:04:05Z",
                )  # fmt: skip
                out.write(attempt.line())
        yield (
            count,
            {
                "ledger": command(patchq, "ledger", codes=(0, 1)),
                "ledger --cost": command(patchq, "ledger", "--cost", codes=(0, 1)),
                "status": command(patchq, "status"),
                "check": command(patchq, "check", codes=(0, 1)),
                "report --markdown": command(patchq, "report", "--markdown", str(folder / "r.md")),
            },
        )


def this_project(folder: Path, sizes: list[int]) -> Iterator[tuple[int, dict[str, dict[str, float]]]]:
    """Measure this project's default set."""
    patchq = Patchq(ROOT)
    yield 38, {"status": command(patchq, "status"), "check": command(patchq, "check", codes=(0, 1))}


CURVES: dict[str, tuple[Any, str, list[int], list[int]]] = {
    "patches": (by_patches, "patches", [100, 1000, 5000], [50, 200]),
    "commits": (by_commits, "commits", [100, 1000, 10_000], [50, 200]),
    "tree": (by_tree, "MB", [10, 100, 1000], [5, 20]),
    "refs": (by_refs, "refs", [10, 50, 200], [5, 20]),
    "ledger": (by_ledger, "lines", [10_000, 100_000, 1_000_000], [1000, 10_000]),
    "project": (this_project, "patches", [38], [38]),
}


def grows(sizes: list[int], rows: list[dict[str, float]], key: str, least: float) -> str:
    """Return the exponent between the last two sizes above ``least``; a dash if the difference is noise."""
    if len(rows) < 2 or not all(rows[-2:]):
        return "-"
    small, large = (row[key] - least for row in rows[-2:])
    if large < 0.3 * least:
        return "flat"
    return f"{math.log(large / max(small, 0.01 * least)) / math.log(sizes[-1] / sizes[-2]):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curves", nargs="*", default=list(CURVES), metavar="CURVE", help=", ".join(CURVES))
    parser.add_argument("--small", action="store_true", help="sizes that take a minute in all")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="scale-") as text:
        bare = Path(text) / "bare"
        bare.mkdir()
        idle = command(project(bare, upstream(bare, 1)), "list")
        for name in given.curves:
            work, unit, large, small = CURVES[name]
            folder = Path(text) / name
            folder.mkdir()
            sizes, table = [], {}
            for size, rows in work(folder, small if given.small else large):
                sizes.append(size)
                for what, row in rows.items():
                    table.setdefault(what, []).append(row)
                print(f"{name}: {size} {unit} measured", file=sys.stderr, flush=True)
            shutil.rmtree(folder)
            print(f"\n| {name} | " + " | ".join(f"{s:,} {unit}" for s in sizes) + " | time grows | memory grows |")
            print("|---|" + "---|" * (len(sizes) + 2))
            for what, rows in table.items():
                cells = " | ".join(f"{r['s']:.2f} s, {r['mib']:.0f} MiB" if r else "" for r in rows)
                print(
                    f"| {what} | {cells} | {grows(sizes, rows, 's', idle['s'])} | {grows(sizes, rows, 'mib', idle['mib'])} |",
                    flush=True,
                )
            found[name] = {"unit": unit, "sizes": sizes, "idle": idle, "rows": table}
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
