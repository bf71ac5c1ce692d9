"""A verb that meets a fault at one of its system calls."""

from __future__ import annotations

from kit import Patchq
from tracer import Fault, Outcome, traced

FAULTS = [Fault.KILL_ALL, Fault.KILL_ONE, Fault.DISK_FULL]


def meddled(patchq: Patchq, args: tuple[str, ...], fault: Fault = Fault.NONE, at: int = 0) -> Outcome:
    """Run a verb in a child that meets ``fault`` at stop ``at``."""
    return traced(lambda: patchq.run(*args).exit_code, fault, at)


def check_answer(outcome: Outcome, fault: Fault) -> None:
    """What a command says of a fault: a failure of the surroundings is no bug, and no success."""
    if fault is Fault.KILL_ALL:
        assert outcome.exit_code == -9, f"exit code {outcome.exit_code}"
    else:
        assert outcome.exit_code in (0, 1, 3, 5, -9), f"exit code {outcome.exit_code}"
