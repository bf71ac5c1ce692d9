"""Proof strength: run a patch's proof on mutants of the patch's lines, and compute the share that the proof kills.

A mutant is a commit on top of the patched tree. The proof runs on the mutant in a separate checkout or on a Dask
worker. The result is cached. So a run that was interrupted or exceeded its budget can be resumed.
"""

from __future__ import annotations

import ast
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from patchq.environment.machine import Machine, this_machine
from patchq.extras import need
from patchq.formats.outcomes import ProofState
from patchq.mutation._mutants import Mutant, mutants_of
from patchq.mutation.known import remember
from patchq.names import TextEnum
from patchq.project.project import Project
from patchq.proofs.judge import CellResult
from patchq.proofs.plan import Proof, ProofCell, WholeSet, planning, proofs_of, result_key
from patchq.proofs.prove import run_cells_kept
from patchq.proofs.run import run_here
from patchq.proofs.warm import Warm, warm
from patchq.system import project_files

#: Message for a patch that was not reached within the budget's seconds.
NOT_REACHED = "not tried: the time limit was reached before its turn"
#: Message for a patch that was not reached because the user interrupted the run.
INTERRUPTED = "not tried: the run was interrupted before its turn"
#: Seconds of a mutant's timeout on top of five times the duration of the proof.
SPARE_SECONDS = 60.0
#: Number of mutants up to which a process for forks doesn't pay off.
_FEW = 3
#: Quantile of the normal distribution for a two-sided interval of 95 %.
_Z95 = 1.959964


class MutantState(TextEnum):
    """Result of one mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"
    UNTRIED = "not tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Mutant that was tried, with its result.

    :ivar message: name of the failed test, or reason why the mutant is equivalent.
    """

    mutant: Mutant
    state: MutantState
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """Results of a patch's mutants.

    :ivar message: reason why there are no results; empty if there are results.
    :ivar proof_fails: True if the proof fails on the patch itself.
    :ivar in_all: number of all mutants, including mutants that weren't chosen.
    :ivar whole: True if every chosen mutant has a result.
    :ivar interrupted: True if the user interrupted the run before all mutants of this patch had a result.
    """

    patch: str
    proof: tuple[str, ...]
    tried: tuple[Tried, ...]
    message: str = ""
    proof_fails: bool = False
    in_all: int = 0
    interrupted: bool = False

    def count(self, state: MutantState) -> int:
        return sum(t.state == state for t in self.tried)

    @property
    def score(self) -> float | None:
        """Share of killed mutants among the killed and the surviving mutants; None if there are neither."""
        judged = self.count(MutantState.KILLED) + self.count(MutantState.SURVIVED)
        if judged:
            return self.count(MutantState.KILLED) / judged
        return None

    @property
    def whole(self) -> bool:
        return not self.count(MutantState.UNTRIED) and not self.message


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for one run.

    :ivar at_most: number of mutants per patch; 0 for all.
    :ivar seconds: time limit of the whole run, after which no more mutants are started; 0 for no limit.
    :ivar seed: random seed for the choice of mutants and, if ``seconds`` is set, for the order of patches.
    """

    at_most: int = 0
    seconds: float = 0.0
    seed: int = 0


@dataclass(slots=True)
class _Clock:
    """End of a run: the deadline ``last``, if any, or an interrupt by the user."""

    last: float | None
    interrupted: bool = False

    def is_over(self) -> bool:
        return self.interrupted or (self.last is not None and time.monotonic() >= self.last)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pooled:
    """Share of mutants that the proofs of several patches killed, with its 95 % interval.

    :ivar judged: number of mutants that were killed or survived.
    :ivar low, high: Wilson's score interval, from 0 to 1.
    """

    killed: int
    judged: int
    low: float
    high: float


def pool(strengths: Sequence[Strength]) -> Pooled:
    """Return the share of killed mutants over several patches. Without any result, the interval is 0 to 1.

    Wilson (1927), https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval#Wilson_score_interval
    """
    killed = sum(strength.count(MutantState.KILLED) for strength in strengths)
    judged = killed + sum(strength.count(MutantState.SURVIVED) for strength in strengths)
    if not judged:
        return Pooled(killed=0, judged=0, low=0.0, high=1.0)
    share = killed / judged
    weight = _Z95 * _Z95 / judged
    center = (share + weight / 2) / (1 + weight)
    half = _Z95 * math.sqrt(share * (1 - share) / judged + weight / (4 * judged)) / (1 + weight)
    return Pooled(killed=killed, judged=judged, low=max(0.0, center - half), high=min(1.0, center + half))


def mutate(
    project: Project,
    patches: Sequence[str],
    *,
    set_name: str = "",
    budget: Budget | None = None,
    run_cells: Callable[[Project, Sequence[ProofCell]], Iterable[CellResult]] | None = None,
    progress: Callable[[str, Tried], None] = lambda *_: None,
) -> list[Strength]:
    """Run the proof of each patch on mutants of the patch's lines.

    After Ctrl-C, return the results so far.

    :param patches: names of patches; all if empty.
    :param run_cells: function that runs the proofs (default: run them on this machine, in forked processes if there are
        many).
    :param progress: function that is called with a patch and the result of one of its mutants.
    :raises UserError: for a patch that isn't in the set, or if the extra ``mutate`` is missing.
    """
    need("mutate", "patchq test --mutate")
    budget = budget or Budget()
    set_name, machine = project.choose_set(set_name), this_machine()
    clock = _Clock(time.monotonic() + budget.seconds if budget.seconds else None)
    with planning(project, set_name) as whole:
        proofs = [proof for proof in proofs_of(whole.stacks, patches) if not proof.on]
    order = {proof.name: number for number, proof in enumerate(proofs)}
    if budget.seconds:
        random.Random(budget.seed).shuffle(proofs)
    found: list[Strength] = []
    with warm() as forks:
        for proof in proofs:
            # Always plan the first, because its result lists the mutants that were not reached.
            if found and clock.is_over():
                message = INTERRUPTED if clock.interrupted else NOT_REACHED
                found.append(Strength(patch=proof.name, proof=proof.files, tried=(), message=message))
                continue
            with project.locked("test"):
                here, mutants, cells, in_all = _cells(project, whole, proof, set_name, machine, budget)
            if len(mutants) > _FEW:
                forks.unchanged[proof.name] = here
            missing = [n for n in proof.needs if n not in machine.can]
            if missing or not proof.files:
                message = "the patch names no test in `Proof:`"
                if missing:
                    message = f"not run: needs {', '.join(missing)}"
                found.append(Strength(patch=proof.name, proof=proof.files, tried=(), message=message, in_all=in_all))
                continue
            tried = _try(
                project,
                proof,
                here,
                mutants,
                cells=cells,
                machine=machine,
                clock=clock,
                run_cells=run_cells or forks,
                progress=progress,
            )
            strength = Strength(
                patch=proof.name, proof=proof.files, tried=(), in_all=in_all, interrupted=clock.interrupted
            )
            if isinstance(tried, str):
                strength = replace(strength, message=tried, proof_fails=True)
            else:
                strength = replace(strength, tried=tuple(tried))
            found.append(strength)
            if clock.interrupted and strength.score is None:
                continue  # keep the result of an earlier run
            remember(project, strength.patch, as_json(strength))
    return sorted(found, key=lambda strength: order[strength.patch])


def _try(
    project: Project,
    proof: Proof,
    here: ProofCell,
    mutants: Sequence[Mutant],
    *,
    cells: Mapping[str, ProofCell],
    machine: Machine,
    clock: _Clock,
    run_cells: Callable[..., Iterable[CellResult]],
    progress: Callable[[str, Tried], None],
) -> list[Tried] | str:
    """Return the result of each mutant, or a message if the proof itself doesn't pass."""
    untried = [Tried(mutant=mutant, state=MutantState.UNTRIED) for mutant in mutants]
    if clock.is_over():
        return untried
    if isinstance(run_cells, Warm):
        alone = run_here
    else:
        alone = run_cells
    try:
        first = run_cells_kept(project, [here], machine, False, alone, lambda _: None)[here.key]
    except KeyboardInterrupt:
        clock.interrupted = True
        return untried
    if first.state != ProofState.PASSED:
        return f"the proof itself: {first.state}: {first.message}"
    timeout = SPARE_SECONDS + 5 * first.seconds
    equivalent = equivalents(project.layout.root, proof.files)
    tried: list[Tried] = []
    todo = []
    for mutant in mutants:
        if mutant.name in equivalent:
            tried.append(Tried(mutant=mutant, state=MutantState.EQUIVALENT, message=equivalent[mutant.name]))
        else:
            todo.append(mutant)
    # In small groups, to keep within the budget's seconds.
    for few in _by(todo, 4):
        answers = {m.name: Tried(mutant=m, state=MutantState.UNTRIED) for m in few}
        if not clock.is_over():
            chosen = [replace(cells[m.name], timeout=timeout) for m in few]
            try:
                results = run_cells_kept(project, chosen, machine, False, run_cells, lambda _: None)
                for mutant, cell in zip(few, chosen, strict=True):
                    answers[mutant.name] = _answer(mutant, results[cell.key])
                    progress(proof.name, answers[mutant.name])
            except KeyboardInterrupt:
                clock.interrupted = True
        tried += answers.values()
    order = {m.name: number for number, m in enumerate(mutants)}
    return sorted(tried, key=lambda t: order[t.mutant.name])


def _by(items: Sequence[Mutant], count: int) -> Iterator[Sequence[Mutant]]:
    for start in range(0, len(items), count):
        yield items[start : start + count]


def _answer(mutant: Mutant, result: CellResult) -> Tried:
    """Return a mutant's result.

    A failed assertion or an error in the proof kills the mutant. The mutant survives if the proof passes or
    is not run.
    """
    if result.state in (ProofState.FAILED, ProofState.ERROR):
        return Tried(mutant=mutant, state=MutantState.KILLED, message=result.message, seconds=result.seconds)
    if result.state in (ProofState.PASSED, ProofState.NOT_RUN):
        state = MutantState.SURVIVED
    else:
        state = MutantState.UNTRIED
    return Tried(mutant=mutant, state=state, message=result.message, seconds=result.seconds)


def _cells(
    project: Project, whole: WholeSet, proof: Proof, set_name: str, machine: Machine, budget: Budget
) -> tuple[ProofCell, list[Mutant], dict[str, ProofCell], int]:
    """Return the cell without a mutant, the chosen mutants, their cells by name, and the number of all mutants."""
    here = ProofCell(
        proof=proof, variant=whole.variant, key=result_key(project, proof, whole.variant, machine), set_name=set_name
    )
    every = all_mutants(whole, proof)
    mutants = choose(every, proof.name, budget)
    variants = whole.mutants(proof.upstream, [(m.path, m.content) for m in mutants])
    cells = {}
    for mutant, variant in zip(mutants, variants, strict=True):
        key = result_key(project, proof, variant, machine)
        cells[mutant.name] = ProofCell(proof=proof, variant=variant, key=key, set_name=set_name)
    return here, mutants, cells, len(every)


def choose(mutants: Sequence[Mutant], patch: str, budget: Budget) -> list[Mutant]:
    """Return a random sample of mutants within the budget. The choice depends only on the arguments."""
    if not budget.at_most or len(mutants) <= budget.at_most:
        return list(mutants)
    chosen = random.Random(f"{budget.seed} {patch}").sample(range(len(mutants)), budget.at_most)
    return [mutants[n] for n in sorted(chosen)]


def all_mutants(whole: WholeSet, proof: Proof) -> list[Mutant]:
    """Return the mutants of a patch's lines in the tree with all patches applied."""
    commit, changed = whole.patch(proof.name)
    tip = whole.variant.tips[proof.upstream]
    entries = whole.store.list_tree(tip, changed)
    blobs = whole.store.read_blobs(e.blob for e in entries.values() if e.mode in (b"100644", b"100755"))
    found: list[Mutant] = []
    for path, entry in sorted(entries.items()):
        name = path.decode("utf-8", "surrogateescape")
        content = blobs.get(entry.blob)
        if content is None or _is_test(name):
            continue
        lines = whole.store.lines_of(commit, tip, path, since=whole.base(proof.upstream))
        found += mutants_of(name, content, lines)
    return found


def _is_test(path: str) -> bool:
    """Return whether a path is a test in upstream's tree. A patch may add such tests; they aren't mutated."""
    return path.startswith("tests/") or Path(path).name.startswith("test_")


def equivalents(root: Path, files: Sequence[str]) -> dict[str, str]:
    """Return the mutants that a proof's files list in ``EQUIVALENT_MUTANTS = {"name": "reason"}``.

    The files are parsed, not run.
    """
    found: dict[str, str] = {}
    for file in sorted({f.split("::")[0] for f in files}):
        for node in ast.parse(project_files.read(root, root / file) or b"").body:
            named = isinstance(node, ast.Assign) and [getattr(t, "id", "") for t in node.targets]
            if named == ["EQUIVALENT_MUTANTS"]:
                assert isinstance(node, ast.Assign)
                value = ast.literal_eval(node.value)
                found.update({str(k): str(v) for k, v in value.items() if str(v).strip()})
    return found


def as_json(strength: Strength) -> dict[str, Any]:
    """Return a patch's strength as JSON: counts, score, and each mutant without its contents."""
    mutants = []
    for tried in strength.tried:
        mutant = asdict(tried.mutant)
        mutant.pop("content")
        mutants.append({**mutant, "state": tried.state, "message": tried.message})
    score = strength.score
    return {
        "patch": strength.patch,
        "proof": list(strength.proof),
        "message": strength.message,
        "whole": strength.whole,
        "score": round(score, 4) if score is not None else None,
        "in_all": strength.in_all,
        **{state.value.replace(" ", "_"): strength.count(state) for state in MutantState},
        "mutants": mutants,
    }
