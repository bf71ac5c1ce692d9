"""Mutants that are written down: the patched file of one, and the run of its patch's proof on it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from by_hand_vllm import ByHand

from patchq.environment.machine import this_machine
from patchq.project.project import Project
from patchq.proofs.judge import CellResult
from patchq.proofs.plan import ProofCell, WholeSet, planning, proofs_of, result_key
from patchq.proofs.prove import run_cells_kept
from patchq.proofs.warm import Warm, warm

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def whole_of(name: str) -> WholeSet:
    """Return the planned set."""
    project = Project.find(ROOT, wait=600)
    with planning(project, project.choose_set(name)) as found:
        return found


def content_of(whole: WholeSet, mutant: ByHand) -> str:
    """Return the patched file without the mutation."""
    tip = whole.variant.tips[mutant.patch.partition("/")[0]]
    [entry] = whole.store.list_tree(tip, [mutant.path.encode()]).values()
    return whole.store.read_blobs([entry.blob])[entry.blob].decode()


@contextmanager
def forks_of(whole: WholeSet, patch: str) -> Iterator[Warm]:
    """Yield a process for the mutants of a patch, in which its proof must pass unchanged before it runs any."""
    proof = proofs_of(whole.stacks, [patch])[0]
    key = result_key(whole.project, proof, whole.variant, this_machine())
    with warm() as forks:
        forks.unchanged[patch] = ProofCell(proof=proof, variant=whole.variant, key=key, set_name=whole.set_name)
        yield forks


def run_mutants(whole: WholeSet, mutants: Sequence[ByHand], forks: Warm, timeout: float) -> list[CellResult]:
    """Run the proof of the mutants' patch on each of them.

    :param timeout: seconds for one mutant.
    :raises AssertionError: if a file doesn't have the lines of a mutant exactly once.
    """
    project, machine = whole.project, this_machine()
    cells = []
    for mutant in mutants:
        proof = proofs_of(whole.stacks, [mutant.patch])[0]
        content = content_of(whole, mutant)
        assert content.count(mutant.old) == 1, mutant.name
        changed = content.replace(mutant.old, mutant.new).encode()
        (variant,) = whole.mutants(proof.upstream, [(mutant.path, changed)])
        key = result_key(project, proof, variant, machine)
        cells.append(ProofCell(proof=proof, variant=variant, key=key, set_name=whole.set_name, timeout=timeout))
    results = run_cells_kept(project, cells, machine, False, forks, lambda _: None)
    return [results[cell.key] for cell in cells]
