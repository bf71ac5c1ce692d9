"""Mutations that a person thought of: the lines are still the patches', and in the long form each proof sees its own.

    pytest tests/stacks/test_by_hand.py -m mutants
    PATCHQ_SET=gb10-newest pytest tests/stacks/test_by_hand.py -m mutants
    pytest tests/stacks/test_by_hand.py -m mutants -k mxfp4-qkv-o

makes a tree for each of a set, in that set's environment, and runs the patch's proof on it, as `patchq test --mutate`
does; what has an answer is kept.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import by_hand_flashinfer
import by_hand_flashinfer_newest
import by_hand_lm_head_newest
import by_hand_vllm
import by_hand_vllm_kernels
import by_hand_vllm_newest
import by_hand_vllm_newest_attention
import pytest
from by_hand_vllm import ByHand

from patchq.environment.machine import this_machine
from patchq.project.project import Project
from patchq.proofs.judge import ERROR, FAILED
from patchq.proofs.plan import ProofCell, WholeSet, planning, proofs_of, result_key
from patchq.proofs.prove import run_cells_kept
from patchq.proofs.warm import warm

ROOT = Path(__file__).resolve().parents[2]
SET = os.environ.get("PATCHQ_SET") or "gb10"
MUTANTS = {
    "gb10": [
        *by_hand_vllm.MUTANTS,
        *by_hand_vllm_kernels.DEFAULT,
        *(ByHand(*mutant) for mutant in by_hand_flashinfer.MUTANTS),
    ],
    "gb10-newest": [
        *by_hand_vllm_newest.MUTANTS,
        *by_hand_vllm_newest_attention.MUTANTS,
        *by_hand_vllm_kernels.NEWEST,
        *by_hand_lm_head_newest.MUTANTS,
        *(ByHand(*mutant) for mutant in by_hand_flashinfer_newest.MUTANTS),
    ],
}


@functools.cache
def whole_of(name: str) -> WholeSet:
    """Return the planned set."""
    project = Project.find(ROOT, wait=600)
    with planning(project, project.choose_set(name)) as found:
        return found


def content_of(whole: WholeSet, mutant: ByHand) -> bytes:
    """The patched file as it is."""
    tip = whole.variant.tips[mutant.patch.partition("/")[0]]
    [entry] = whole.store.list_tree(tip, [mutant.path.encode()]).values()
    return whole.store.read_blobs([entry.blob])[entry.blob]


@pytest.mark.parametrize(
    ("name", "mutant"),
    [pytest.param(name, mutant, id=mutant.name.replace(" ", "_")) for name in MUTANTS for mutant in MUTANTS[name]],
)
def test_its_lines_are_the_patchs(name: str, mutant: ByHand) -> None:
    whole = whole_of(name)
    content = content_of(whole, mutant).decode()
    assert content.count(mutant.old) == 1
    assert mutant.old != mutant.new
    upstream, _, patch_name = mutant.patch.partition("/")
    (stack,) = [s for s in whole.stacks if s.pin.upstream == upstream]
    patch = stack.path(patch_name).read_text()
    added = [line[1:] for line in patch.splitlines() if line.startswith("+")]
    words = [line.strip() for line in mutant.old.splitlines() if len(line.strip()) > 1]
    assert any(word in line for word in words for line in added), "no line of the patch's"


@pytest.mark.mutants
@pytest.mark.parametrize("patch", dict.fromkeys(mutant.patch for mutant in MUTANTS.get(SET, [])))
def test_its_proof_sees_it(request: pytest.FixtureRequest, patch: str) -> None:
    if "mutants" not in request.config.getoption("markexpr"):
        pytest.skip("takes minutes: pytest tests/stacks/test_by_hand.py -m mutants")
    whole, mutants = whole_of(SET), [mutant for mutant in MUTANTS[SET] if mutant.patch == patch]
    project, machine = whole.project, this_machine()
    proof = proofs_of(whole.stacks, [patch])[0]
    with warm() as forks:
        key = result_key(project, proof, whole.variant, machine)
        forks.unchanged[patch] = ProofCell(proof=proof, variant=whole.variant, key=key, set_name=whole.set_name)
        cells = []
        for mutant in mutants:
            changed = content_of(whole, mutant).decode().replace(mutant.old, mutant.new).encode()
            (variant,) = whole.mutants(proof.upstream, [(mutant.path, changed)])
            cells.append(
                ProofCell(
                    proof=proof,
                    variant=variant,
                    key=result_key(project, proof, variant, machine),
                    set_name=whole.set_name,
                    timeout=900.0,
                )
            )
        results = run_cells_kept(project, cells, machine, False, forks, lambda _: None)
    states = {m.name: results[cell.key].state for m, cell in zip(mutants, cells, strict=True)}
    assert {name: state for name, state in states.items() if state not in (FAILED, ERROR)} == {}
