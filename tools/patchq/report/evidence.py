"""The state of a project as one typed model: what ``report`` shows as a page, JSON and Markdown.

Everything in it comes from a file of the project, whose path is kept beside it, or from git over those files. Looks
only, changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from patchq.errors import PatchqError
from patchq.forecast.forecast import forecast
from patchq.forecast.plan import refs_up_to
from patchq.forecast.summary import Cell as ForecastCell
from patchq.formats.ledger import WRITTEN, Attempt, Cost, Drop, Ledger, costs, find_drop, parse, say_moved
from patchq.formats.measurements import BANDWIDTH, CONFIGS, GPT_OSS_120B, Measurement, Target, bound, differ_in_one
from patchq.merge.patches import ABSORBED, CONFLICT, OBSOLETE
from patchq.mutation.known import KnownStrength, known_strength
from patchq.project.project import Project
from patchq.project.refs import age, older_first
from patchq.project.stack import Stack, ledger_path, load_stack
from patchq.proofs.judge import NOT_RUN, Verdict
from patchq.proofs.verdicts import by_patch
from patchq.report.ahead import DROPPED, Ahead, Cell, count
from patchq.report.bench import ledger_file, read_measurements, read_targets
from patchq.stacks.deps import dependencies
from patchq.stacks.views import PatchInfo, list_patches, status
from patchq.system import project_files

#: Past so many patches the graph isn't looked for: `patchq deps` takes time with their square.
MOST_FOR_GRAPH = 200


@dataclass(frozen=True, slots=True)
class PatchView:
    """A patch of the set, with what is known of it.

    :ivar since: the day of its author, ``2026-11-21``; ``days`` since then.
    :ivar proof: the last result (``proven`` …), or empty; ``said`` is why.
    :ivar needs: what it can't be carried without, as ``upstream/name``; ``requires``: what it says.
    :ivar strength: what its proof saw of its mutants when it was last asked.
    """

    info: PatchInfo
    since: str
    days: int
    proof: str
    said: str
    needs: tuple[str, ...]
    cost: Cost | None
    strength: KnownStrength | None = None

    @property
    def name(self) -> str:
        return f"{self.info.upstream}/{self.info.name}"

    @property
    def added(self) -> int:
        return sum(max(n, 0) for _, n, _ in self.info.files)

    @property
    def removed(self) -> int:
        return sum(max(n, 0) for _, _, n in self.info.files)


@dataclass(frozen=True, slots=True)
class StackView:
    """A stack of the set. ``state`` and ``worktree`` as ``status`` has them."""

    upstream: str
    ref: str
    state: str
    worktree: str
    tree: str
    patches: tuple[PatchView, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """The patches of an upstream on each of its pinned refs; ``rows`` are by patch, cells in the order of the refs.

    :ivar files: by patch, its file: the set's own, else the newest ref's.
    """

    upstream: str
    refs: tuple[str, ...]
    rows: Mapping[str, tuple[Cell, ...]]
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a ledger, with where it stands."""

    upstream: str
    attempt: Attempt
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a report shows.

    :ivar not_run: patch and why; ``notes``: what could not be found out, and why.
    :ivar ahead: what each pinned ref that is newer than the set's own comes to for the set's stacks.
    :ivar bounds: by machine and configuration, tokens a second that its memory allows one request.
    """

    project: str
    set_name: str
    made: str
    sets: Mapping[str, Mapping[str, str]]
    stacks: tuple[StackView, ...]
    matrices: tuple[Matrix, ...]
    ledger: tuple[Line, ...]
    measurements: tuple[Measurement, ...]
    measurements_file: str
    bounds: Mapping[str, Mapping[str, float]]
    targets: tuple[Target, ...]
    gains: tuple[tuple[str, Measurement, Measurement], ...]
    verdicts: tuple[Verdict, ...]
    not_run: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    results_file: str = ""
    ahead: tuple[Ahead, ...] = ()

    @property
    def patches(self) -> list[PatchView]:
        """All patches of the set, in order."""
        return [p for stack in self.stacks for p in stack.patches]

    @property
    def stops_ahead(self) -> list[tuple[str, str, str, Cell]]:
        """The patches of the set that stop on the newest pin: patch, its file, that ref, and the cell."""
        here = {p.name: p.info.path for p in self.patches}
        return [
            (f"{m.upstream}/{name}", here[f"{m.upstream}/{name}"], m.refs[-1], row[-1])
            for m in self.matrices
            for name, row in m.rows.items()
            if row[-1].outcome in (ABSORBED, CONFLICT, OBSOLETE) and f"{m.upstream}/{name}" in here
        ]

    def count(self, proof: str) -> int:
        """How many patches have this last result."""
        return sum(p.proof == proof for p in self.patches)


def gather(
    project: Project, verdicts: Sequence[Verdict], *, set_name: str = "", look_ahead: bool = False,
    results_file: str = "",
) -> Evidence:  # fmt: skip
    """Read the state of a project.

    :param verdicts: the last results of the proofs; ``results_file`` holds them.
    :param look_ahead: forecast what the ledgers don't say of the pinned refs.
    """
    set_name = project.choose_set(set_name)
    notes: list[str] = []
    lines = _ledgers(project, notes)
    verdict_of = by_patch(verdicts)
    infos = list_patches(project, set_name=set_name)
    needs = _needs(project, set_name, len(infos), notes)
    dear = {f"{u}/{c.patch}": c for u in project.lock.upstreams for c in _costs(lines, u)}
    stacks = []
    for found, stack in zip(status(project, set_name), project.stacks(set_name), strict=True):
        views = tuple(
            _view(project, stack, info, verdict_of, needs, dear) for info in infos if info.upstream == found.upstream
        )
        stacks.append(StackView(found.upstream, found.ref, found.state, found.worktree, found.tree, views))
    measurements, damaged = read_measurements(project)
    measured = ledger_file(project).relative_to(project.layout.root).as_posix()
    notes += [f"{measured}:{p.number}: {p.said}" for p in damaged]
    not_run = [(v.proof.title, v.said) for v in verdicts if v.state == NOT_RUN]
    known = set(verdict_of)
    not_run += [(p.name, "no result of its proof here: `patchq test --prove`") for s in stacks for p in s.patches
                if p.name not in known]  # fmt: skip
    matrices = tuple(
        _matrix(project, name, lines, set_name, look_ahead, notes) for name in project.lock.sets[set_name]
    )  # fmt: skip
    bounds = {
        machine: {config: bound(GPT_OSS_120B, bits, speed) for config, bits in CONFIGS.items()}
        for machine, speed in BANDWIDTH.items()
        if any(m.machine == machine for m in measurements)
    }
    return Evidence(
        project.layout.root.name, set_name, time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        {name: dict(refs) for name, refs in project.lock.sets.items()}, tuple(stacks), matrices, tuple(lines),
        tuple(measurements), measured, bounds, tuple(read_targets(project)),
        tuple(differ_in_one(measurements)), tuple(verdicts), tuple(not_run), tuple(notes),
        results_file, tuple(a for m in matrices for a in _ahead(project, m, set_name)),
    )  # fmt: skip


def _ahead(project: Project, matrix: Matrix, set_name: str) -> list[Ahead]:
    pins = project.lock.upstreams[matrix.upstream].pins
    here = pins[project.lock.sets[set_name][matrix.upstream]]
    own = load_stack(project.layout, here).names
    ahead: dict[str, list[str]] = {}
    for pin in pins.values():
        # A ref that is no release may be older.
        if own and pin != here and (age(pin) > age(here) or len(age(here)) == 1):
            between = [ref for ref in refs_up_to(pins.values(), pin)[:-1] if age(pins[ref]) > age(here)]
            later = (name for ref in between for name in load_stack(project.layout, pins[ref]).names)
            ahead[pin.ref] = list(dict.fromkeys((*own, *later)))
    return count(matrix.upstream, matrix.refs, matrix.rows, ahead)


def _view(
    project: Project, stack: Stack, info: PatchInfo, verdict_of: Mapping[str, Verdict],
    needs: Mapping[str, tuple[str, ...]], dear: Mapping[str, Cost],
) -> PatchView:  # fmt: skip
    name = f"{info.upstream}/{info.name}"
    when = 0 if info.problem else stack.load(info.name)[0].author.when
    verdict = verdict_of.get(name)
    since = time.strftime("%Y-%m-%d", time.gmtime(when)) if when else ""
    return PatchView(
        info, since, int((time.time() - when) // 86400) if when else 0,
        verdict.state if verdict else "", verdict.said if verdict else "", needs.get(name, ()), dear.get(name),
        known_strength(project, name),
    )  # fmt: skip


def _costs(lines: Sequence[Line], upstream: str) -> list[Cost]:
    """The same line twice in a ledger counts once."""
    return costs(Ledger(tuple(dict.fromkeys(x.attempt for x in lines if x.upstream == upstream))))


def _needs(project: Project, set_name: str, count: int, notes: list[str]) -> dict[str, tuple[str, ...]]:
    if count > MOST_FOR_GRAPH:
        notes.append(f"the dependency graph of {count} patches was not looked for: `patchq deps`")
        return {}
    try:
        return {n.patch: n.direct for n in dependencies(project, set_name=set_name)}
    except PatchqError as error:
        notes.append(f"no dependency graph: {error.message}")
        return {}


def _ledgers(project: Project, notes: list[str]) -> list[Line]:
    found = []
    for upstream in project.lock.upstreams:
        path = ledger_path(project.layout, upstream)
        file = path.relative_to(project.layout.root).as_posix()
        for number, raw in enumerate((project_files.read(project.layout.root, path) or b"").split(b"\n"), 1):
            ledger = parse(raw)
            found += [Line(upstream, attempt, file, number) for attempt in ledger.attempts]
            notes += [f"{file}:{number}: {problem.said}" for problem in ledger.problems]
    return found


def _matrix(
    project: Project, upstream: str, lines: Sequence[Line], set_name: str, look_ahead: bool, notes: list[str]
) -> Matrix:
    pins = older_first(project.lock.upstreams[upstream].pins.values())
    stacks = {pin.ref: load_stack(project.layout, pin) for pin in pins}
    names = list(dict.fromkeys(name for stack in stacks.values() for name in stack.names))
    latest = {(x.attempt.patch, x.attempt.onto): x for x in sorted(lines, key=lambda x: x.attempt.time)
              if x.upstream == upstream}  # fmt: skip
    cells: dict[tuple[str, str], Cell] = {}
    attempts = {key: line.attempt for key, line in latest.items()}
    for pin in pins:
        earlier = {ref: stacks[ref].names for ref in refs_up_to(pins, pin)}
        for name in names:
            drop = find_drop(attempts, name, earlier)
            line = latest.get((name, drop.ref if drop else pin.ref))
            cells[name, pin.ref] = _cell(project, stacks[pin.ref], name, line, drop)
    here = project.lock.sets[set_name][upstream]
    open_refs = [r for r in stacks if any(not cells[n, r].outcome for n in stacks[here].names)]
    if look_ahead and open_refs and stacks[here].names:
        try:
            found = forecast(project, upstream, open_refs, set_name=set_name)
            for seen in found.cells:
                key = (seen.patch.partition("/")[2], seen.ref)
                if key in cells and not cells[key].outcome:
                    cells[key] = _ahead_cell(project, stacks[found.source(seen.ref).from_ref], seen)
        except PatchqError as error:
            notes.append(f"no forecast of {upstream}: {error.message}")
    files = {n: s.relative(project.layout, n) for s in (*stacks.values(), stacks[here]) for n in s.names}
    return Matrix(upstream, tuple(stacks), {n: tuple(cells[n, ref] for ref in stacks) for n in names}, files)


def _ahead_cell(project: Project, stack: Stack, cell: ForecastCell) -> Cell:
    """A cell of the forecast, from the stack that is nearest."""
    paths = tuple(f.path for f in cell.files)
    moved = say_moved(cell.offsets, cell.checked)
    said = "; ".join(filter(None, [*paths, moved, cell.said, cell.evidence]))
    evidence = f"forecast from {stack.pin.ref}" + (f": {said}" if said else "")
    file = stack.relative(project.layout, cell.patch.partition("/")[2])
    return Cell(cell.outcome, evidence, file, 0, paths, cell.ref if cell.outcome == ABSORBED else "")


def _cell(project: Project, stack: Stack, name: str, line: Line | None, drop: Drop | None) -> Cell:
    if line is None:
        if name in stack.names:
            return Cell(WRITTEN, "written for this ref", stack.relative(project.layout, name))
        return Cell("")
    a = line.attempt
    said = [f"from {a.from_ref}"] + [f"{f.path}" + (f" ({f.hunks} hunks)" if f.hunks else "") for f in a.files]
    said += [
        part
        for part in (say_moved(a.offsets, a.checked), a.grade, a.evidence, a.how, a.proof and f"proof: {a.proof}")
        if part
    ]
    outcome, since = (DROPPED, "") if drop else (a.outcome, a.onto if a.outcome == ABSORBED else "")
    return Cell(outcome, "; ".join(said), line.file, line.line, tuple(f.path for f in a.files), since, drop)
