"""Outcomes of the steps of a script or Dockerfile. ``patchq.cli.replayed`` converts them to text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from patchq.errors import UserError
from patchq.names import TreeId


class StepStatus(str, Enum):
    """Treatment of a step: whether its change becomes a patch."""

    #: The step's changes become a patch.
    TAKEN = "taken"
    #: The step changes the package, or should change it, but can't become a patch.
    REFUSED = "refused"
    #: The step may change the package.
    NOT_UNDERSTOOD = "not understood"
    #: The step can't change the package.
    UNRELATED = "unrelated"


class Reason(str, Enum):
    """Reason why a step is skipped or refused."""

    FAILED = "failed"
    TOO_LONG = "exceeds the time limit"
    CHANGES_NOTHING = "changes nothing"
    PARTLY_NOTHING = "changes nothing in part"
    NETWORK = "needs the network"
    NO_PROGRAM = "program is missing"
    OTHER_VERSION = "installs another version"
    REINSTALLS = "installs the package again"
    UNINSTALLS = "uninstalls the package"
    DEPENDENCIES = "may install another version as a dependency"
    UNKNOWN_INSTALL = "installs an unknown package"
    MISSING_SOURCE = "source is missing"
    OTHER_IMAGE = "copies from another image"
    OTHER_STAGE = "is not part of the last stage"
    UNSET_VARIABLE = "variable has no value"
    AT_START = "runs when the container starts"
    NOT_OF_SOURCE = "changes files that the source doesn't have"
    NO_WHEEL = "release's wheel is not available"
    NEXT_TO_IT = "adds files next to the package"
    SHADOWS = "puts other folders before the package"
    UNKNOWN = "is not a known instruction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Outcome of one step.

    :ivar where: file and line of the step.
    :ivar text: the step as written.
    :ivar paths: affected files, escaped for printing.
    :ivar words: names to insert into the message: programs, requirements or variables.
    :ivar code: exit code of a failed command.
    :ivar message: end of the command's standard error.
    :ivar trees: trees before and after the step, if its change becomes a patch.
    :ivar comment: comment above the step.
    :ivar alone: True if a shell command needs no earlier command, such as `cd`.
    """

    where: str
    text: str
    status: StepStatus
    reason: Reason | None = None
    paths: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    code: int = 0
    message: str = ""
    trees: tuple[TreeId, TreeId] | None = None
    comment: str = ""
    alone: bool = False


class NotTaken(UserError):
    """Error for steps that can't become patches, although they change the package or should change it.

    :ivar taken: number of steps that could become patches.
    """

    def __init__(self, accounts: Sequence[Account], taken: int = 0) -> None:
        lines = []
        for account in accounts:
            if account.reason:
                reason = account.reason.value
            else:
                reason = account.status.value
            lines.append(f"{account.where}: `{short(account.text)}`: {reason}")
        super().__init__("\n".join(lines), hint="")
        self.accounts, self.taken = tuple(accounts), taken


def short(text: str) -> str:
    """Return the first line of a step's text, and the number of lines if there are more."""
    first, *rest = text.strip().split("\n")
    return first + (f" … ({len(rest) + 1} lines)" if rest else "")
