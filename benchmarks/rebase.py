"""`patchq rebase --leave-out` beside `git rebase --skip`: the same real stack onto the same real releases.

    python benchmarks/rebase.py vllm v0.14.0 v0.20.0 v0.33.0

Both carry what can be carried and leave out what stops; both must keep the same patches. patchq also grades what
upstream has of each that stops, and writes patch files, lock and ledger; it works in a copy of the project without
the stacks of the refs and without recorded resolutions. Prints a Markdown table; bases are in the store before the
clocks start.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from carrying import copy_project, git, rebase
from patchq.forecast.forecast import forecast
from patchq.project.project import Project
from patchq.stacks.apply import carried_stacks
from patchq.system.paths import ref_to_folder


def main() -> None:
    upstream, *refs = sys.argv[1:]
    root = Path.cwd()
    project = Project.find(root, wait=600)
    forecast(project, upstream, refs)  # brings the bases
    set_name = project.choose_set("")
    with project.locked("benchmark"):
        (carried,) = carried_stacks(project, project.stacks(set_name, [upstream]), set_name)
    tip = carried.commits[-1][1].commit
    subjects = {info.message.split("\n", 1)[0]: name for name, info in carried.commits}
    print(f"{len(carried.commits)} patches of {upstream}; wall seconds\n")
    print(
        "| onto | git rebase s | patchq rebase s | ratio | carried by both | they differ in |\n|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory(prefix="rebase-") as text:
        folder = Path(text) / "clone"
        git(root, "clone", "-q", "--no-checkout", "--shared", str(project.store.folder), str(folder))
        for n, ref in enumerate(refs):
            base = git(
                project.store.folder, "for-each-ref", "--format=%(objectname)", f"refs/patchq/base/*/{upstream}/{ref}"
            )
            theirs_s, theirs = rebase(folder, carried.base, tip, base.stdout.split()[0])
            copy = Path(text) / str(n)
            copy_project(root, copy, upstream, refs)
            start = time.monotonic()
            argv = [
                sys.executable,
                "-m",
                "patchq",
                "--project",
                str(copy),
                "rebase",
                upstream,
                "--onto",
                ref,
                "--from",
                carried.stack.pin.ref,
            ]
            subprocess.run([*argv, "--leave-out"], check=True, capture_output=True)
            seconds = time.monotonic() - start
            series = copy / "patches" / upstream / ref_to_folder(ref) / "series"
            ours = {line.removesuffix(".patch") for line in series.read_text().split()} if series.exists() else set()
            same = {subjects[s] for s in theirs if s in subjects}
            differ = ", ".join(sorted(ours ^ same)) or "none"
            print(
                f"| {ref} | {theirs_s:.2f} | {seconds:.2f} | {seconds / theirs_s:.2f} | {len(ours & same)} | {differ} |"
            )


if __name__ == "__main__":
    main()
