"""Command ``test``: run the proofs on the applied stacks.

With ``--prove``, each proof also runs on the stacks without its patch. There, the proof must fail by an assertion.
:mod:`patchq.proofs.plan` plans the runs, :mod:`patchq.proofs.run` executes them and
:mod:`patchq.proofs.judge` evaluates the results. Cells are independent. They run in local
processes or on the workers of a Dask scheduler (:mod:`patchq.proofs.cluster`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from patchq.environment.machine import Machine, this_machine
from patchq.errors import EnvironmentFault
from patchq.formats.outcomes import ProofState
from patchq.names import CommitId, ProofRequest, sh
from patchq.project.project import Project
from patchq.proofs.judge import CellResult, Verdict, is_kept, result_of, verdict_of
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
from patchq.proofs.run import in_slots, link_files, run_cell, run_here, trees_lock
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
    """Run the proofs of a set's patches and return the verdicts.

    :param patches: names of patches; all if empty.
    :param prove: also run each proof without its patch, and require a failed assertion there.
    :param fresh: ignore cached results.
    :param run_cells: function that runs the cells that have no cached result; by default, they run locally.
    """
    set_name = project.choose_set(set_name)
    machine = this_machine()
    proofs, cells = plan_cells(project, patches, set_name, prove, machine)
    results = run_cells_kept(project, cells, machine, fresh, run_cells or run_in_forks, progress)
    return _judged(proofs, cells, results, prove)


def run_installed(
    project: Project,
    python: str,
    patches: Sequence[str] = (),
    *,
    set_name: str = "",
    progress: Callable[[CellResult], None] = lambda _: None,
) -> list[Verdict]:
    """Run proofs on the packages that are installed for an interpreter. Results aren't cached.

    :param python: interpreter of the environment.
    :param patches: names of patches; all if empty.
    """
    set_name = project.choose_set(set_name)
    proofs, cells = plan_cells(project, patches, set_name, False, this_machine())
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        installed = link_files(project, set_name, python, Path(text))
        results = in_slots(project, cells, lambda cell, slot: run_cell(project, cell, slot, installed=installed))
        for proof, result in zip(proofs, results, strict=True):
            progress(result)
            verdict = verdict_of(proof, [result], False)
            command = verdict.command
            if verdict.state != ProofState.NOT_RUN and command:
                command += f" --python {sh(python)}"
            verdicts.append(replace(verdict, command=command))
    return verdicts


def prove_trees(
    project: Project,
    proofs: Sequence[Proof],
    set_name: str,
    upstream: str,
    ends: tuple[CommitId, CommitId],
) -> list[Verdict]:
    """Run proofs with and without the changes between two commits of an upstream.

    The commits need not be tips of a stack. The stacks of the set's other upstreams are applied.

    :param ends: commit without the changes, and commit with the changes.
    """
    machine = this_machine()
    with planning(project, set_name) as whole:
        here = whole.at(WITH, upstream, ends[1])
        bare = whole.at(WITHOUT, upstream, ends[0], tuple(p.name for p in proofs))
        cells = []
        for p in proofs:
            for v in (here, bare):
                cells.append(ProofCell(proof=p, variant=v, key=result_key(project, p, v, machine), set_name=set_name))
    results = run_cells_kept(project, cells, machine, False, run_here, lambda _: None)
    return _judged(proofs, cells, results, True)


def prove_at(project: Project, request: ProofRequest) -> tuple[ProofState, str]:
    """Run a proof on a tree that isn't part of a stack yet. Return the proof's state and the reason.

    The caller must hold the project's lock.

    :raises EnvironmentFault: if the proof gives no result because of the environment.
    """
    whole, at = WholeSet(project, request.set_name), (request.upstream, request.tip)
    if request.bare:
        variant = whole.bare_at(*at)
    else:
        variant = whole.at(WITH, *at)
    proof = Proof(request.upstream, "", request.patch, request.files, request.needs)
    with trees_lock(project):
        result = run_cell(project, ProofCell(proof=proof, variant=variant, key="", set_name=request.set_name))
    if result.state == ProofState.NO_RESULT:
        raise EnvironmentFault(
            f"the proof of {proof.name} gave no result: {result.message}",
            hint="nothing was recorded: fix the environment, and run the command again",
        )
    return result.state, result.message


def _judged(
    proofs: Sequence[Proof], cells: Sequence[ProofCell], results: Mapping[str, CellResult], prove: bool
) -> list[Verdict]:
    # If upstream has the change already, both variants have the same trees and share one run.
    named = [replace(results[c.key], variant=c.variant.kind, left_out=c.variant.left_out) for c in cells]
    found: list[Verdict] = []
    for p in proofs:
        found.append(verdict_of(p, [r for c, r in zip(cells, named, strict=True) if c.proof == p], prove))
    return found


def run_cells_kept(
    project: Project,
    cells: Sequence[ProofCell],
    machine: Machine,
    fresh: bool,
    run_cells: Callable[[Project, Sequence[ProofCell]], Iterable[CellResult]],
    progress: Callable[[CellResult], None],
) -> dict[str, CellResult]:
    """Return the cells' results by key. Results that aren't cached are computed by ``run_cells`` and then cached.

    :param fresh: True to ignore cached results.
    """
    results: dict[str, CellResult] = {}
    todo: dict[str, ProofCell] = {}
    for cell in cells:
        kept = None
        if not fresh:
            kept = load_result(project, cell.key)
        if kept:
            results[cell.key] = kept
            progress(kept)
        else:
            todo[cell.key] = cell
    # Compilations take longest. Started last, they would leave all other cores idle.
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
    """Return a cached result; None if there is none or its file is invalid."""
    path = project.layout.private / "results" / f"{key}.json"
    data = fsio.read_or_none(path)
    if data is None:
        return None
    raw = fsio.load_state(data, path, RESULT_VERSION)
    raw.pop("version")
    result = result_of({**raw, "cached": True})
    if result and is_kept(result):
        return result
    return None


def save_result(project: Project, key: str, result: CellResult) -> None:
    """Add a result to the cache."""
    path = project.layout.private / "results" / f"{key}.json"
    fsio.write_atomic(path, fsio.dump_json({"version": RESULT_VERSION, **asdict(result)}))
