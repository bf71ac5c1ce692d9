"""Compare `patchq rebase --leave-out` with `git rebase --skip`: the same stack onto the same releases, in turns.

    python benchmarks/rebase.py vllm v0.14.0 v0.20.0 v0.33.0 [--newer-git PROGRAM]

Both drop the patches that conflict, and both must keep the same patches. patchq also matches each conflicting patch with
upstream's changes, and writes patch files, the lock and the ledger. It works in a copy of the project without the
stacks of these refs and without recorded resolutions. The bases are fetched before the measurement. Prints a Markdown
table with wall and CPU seconds; child processes are included. With --newer-git, both use PROGRAM.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from carrying import copy_project, git, rebase, timed, use_git
from patchq.forecast.forecast import forecast
from patchq.project.project import Project
from patchq.stacks.apply import carried_stacks
from patchq.system.paths import ref_to_folder


@dataclass
class Row:
    """Results of one ref: wall and CPU seconds of both, the common patches and the others."""

    ref: str
    theirs: tuple[float, float]
    ours: tuple[float, float]
    same: set[str]
    differ: set[str]

    @property
    def ratio(self) -> float:
        """CPU seconds of patchq per CPU second of git."""
        return self.ours[1] / self.theirs[1]


def compare(root: Path, upstream: str, refs: Sequence[str], program: str = "") -> list[Row]:
    """Rebase the default set's stack onto each ref with git and with patchq."""
    project = Project.find(root, wait=600)
    forecast(project, upstream, refs)  # fetches the bases
    set_name = project.choose_set("")
    with project.locked("benchmark"):
        (carried,) = carried_stacks(project, project.stacks(set_name, [upstream]), set_name)
    tip = carried.commits[-1][1].commit
    subjects = {info.message.split("\n", 1)[0]: name for name, info in carried.commits}
    bases = {}
    for name, commit in project.store.refs("refs/patchq/base").items():
        *_, owner, ref = name.split("/")
        if owner == upstream:
            bases[ref] = commit
    rows = []
    with tempfile.TemporaryDirectory(prefix="rebase-") as text, use_git(program):
        folder = Path(text) / "clone"
        git(root, "clone", "-q", "--no-checkout", "--shared", str(project.store.folder), str(folder))
        for ref in refs:
            theirs_s, theirs = rebase(folder, carried.base, tip, bases[ref])
            copy = Path(text) / ref
            copy_project(root, copy, upstream, refs)
            argv = [sys.executable, "-m", "patchq", "--project", str(copy), "rebase", upstream, "--onto", ref]
            argv += ["--from", carried.stack.pin.ref, "--leave-out"]
            ours_s = timed(lambda argv=argv: subprocess.run(argv, check=True, capture_output=True))  # type: ignore[misc]
            series = copy / "patches" / upstream / ref_to_folder(ref) / "series"
            ours = {line.removesuffix(".patch") for line in series.read_text().split()} if series.exists() else set()
            same = {subjects[s] for s in theirs if s in subjects}
            rows.append(Row(ref, theirs_s, ours_s, ours & same, ours ^ same))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("upstream")
    parser.add_argument("refs", nargs="+")
    parser.add_argument("--newer-git", default="")
    given = parser.parse_args()
    print("| onto | git rebase s (CPU) | patchq rebase s (CPU) | wall | CPU | carried by both | they differ in |")
    print("|---|---|---|---|---|---|---|")
    for row in compare(Path.cwd(), given.upstream, given.refs, given.newer_git):
        seconds = " | ".join(f"{wall:.2f} ({cpu:.2f})" for wall, cpu in (row.theirs, row.ours))
        ratios = f"{row.ours[0] / row.theirs[0]:.2f} | {row.ratio:.2f}"
        print(f"| {row.ref} | {seconds} | {ratios} | {len(row.same)} | {', '.join(sorted(row.differ)) or 'none'} |")


if __name__ == "__main__":
    main()
