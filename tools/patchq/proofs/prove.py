"""``test``: run the proofs against the applied stacks, and with ``--prove`` against the stacks without
each patch, where they must fail by assertion.

Planned (:mod:`patchq.proofs.plan`), run (:mod:`patchq.proofs.run`) and judged (:mod:`patchq.proofs.judge`).
Cells are independent: they run in processes here, or on a Dask scheduler's workers
(:mod:`patchq.proofs.cluster`), which make the same trees from the same lock and patches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace

from patchq.environment.machine import Machine, this_machine
from patchq.errors import EnvironmentFault
from patchq.names import CommitId, ProofRequest
from patchq.project.project import Project
from patchq.proofs.judge import NO_RESULT, CellResult, Verdict, is_kept, result_of, verdict_of
from patchq.proofs.plan import (
    RESULT_VERSION,
    WITH,
    WITHOUT,
    Proof,
    ProofCell,
    WholeSet,
    plan_cells,
    planning,
    result_key,
)
from patchq.proofs.run import run_cell, run_here, trees_lock
from patchq.proofs.warm import run_in_forks
from patchq.system import fsio


def run_proofs(
    project: Project,
    patches: Sequence[str] = (),
    *,
    set_name: str = "",
    prove: bool = False,
    fresh: bool = False,
    run_cells: Callable[[Project, Sequence[ProofCell]], Iterable[CellResult]] | None = None,
    progress: Callable[[CellResult], None] = lambda _: None,
) -> list[Verdict]:
    """Run the proofs of a set's patches, all or the named ones, and judge them.

    :param prove: run each also on the stacks without its patch, and demand a failed assertion there.
    :param fresh: run again what has a result for the same inputs.
    :param run_cells: what runs cells that this machine's results don't have; here by default.
    """
    set_name = project.choose_set(set_name)
    machine = this_machine()
    proofs, cells = plan_cells(project, patches, set_name, prove, machine)
    results = run_cells_kept(project, cells, machine, fresh, run_cells or run_in_forks, progress)
    return _judged(proofs, cells, results, prove)


def prove_trees(
    project: Project,
    proofs: Sequence[Proof],
    set_name: str,
    upstream: str,
    ends: tuple[CommitId, CommitId],
    progress: Callable[[CellResult], None] = lambda _: None,
) -> list[Verdict]:
    """Judge proofs with and without what is between two commits of an upstream that are no stack's tips.

    The others of the set are as their stacks make them.

    :param ends: the commit without, and the one with it.
    """
    machine = this_machine()
    with planning(project, set_name) as whole:
        here = whole.at(WITH, upstream, ends[1])
        bare = whole.at(WITHOUT, upstream, ends[0], tuple(p.name for p in proofs))
        cells = [
            ProofCell(proof=p, variant=v, key=result_key(project, p, v, machine), set_name=set_name)
            for p in proofs
            for v in (here, bare)
        ]
    results = run_cells_kept(project, cells, machine, False, run_here, progress)
    return _judged(proofs, cells, results, True)


def prove_at(project: Project, request: ProofRequest) -> tuple[str, str]:
    """Run a proof on a tree that is no stack's yet; returns its state and why. The caller holds the project's lock.

    :raises EnvironmentFault: if the environment gave no result.
    """
    whole, at = WholeSet(project, request.set_name), (request.upstream, request.tip)
    variant = whole.bare_at(*at) if request.bare else whole.at(WITH, *at)
    proof = Proof(request.upstream, "", request.patch, request.files, request.needs)
    with trees_lock(project):
        result = run_cell(project, ProofCell(proof=proof, variant=variant, key="", set_name=request.set_name))
    if result.state == NO_RESULT:
        raise EnvironmentFault(
            f"the proof of {proof.name} gave no result: {result.said}",
            hint="nothing was recorded: fix the environment, and run the command again",
        )
    return result.state, result.said


def _judged(
    proofs: Sequence[Proof], cells: Sequence[ProofCell], results: Mapping[str, CellResult], prove: bool
) -> list[Verdict]:
    # Where both sides have the same trees (the change is upstream's already), one run serves both.
    named = [replace(results[c.key], variant=c.variant.kind, left_out=c.variant.left_out) for c in cells]
    return [verdict_of(p, [r for c, r in zip(cells, named, strict=True) if c.proof == p], prove) for p in proofs]


def run_cells_kept(
    project: Project,
    cells: Sequence[ProofCell],
    machine: Machine,
    fresh: bool,
    run_cells: Callable[[Project, Sequence[ProofCell]], Iterable[CellResult]],
    progress: Callable[[CellResult], None],
) -> dict[str, CellResult]:
    """Results by the cells' keys: those that are kept, and of what isn't, by ``run_cells``, kept from then on."""
    results: dict[str, CellResult] = {}
    todo: dict[str, ProofCell] = {}
    for cell in cells:
        kept = None if fresh else load_result(project, cell.key)
        if kept:
            results[cell.key] = kept
            progress(kept)
        else:
            todo[cell.key] = cell
    # What compiles takes longest: begun last, it would keep one core busy and the others idle.
    order = sorted(todo.values(), key=lambda cell: "nvcc" not in cell.proof.needs)
    project.count("proofs", 0, len(order), "runs")
    for number, (cell, result) in enumerate(zip(order, run_cells(project, order), strict=True), 1):
        if is_kept(result) and result.machine == machine.facts():
            save_result(project, cell.key, result)
        results[cell.key] = result
        progress(result)
        project.count("proofs", number, len(order), "runs")
    return results


def load_result(project: Project, key: str) -> CellResult | None:
    """Return a result that is kept; None if there is none, or the file holds anything else."""
    path = project.layout.private / "results" / f"{key}.json"
    data = fsio.read_or_none(path)
    if data is None:
        return None
    raw = fsio.load_state(data, path, RESULT_VERSION)
    raw.pop("version")
    result = result_of({**raw, "cached": True})
    return result if result and is_kept(result) else None


def save_result(project: Project, key: str, result: CellResult) -> None:
    """Keep a result."""
    path = project.layout.private / "results" / f"{key}.json"
    fsio.write_atomic(path, fsio.dump_json({"version": RESULT_VERSION, **asdict(result)}))
