"""Real repositories and projects, built in temporary folders; a fixed clock and identity; no network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, settings

from kit import Patchq, commit_files, edit, git, numbered
from patchq.cli import cli

# A busy machine is no fault of a test.
settings.register_profile("patchq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patchq")


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
