"""Command ``retire``: collect evidence that upstream has a patch at a ref, and record the drop in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from patchq import __version__
from patchq.errors import BuildError, UserError
from patchq.forecast.forecast import Forecast, forecast
from patchq.forecast.plan import Planner
from patchq.forecast.summary import ForecastCell
from patchq.formats.header import Header
from patchq.formats.ledger import Attempt
from patchq.formats.outcomes import Grade, Outcome, ProofState
from patchq.names import ProofRequest
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.project.refs import complete_pin, pin_at
from patchq.project.stack import ledger_with
from patchq.rebase.stops import Prove, base_of, on_evidence_alone, proof_word
from patchq.records import dataclass
from patchq.system import fsio
from patchq.upstream.history import at_hand
from patchq.upstream.status import HunkState, UpstreamCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class DropEvidence:
    """Evidence that upstream has a patch at a ref.

    :ivar commits: upstream commits that contain the patch or changed it later. Empty if upstream's history is not
        available locally.
    :ivar state: result of the proof on the ref without patches: ``passed``, ``failed``, ``error`` or ``not run``.
    :ivar proof: ``state`` followed by the message of the proof.
    :ivar how: reason for the drop; empty until the patch is dropped.
    """

    patch: str
    ref: str
    outcome: Outcome
    grade: Grade
    evidence: str
    commits: tuple[UpstreamCommit, ...]
    proof: str
    state: ProofState
    how: str = ""

    @property
    def landed(self) -> list[UpstreamCommit]:
        """Return the commits in ``commits`` that contain the patch."""
        return [commit for commit in self.commits if commit.did == HunkState.PRESENT]


def gather(
    project: Project,
    upstream: str,
    ref: str,
    names: Sequence[str],
    prove: Prove,
    *,
    set_name: str = "",
    from_ref: str = "",
) -> list[DropEvidence]:
    """Return the evidence for the named patches at a ref.

    :param names: patches to check (default: all patches whose whole change is in upstream).
    :raises UserError: if a rebase onto the ref would not carry a named patch.
    """
    found = forecast(project, upstream, [ref], set_name=set_name, from_ref=from_ref)
    cells = [_cell(found, name) for name in names]
    if not names:
        cells = [cell for cell in found.cells if cell.outcome == Outcome.ABSORBED]
    return [_with_proof(project, upstream, ref, cell, prove, set_name, from_ref) for cell in cells]


def retire(
    project: Project,
    upstream: str,
    ref: str,
    name: str,
    prove: Prove,
    *,
    how: str = "",
    set_name: str = "",
    from_ref: str = "",
) -> DropEvidence:
    """Record in the ledger that a patch is dropped at a ref. Later rebases don't carry the patch to this ref.

    :param how: reason for the drop. Required if the proof cannot run or if upstream doesn't have
        the whole patch.
    :raises UserError: if upstream doesn't have the whole patch and ``how`` is empty.
    :raises BuildError: if the proof fails on the ref without patches. Also if the proof can't run, unless upstream
        has the whole patch and ``how`` is given.
    """
    (seen,) = gather(project, upstream, ref, [name], prove, set_name=set_name, from_ref=from_ref)
    if seen.outcome != Outcome.ABSORBED and not how:
        raise UserError(
            f"upstream's {ref} doesn't have all of {seen.patch}" + (f": {seen.evidence}" if seen.evidence else ""),
            hint="if upstream replaced the patch, describe the replacement with --how TEXT",
        )
    if seen.state != ProofState.PASSED and not (
        seen.state == ProofState.NOT_RUN and how and seen.outcome == Outcome.ABSORBED
    ):
        raise BuildError(f"{seen.patch} is not retired: its proof on the bare {ref}: {seen.proof}", hint=_hint(seen))
    if seen.state != ProofState.PASSED:
        how = on_evidence_alone(seen.evidence, how)
    done = replace(seen, how=how or f"retired: upstream has it ({seen.evidence})")
    _record(project, upstream, done, set_name, from_ref)
    return done


def _hint(seen: DropEvidence) -> str:
    """Return the hint for a patch that is not retired, because its proof doesn't pass."""
    if seen.state == ProofState.ERROR:
        return "an error doesn't show if the patch is still needed: correct the proof or its environment, and try again"
    if seen.state != ProofState.NOT_RUN:
        return "the patch is still needed, or its proof tests more than upstream's change does"
    if seen.outcome == Outcome.ABSORBED:
        return "to drop the patch without a proof, give the reason with --how TEXT; the ledger keeps the reason"
    return (
        "upstream doesn't have the whole patch, so a proof must pass: write one, or run the command on a machine that "
        "can run it"
    )


def table(rows: Sequence[DropEvidence]) -> str:
    """Render the evidence as a Markdown table."""
    lines = ["| patch | what upstream has | commit | release | proof |", "|---|---|---|---|---|"]
    for row in rows:
        commits: list[str] = []
        releases: dict[str, None] = {}
        for landed in row.landed:
            if landed.commit:
                commits.append(landed.commit[:12] + (f" (#{landed.pull_request})" if landed.pull_request else ""))
            if landed.release:
                releases[landed.release] = None
        has = row.grade or "nothing"
        if row.evidence:
            has += f": {row.evidence}"
        cells = (row.patch, has, ", ".join(commits) or "no history here", ", ".join(releases) or row.ref, row.proof)
        escaped = (cell.replace("|", "\\|") for cell in cells)
        lines.append(f"| {' | '.join(escaped)} |")
    return "\n".join(lines)


def _cell(found: Forecast, name: str) -> ForecastCell:
    """Return the forecast cell of a patch.

    :raises UserError: if the patch is not carried, or if the ref's own stack contains it.
    """
    short, (source,) = name.rpartition("/")[2], found.sources
    cell = next((c for c in found.cells if c.patch == f"{found.upstream}/{short}"), None)
    if cell is None:
        why = f"not in the stack of {source.from_ref}"
        if short in source.absent:
            why = source.absent[short].describe()
        raise UserError(f"{found.upstream}/{short} is not carried onto {source.ref}: {why}", hint="`patchq list`")
    if cell.known:
        raise UserError(
            f"the stack of {source.ref} already has {cell.patch}", hint=f"`patchq drop {cell.patch}` removes it"
        )
    return cell


def _with_proof(
    project: Project, upstream: str, ref: str, cell: ForecastCell, prove: Prove, set_name: str, from_ref: str
) -> DropEvidence:
    """Run a patch's proof on the ref without patches. Return the result with the evidence of the forecast."""
    set_name = project.choose_set(set_name)
    name = cell.patch.partition("/")[2]
    with project.locked("retire"), at_hand(project, upstream) as history:
        planner = Planner(project, upstream, set_name, history, asked=from_ref)
        onto = complete_pin(project, planner.own.pin, ref)
        header: Header = planner.plan(onto).source.load(name)[0]
        request = ProofRequest(
            set_name=set_name,
            upstream=upstream,
            patch=name,
            files=header.values("Proof"),
            needs=header.needs,
            tip=base_of(project, onto).commit,
            bare=True,
        )
        if request.files:
            state, message = prove(request)
        else:
            state, message = (ProofState.NOT_RUN, "the patch names no proof")
    return DropEvidence(
        patch=cell.patch,
        ref=ref,
        outcome=cell.outcome,
        grade=cell.grade,
        evidence=cell.evidence,
        commits=cell.commits,
        proof=proof_word(state, message),
        state=state,
    )


def _record(project: Project, upstream: str, seen: DropEvidence, set_name: str, from_ref: str) -> None:
    """Record the drop in the ledger."""
    name = seen.patch.partition("/")[2]
    with project.locked("retire"), at_hand(project, upstream) as history:
        planner = Planner(project, upstream, project.choose_set(set_name), history, asked=from_ref)
        plan = planner.plan(pin_at(project, planner.own.pin, seen.ref))
        (patch_id,) = project.store.patch_ids_of([plan.commits[name].commit])
        attempt = Attempt(
            patch=name,
            patch_id=patch_id or "0" * 40,
            from_ref=plan.from_ref,
            onto=seen.ref,
            outcome=Outcome.ABSORBED,
            tool=f"patchq {__version__}",
            time=fsio.utc_now(),
            files=(),
            grade=seen.grade,
            evidence=seen.evidence,
            broke="",
            how=seen.how,
            lines=0,
            proof="passed on the bare upstream" if seen.state == ProofState.PASSED else seen.proof,
        )
        change = Change(verb="retire", summary=f"retire {seen.patch} at {seen.ref}")
        change.files.update(ledger_with(project.layout, upstream, [attempt]))
        project.journal.perform(change)
