"""Propose resolutions for a stopped patch, and keep the one that the user chooses.

A proposal has passed every check of ``resolve``. When the user keeps it, these checks run again, as for any
other resolution.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from patchq.errors import StateError, UserError
from patchq.formats.outcomes import ProofState
from patchq.merge.patches import STOPS
from patchq.merge.threeway import carry
from patchq.names import CommitId, ProofRequest, TreeId
from patchq.project.project import Project
from patchq.rebase import stops
from patchq.rebase.conflict import Brief, brief
from patchq.rebase.resolve import (
    Candidate,
    Resolution,
    ResolutionCheck,
    ResolveRequest,
    Source,
    find_merger,
    judge,
    resolve,
)
from patchq.rebase.run import read_carried
from patchq.rebase.state import RebaseProgress, Stop, load, proposals_path, stopped
from patchq.rebase.stops import Prove
from patchq.resolutions import _programs
from patchq.resolutions._candidates import StrategyOutcome as StrategyOutcome
from patchq.resolutions._candidates import StrategyResult, candidates
from patchq.resolutions._sides import Sides
from patchq.system import fsio

_VERSION = 1
#: Structural merger that runs without being named, if it is installed.
_MERGER = "mergiraf"
_ID = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeRequest:
    """Options of :func:`propose`.

    :ivar mergers: names of the lock's mergers to try.
    :ivar tools: commands to try.
    :ivar proofs: True to run the patch's proof.
    """

    mergers: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    proofs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedResolution:
    """Proposed resolution, which has passed all checks.

    :ivar number: number of the proposal for :func:`take`, from 1.
    :ivar strategies: names of the strategies that produce this resolution.
    :ivar diff: diff of the resolved patch.
    :ivar unread: changed files whose syntax no parser has checked.
    :ivar carries: number of later patches that apply on top of the resolution.
    :ivar stops: number of later patches that don't apply on top of the resolution.
    """

    number: int
    strategies: tuple[str, ...]
    tree: TreeId
    checks: tuple[ResolutionCheck, ...]
    diff: str
    unread: tuple[str, ...]
    carries: int
    stops: int

    @property
    def how(self) -> str:
        """Return the ledger's text for this resolution."""
        return f"proposed by {', '.join(self.strategies)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyAttempt:
    """Result of one strategy, for the output.

    :ivar where: word, file, check or message that explains the outcome.
    """

    strategy: str
    outcome: StrategyOutcome
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals:
    """Proposals for a stopped patch, and the results of all strategies."""

    upstream: str
    patch: str
    onto: str
    proposals: tuple[ProposedResolution, ...]
    tried: tuple[StrategyAttempt, ...]


def propose(project: Project, upstream: str, request: ProposeRequest, *, prove: Prove) -> Proposals:
    """Return the resolutions of the stopped patch that pass all checks. The rebase isn't changed.

    :raises UserError: if no patch is stopped, or if a named merger isn't in the lock.
    """
    for name in request.mergers:
        find_merger(project.lock, name)
    report = None
    if request.tools:
        report = brief(project, upstream)
    with project.locked("rebase"):
        progress = load(project, upstream)
        stop = stopped(progress)
        (info,) = project.store.log(f"{progress.commits[stop.patch]}^!")
        sides = Sides(
            git=project.store,
            patch=info,
            ours=progress.tip,
            parked=CommitId(stop.parked),
            stages=tuple(stops.stop_stages(stop)),
        )
        trees: dict[TreeId, list[StrategyResult]] = {}
        tried: list[StrategyAttempt] = []
        for found in _every(project, sides, request, report):
            if found.tree:
                trees.setdefault(found.tree, []).append(found)
            else:
                tried.append(StrategyAttempt(strategy=found.strategy, outcome=found.outcome, where=found.where))
        proposals: list[ProposedResolution] = []
        once = _Once(prove)
        has_proof = bool(stops.header_of(project, progress, stop.patch).values("Proof"))
        for tree, same in trees.items():
            checks = _judge(project, progress, stop, tree, prove=once, proofs=request.proofs)
            refused = _refusal(checks, has_proof=has_proof)
            if refused:
                outcome = StrategyOutcome.REFUSED
            else:
                outcome = StrategyOutcome.PROPOSED
            for found in same:
                tried.append(StrategyAttempt(strategy=found.strategy, outcome=outcome, where=refused))
            if not refused:
                proposals.append(_proposal(project, progress, stop, tree, checks, same))
        numbered = tuple(replace(proposal, number=number) for number, proposal in enumerate(proposals, 1))
        _save(project, upstream, stop, numbered)
    return Proposals(
        upstream=upstream, patch=stop.patch, onto=progress.onto.ref, proposals=numbered, tried=tuple(tried)
    )


def take(project: Project, upstream: str, number: int, *, prove: Prove, proofs: bool = True) -> Resolution:
    """Keep a resolution of the last call of :func:`propose`, and continue the rebase.

    The checks run again; if one fails, nothing changes.

    :raises UserError: if the stopped patch has no proposal with this number.
    :raises EditedTreeError: if the conflict worktree has edits.
    """
    stop = stopped(load(project, upstream))
    known = _saved(project, upstream, stop)
    if not 1 <= number <= len(known):
        there = "there is none"
        if known:
            there = f"there are {len(known)}"
        raise UserError(
            f"no proposal {number} for {upstream}/{stop.patch}: {there}", hint=f"`patchq rebase {upstream} --propose`"
        )
    tree, how = known[number - 1]
    return resolve(project, upstream, Source(tree=tree, how=how), prove=prove, wish=ResolveRequest(proofs=proofs))


def _every(project: Project, sides: Sides, request: ProposeRequest, report: Brief | None) -> Iterator[StrategyResult]:
    """Yield the results of all strategies."""
    if not sides.stages:
        return
    yield from candidates(sides)
    programs = {name: find_merger(project.lock, name) for name in request.mergers}
    if _MERGER not in programs.values() and shutil.which(_MERGER):
        programs = {_MERGER: _MERGER, **programs}
    for name, program in programs.items():
        project.say(f"  the merger {name} …")
        yield _programs.by_merger(sides, name, program)
    for command in request.tools:
        assert report
        project.say(f"  {command} …")
        yield _programs.by_command(sides, command, report)


class _Once:
    """Proof runner that caches results by request. For example, all proposals share the run without the patch."""

    def __init__(self, prove: Prove) -> None:
        self._prove = prove
        self._known: dict[ProofRequest, tuple[ProofState, str]] = {}

    def __call__(self, request: ProofRequest) -> tuple[ProofState, str]:
        if request not in self._known:
            self._known[request] = self._prove(request)
        return self._known[request]


def _judge(
    project: Project, progress: RebaseProgress, stop: Stop, tree: TreeId, *, prove: Prove, proofs: bool
) -> list[ResolutionCheck]:
    step = stops.as_step(project, progress, stop, tree, "")
    wish = ResolveRequest(proofs=proofs)
    return judge(project, progress, stop, step, Candidate(tree, ""), prove=prove, wish=wish)


def _refusal(checks: Sequence[ResolutionCheck], *, has_proof: bool) -> str:
    """Return the name and message of the check that refuses a proposal; empty if no check does.

    A proof that can't run on this machine refuses the proposal. A patch without a proof doesn't.
    """
    for check in checks:
        if check.state == ProofState.FAILED or (check.state == ProofState.NOT_RUN and has_proof):
            return f"{check.name}: {check.message}"
    return ""


def _proposal(
    project: Project,
    progress: RebaseProgress,
    stop: Stop,
    tree: TreeId,
    checks: Sequence[ResolutionCheck],
    same: Sequence[StrategyResult],
) -> ProposedResolution:
    step = stops.as_step(project, progress, stop, tree, "")
    commit = CommitId(step.commit)
    later = progress.order[len(progress.done) + 1 :]
    stopping = 0
    if later:
        patches = read_carried(project, progress, later)
        (column,) = carry(project.store, patches, [commit], progress.old_base)
        stopping = sum(landing.outcome in STOPS for landing in column.landings.values())
    return ProposedResolution(
        number=0,
        strategies=tuple(found.strategy for found in same),
        tree=tree,
        checks=tuple(checks),
        diff=project.store.diffs_of([commit])[0].decode("utf-8", "replace"),
        unread=same[0].unread,
        carries=len(later) - stopping,
        stops=stopping,
    )


# The last proposals


def _save(project: Project, upstream: str, stop: Stop, proposals: Sequence[ProposedResolution]) -> None:
    kept = [{"tree": proposal.tree, "how": proposal.how} for proposal in proposals]
    state = {"version": _VERSION, "patch": stop.patch, "parked": stop.parked, "proposals": kept}
    fsio.write_atomic(proposals_path(project, upstream), fsio.dump_json(state))


def _saved(project: Project, upstream: str, stop: Stop) -> list[tuple[TreeId, str]]:
    """Return the last proposals for this stop, each as its tree and its text for the ledger.

    :raises StateError: if the file is invalid.
    """
    path = proposals_path(project, upstream)
    data = fsio.read_or_none(path)
    if data is None:
        return []
    raw = fsio.load_state(data, path, _VERSION)
    try:
        if (raw["patch"], raw["parked"]) != (stop.patch, stop.parked):
            return []
        found = [(TreeId(item["tree"]), str(item["how"])) for item in raw["proposals"]]
    except (KeyError, TypeError) as error:
        raise StateError(f"{path} has no proposals: {error}", hint=f"`patchq rebase {upstream} --propose`") from None
    for tree, _ in found:
        if not _ID.fullmatch(str(tree)):
            raise StateError(f"{path} has an invalid tree id", hint=f"`patchq rebase {upstream} --propose`")
    return found
