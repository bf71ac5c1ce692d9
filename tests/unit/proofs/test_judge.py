"""A proof's state is that of its worst test: errors first, then failures, then what was skipped."""

from __future__ import annotations

import itertools

import pytest

from patchq.formats.outcomes import ProofState
from patchq.proofs.judge import state_of

#: Outcomes of a test in the order in which they decide, with the state and the reason.
OUTCOMES = {
    "error": (ProofState.ERROR, "test_error: no module"),
    "assertion": (ProofState.FAILED, "test_assertion: assert 1 == 2"),
    "skipped": (ProofState.NOT_RUN, "needs nvcc"),
    "passed": (ProofState.PASSED, "1 test"),
}
MESSAGES = {"error": "Traceback\nno module\n", "assertion": "assert 1 == 2\nmore", "skipped": "not run: needs nvcc"}


def outcome_of(kind: str) -> dict[str, str]:
    return {"test": f"test_{kind}", "outcome": kind, "message": MESSAGES.get(kind, "")}


@pytest.mark.parametrize("kinds", [k for n in (1, 2, 3, 4) for k in itertools.permutations(OUTCOMES, n)], ids="-".join)
def test_the_worst_test_decides(kinds: tuple[str, ...]) -> None:
    worst = next(kind for kind in OUTCOMES if kind in kinds)
    assert state_of([outcome_of(kind) for kind in kinds], "") == OUTCOMES[worst]


@pytest.mark.parametrize(
    ("tests", "output", "expected"),
    [
        (None, "killed by signal 9\n", (ProofState.NO_RESULT, "killed by signal 9")),
        (None, "", (ProofState.NO_RESULT, "the process was killed")),
        ([], "collected\nno tests ran\n", (ProofState.ERROR, "no test ran: no tests ran")),
        ([], "", (ProofState.ERROR, "no test ran: pytest printed nothing")),
    ],
)
def test_without_tests_the_output_is_the_reason(
    tests: list[dict[str, str]] | None, output: str, expected: tuple[str, str]
) -> None:
    assert state_of(tests, output) == expected
