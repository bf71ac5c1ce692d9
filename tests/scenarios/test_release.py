"""patchq itself: its files are the same bytes from any folder, at any time; who installs it can't be given another's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from kit import ROOT, Patchq
from patchq import __version__
from patchq.project import own
from patchq.project.scaffold import REQUIREMENTS_NAME

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def release(checkout: Path, out: Path, umask: int, zone: str) -> dict[str, bytes]:
    before = os.umask(umask)
    try:
        env = {**os.environ, "TZ": zone, "PYTHONPATH": str(checkout / "tools"), "PYTHONHASHSEED": str(umask)}
        program = [sys.executable, str(checkout / ".ci" / "release"), str(out)]
        subprocess.run(program, cwd=out.parent, env=env, check=True, capture_output=True)
    finally:
        os.umask(before)
    return {path.name: path.read_bytes() for path in out.iterdir()}


def test_wheel_and_sdist_are_the_same_bytes_everywhere(tmp_path: Path) -> None:
    other = tmp_path / "another checkout"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if name.startswith(("tools/", ".ci/", "locks/")) or "/" not in name:
            (other / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, other / name)
    subprocess.run(["git", "add", "-A"], cwd=other, check=True)
    first = release(ROOT, tmp_path / "one", 0o022, "UTC")
    requirements = f"patchq-{__version__}-requirements.txt"
    assert set(first) == {requirements, f"patchq-{__version__}-py3-none-any.whl", f"patchq-{__version__}.tar.gz"}
    assert release(other, tmp_path / "two", 0o077, "Asia/Tokyo") == first
    with zipfile.ZipFile(tmp_path / "one" / f"patchq-{__version__}-py3-none-any.whl") as zf:
        assert "patchq/templates/compose/Dockerfile.j2" in zf.namelist()
        assert "patchq/kernels/_planner.py" in zf.namelist()
        locked = (ROOT / "locks" / "patchq.txt").read_bytes()
        assert zf.read("patchq/templates/project/requirements.txt") == locked
        every = (ROOT / "locks" / "patchq-all.txt").read_bytes()
        assert zf.read("patchq/templates/project/requirements-all.txt") == every
        assert first[requirements].startswith(every)
    with tarfile.open(tmp_path / "one" / f"patchq-{__version__}.tar.gz") as tar:
        assert {(m.uid, m.gid, m.mtime, m.mode) for m in tar} == {(0, 0, 315532800, 0o644)}


@pytest.mark.index
def test_a_release_is_installed_by_hash(tmp_path: Path) -> None:
    """Into an empty environment, by the line that the program prints; one changed byte is refused."""
    out = tmp_path / "out"
    program = [sys.executable, str(ROOT / ".ci" / "release"), str(out)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    said = subprocess.run(program, env=env, check=True, capture_output=True, text=True).stdout
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    command = said.splitlines()[-1].split()[1:]
    (wheel,) = out.glob("*.whl")
    whole = wheel.read_bytes()
    wheel.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    for data, code in ((wheel.read_bytes(), 1), (whole, 0)):
        wheel.write_bytes(data)
        done = subprocess.run([str(python), *command], cwd=out, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert code == 0 or "DO NOT MATCH THE HASHES" in done.stderr
    subprocess.run([str(python), "-m", "pip", "check"], check=True, capture_output=True)
    new = tmp_path / "new"
    subprocess.run([str(python.with_name("patchq")), "init", str(new)], check=True, capture_output=True)
    assert (new / REQUIREMENTS_NAME).read_bytes() == (ROOT / "locks" / "patchq-all.txt").read_bytes()


def test_init_writes_the_version_and_another_one_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = Patchq(tmp_path / "new")
    new.root.mkdir()
    new.ok("init", str(new.root))
    text = new.layout.lock.read_text()
    assert f'patchq = "{__version__}"' in text
    assert "was made with" not in new.run("list").output
    new.layout.lock.write_text(text.replace(f'"{__version__}"', '"0.0.7"'))
    said = " ".join(new.run("check").output.split())
    assert f"upstream.lock was written by patchq 0.0.7, but this is {__version__}" in said
    assert json.loads(new.run("list", "--json").output)["schema"].startswith("patchq/"), "and JSON stays JSON"


@pytest.mark.parametrize(
    ("raw", "source"),
    [
        ({"url": "https://h/p.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}, f"patchq @ git+https://h/p.git@{COMMIT}"),
        ({"url": "https://h/p.whl", "archive_info": {"hashes": {"sha256": "a" * 64}}}, f"patchq @ https://h/p.whl#sha256={'a' * 64}"),
        ({"url": "https://h/p.whl", "archive_info": {"hash": f"sha256={'a' * 64}"}}, f"patchq @ https://h/p.whl#sha256={'a' * 64}"),
        ({"url": "https://h/p.whl", "archive_info": {}}, ""),
        ({"url": "https://h/p.git", "vcs_info": {"vcs": "git", "commit_id": "main"}}, ""),
        ({"url": "https://h/p.git; id", "vcs_info": {"vcs": "git", "commit_id": f"{COMMIT} x"}}, ""),
        ({"url": "file:///home/me/patchq", "dir_info": {"editable": True}}, ""),
        ([], ""),
    ],
)  # fmt: skip
def test_where_it_came_from(raw: object, source: str) -> None:
    assert own.source_of(raw) == source


@pytest.mark.parametrize(
    ("source", "taken"),
    [
        (f"patchq @ git+https://h/p.git@{COMMIT}", True),
        (f"patchq @ https://h/p.whl#sha256={'a' * 64}", True),
        ("patchq", False),
        ("patchq==0.1.0", False),
        ("patchq @ git+https://h/p.git@main", False),
        ("", False),
    ],
)
def test_the_workflow_takes_no_name_from_an_index(tmp_path: Path, source: str, taken: bool) -> None:
    new = Patchq(tmp_path / "new")
    new.root.mkdir()
    new.ok("init", str(new.root))
    workflow = yaml.safe_load((new.root / ".github" / "workflows" / "patches.yml").read_text())
    (step,) = [s for s in workflow["jobs"]["patches"]["steps"] if "pip install" in s.get("run", "")]
    assert "PATCHQ" in step["env"]
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").write_text('#!/bin/sh\necho "ran $*"\n')
    (folder / "python").chmod(0o755)
    env = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PATCHQ": source}
    done = subprocess.run(["bash", "-e", "-c", step["run"]], env=env, capture_output=True, text=True, check=False)
    ran = [
        f"-m pip install --no-deps -r {REQUIREMENTS_NAME}",
        f"-m pip install --no-deps --no-build-isolation {source}",
    ]
    wanted = [f"ran {line}" for line in (*ran, "-m pip check")] if taken else []
    assert (done.returncode == 0, [n for n in done.stdout.splitlines() if n.startswith("ran")]) == (taken, wanted)
    assert (new.root / REQUIREMENTS_NAME).read_bytes() == (ROOT / "locks" / "patchq-all.txt").read_bytes()


def test_what_is_shipped_for_others_installs_by_hash_or_from_here() -> None:
    hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    assert hooks["patchq-check"]["language"] == "python"
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    (line,) = [s["run"] for s in action["runs"]["steps"] if "pip install" in s.get("run", "")]
    for part in line.split("&&"):
        assert "--no-deps" in part
        assert "GITHUB_ACTION_PATH" in part
    for hook in hooks.values():
        words = hook["entry"].split()
        assert words[0] == "patchq"
