"""What the tests build with: real git, small projects, the command line in process."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from patchq.cli import cli
from patchq.project.project import Project
from patchq.system.paths import Layout

ROOT = Path(__file__).resolve().parent.parent


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


def new_repository(folder: Path, tag: str = "v1") -> None:
    """Make a folder with files a repository, all of it tagged."""
    git(folder, "init", "-q")
    git(folder, "add", "-fA")
    git(folder, "commit", "-q", "-m", tag)
    git(folder, "tag", tag)


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


def new_project(root: Path) -> Patchq:
    """Make a project with `patchq init`."""
    done = CliRunner().invoke(cli, ["init", str(root)])
    assert done.exit_code == 0, done.output
    return Patchq(root)


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
        return Project(layout=self.layout)

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


def committed_project(root: Path) -> Patchq:
    """This project's own lock, stacks and proofs in a folder of their own."""
    for name in ("upstream.lock", "patches", "tests/stacks"):
        source = ROOT / name
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, root / name)  # type: ignore[operator]
    return Patchq(root)


def edit(path: Path, line: int, text: bytes = b"changed\n") -> None:
    """Replace one line (counted from 1) of a file."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line - 1] = text
    path.write_bytes(b"".join(lines))


def release(upstream: Path, tag: str, files: dict[str, bytes | None]) -> None:
    """A commit of an upstream's, tagged."""
    commit_files(upstream, files, tag)
    git(upstream, "tag", tag)


def with_lines(changed: dict[int, bytes]) -> bytes:
    """The forty lines of a fixture's file, some of them others."""
    lines = numbered(40).splitlines(keepends=True)
    for line, text in changed.items():
        lines[line - 1] = text
    return b"".join(lines)


def seal(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Nobody's configuration, and a home of its own."""
    home.mkdir()
    for name in [n for n in os.environ if n.startswith(("GIT_", "PIP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("PATCHQ_CACHE", str(home / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("RUSTUP_HOME", str(home / "cache"))  # pip asks rustc for its version
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # a third of what a small proof takes
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2026-01-02T03:04:05+0100")
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Test Person\n\temail = test@example.org\n[init]\n\tdefaultBranch = main\n"
    )
