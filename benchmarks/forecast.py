"""Compare `patchq forecast` with one `git rebase` per ref: the default set's stack onto the same releases.

    python benchmarks/forecast.py vllm v0.14.0 v0.20.0 v0.33.0 [--patches 40]

`git rebase` (merge backend) runs once for each ref in its own worktree, and skips each commit that conflicts. Both must
stop at the same patches. The bases are fetched before the measurement. Prints a Markdown table. `--patches` extends the
stack to this many patches in a copy of the project. Each of the new patches takes over the first ref's change of one
file that the stack doesn't touch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from carrying import copy_project, git, rebase
from patchq.forecast.forecast import forecast
from patchq.merge.patches import STOPS
from patchq.project.project import Project
from patchq.stacks.apply import apply, carried_stacks
from patchq.stacks.edit import new


def fill_up(project: Project, upstream: str, ref: str, count: int) -> None:
    """Extend the stack to ``count`` patches with a later ref's changes of Python files that the stack doesn't touch."""
    apply(project)
    (carried,) = carried_stacks(project, project.stacks(project.choose_set(""), [upstream]), "")
    store = project.store
    theirs = next(c for name, c in store.refs("refs/patchq/base").items() if name.endswith(f"/{upstream}/{ref}"))
    touched = {change.path for info in store.changes_of([i.commit for _, i in carried.commits]) for change in info}
    changes = [
        c
        for c in store.changes(carried.base, theirs)
        if c.old
        and c.new
        and c.path not in touched
        and c.path.endswith(b".py")
        and c.path.startswith(upstream.encode())
    ]
    contents = store.read_blobs(c.new.blob for c in changes if c.new)
    missing = count - len(carried.commits)
    for number, change in enumerate(changes[:: len(changes) // missing][:missing]):
        assert change.new
        (project.worktree(upstream).path / change.path.decode()).write_bytes(contents[change.new.blob])
        new(project, upstream, f"backport-{number}", message=f"Backport {number}", author="n <n@n>")


FORECAST = """
import resource, sys
from pathlib import Path
from patchq.forecast.forecast import forecast
from patchq.project.project import Project
project = Project.find(Path(sys.argv[1]), wait=600)
own = project.lock.sets[project.choose_set("")][sys.argv[2]]
forecast(project, sys.argv[2], sys.argv[3:], from_ref=own)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)
"""


def memory(root: Path, upstream: str, refs: list[str]) -> str:
    """Return the peak memory of a forecast of these refs, and of the largest git process, in MiB."""
    argv = [sys.executable, "-c", FORECAST, str(root), upstream, *refs]
    own, gits = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
    return f"{own} MiB (git {gits})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("upstream")
    parser.add_argument("refs", nargs="+")
    parser.add_argument("--patches", type=int, default=0)
    given = parser.parse_args()
    project = Project.find(Path.cwd(), wait=600)
    forecast(project, given.upstream, given.refs)  # brings the bases
    with tempfile.TemporaryDirectory(prefix="forecast-") as text:
        copy = Path(text) / "project"
        copy_project(Path.cwd(), copy, given.upstream, [])  # without recorded resolutions
        project = Project.find(copy, wait=600)
        if given.patches:
            fill_up(project, given.upstream, given.refs[0], given.patches)
        measure(project, given.upstream, given.refs)
        counts = sorted({1, 5, len(given.refs)})
        told = [f"{n}: {memory(project.layout.root, given.upstream, given.refs[-n:])}" for n in counts]
        print("\nmemory by the number of refs, the last ones: " + ", ".join(told))


def measure(project: Project, upstream: str, refs: list[str]) -> None:
    """Forecast, rebase with git, and print both."""
    set_name = project.choose_set("")
    with project.locked("benchmark"):
        (carried,) = carried_stacks(project, project.stacks(set_name, [upstream]), set_name)
    tip = carried.commits[-1][1].commit
    subjects = {name: info.message.split("\n", 1)[0] for name, info in carried.commits}

    start = time.monotonic()
    found = forecast(project, upstream, refs, from_ref=carried.stack.pin.ref)
    together = time.monotonic() - start
    with tempfile.TemporaryDirectory(prefix="forecast-") as text:
        folder = Path(text) / "clone"
        git(Path(text), "clone", "-q", "--shared", "--no-checkout", str(project.layout.store), "clone")
        store_refs = project.store.refs("refs/patchq/base")
        total, rows = 0.0, []
        for ref in refs:
            onto = next(commit for name, commit in store_refs.items() if name.endswith(f"/{upstream}/{ref}"))
            (seconds, _), kept = rebase(folder, carried.base, tip, onto)
            total += seconds
            ours = {subjects[c.patch.split("/")[1]] for c in found.of(ref) if c.outcome not in STOPS}
            rows.append((ref, seconds, len(subjects) - len(kept), len(subjects) - len(ours), ours ^ kept))
    print(f"{len(subjects)} patches of {upstream}, {len(refs)} refs; wall seconds\n")
    print("| onto | git rebase s | it stops at | forecast stops at | they differ in |\n|---|---|---|---|---|")
    for ref, seconds, theirs, ours_count, differ in rows:
        print(f"| {ref} | {seconds:.2f} | {theirs} | {ours_count} | {', '.join(sorted(differ)) or 'none'} |")
    print(f"| all | {total:.2f}, one after the other | | {together:.2f} s, {together / total:.2f} of it | |")


if __name__ == "__main__":
    main()
