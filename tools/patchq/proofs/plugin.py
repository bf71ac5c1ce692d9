"""The pytest plugin of the proofs: ``-p patchq.proofs.plugin``. Standard library and pytest only.

``PATCHQ_TREES`` is the folder of the applied trees, ``PATCHQ_IMPORTS`` a JSON object of import name
to the tree that it must come from. The trees are put in front of the import path, and at the end
every module of those packages must have come from its tree: what was tested is checked, not
assumed. ``PATCHQ_RESULTS`` is where each test's outcome goes, with the kind of its failure.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from patchq.proofs._compilations import Compilation

_outcomes: list[dict[str, str]] = []


def imports() -> dict[str, Path]:
    """Import name to the tree that it must come from."""
    return _imports(os.environ.get("PATCHQ_IMPORTS", "{}"))


@functools.cache
def _imports(raw: str) -> dict[str, Path]:
    named: dict[str, str] = json.loads(raw)
    return {name: Path(folder).resolve() for name, folder in named.items()}


def pytest_configure(config: pytest.Config) -> None:
    """Arrange the import path before anything is collected."""
    arrange()


def arrange() -> None:
    """Put the trees in front of everything else on the import path."""
    for folder in reversed(list(dict.fromkeys(imports().values()))):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


def strays() -> list[str]:
    """Modules of the patched packages that came from elsewhere."""
    found = []
    for package, folder in imports().items():
        below = package + "."
        for name, module in list(sys.modules.items()):
            if name == package or name.startswith(below):
                file = getattr(module, "__file__", None)
                if file and not _lies_in(file, folder):
                    found.append(f"{name} came from {file}, not from {folder}")
    return found


@functools.cache
def _lies_in(file: str, folder: Path) -> bool:
    """Asked of each module at each import that a proof asks for; looked up on the disk once."""
    return folder in Path(file).resolve().parents


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note each test's outcome: passed, skipped, assertion, or error (anything else that was raised)."""
    report = yield
    if report.when == "call" or report.outcome != "passed":
        outcome: str = report.outcome
        said = ""
        if call.excinfo is not None and report.outcome == "failed":
            asserted = call.excinfo.errisinstance((AssertionError, pytest.fail.Exception)) and report.when == "call"
            outcome, said = ("assertion" if asserted else "error"), call.excinfo.exconly()
        elif report.outcome == "skipped" and call.excinfo is not None:
            said = str(call.excinfo.value)
        noted = {"test": item.nodeid, "outcome": outcome, "said": said[:2000]}
        if item.user_properties:  # what a test notes by record_property, for reports
            noted["facts"] = json.dumps({key: str(value) for key, value in item.user_properties})
        _outcomes.append(noted)
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that can't even be imported is an error, never a failure that proves something."""
    if report.failed:
        _outcomes.append({"test": report.nodeid, "outcome": "error", "said": str(report.longrepr)[-2000:]})


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the outcomes; a module from elsewhere makes the whole run an error."""
    if "hypothesis" not in sys.modules:
        # Its plugin imports all of it at the end of each run, to say that there is nothing to say: most of what
        # a short run costs.
        manager = session.config.pluginmanager
        if plugin := manager.get_plugin("hypothesispytest"):
            manager.unregister(plugin)
    for stray in strays():
        _outcomes.append({"test": "imports", "outcome": "error", "said": stray})
    target = os.environ.get("PATCHQ_RESULTS")
    if target:
        Path(target).write_text(json.dumps(_outcomes))


@pytest.fixture(scope="session")
def trees() -> Path:
    """The folder of the applied trees."""
    folder = Path(os.environ["PATCHQ_TREES"]).resolve()
    assert folder.is_dir()
    return folder


@pytest.fixture(scope="session")
def upstream_import() -> Callable[[str], ModuleType]:
    """Import a module of a patched package; it is an error if it comes from elsewhere."""

    def load(name: str) -> ModuleType:
        module = importlib.import_module(name)
        found = strays()
        if found:
            raise ImportError("; ".join(found))
        return module

    return load


@pytest.fixture(scope="session")
def nvcc() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run nvcc with C++17; returns what it said. Where there is none, the test is not run."""
    program = shutil.which("nvcc")
    if program is None:
        pytest.skip("not run: needs nvcc")

    def run(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        argv = [program, "-std=c++17", "--expt-relaxed-constexpr", "-w", *args]
        kept = os.environ.get("PATCHQ_COMPILATIONS")
        # What is asked for with options of the process's own isn't known by its arguments.
        if not kept or options:
            return subprocess.run(argv, capture_output=True, text=True, check=False, **options)
        trees = Path(os.environ["PATCHQ_TREES"]).resolve()
        compilation = Compilation(Path(kept), _versions(program), argv[1:], trees, Path.cwd())
        if said := compilation.take():
            return subprocess.CompletedProcess(argv, 0, *said)
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            compilation.keep(done.stdout, done.stderr)
        return done

    return run


def _versions(nvcc: str) -> str:
    """What nvcc and the host's compiler say that they are."""
    host = shutil.which("g++") or ""
    asked = ([program, "--version"] for program in (nvcc, host) if program)
    return "\n".join(subprocess.run(argv, capture_output=True, text=True, check=True).stdout for argv in asked)
