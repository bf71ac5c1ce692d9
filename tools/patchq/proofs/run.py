"""Running: a variant's trees checked out into a place of their own, and pytest against them in a process of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from patchq.environment.machine import this_machine
from patchq.errors import EnvironmentFault
from patchq.project.project import Project
from patchq.proofs.judge import ERROR, NOT_RUN, CellResult, state_of
from patchq.proofs.plan import ProofCell, Variant
from patchq.system import fsio, runner

#: pytest, or what it is made of.
_NO_PYTEST = re.compile(r"No module named '?(_?pytest(\.[\w.]+)?|pluggy|iniconfig)'?\s*$")
#: Signals that come from outside: a lack of memory, a job that was ended. A crash is the program's own.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
#: Runs pytest with arguments, variables, in a folder, for so many seconds; returns its output, and its exit code or the
#: negative number of the signal that ended it.
Execute = Callable[[Sequence[str], Mapping[str, str], Path, float | None], tuple[str, int]]


def run_here(project: Project, cells: Sequence[ProofCell]) -> Iterable[CellResult]:
    """Run cells in processes of this machine, as many at once as it has cores for."""
    return in_slots(project, cells, lambda cell, slot: run_cell(project, cell, slot))


def in_slots(project: Project, items: Sequence[_Item], work: Callable[[_Item, int], _Result]) -> Iterable[_Result]:
    """Work on items, as many at once as this machine has cores, each with the number of trees of its own."""
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
    """Held while the trees under ``.patchq/prove`` are used: two runs would take them from each other."""
    return fsio.lock(project.layout.private / "prove.lock", verb="test", wait=project.wait)


def in_its_own_process(
    args: Sequence[str], env: Mapping[str, str], cwd: Path, timeout: float | None
) -> tuple[str, int]:
    """How pytest is run, unless it is said otherwise.

    :raises CommandError: if it doesn't end in time.
    """
    argv = [sys.executable, "-m", "pytest", *args]
    done = runner.run(argv, cwd=cwd, env=env, timeout=timeout, ok_codes=range(-64, 256))
    return (done.stdout + done.stderr).decode("utf-8", "replace"), done.returncode


def run_cell(project: Project, cell: ProofCell, slot: int = 0, execute: Execute = in_its_own_process) -> CellResult:
    """Run one proof against one variant's trees, checked out in a place of their own."""
    machine = this_machine()
    proof, variant = cell.proof, cell.variant
    missing = [n for n in proof.needs if n not in machine.can]
    about: dict[str, Any] = {
        "machine": machine.facts(),
        "trees": dict(variant.trees),
        "left_out": variant.left_out,
    }
    if missing:
        return CellResult(
            proof=proof.title, variant=variant.kind, state=NOT_RUN, said=f"needs {', '.join(missing)}", **about
        )
    if not proof.files:
        return CellResult(
            proof=proof.title, variant=variant.kind, state=ERROR, said="the patch names no Proof:", **about
        )
    start = time.monotonic()
    folder = checkout(project, variant, slot)
    tests, said = run_pytest(project, folder, proof.files, timeout=cell.timeout, execute=execute)
    seconds = round(time.monotonic() - start, 2)
    state, words = state_of(tests, said)
    return CellResult(
        proof=proof.title,
        variant=variant.kind,
        state=state,
        tests=tuple(tests or ()),
        said=words,
        seconds=seconds,
        **about,
    )


def checkout(project: Project, variant: Variant, slot: int) -> Path:
    """Put a variant's trees into the slot's folder; only what differs from its last one is written."""
    root = project.layout.private / "prove" / f"slot{slot}"
    for upstream, tip in variant.tips.items():
        target = root / upstream
        index = root / f"{upstream}.index"
        target.mkdir(parents=True, exist_ok=True)
        env = {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(target)}
        project.store.run("read-tree", "--reset", "-u", tip, env=env)
        for path, nested in project.lock.nested_in(upstream).items():
            link = target / path
            # Relative, since a project that is copied or moved must read its own trees.
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


def run_pytest(
    project: Project,
    trees: Path,
    files: Sequence[str],
    *,
    cwd: Path | None = None,
    timeout: float | None = None,
    execute: Execute = in_its_own_process,
) -> tuple[list[dict[str, str]] | None, str]:
    """Run test files against trees in a process of its own; returns each test's outcome, and what pytest said.

    The outcomes are None if the process was killed from outside.

    :param cwd: where to run, the project's folder by default.
    :param timeout: seconds; past it there are no outcomes and what was said tells so.
    :raises EnvironmentFault: if this Python has no pytest.
    """
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        results = Path(text) / "results.json"
        packages = {
            u.build.package: str(trees / u.name)
            for u in project.lock.upstreams.values()
            if u.build and (trees / u.name).is_dir()
        }
        env = {
            "PATCHQ_TREES": str(trees),
            "PATCHQ_IMPORTS": json.dumps(packages),
            "PATCHQ_RESULTS": str(results),
            # Trees change between runs faster than the clock that bytecode is compared by.
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            "CUDA_CACHE_DISABLE": "1",
        }
        options = ["-q", "-p", "patchq.testing", "-p", "no:cacheprovider", "-o", "addopts=", "--no-header"]
        try:
            said, code = execute([*options, *files], env, cwd or project.layout.root, timeout)
        except runner.CommandError as error:
            return [], error.said
        data = fsio.read_or_none(results)
        if data is None and _NO_PYTEST.search(said):
            raise EnvironmentFault(
                f"{sys.executable} has no pytest, which runs the proofs",
                hint=f"{shlex.join([sys.executable])} -m pip install pytest",
            )
        if data is None and code < 0:
            said += f"\nthe process was killed by signal {-code}"
        killed = data is None and -code in _FROM_OUTSIDE
        return (None if killed else json.loads(data or b"[]")), said
