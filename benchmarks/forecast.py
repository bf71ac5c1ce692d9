"""Forecast beside `git rebase`: the same real stack onto the same real releases, in the same run.

    python benchmarks/forecast.py vllm v0.14.0 v0.20.0 v0.33.0

`git rebase` (merge backend) runs once for each ref in a worktree of its own, with `--skip` wherever it stops,
which is what a forecast has in the place of a person. Both must stop at the same patches. Prints a Markdown
table; the bases are in the store before the clocks start.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from patchq.apply import carried_stacks
from patchq.carry import STOPS
from patchq.forecast import forecast
from patchq.project import Project

ENV = {
    "GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "n@n", "GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "n@n",
    "GIT_EDITOR": "true", "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent",
}  # fmt: skip


def git(folder: Path, *args: str, ok: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(["git", *args], cwd=folder, env=ENV, capture_output=True, text=True)
    if done.returncode not in ok:
        raise SystemExit(f"git {args}: {done.stderr}")
    return done


def rebase(folder: Path, base: str, tip: str, onto: str) -> tuple[float, set[str]]:
    """Seconds, and the subjects of what was carried."""
    git(folder, "checkout", "-q", "--force", "--detach", tip)
    start = time.monotonic()
    config = ("-c", "rerere.enabled=false", "-c", "merge.directoryRenames=true")
    done = git(folder, *config, "rebase", "--onto", onto, base, ok=(0, 1))
    while done.returncode:
        done = git(folder, *config, "rebase", "--skip", ok=(0, 1))
    seconds = time.monotonic() - start
    return seconds, set(git(folder, "log", "--format=%s", f"{onto}..HEAD").stdout.splitlines())


def main() -> None:
    upstream, *refs = sys.argv[1:]
    project = Project.find(Path.cwd(), wait=600)
    forecast(project, upstream, refs)  # brings the bases
    set_name = project.choose_set("")
    with project.locked("benchmark"):
        (carried,) = carried_stacks(project, project.stacks(set_name, [upstream]), set_name)
    tip = carried.commits[-1][1].commit
    subjects = {name: info.message.split("\n", 1)[0] for name, info in carried.commits}

    start = time.monotonic()
    found = forecast(project, upstream, refs)
    together = time.monotonic() - start
    with tempfile.TemporaryDirectory(prefix="forecast-") as text:
        folder = Path(text) / "clone"
        git(Path(text), "clone", "-q", "--shared", "--no-checkout", str(project.layout.store), "clone")
        store_refs = project.store.refs("refs/patchq/base")
        total, rows = 0.0, []
        for ref in refs:
            onto = next(commit for name, commit in store_refs.items() if name.endswith(f"/{upstream}/{ref}"))
            seconds, kept = rebase(folder, carried.base, tip, onto)
            total += seconds
            ours = {subjects[c.patch.split("/")[1]] for c in found.of(ref) if c.outcome not in STOPS}
            rows.append((ref, seconds, len(subjects) - len(kept), found.stops(ref), ours ^ kept))
    print(f"{len(subjects)} patches of {upstream}, {len(refs)} refs; wall seconds\n")
    print("| onto | git rebase s | it stops at | forecast stops at | they differ in |\n|---|---|---|---|---|")
    for ref, seconds, theirs, ours_count, differ in rows:
        print(f"| {ref} | {seconds:.2f} | {theirs} | {ours_count} | {', '.join(sorted(differ)) or 'none'} |")
    print(f"| all | {total:.2f}, one after the other | | {together:.2f} s, {together / total:.2f} of it | |")


if __name__ == "__main__":
    main()
