"""Next step for each stack in a report: the state of the stack, and the command to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from patchq.names import proof_path, sh
from patchq.report.ahead import Ahead
from patchq.stacks.views import StackState, StackStatus, WorktreeState


class NextStep(str, Enum):
    """State of a stack that determines the next command. If several states apply, the first one is used."""

    NO_PATCHES = "no patches"
    APPLY = "apply"
    EXPORT = "export"
    EDITED = "edited"
    PROOF_FAILS = "proof fails"
    NO_PROOF = "no proof"
    NOT_LOOKED_AT = "not looked at"
    REVIEW = "review"
    CARRY = "carry"
    CARRIED = "carried"
    NEWEST = "newest pin"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackTodo:
    """Next step for one stack.

    :ivar onto: newer pinned ref to which the step refers, if any.
    :ivar patches: patches to which the step refers.
    """

    upstream: str
    ref: str
    step: NextStep
    command: str
    onto: str = ""
    patches: tuple[str, ...] = ()


def proof_command(patch: str, set_option: str) -> str:
    """Return the command that adds the ``Proof:`` trailer to a patch. The user runs it after writing the test."""
    return f"patchq reword {sh(patch)} --trailer {sh(f'Proof: {proof_path(patch)}')}{set_option}"


def next_step(
    stack: StackStatus, failing: Sequence[str], lacking: Sequence[str], ahead: Sequence[Ahead], set_option: str
) -> StackTodo:
    """Return the next step for a stack.

    :param failing: patches of the stack that are not proven.
    :param lacking: patches of the stack that have no proof, although the last run of the proofs required one.
    :param ahead: newer pinned refs of the stack's upstream, oldest first.
    :param set_option: `` --set SET``, or an empty string for the default set.
    """
    name = stack.upstream
    if ahead:
        step = NextStep.CARRIED
    else:
        step = NextStep.NEWEST
    command, onto = f"patchq forecast {sh(name)} --newest{set_option}", ""
    patches: tuple[str, ...] = ()
    # A ref with a stack of its own was carried already.
    open_refs = [release for release in ahead if not release.has_stack]
    if not stack.total:
        step, command = NextStep.NO_PATCHES, f"patchq import {sh(name)} PATH"
    elif stack.state is not StackState.APPLIED or stack.worktree is WorktreeState.MISSING:
        step, command = NextStep.APPLY, f"patchq apply{set_option}"
    elif stack.worktree is WorktreeState.COMMITS:
        step, command = NextStep.EXPORT, f"patchq export {sh(name)}"
    elif stack.worktree is not WorktreeState.CLEAN:
        step, command = NextStep.EDITED, f"patchq status{set_option}"
    elif failing:
        step, patches = NextStep.PROOF_FAILS, tuple(failing)
        command = f"patchq test {' '.join(map(sh, failing))} --prove{set_option}"
    elif lacking:
        step, patches = NextStep.NO_PROOF, tuple(lacking)
        command = proof_command(lacking[0], set_option)
    elif open_refs:
        release = open_refs[0]
        onto, patches = release.ref, tuple(patch for patch, _ in release.needs)
        if patches:
            step = NextStep.REVIEW
        else:
            step = NextStep.CARRY
        command = f"patchq rebase {sh(name)} --onto {sh(onto)}{set_option}"
        if release.unknown:
            step, patches = NextStep.NOT_LOOKED_AT, release.unknown
            command = f"patchq forecast {sh(name)} --onto {sh(onto)}{set_option}"
    return StackTodo(upstream=name, ref=stack.ref, step=step, command=command, onto=onto, patches=patches)
