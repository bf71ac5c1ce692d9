"""pytest plugin for proofs: ``-p patchq.proofs.plugin``.

This module uses the standard library and pytest only.

The plugin reads these environment variables. ``PATCHQ_TREES`` is the folder of the applied trees.
``PATCHQ_IMPORTS`` is a JSON object that maps import names to trees. The plugin puts the trees first on the
import path. At the end of the run, it checks that every module of these packages was imported from its tree.
``PATCHQ_RESULTS`` is the file to which the outcome of each test and the kind of its failure are written.
``PATCHQ_INSTALLED`` is set if proofs import installed packages. Then ``PATCHQ_TREES`` contains only the
packages' files, and a test that needs another file of the source tree is not run.

Proofs can use the plugin's fixtures ``trees``, ``upstream_import`` and ``nvcc``.
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

_outcomes: list[dict[str, str]] = []


def imports() -> dict[str, Path]:
    """Return the tree from which each package must be imported, by import name."""
    return _imports(os.environ.get("PATCHQ_IMPORTS", "{}"))


@functools.cache
def _imports(raw: str) -> dict[str, Path]:
    named: dict[str, str] = json.loads(raw)
    return {name: Path(folder).resolve() for name, folder in named.items()}


def pytest_configure(config: pytest.Config) -> None:
    """Set the import path before pytest collects the tests."""
    arrange()


def arrange() -> None:
    """Put the trees first on the import path."""
    for folder in reversed(list(dict.fromkeys(imports().values()))):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


def strays() -> list[str]:
    """Return messages about modules of patched packages that were imported from outside their trees."""
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
    """Return whether a file is in a folder. The result is cached, because each import checks every module."""
    return folder in Path(file).resolve().parents


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record each test's outcome: passed, skipped, assertion (a failed assertion) or error (another exception)."""
    report = yield
    if report.when == "call" or report.outcome != "passed":
        outcome: str = report.outcome
        message = ""
        if call.excinfo is not None and report.outcome == "failed":
            asserted = call.excinfo.errisinstance((AssertionError, pytest.fail.Exception)) and report.when == "call"
            outcome, message = ("assertion" if asserted else "error"), call.excinfo.exconly()
            if missing := _missing_source(call.excinfo.value):
                outcome, message = "skipped", f"not run: needs {missing} of the source tree"
        elif report.outcome == "skipped" and call.excinfo is not None:
            message = str(call.excinfo.value)
        noted = {"test": item.nodeid, "outcome": outcome, "message": message[:2000]}
        if item.user_properties:  # from record_property, for reports
            noted["facts"] = json.dumps({key: str(value) for key, value in item.user_properties})
        _outcomes.append(noted)
    return report


def _missing_source(error: BaseException) -> str:
    """Return the path of the source file whose absence caused an error; empty if the error has another cause."""
    if isinstance(error, FileNotFoundError) and os.environ.get("PATCHQ_INSTALLED"):
        path, trees = Path(str(error.filename)), Path(os.environ["PATCHQ_TREES"]).resolve()
        if trees in path.parents:
            return path.relative_to(trees).as_posix()
    return ""


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Record an error, not a failed assertion, for a test file that can't be imported."""
    if report.failed:
        _outcomes.append({"test": report.nodeid, "outcome": "error", "message": str(report.longrepr)[-2000:]})


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the outcomes. Add an error if a module was imported from outside its tree."""
    if "hypothesis" not in sys.modules:
        # The plugin imports all of hypothesis at the end of each run, even if it has nothing to
        # report. That is most of the time of a short run.
        manager = session.config.pluginmanager
        if plugin := manager.get_plugin("hypothesispytest"):
            manager.unregister(plugin)
    for stray in strays():
        _outcomes.append({"test": "imports", "outcome": "error", "message": stray})
    target = os.environ.get("PATCHQ_RESULTS")
    if target:
        Path(target).write_text(json.dumps(_outcomes))


@pytest.fixture(scope="session")
def trees() -> Path:
    """Return the folder of the applied trees."""
    folder = Path(os.environ["PATCHQ_TREES"]).resolve()
    assert folder.is_dir()
    return folder


@pytest.fixture(scope="session")
def upstream_import() -> Callable[[str], ModuleType]:
    """Return a function that imports a module of a patched package.

    The function raises ImportError if the module was found outside its tree.
    """

    def load(name: str) -> ModuleType:
        module = importlib.import_module(name)
        found = strays()
        if found:
            raise ImportError("; ".join(found))
        return module

    return load


@pytest.fixture(scope="session")
def nvcc() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs nvcc with C++17. If nvcc is missing, the test is skipped."""
    program = shutil.which("nvcc")
    if program is None:
        pytest.skip("not run: needs nvcc")

    def run(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        argv = [program, "-std=c++17", "--expt-relaxed-constexpr", "-w", *args]
        return subprocess.run(argv, capture_output=True, text=True, check=False, **options)

    return run
