"""Evaluation of results: from the outcomes of tests to the state of a cell and the verdict on a proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from patchq.formats.outcomes import ProofState
from patchq.names import counted
from patchq.proofs.plan import MUTANT, WITH, WITHOUT, Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """Result of a cell: its state, the test outcomes and the machine."""

    proof: str
    variant: str
    state: ProofState
    tests: tuple[dict[str, str], ...] = ()
    message: str = ""
    seconds: float = 0.0
    machine: Mapping[str, str] = field(default_factory=dict)
    trees: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    cached: bool = False


def is_kept(result: CellResult) -> bool:
    """Return whether a result may be cached. A cached result must depend only on the inputs in its key.

    An error may be caused by the environment, for example by a missing package or compiler, so it isn't
    cached. An error of a mutant is cached: the mutant caused it, because its proof has just passed on the
    unchanged trees.
    """
    if result.state == ProofState.ERROR:
        return result.variant == MUTANT
    return result.state in (ProofState.PASSED, ProofState.FAILED)


def result_of(raw: Mapping[str, object]) -> CellResult | None:
    """Return a cell's result, parsed from a JSON object; None if the object is invalid."""
    kinds: dict[str, Any] = {
        "seconds": (int, float),
        "machine": dict,
        "trees": dict,
        "tests": list,
        "left_out": list,
        "cached": bool,
    }
    names = {f.name for f in fields(CellResult)}
    if set(raw) - names or not {"proof", "variant", "state"} <= set(raw):
        return None
    for name, value in raw.items():
        if not isinstance(value, kinds.get(name, str)):
            return None
    checked: dict[str, Any] = {"tests": [], "left_out": [], "machine": {}, "trees": {}, **raw}
    texts = [*checked["left_out"], *checked["machine"].values(), *checked["trees"].values()]
    for test in checked["tests"]:
        if not isinstance(test, dict) or not {"test", "outcome", "message"} <= set(test):
            return None
        texts += test.values()
    if not all(isinstance(text, str) for text in texts):
        return None
    if checked["state"] not in tuple(ProofState):
        return None
    checked.update(
        state=ProofState(checked["state"]), tests=tuple(checked["tests"]), left_out=tuple(checked["left_out"])
    )
    return CellResult(**checked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict on a proof. ``state`` is one of these:

    - ``proven``: passed with the patch and failed without it
    - ``passed``: passed with the patch; the run without it was not requested
    - ``failed``, ``not proven``, ``not run``, ``no result`` or ``no proof``
    """

    proof: Proof
    state: ProofState
    message: str
    cells: tuple[CellResult, ...]
    command: str = ""

    @property
    def ok(self) -> bool:
        return self.state in (ProofState.PROVEN, ProofState.PASSED)

    @property
    def fails(self) -> bool:
        """True if the proof failed or is not proven, or if a required proof is missing."""
        if self.state == ProofState.NO_PROOF:
            return self.proof.required
        return self.state in (ProofState.FAILED, ProofState.NOT_PROVEN)


def state_of(tests: Sequence[Mapping[str, str]] | None, message: str) -> tuple[ProofState, str]:
    """Return the state of a cell according to the outcomes of its tests, and the reason.

    Errors take precedence over failures: a proof that can't be imported shows nothing, even if other tests
    failed.

    :param tests: outcomes of the tests; None if the process was killed from outside.
    """
    if tests is None:
        return ProofState.NO_RESULT, (message.strip().splitlines() or ["the process was killed"])[-1]
    first: dict[str, Mapping[str, str]] = {}
    for test in tests:
        first.setdefault(test["outcome"], test)
    if error := first.get("error"):
        return (
            ProofState.ERROR,
            f"{error['test']}: {error['message'].strip().splitlines()[-1] if error['message'].strip() else 'error'}",
        )
    if failure := first.get("assertion"):
        return (
            ProofState.FAILED,
            f"{failure['test']}: {failure['message'].splitlines()[0] if failure['message'] else 'failed'}",
        )
    if skipped := first.get("skipped"):
        return ProofState.NOT_RUN, skipped["message"].removeprefix("not run: ") or "skipped"
    if not tests:
        return ProofState.ERROR, "no test ran: " + (message.strip().splitlines() or ["pytest printed nothing"])[-1]
    return ProofState.PASSED, counted(len(tests), "test")


def verdict_of(proof: Proof, cells: Sequence[CellResult], prove: bool) -> Verdict:
    """Return the verdict on a proof from the results of its cells."""
    by_kind = {c.variant: c for c in cells}
    here = by_kind[WITH]
    again = f"patchq test {proof.name}" + (" --prove" if prove else "")
    if here.state == ProofState.NO_PROOF:
        return Verdict(proof=proof, state=ProofState.NO_PROOF, message=here.message, cells=tuple(cells))
    if here.state == ProofState.NOT_RUN:
        return Verdict(proof=proof, state=ProofState.NOT_RUN, message=here.message, cells=tuple(cells), command=again)
    if broken := next((c for c in cells if c.state == ProofState.NO_RESULT), None):
        return Verdict(
            proof=proof,
            state=ProofState.NO_RESULT,
            message=f"{broken.variant} the patch: {broken.message}",
            cells=tuple(cells),
            command=again,
        )
    if here.state != ProofState.PASSED:
        return Verdict(
            proof=proof,
            state=ProofState.FAILED,
            message=f"with the patch: {here.message}",
            cells=tuple(cells),
            command=again,
        )
    if not prove:
        return Verdict(
            proof=proof, state=ProofState.PASSED, message=counted(len(here.tests), "test"), cells=tuple(cells)
        )
    gone = by_kind[WITHOUT]
    if gone.state == ProofState.FAILED:
        failures = [t for t in gone.tests if t["outcome"] == "assertion"]
        first = ""
        if failures and failures[0]["message"]:
            first = failures[0]["message"].splitlines()[0][:160]
        return Verdict(
            proof=proof,
            state=ProofState.PROVEN,
            message=f"without the patch, {len(failures)} of {len(gone.tests)} fail: {first}",
            cells=tuple(cells),
        )
    if gone.state == ProofState.PASSED:
        message = "passes without the patch: the proof can't fail, or upstream already has the change"
    elif gone.state == ProofState.ERROR:
        message = f"without the patch, the proof ends with an error, not a failed assertion: {gone.message}"
    else:
        message = f"without the patch: {gone.message}"
    return Verdict(proof=proof, state=ProofState.NOT_PROVEN, message=message, cells=tuple(cells), command=again)
