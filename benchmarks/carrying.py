"""What the benchmarks of `forecast` and `rebase` share: `git rebase`, and a copy of the project."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from patchq.system.paths import ref_to_folder

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


def copy_project(root: Path, target: Path, upstream: str, refs: list[str]) -> None:
    """The lock, the patches and the store, the store's files linked."""
    target.mkdir()
    lock = subprocess.run(["git", "show", "HEAD:upstream.lock"], cwd=root, capture_output=True, check=True).stdout
    (target / "upstream.lock").write_bytes(lock)
    shutil.copytree(root / "patches", target / "patches")
    for ref in refs:
        shutil.rmtree(target / "patches" / upstream / ref_to_folder(ref), ignore_errors=True)
    shutil.rmtree(target / "patches" / upstream / "rr-cache", ignore_errors=True)
    (target / "patches" / upstream / "ledger.jsonl").unlink(missing_ok=True)
    (target / ".patchq").mkdir()
    subprocess.run(["cp", "-al", root / ".patchq" / "store.git", target / ".patchq" / "store.git"], check=True)
