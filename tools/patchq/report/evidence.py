"""State of a project as one typed data model, which ``report`` shows as an HTML page, JSON and Markdown.

All data comes from git or from files of the project, and the model contains the paths of these files. The project isn't
changed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from patchq.errors import PatchqError
from patchq.forecast.forecast import forecast
from patchq.forecast.plan import refs_up_to
from patchq.forecast.summary import ForecastCell
from patchq.formats.ledger import Attempt, Cost, Drop, Ledger, costs, find_drop, parse, say_moved
from patchq.formats.measurements import Bound, Measurement, Target, differ_in_one
from patchq.formats.outcomes import CellState, Outcome, ProofState
from patchq.mutation.known import KnownStrength, known_strength
from patchq.names import counted, sh
from patchq.project.project import Project
from patchq.project.refs import age, older_first
from patchq.project.stack import Stack, ledger_path, load_stack
from patchq.proofs.judge import Verdict
from patchq.proofs.verdicts import by_patch
from patchq.report.ahead import Ahead, ReportCell, count
from patchq.report.bench import ledger_file, read_goals, read_measurements
from patchq.report.todo import StackTodo, next_step, proof_command
from patchq.stacks.deps import dependencies
from patchq.stacks.views import PatchInfo, StackState, WorktreeState, list_patches, status
from patchq.system import project_files

#: Largest set whose dependencies are computed: the time of `patchq deps` grows with the square of the patches.
MOST_FOR_DEPENDENCIES = 200
_DAY = 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchView:
    """Data about one patch of the set.

    :ivar since: day of the patch's author date, ``2026-11-21``.
    :ivar days: number of days since this date.
    :ivar proof: last result of the patch's proof (``proven`` …), ``no proof``, or empty.
    :ivar message: reason for this result.
    :ivar needs: patches that this patch needs, as ``upstream/name``.
    :ivar strength: number of mutants that the proof killed in the last run of ``test --mutate``.
    """

    info: PatchInfo
    since: str
    days: int
    proof: str
    message: str
    needs: tuple[str, ...]
    cost: Cost | None
    strength: KnownStrength | None = None

    @property
    def name(self) -> str:
        return f"{self.info.upstream}/{self.info.name}"

    @property
    def added(self) -> int:
        """Return the number of added lines. Binary files, for which git reports -1, count as 0."""
        count = 0
        for _, added, _ in self.info.files:
            count += max(added, 0)
        return count

    @property
    def removed(self) -> int:
        """Return the number of removed lines."""
        count = 0
        for _, _, removed in self.info.files:
            count += max(removed, 0)
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class StackView:
    """Data about one stack of the set. The command ``status`` shows the same ``state`` and ``worktree``."""

    upstream: str
    ref: str
    state: StackState
    worktree: WorktreeState
    tree: str
    patches: tuple[PatchView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Outcomes of an upstream's patches on each of its pinned refs.

    :ivar rows: cells of each patch, one for each ref in ``refs``.
    :ivar files: path of each patch's file in the set's stack. For a patch that this stack lacks, the path is the one in
        the newest stack that contains the patch.
    """

    upstream: str
    refs: tuple[str, ...]
    rows: Mapping[str, tuple[ReportCell, ...]]
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """Line of a ledger, with its file and number."""

    upstream: str
    attempt: Attempt
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Data of a report.

    :ivar not_run: patches whose proof has no result, each with the reason.
    :ivar notes: data that could not be computed, each with the reason.
    :ivar ahead: cost of carrying the set's stacks to each newer pinned ref.
    :ivar todo: next step for each stack.
    :ivar prove: command that runs the proofs whose results are missing.
    :ivar write_proof: command that adds a ``Proof:`` trailer to the first patch without a proof; empty if all patches
        have one.
    :ivar bounds: upper bounds from ``measurements/targets.toml``.
    """

    project: str
    set_name: str
    made: str
    sets: Mapping[str, Mapping[str, str]]
    stacks: tuple[StackView, ...]
    matrices: tuple[Matrix, ...]
    ledger: tuple[LedgerLine, ...]
    measurements: tuple[Measurement, ...]
    measurements_file: str
    bounds: tuple[Bound, ...]
    targets: tuple[Target, ...]
    gains: tuple[tuple[str, Measurement, Measurement], ...]
    verdicts: tuple[Verdict, ...]
    not_run: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    results_file: str = ""
    ahead: tuple[Ahead, ...] = ()
    todo: tuple[StackTodo, ...] = ()
    prove: str = "patchq test --prove"
    write_proof: str = ""

    @property
    def patches(self) -> list[PatchView]:
        """Return all patches of the set, in order."""
        patches: list[PatchView] = []
        for stack in self.stacks:
            patches += stack.patches
        return patches

    @property
    def stops_ahead(self) -> list[tuple[str, str, str, ReportCell]]:
        """Return the patches of the set that stop on the newest pin, each with its name, file, ref and cell."""
        files = {patch.name: patch.info.path for patch in self.patches}
        found = []
        for matrix in self.matrices:
            for name, row in matrix.rows.items():
                patch, newest = f"{matrix.upstream}/{name}", row[-1]
                if newest.outcome in (Outcome.ABSORBED, Outcome.CONFLICT, Outcome.OBSOLETE) and patch in files:
                    found.append((patch, files[patch], matrix.refs[-1], newest))
        return found

    def count(self, proof: str) -> int:
        """Return the number of patches whose last result is ``proof``."""
        return sum(patch.proof == proof for patch in self.patches)


def gather(
    project: Project,
    verdicts: Sequence[Verdict],
    *,
    set_name: str = "",
    look_ahead: bool = False,
    results_file: str = "",
) -> Evidence:
    """Read the state of a project into the data model.

    :param verdicts: last results of the proofs, from ``results_file``.
    :param look_ahead: forecast pinned refs that the ledgers don't cover.
    """
    set_name = project.choose_set(set_name)
    notes: list[str] = []
    lines = _ledgers(project, notes)
    stacks = _stacks(project, lines, by_patch(verdicts), set_name, notes)
    measurements, damaged = read_measurements(project)
    measured = ledger_file(project).relative_to(project.layout.root).as_posix()
    for problem in damaged:
        notes.append(f"{measured}:{problem.number}: {problem.message}")
    upstreams = project.lock.sets[set_name]
    matrices: list[Matrix] = []
    ahead: list[Ahead] = []
    for name in upstreams:
        matrix = _matrix(project, name, lines, set_name=set_name, look_ahead=look_ahead, notes=notes)
        matrices.append(matrix)
        ahead += _ahead(project, matrix, set_name)
    set_option = ""
    if set_name != project.lock.default_set:
        set_option = f" --set {sh(set_name)}"
    todo = []
    for stack, found in zip(stacks, status(project, set_name), strict=True):
        failing = [patch.name for patch in stack.patches if patch.proof in (ProofState.FAILED, ProofState.NOT_PROVEN)]
        required = {verdict.proof.name for verdict in verdicts if verdict.fails}
        lacking = [
            patch.name for patch in stack.patches if patch.proof == ProofState.NO_PROOF and patch.name in required
        ]
        newer = []
        for release in ahead:
            if release.upstream == stack.upstream:
                newer.append(release)
        todo.append(next_step(found, failing, lacking, newer, set_option))
    unproven = [patch.name for stack in stacks for patch in stack.patches if patch.proof == ProofState.NO_PROOF]
    goals = read_goals(project)
    return Evidence(
        project=project.lock.name or project.layout.root.name,
        set_name=set_name,
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        sets={name: dict(refs) for name, refs in project.lock.sets.items()},
        stacks=tuple(stacks),
        matrices=tuple(matrices),
        ledger=tuple(lines),
        measurements=tuple(measurements),
        measurements_file=measured,
        bounds=tuple(goals.bounds),
        targets=tuple(goals.targets),
        gains=tuple(differ_in_one(measurements)),
        verdicts=tuple(verdicts),
        not_run=tuple(_not_run(verdicts, stacks)),
        notes=tuple(notes),
        results_file=results_file,
        ahead=tuple(ahead),
        todo=tuple(todo),
        prove=f"patchq test --prove{set_option}",
        write_proof=proof_command(unproven[0], set_option) if unproven else "",
    )


def _stacks(
    project: Project,
    lines: Sequence[LedgerLine],
    verdict_of: Mapping[str, Verdict],
    set_name: str,
    notes: list[str],
) -> list[StackView]:
    infos = list_patches(project, set_name=set_name)
    needs = _needs(project, set_name, len(infos), notes)
    cost_of = {}
    for upstream in project.lock.upstreams:
        for cost in _costs(lines, upstream):
            cost_of[f"{upstream}/{cost.patch}"] = cost
    stacks = []
    for found, stack in zip(status(project, set_name), project.stacks(set_name), strict=True):
        views = []
        for info in infos:
            if info.upstream == found.upstream:
                name = f"{info.upstream}/{info.name}"
                when = 0
                if not info.problem:
                    when = stack.load(info.name)[0].author.when
                verdict = verdict_of.get(name)
                state = _proof_state(info, verdict)
                view = PatchView(
                    info=info,
                    since=time.strftime("%Y-%m-%d", time.gmtime(when)) if when else "",
                    days=int((time.time() - when) // _DAY) if when else 0,
                    proof=state,
                    message=verdict.message if verdict and state == verdict.state else "",
                    needs=needs.get(name, ()),
                    cost=cost_of.get(name),
                    strength=known_strength(project, name),
                )
                views.append(view)
        stacks.append(
            StackView(
                upstream=found.upstream,
                ref=found.ref,
                state=found.state,
                worktree=found.worktree,
                tree=found.tree,
                patches=tuple(views),
            )
        )
    return stacks


def _proof_state(info: PatchInfo, verdict: Verdict | None) -> str:
    """Return the last result of a patch's proof.

    Return ``no proof`` if the patch names no proof, and an empty string if there is no result.
    """
    state = verdict.state if verdict else ""
    if not (info.proofs or info.problem) and state not in (ProofState.FAILED, ProofState.NOT_PROVEN):
        return ProofState.NO_PROOF
    if state == ProofState.NO_PROOF:  # the patch has got a proof since the last run
        return ""
    return state


def _not_run(verdicts: Sequence[Verdict], stacks: Sequence[StackView]) -> list[tuple[str, str]]:
    found = []
    for verdict in verdicts:
        if verdict.state == ProofState.NOT_RUN:
            found.append((verdict.proof.title, verdict.message))
    for stack in stacks:
        for patch in stack.patches:
            if patch.proof == ProofState.NO_PROOF:
                found.append((patch.name, "the patch names no proof"))
            elif not patch.proof:
                found.append((patch.name, "its proof has no result: `patchq test --prove`"))
    return found


def _ahead(project: Project, matrix: Matrix, set_name: str) -> list[Ahead]:
    pins = project.lock.upstreams[matrix.upstream].pins
    here = pins[project.lock.sets[set_name][matrix.upstream]]
    own = load_stack(project.layout, here).names
    if not own:
        return []
    ahead: dict[str, list[str]] = {}
    for pin in pins.values():
        is_release = len(age(here)) > 1
        # A ref that is no release may be older.
        if pin == here or (is_release and age(pin) <= age(here)):
            continue
        names = list(own)
        for ref in refs_up_to(pins.values(), pin)[:-1]:
            if age(pins[ref]) > age(here):
                names += load_stack(project.layout, pins[ref]).names
        ahead[pin.ref] = list(dict.fromkeys(names))
    found = []
    for release in count(matrix.upstream, matrix.refs, matrix.rows, ahead):
        stack = load_stack(project.layout, pins[release.ref])
        found.append(replace(release, has_stack=bool(stack.names)))
    return found


def _costs(lines: Sequence[LedgerLine], upstream: str) -> list[Cost]:
    """Return the costs from an upstream's ledger. A repeated line of the ledger counts once."""
    attempts: dict[Attempt, None] = {}
    for line in lines:
        if line.upstream == upstream:
            attempts[line.attempt] = None
    return costs(Ledger(tuple(attempts)))


def _needs(project: Project, set_name: str, patches: int, notes: list[str]) -> dict[str, tuple[str, ...]]:
    if patches > MOST_FOR_DEPENDENCIES:
        notes.append(f"the dependencies of {patches} patches were not computed: `patchq deps`")
        return {}
    try:
        return {needed.patch: needed.direct for needed in dependencies(project, set_name=set_name)}
    except PatchqError as error:
        notes.append(f"no dependencies: {error.message}")
        return {}


def _ledgers(project: Project, notes: list[str]) -> list[LedgerLine]:
    found = []
    for upstream in project.lock.upstreams:
        path = ledger_path(project.layout, upstream)
        file = path.relative_to(project.layout.root).as_posix()
        data = project_files.read(project.layout.root, path) or b""
        for number, raw in enumerate(data.split(b"\n"), 1):
            ledger = parse(raw)
            for attempt in ledger.attempts:
                found.append(LedgerLine(upstream=upstream, attempt=attempt, file=file, line=number))
            for problem in ledger.problems:
                notes.append(f"{file}:{number}: {problem.message}")
    return found


def _matrix(
    project: Project,
    upstream: str,
    lines: Sequence[LedgerLine],
    *,
    set_name: str,
    look_ahead: bool,
    notes: list[str],
) -> Matrix:
    pins = older_first(project.lock.upstreams[upstream].pins.values())
    stacks = {pin.ref: load_stack(project.layout, pin) for pin in pins}
    here = stacks[project.lock.sets[set_name][upstream]]
    names: dict[str, None] = {}
    files: dict[str, str] = {}
    for stack in (*stacks.values(), here):
        for name in stack.names:
            names[name] = None
            files[name] = stack.relative(project.layout, name)
    latest: dict[tuple[str, str], LedgerLine] = {}
    for line in sorted(lines, key=lambda line: line.attempt.time):
        if line.upstream == upstream:
            latest[line.attempt.patch, line.attempt.onto] = line
    attempts = {key: line.attempt for key, line in latest.items()}
    cells: dict[tuple[str, str], ReportCell] = {}
    for pin in pins:
        earlier = {ref: stacks[ref].names for ref in refs_up_to(pins, pin)}
        for name in names:
            drop = find_drop(attempts, name, earlier)
            known = latest.get((name, drop.ref if drop else pin.ref))
            cells[name, pin.ref] = _cell(project, stacks[pin.ref], name, known, drop)
    if look_ahead:
        _look_ahead(project, cells, stacks, here, set_name=set_name, notes=notes)
    rows = {}
    for name in names:
        rows[name] = tuple(cells[name, ref] for ref in stacks)
    return Matrix(upstream=upstream, refs=tuple(stacks), rows=rows, files=files)


def _look_ahead(
    project: Project,
    cells: dict[tuple[str, str], ReportCell],
    stacks: Mapping[str, Stack],
    here: Stack,
    *,
    set_name: str,
    notes: list[str],
) -> None:
    """Fill the empty cells of the patches in ``here`` with a forecast."""
    open_refs = []
    for ref in stacks:
        if any(not cells[name, ref].outcome for name in here.names):
            open_refs.append(ref)
    if not open_refs:
        return
    upstream = here.pin.upstream
    try:
        found = forecast(project, upstream, open_refs, set_name=set_name)
    except PatchqError as error:
        notes.append(f"no forecast of {upstream}: {error.message}")
        return
    for forecasted in found.cells:
        key = (forecasted.patch.partition("/")[2], forecasted.ref)
        if key in cells and not cells[key].outcome:
            nearest = stacks[found.source(forecasted.ref).from_ref]
            cells[key] = _ahead_cell(project, nearest, forecasted)


def _ahead_cell(project: Project, stack: Stack, cell: ForecastCell) -> ReportCell:
    """Convert a cell of a forecast to a cell of the report. ``stack`` is the stack from which the patch was carried."""
    paths = tuple(file.path for file in cell.files)
    moved = say_moved(cell.offsets, cell.checked)
    details = list(filter(None, (*paths, moved, cell.message, cell.evidence)))
    evidence = f"forecast from {stack.pin.ref}"
    if details:
        evidence += f": {'; '.join(details)}"
    return ReportCell(
        outcome=cell.outcome,
        evidence=evidence,
        file=stack.relative(project.layout, cell.patch.partition("/")[2]),
        paths=paths,
        since=cell.ref if cell.outcome == Outcome.ABSORBED else "",
    )


def _cell(project: Project, stack: Stack, name: str, line: LedgerLine | None, drop: Drop | None) -> ReportCell:
    if line is None:
        if name not in stack.names:
            return ReportCell(outcome=CellState.UNKNOWN)
        return ReportCell(
            outcome=CellState.WRITTEN, evidence="written for this ref", file=stack.relative(project.layout, name)
        )
    attempt = line.attempt
    details = [f"from {attempt.from_ref}"]
    paths = []
    for file in attempt.files:
        paths.append(file.path)
        details.append(f"{file.path} ({counted(file.hunks, 'hunk')})" if file.hunks else file.path)
    moved = say_moved(attempt.offsets, attempt.checked)
    details += filter(None, (moved, attempt.grade, attempt.evidence, attempt.how))
    if attempt.proof:
        details.append(f"proof: {attempt.proof}")
    outcome: Outcome | CellState = attempt.outcome
    since = ""
    if drop:
        outcome = CellState.DROPPED
    elif outcome == Outcome.ABSORBED:
        since = attempt.onto
    return ReportCell(
        outcome=outcome,
        evidence="; ".join(details),
        file=line.file,
        line=line.line,
        paths=tuple(paths),
        since=since,
        dropped=drop,
    )
