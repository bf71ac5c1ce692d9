"""Mutations that a person thought of: the lines are still the patches', and in the long form each proof sees its own.

    pytest tests/stacks/test_by_hand.py -m mutants
    PATCHQ_SET=gb10-newest pytest tests/stacks/test_by_hand.py -m mutants
    pytest tests/stacks/test_by_hand.py -m mutants -k mxfp4-qkv-o

makes a tree for each of a set, in that set's environment, and runs the patch's proof on it, as `patchq test --mutate`
does; what has an answer is kept.
"""

from __future__ import annotations

import os

import blind_gb10
import blind_gb10_newest
import by_hand_flashinfer
import by_hand_flashinfer_newest
import by_hand_lm_head_newest
import by_hand_vllm
import by_hand_vllm_kernels
import by_hand_vllm_newest
import by_hand_vllm_newest_attention
import pytest
from by_hand_vllm import ByHand
from mutants import content_of, forks_of, run_mutants, whole_of

from patchq.formats.outcomes import ProofState

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

#: The second list: blind.py runs it, once.
BLIND = {"gb10": blind_gb10.MUTANTS, "gb10-newest": blind_gb10_newest.MUTANTS}


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        pytest.param(name, mutant, id=mutant.name.replace(" ", "_"))
        for lists in (MUTANTS, BLIND)
        for name in lists
        for mutant in lists[name]
    ],
)
def test_its_lines_are_the_patchs(name: str, mutant: ByHand) -> None:
    whole = whole_of(name)
    content = content_of(whole, mutant)
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
    with forks_of(whole, patch) as forks:
        results = run_mutants(whole, mutants, forks, timeout=900.0)
    states = {mutant.name: result.state for mutant, result in zip(mutants, results, strict=True)}
    assert {name: state for name, state in states.items() if state not in (ProofState.FAILED, ProofState.ERROR)} == {}
