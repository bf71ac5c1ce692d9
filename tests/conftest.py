"""Real repositories and projects, built in temporary folders; a fixed clock and identity; no network."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import answers
import browsing
import memory
from kit import Patchq, commit_files, edit, git, new_project, numbered, seal
from patchq.cli import boundary, common, terminal
from template import copy_project, copy_upstream

#: Files that take long. Workers of pytest-xdist are given whole files: these first, for one that is begun
#: last has the other workers wait for it.
LONG = (
    "test_real_pr.py", "test_run.py", "test_sm120_namespace_launcher.py", "test_claims.py", "test_pr.py",
    "test_real_upstreams.py", "test_real_carry.py", "test_real_debian.py", "test_real_installs.py",
    "test_tampers_at_start.py", "test_ordinary.py", "test_tampers_of_files.py",
    "test_proofs.py", "test_mutate.py", "test_killed.py", "test_killed_rebase.py", "test_verify_installed.py",
    "test_moe_build_profile.py", "test_grouped_gemm_pdl.py", "test_array_smem_capacity.py", "test_parsers.py",
)  # fmt: skip

TESTS = Path(__file__).resolve().parent

# A busy machine is no fault of a test.
settings.register_profile("patchq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patchq")


#: Folders whose tests are fast unless a marker of SLOW is on them.
FAST_FOLDERS = ("unit", "git", "cli", "scenarios", "benchmarks")
SLOW = ("index", "nvcc", "chromium")
#: Files of these folders that take long: they build wheels, environments or images, or run proofs.
SLOW_FILES = {
    "test_adopt_scripts.py",
    "test_build.py",
    "test_build_sets.py",
    "test_ci.py",
    "test_compose.py",
    "test_configured.py",
    "test_doctor_arch.py",
    "test_empty_patches.py",
    "test_environment_errors.py",
    "test_extras.py",
    "test_follow.py",
    "test_gb10_serve.py",
    "test_hostile_words.py",
    "test_image.py",
    "test_import_limits.py",
    "test_kernels.py",
    "test_mutate.py",
    "test_pinned_git.py",
    "test_pr.py",
    "test_project_files.py",
    "test_proofs.py",
    "test_release.py",
    "test_same_bytes.py",
    "test_signed_image.py",
    "test_site.py",
    "test_thin.py",
    "test_trust.py",
    "test_tutorial.py",
    "test_verify_installed.py",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the fast tests, and start the long files first.

    Plain ``pytest`` runs the fast tests alone. Name a file, a folder or a marker to run others.
    """
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        slow = item.path.name in SLOW_FILES or any(item.get_closest_marker(name) for name in SLOW)
        if folder in FAST_FOLDERS and not slow:
            item.add_marker("fast")
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.markexpr:
        slow = [item for item in items if not item.get_closest_marker("fast")]
        items[:] = [item for item in items if item.get_closest_marker("fast")]
        config.hook.pytest_deselected(items=slow)
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


def pytest_configure(config: pytest.Config) -> None:
    memory.choose(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is imported goes again: a fifth of the time is looking for what does."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        memory.forget()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    memory.note(item, report)
    return report


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A test's own folder, in memory where that has room."""
    with memory.folder(request.node, tmp_path) as folder:
        yield folder


@pytest.fixture(autouse=True)
def _sealed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Sealed from the person's configuration, and a check that the home stays untouched."""
    if index := sys.modules.get("patchq.sources.index"):
        index.pip_settings.cache_clear()  # the environment is another test's
    if request.node.get_closest_marker("index") or "stacks" in request.node.path.parts:
        yield
        return
    home = tmp_path / "home"
    seal(monkeypatch, home)
    yield
    assert sorted(p.name for p in home.iterdir()) in ([".gitconfig"], [".gitconfig", "cache"])


@pytest.fixture(autouse=True)
def answered(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the JSON answers that the test got; each is checked against its schema."""
    seen: set[str] = set()

    def checked(body: dict[str, Any], echo_json: Callable[[dict[str, Any]], None] = terminal.echo_json) -> None:
        seen.add(answers.check(body))
        echo_json(body)

    for module in (boundary, common):
        monkeypatch.setattr(module, "echo_json", checked)
    return seen


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Started once for the tests of a file, and no longer: its event loop is in the way of others'."""
    with browsing.chromium(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture
def browser(chromium: Any) -> Iterator[browsing.Browser]:
    """Pages with contexts of their own."""
    yield browsing.Browser(chromium)
    for context in chromium.contexts:
        context.close()


@pytest.fixture(scope="session")
def stack_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `upstream` and `stack` are copies of, made by the commands that a person would type."""
    folder = tmp_path_factory.mktemp("template")
    with pytest.MonkeyPatch.context() as monkeypatch:
        seal(monkeypatch, folder / "home")
        upstream = new_upstream(folder / "upstream")
        patchq = new_project(folder / "project")
        patchq.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
        patchq.ok("apply")
        for name, file, line in (("first", "a.txt", 5), ("second", "a.txt", 30), ("third", "b.txt", 10)):
            edit(patchq.tree() / file, line)
            message = f"Change {file} at {line}\n\nBecause of the test."
            patchq.ok("new", "up", name, "-m", message, "--topic", "test", "-s")
    return folder


def new_upstream(folder: Path) -> Path:
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
def upstream(stack_template: Path, tmp_path: Path) -> Path:
    """An upstream repository at tag v1: two files of 40 numbered lines, a script, a folder."""
    return copy_upstream(stack_template, tmp_path)


@pytest.fixture
def empty(tmp_path: Path) -> Patchq:
    """A project without pins."""
    return new_project(tmp_path / "project")


@pytest.fixture
def patchq(empty: Patchq, upstream: Path) -> Patchq:
    """A project that has ``up`` pinned at v1 of the upstream repository."""
    empty.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    return empty


@pytest.fixture
def stack(stack_template: Path, upstream: Path, tmp_path: Path) -> Patchq:
    """The same with three patches, applied: two on a.txt far apart, one on b.txt."""
    return Patchq(copy_project(stack_template, tmp_path))
