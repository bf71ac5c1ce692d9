"""Execution of cells: check out the trees of a variant, and run pytest on them in another process."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from patchq.environment.machine import this_machine
from patchq.environment.verify import interpreter, module_file
from patchq.errors import EnvironmentFault
from patchq.formats.lock import BuildConfig
from patchq.formats.outcomes import ProofState
from patchq.names import sh
from patchq.project.project import Project
from patchq.proofs.judge import CellResult, state_of
from patchq.proofs.plan import ProofCell, Variant
from patchq.system import fsio, runner

#: Error of Python if pytest or a package that it requires is missing.
_NO_PYTEST = re.compile(r"No module named '?(_?pytest(\.[\w.]+)?|pluggy|iniconfig)'?\s*$")
#: Signals from outside, such as the OOM killer or the end of a job. Crashes are not among them.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
#: Function that runs pytest with arguments, environment, folder and timeout in seconds. It returns
#: the output and the exit code, or the negative number of the signal that ended pytest.
Execute = Callable[[Sequence[str], Mapping[str, str], Path, float | None], tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Installed:
    """Environment with installed packages, which proofs import instead of the trees.

    :ivar python: interpreter of the environment.
    :ivar data: folder that proofs use instead of the trees. It contains links to the packages' files.
    :ivar left_out: names of the patches that the environment's thin wheels don't contain.
    """

    python: str
    data: Path
    left_out: frozenset[str]


def run_here(project: Project, cells: Sequence[ProofCell]) -> Iterable[CellResult]:
    """Run cells in local processes, one per core."""
    return in_slots(project, cells, lambda cell, slot: run_cell(project, cell, slot))


def in_slots(project: Project, items: Sequence[_Item], work: Callable[[_Item, int], _Result]) -> Iterable[_Result]:
    """Call ``work`` on items in parallel, one per core.

    Each call gets the number of a slot. A slot is a folder of trees that only one call uses at a time.
    """
    slots: SimpleQueue[int] = SimpleQueue()
    count = max(1, min(os.cpu_count() or 1, len(items)))
    for number in range(count):
        slots.put(number)

    def in_one(item: _Item) -> _Result:
        slot = slots.get()
        try:
            return work(item, slot)
        finally:
            slots.put(slot)

    with trees_lock(project), ThreadPoolExecutor(count) as pool:
        yield from pool.map(in_one, items)


def trees_lock(project: Project) -> AbstractContextManager[bool]:
    """Return the lock of the trees in ``.patchq/prove``, because parallel runs of patchq must not share these trees."""
    return fsio.lock(project.layout.private / "prove.lock", verb="test", wait=project.wait)


@dataclass(frozen=True, slots=True)
class PytestRun:
    """Result of running pytest.

    :ivar tests: outcome of each test; None if the process was killed from outside.
    :ivar timed_out: True if pytest exceeded the timeout. In this case, ``tests`` is empty.
    """

    tests: list[dict[str, str]] | None
    output: str
    timed_out: bool = False


def in_its_own_process(
    args: Sequence[str], env: Mapping[str, str], cwd: Path, timeout: float | None, *, python: str = sys.executable
) -> tuple[str, int]:
    """Run pytest in a new process and return its output and exit code.

    :raises CommandError: if pytest exceeds the timeout.
    """
    argv = [python, "-m", "pytest", *args]
    done = runner.run(argv, cwd=cwd, env=env, timeout=timeout, ok_codes=range(-64, 256))
    return (done.stdout + done.stderr).decode("utf-8", "replace"), done.returncode


def run_cell(
    project: Project,
    cell: ProofCell,
    slot: int = 0,
    execute: Execute = in_its_own_process,
    *,
    installed: Installed | None = None,
) -> CellResult:
    """Check out the trees of a cell's variant into a slot, and run the cell's proof on them.

    :param installed: environment whose packages the proof imports instead of the trees.
    """
    machine = this_machine()
    proof, variant = cell.proof, cell.variant
    missing = [n for n in proof.needs if n not in machine.can]
    about: dict[str, Any] = {
        "machine": machine.facts(),
        "trees": {} if installed else dict(variant.trees),
        "left_out": variant.left_out,
    }
    if not proof.files:
        message = "the patch names no test in `Proof:`"
        return CellResult(proof=proof.title, variant=variant.kind, state=ProofState.NO_PROOF, message=message, **about)
    reason = ""
    if missing:
        reason = f"needs {', '.join(missing)}"
    elif installed and proof.name in installed.left_out:
        reason = "the thin wheel leaves this patch out"
    if reason:
        return CellResult(proof=proof.title, variant=variant.kind, state=ProofState.NOT_RUN, message=reason, **about)
    start = time.monotonic()
    folder = installed.data if installed else checkout(project, variant, slot)
    done = run_pytest(project, folder, proof.files, timeout=cell.timeout, execute=execute, installed=installed)
    seconds = round(time.monotonic() - start, 2)
    state, words = state_of(done.tests, done.output)
    return CellResult(
        proof=proof.title,
        variant=variant.kind,
        state=state,
        tests=tuple(done.tests or ()),
        message=words,
        seconds=seconds,
        **about,
    )


def checkout(project: Project, variant: Variant, slot: int) -> Path:
    """Check out the trees of a variant into a slot's folder. Only files that differ are written."""
    root = project.layout.private / "prove" / f"slot{slot}"
    for upstream, tip in variant.tips.items():
        target = root / upstream
        index = root / f"{upstream}.index"
        target.mkdir(parents=True, exist_ok=True)
        env = {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(target)}
        project.store.run("read-tree", "--reset", "-u", tip, env=env)
        for path, nested in project.lock.nested_in(upstream).items():
            link = target / path
            # Relative, so that a copied or moved project reads its own trees.
            goal = os.path.relpath(root / nested, link.parent)
            if nested not in variant.tips or (link.is_symlink() and os.readlink(link) == goal):
                continue
            if link.is_symlink():
                link.unlink()
            elif link.is_dir():
                link.rmdir()
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(goal)
    return root


def link_files(project: Project, set_name: str, python: str, root: Path) -> Installed:
    """Link the files of an environment's packages into ``root``, at the paths that they have in the trees.

    The ``links`` in the lock's build settings name the data files and their paths in the trees.

    :raises UserError: if the interpreter ``python`` doesn't exist.
    :raises EnvironmentFault: if a package with data files isn't installed in the environment.
    """
    python = interpreter(python)
    left_out: list[str] = []
    for pin in project.lock.pins_of(set_name):
        build = project.lock.upstreams[pin.upstream].build
        if not build:
            continue
        sources = [module_file(python, build.package)]
        if thin := module_file(python, f"_patchq_thin_{build.package}"):
            left_out += json.loads((thin / "thin.json").read_text())["left_out"]
            sources.append(thin / "files" / build.package)
        for source in filter(None, sources):
            _link_package(source, build, root / pin.upstream / build.package)
        if not build.links:
            continue
        package = _package_folder(python, build)
        nested = project.lock.nested_in(pin.upstream)
        for inside, path in build.links.items():
            link = root / pin.upstream / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(package / inside)
            if path in nested:
                (root / nested[path]).symlink_to(package / inside)
    return Installed(python, root, frozenset(left_out))


def _link_package(source: Path, build: BuildConfig, target: Path) -> None:
    """Link a package's files into ``target``, except the data in ``build.links``. Replace existing links.

    Each file is linked on its own, because ``Path.rglob`` doesn't follow links to folders.
    """
    for folder, folders, names in os.walk(source):
        below = Path(folder).relative_to(source)
        folders[:] = [f for f in folders if f != "__pycache__" and (below / f).as_posix() not in build.links]
        (target / below).mkdir(parents=True, exist_ok=True)
        for name in names:
            link = target / below / name
            link.unlink(missing_ok=True)
            link.symlink_to(Path(folder) / name)


def _package_folder(python: str, build: BuildConfig) -> Path:
    """Return the package folder with the data files.

    This is the folder of the package's data module, because a thin wheel may have moved the module.
    """
    name = build.data_module or build.package
    file = module_file(python, name)
    if file is None:
        raise EnvironmentFault(f"{python} has no module {name}", hint=f"patchq verify-installed --python {sh(python)}")
    return next(folder for folder in (file, *file.parents) if folder.name == build.package.rpartition(".")[2])


def run_pytest(
    project: Project,
    trees: Path,
    files: Sequence[str],
    *,
    cwd: Path | None = None,
    timeout: float | None = None,
    execute: Execute = in_its_own_process,
    installed: Installed | None = None,
) -> PytestRun:
    """Run test files on trees.

    :param cwd: folder to run in; the project's folder by default.
    :param timeout: time limit in seconds.
    :param installed: environment whose packages the tests import instead of the trees.
    :raises EnvironmentFault: if pytest isn't installed for the interpreter that runs the tests.
    """
    python = sys.executable
    if installed:
        python = installed.python
        execute = partial(in_its_own_process, python=python)
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        results = Path(text) / "results.json"
        packages = {}
        for u in project.lock.upstreams.values():
            if u.build and not installed and (trees / u.name).is_dir():
                packages[u.build.package] = str(trees / u.name)
        env = {
            "PATCHQ_TREES": str(trees),
            "PATCHQ_IMPORTS": json.dumps(packages),
            "PATCHQ_RESULTS": str(results),
            # Python compares bytecode by modification time, which is too coarse for these changes.
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            "CUDA_CACHE_DISABLE": "1",
        }
        if installed:
            env["PATCHQ_INSTALLED"] = "1"
        options = ["-q", "-p", "patchq.testing", "-p", "no:cacheprovider", "-o", "addopts=", "--no-header"]
        try:
            message, code = execute([*options, *files], env, cwd or project.layout.root, timeout)
        except runner.CommandError as error:
            return PytestRun([], error.output, timed_out=error.code == runner.TIMED_OUT)
        data = fsio.read_or_none(results)
        if data is None and _NO_PYTEST.search(message):
            raise EnvironmentFault(
                f"{python} has no pytest, which runs the proofs",
                hint=f"{sh(python)} -m pip install pytest",
            )
        if data is None and code < 0:
            message += f"\nthe process was killed by signal {-code}"
        killed = data is None and -code in _FROM_OUTSIDE
        return PytestRun(None if killed else json.loads(data or b"[]"), message)
