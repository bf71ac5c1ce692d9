"""Run `git rebase` and copy the project, for the benchmarks of `forecast` and `rebase`."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from patchq.system.paths import ref_to_folder

ENV = {
    "GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "n@n", "GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "n@n",
    "GIT_EDITOR": "true", "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent",
}  # fmt: skip


@contextmanager
def use_git(program: str) -> Iterator[None]:
    """Run another git in the block, also in patchq's processes; empty for the one on the PATH."""
    paths = os.environ["PATH"], ENV["PATH"]
    if program:
        folder = Path(program).resolve().parent
        os.environ["PATH"], ENV["PATH"] = (f"{folder}:{path}" for path in paths)
    try:
        yield
    finally:
        os.environ["PATH"], ENV["PATH"] = paths


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the wall seconds of a call, and the CPU seconds of the child processes that end in it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    work()
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def git(folder: Path, *args: str, ok: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
    """Run git without the user's configuration."""
    done = subprocess.run(["git", *args], cwd=folder, env=ENV, capture_output=True, text=True)
    if done.returncode not in ok:
        raise SystemExit(f"git {args}: {done.stderr}")
    return done


def rebase(folder: Path, base: str, tip: str, onto: str) -> tuple[tuple[float, float], set[str]]:
    """Run `git rebase` and skip what stops.

    :returns: the wall and CPU seconds, and the subjects of the commits that applied.
    """
    git(folder, "checkout", "-q", "--force", "--detach", tip)

    def work() -> None:
        config = ("-c", "rerere.enabled=false", "-c", "merge.directoryRenames=true")
        done = git(folder, *config, "rebase", "--onto", onto, base, ok=(0, 1))
        while done.returncode:
            done = git(folder, *config, "rebase", "--skip", ok=(0, 1))

    return timed(work), set(git(folder, "log", "--format=%s", f"{onto}..HEAD").stdout.splitlines())


def copy_project(root: Path, target: Path, upstream: str, refs: list[str]) -> None:
    """Copy the lock, the patches, the store, and what is applied. The store's files are hard links.

    :param refs: refs whose stacks are left out.
    """
    target.mkdir()
    lock = subprocess.run(["git", "show", "HEAD:upstream.lock"], cwd=root, capture_output=True, check=True).stdout
    (target / "upstream.lock").write_bytes(lock)
    shutil.copytree(root / "patches", target / "patches")
    for ref in refs:
        shutil.rmtree(target / "patches" / upstream / ref_to_folder(ref), ignore_errors=True)
    shutil.rmtree(target / "patches" / upstream / "rr-cache", ignore_errors=True)
    (target / "patches" / upstream / "ledger.jsonl").unlink(missing_ok=True)
    (target / ".patchq").mkdir()
    shutil.copytree(root / ".patchq" / "state", target / ".patchq" / "state")
    subprocess.run(["cp", "-al", root / ".patchq" / "store.git", target / ".patchq" / "store.git"], check=True)
