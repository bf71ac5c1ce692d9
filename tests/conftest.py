"""Real repositories and projects, built in temporary folders; a fixed clock and identity; no network."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from patchq.cli import cli
from patchq.paths import Layout
from patchq.project import Project

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _sealed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nobody's configuration, a home of its own, and a check that the real one stays untouched."""
    if request.node.get_closest_marker("index") or "stacks" in request.node.path.parts:
        yield
        return
    home = tmp_path / "home"
    home.mkdir()
    for name in [n for n in os.environ if n.startswith(("GIT_", "PIP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("PATCHQ_CACHE", str(home / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("RUSTUP_HOME", str(home / "cache"))  # pip asks rustc for its version
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2026-01-02T03:04:05+0100")
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Test Person\n\temail = test@example.org\n[init]\n\tdefaultBranch = main\n"
    )
    yield
    assert sorted(p.name for p in home.iterdir()) in ([".gitconfig"], [".gitconfig", "cache"])


def git(folder: Path, *args: str, data: bytes | None = None, env: dict[str, str] | None = None) -> str:
    """Run git in ``folder`` with fixed dates; returns its output."""
    fixed = {"GIT_AUTHOR_DATE": "2026-01-02T03:04:05+0100", "GIT_COMMITTER_DATE": "2026-01-02T03:04:05+0100"}
    done = subprocess.run(
        ["git", *args],
        cwd=folder,
        input=data,
        capture_output=True,
        env={**os.environ, **fixed, **(env or {})},
        check=False,
    )
    assert done.returncode == 0, f"git {args}: {done.stderr.decode()}"
    return done.stdout.decode("utf-8", "surrogateescape").strip()


def commit_files(folder: Path, files: dict[str, bytes | None], message: str = "change") -> str:
    """Write files (None removes), commit them all, and return the commit."""
    for name, data in files.items():
        path = folder / name
        if data is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def numbered(count: int) -> bytes:
    """``count`` lines, each different."""
    return b"".join(b"line %d\n" % n for n in range(1, count + 1))


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """An upstream repository at tag v1: two files of 40 numbered lines, a script, a folder."""
    folder = tmp_path / "upstream"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "run.sh").write_text("#!/bin/sh\necho hi\n")
    (folder / "run.sh").chmod(0o755)
    commit_files(
        folder, {"a.txt": numbered(40), "b.txt": numbered(40), "pkg/mod.py": b"def f():\n    return 1\n"}, "first"
    )
    git(folder, "tag", "v1")
    return folder


class Patchq:
    """The command line in a project, in process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.layout = Layout(root)

    def run(self, *args: str) -> Result:
        return CliRunner().invoke(cli, ["--project", str(self.root), *args], prog_name="patchq")

    def ok(self, *args: str) -> str:
        done = self.run(*args)
        assert done.exit_code == 0, f"patchq {args}: {done.exit_code}\n{done.output}"
        return done.output

    def fails(self, code: int, *args: str) -> str:
        done = self.run(*args)
        assert done.exit_code == code, f"patchq {args}: {done.exit_code}\n{done.output}"
        return done.output

    @property
    def project(self) -> Project:
        return Project(self.layout)

    def tree(self, upstream: str = "up") -> Path:
        return self.layout.tree(upstream)

    def patch_file(self, name: str, upstream: str = "up", ref: str = "v1") -> Path:
        return self.layout.stack(upstream, ref) / f"{name}.patch"

    def snapshot(self) -> dict[str, bytes]:
        """Everything a user owns and every ref and HEAD: what a failed command must leave alone."""
        files = {
            str(p.relative_to(self.root)): p.read_bytes()
            for folder in ("patches", ".patchq/trees")
            for p in sorted((self.root / folder).rglob("*"))
            if p.is_file() and not p.is_symlink() and p.name != ".git"
        }
        files["lock"] = self.layout.lock.read_bytes()
        if self.layout.store.exists():
            files["refs"] = git(self.layout.store, "for-each-ref").encode()
        return files


@pytest.fixture
def empty(tmp_path: Path) -> Patchq:
    """A project without pins."""
    root = tmp_path / "project"
    patchq = Patchq(root)
    done = CliRunner().invoke(cli, ["init", str(root)])
    assert done.exit_code == 0, done.output
    return patchq


@pytest.fixture
def patchq(empty: Patchq, upstream: Path) -> Patchq:
    """A project that has ``up`` pinned at v1 of the upstream repository."""
    empty.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    return empty


@pytest.fixture
def stack(patchq: Patchq) -> Patchq:
    """The same with three patches, applied: two on a.txt far apart, one on b.txt."""
    patchq.ok("apply")
    for name, file, line in (("first", "a.txt", 5), ("second", "a.txt", 30), ("third", "b.txt", 10)):
        edit(patchq.tree() / file, line)
        patchq.ok("new", "up", name, "-m", f"Change {file} at {line}\n\nBecause of the test.", "--topic", "test", "-s")
    return patchq


def edit(path: Path, line: int, text: bytes = b"changed\n") -> None:
    """Replace one line (counted from 1) of a file."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line - 1] = text
    path.write_bytes(b"".join(lines))


Maker = Callable[[], None]
