"""Output of the resolutions that patchq proposes for a stopped patch. A proposal that the user confirms is kept."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from patchq.cli.common import as_dicts, emit
from patchq.cli.terminal import ask_number, echo
from patchq.rebase.resolve import PASSES_WITH
from patchq.rebase.state import RebaseState
from patchq.resolutions.propose import StrategyOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from patchq.project.project import Project
    from patchq.rebase.resolve import Resolution
    from patchq.rebase.state import Result
    from patchq.resolutions.propose import Proposals, ProposedResolution, StrategyAttempt

    Show = Callable[[Result, int], None]

_MOST_LINES = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """Options of ``rebase --propose``."""

    take: int | None
    yes: bool
    tools: tuple[str, ...]
    mergers: tuple[str, ...]
    proofs: bool


def propose(project: Project, upstream: str, wish: Wish, show: Show, *, as_json: bool) -> None:
    """Propose resolutions for a stopped patch, or keep a proposal of the last call.

    :param show: function that prints a rebase's result. Its second argument is the number of steps to skip.
    """
    from patchq.proofs.prove import prove_at
    from patchq.resolutions import propose as proposing

    prove = partial(prove_at, project)
    found, number = None, wish.take or 0
    if not number:
        request = proposing.ProposeRequest(mergers=wish.mergers, tools=wish.tools, proofs=wish.proofs)
        found = proposing.propose(project, upstream, request, prove=prove)
        if not as_json:
            _show(found)
        number = _choice(found, yes=wish.yes, as_json=as_json)
    kept = None
    if number:
        kept = proposing.take(project, upstream, number, prove=prove, proofs=wish.proofs)
    if as_json:
        emit("rebase-propose", _body(upstream, found, kept, number if kept and kept.kept else 0))
    elif kept:
        _show_kept(kept, show)
    if kept and kept.refused:
        raise click.exceptions.Exit(5)
    if kept is None or kept.rebase is None or kept.rebase.state == RebaseState.STOPPED:
        raise click.exceptions.Exit(3)


def _choice(found: Proposals, *, yes: bool, as_json: bool) -> int:
    """Return the number of the proposal that the user wants to keep, or 0."""
    count = len(found.proposals)
    if yes:
        if count > 1 and not as_json:
            echo(f"{count} proposals: choose one with --take, such as `--take 1`", err=True)
        if count == 1:
            return 1
        return 0
    if not count or as_json or not _on_terminal():
        return 0
    return ask_number("Number of the proposal to keep (0: none)", count)


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _body(upstream: str, found: Proposals | None, kept: Resolution | None, number: int) -> dict[str, object]:
    proposals = []
    if found:
        proposals = as_dicts(found.proposals)
    tried = []
    if found:
        tried = [{**asdict(attempt), "outcome": attempt.outcome.value} for attempt in found.tried]
    return {
        "upstream": upstream,
        "patch": found.patch if found else kept.patch if kept else "",
        "proposals": proposals,
        "tried": tried,
        "kept": number,
        "refused": [check.name for check in kept.refused] if kept else [],
        "rebase": asdict(kept.rebase) if kept and kept.rebase else None,
    }


def _show(found: Proposals) -> None:
    """Print the proposals with their checks and diffs. Then print why the other strategies made no proposal."""
    for proposal in found.proposals:
        _show_proposal(proposal)
    if not found.proposals:
        echo(f"no proposal for {found.upstream}/{found.patch}", fg="yellow")
    for attempt in found.tried:
        if attempt.outcome is not StrategyOutcome.PROPOSED:
            echo(f"not proposed: {attempt.strategy}: {_why_not(attempt)}")
    if found.proposals:
        echo(f"next: `patchq rebase {found.upstream} --propose --take 1` keeps proposal 1 and continues the rebase")


def _show_proposal(proposal: ProposedResolution) -> None:
    echo(f"{proposal.number}: {', '.join(proposal.strategies)}", bold=True)
    for check in proposal.checks:
        echo(f"  {check.name}: {check.state}: {check.message}")
    if not any(check.name == PASSES_WITH for check in proposal.checks):
        echo("  no proof was run (`--no-proof`)")
    for path in proposal.unread:
        echo(f"  not compiled: {path}")
    if proposal.carries or proposal.stops:
        echo(f"  {proposal.carries} later patches apply on top of this resolution, {proposal.stops} stop")
    lines = proposal.diff.splitlines()
    for line in lines[:_MOST_LINES]:
        echo(f"  {line}", fg={"+": "green", "-": "red"}.get(line[:1]))
    if len(lines) > _MOST_LINES:
        echo(f"  … {len(lines) - _MOST_LINES} more lines (`--json` has all)")


#: Reasons why a strategy gives no proposal. For outcomes without a reason, only the place is shown.
_WHY_NOT = {
    StrategyOutcome.CONFLICT: "a conflict is left",
    StrategyOutcome.LOST_CHANGE: "the result lacks a change of one side: {where}",
    StrategyOutcome.MADE_TWICE: "both sides add this line, and the result has it twice: {where}",
    StrategyOutcome.STALE_NAME: "one side removes a name that the other side uses: {where}",
    StrategyOutcome.MISPLACED: "whitespace may have a meaning in {where}",
}


def _why_not(attempt: StrategyAttempt) -> str:
    return _WHY_NOT.get(attempt.outcome, "{where}").format(where=attempt.where)


def _show_kept(kept: Resolution, show: Show) -> None:
    """Print the result of keeping a proposal."""
    if kept.refused:
        for check in kept.refused:
            echo(f"{check.name}: {check.state}: {check.message}", fg="red")
        echo(f"{kept.upstream}/{kept.patch} was not resolved; nothing was changed", err=True)
        return
    assert kept.rebase
    show(kept.rebase, max(len(kept.rebase.steps) - 1, 0))
