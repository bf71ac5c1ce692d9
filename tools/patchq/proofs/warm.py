"""Runs of proofs in forks of a process with preloaded modules: :mod:`patchq.proofs._forked`.

When a proof runs with and without its patch, the result of a fork is used only if it is the expected result:
passed with the patch, failed without it. Otherwise, the proof runs again in a new process. For a mutant, both
results are possible. Therefore, a proof's mutants run in forks only if the proof has passed in forks on the
unchanged trees. Otherwise, each mutant runs in a new process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from patchq.environment.machine import this_machine
from patchq.formats.outcomes import ProofState
from patchq.project.project import Project
from patchq.proofs.judge import CellResult
from patchq.proofs.plan import WITH, WITHOUT, ProofCell
from patchq.proofs.run import Execute, in_its_own_process, in_slots, run_cell, run_here
from patchq.system import runner

#: Minimum number of cells for forks. Running fewer cells takes less time than preloading torch.
FEW = 8
_EXPECTED = {WITH: ProofState.PASSED, WITHOUT: ProofState.FAILED}


class Warm:
    """Runner of cells in forks. Call it to run mutants.

    :ivar unchanged: cell with the unchanged trees, by proof. If a proof has no such cell, its mutants run in new
        processes.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.unchanged: dict[str, ProofCell] = {}
        self._stack = stack
        self._servers: dict[int, runner.Running] = {}
        self._how: dict[tuple[int, str], Execute] = {}

    def __call__(self, project: Project, cells: Sequence[ProofCell]) -> Iterable[CellResult]:
        """Run cells in parallel, one per core."""

        def run(cell: ProofCell, slot: int) -> CellResult:
            return run_cell(project, cell, slot, self._rehearsed(project, cell.proof.name, slot))

        return in_slots(project, cells, run)

    def believed(self, project: Project, cell: ProofCell, slot: int) -> CellResult:
        """Run a cell in a fork. If the result isn't the expected one, run the cell again in a new process."""
        forked = run_cell(project, cell, slot, self._in_fork(project, slot, learn=True))
        if forked.state == _EXPECTED.get(cell.variant.kind):
            return forked
        return run_cell(project, cell, slot)

    def _rehearsed(self, project: Project, proof: str, slot: int) -> Execute:
        """Return the function that runs a proof in a slot.

        The proof is tried in two forked processes: the first reports the proof's imports, the second starts with
        these imports preloaded. If the proof passes in both, later runs use forked processes. Otherwise, each
        run starts a new Python.
        """
        if (slot, proof) not in self._how:
            how: Execute = in_its_own_process
            cell = self.unchanged.get(proof)
            if cell:
                execute = self._in_fork(project, slot, learn=True)
                if run_cell(project, cell, slot, execute).state == ProofState.PASSED:
                    execute = self._in_fork(project, slot, learn=False)
                    if run_cell(project, cell, slot, execute).state == ProofState.PASSED:
                        how = execute
            self._how[slot, proof] = how
        return self._how[slot, proof]

    def _in_fork(self, project: Project, slot: int, learn: bool) -> Execute:
        trees = project.layout.private / "prove" / f"slot{slot}"

        def execute(args: Sequence[str], env: Mapping[str, str], cwd: Path, timeout: float | None) -> tuple[str, int]:
            if slot not in self._servers:
                argv = [sys.executable, "-m", "patchq.proofs._forked"]
                self._servers[slot] = self._stack.enter_context(runner.answering(argv, cwd=cwd, env=env))
            server = self._servers[slot]
            assert server.stdin is not None
            assert server.stdout is not None
            job: dict[str, object] = {
                "args": list(args),
                "env": runner.clean_environment(env),
                "cwd": str(cwd),
                "trees": str(trees),
                "bytecode": str(trees.with_name("bytecode")),
                "timeout": timeout,
                "learn": learn,
            }
            try:
                server.stdin.write(json.dumps(job).encode() + b"\n")
                server.stdin.flush()
                line = server.stdout.readline()
            except BrokenPipeError:
                line = b""
            if not line:  # the server ended, perhaps out of memory: no result
                del self._servers[slot]
                return in_its_own_process(args, env, cwd, timeout)
            answer: dict[str, Any] = json.loads(line)
            if not answer["ended"]:
                raise runner.CommandError(
                    ["pytest", *args], runner.TIMED_OUT, b"", answer["message"].encode() + b"\nno answer in time"
                )
            return str(answer["message"]), int(answer["code"])

        return execute


@contextmanager
def warm() -> Iterator[Warm]:
    """Yield a :class:`Warm`, and end its processes afterwards."""
    with ExitStack() as stack:
        yield Warm(stack)


def run_in_forks(project: Project, cells: Sequence[ProofCell]) -> Iterable[CellResult]:
    """Run cells in parallel. Use forks if there are at least :data:`FEW` cells.

    On a machine with a GPU, each cell runs in a new process, because a fork can't use the GPU after its
    parent has used it.
    """
    if len(cells) < FEW or this_machine().gpu:
        yield from run_here(project, cells)
        return
    with warm() as forks:
        yield from in_slots(project, cells, lambda cell, slot: forks.believed(project, cell, slot))
