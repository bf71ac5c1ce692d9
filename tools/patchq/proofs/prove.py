"""``test``: run the proofs against the applied stacks, and with ``--prove`` against the stacks without
each patch, where they must fail by assertion.

A cell is one patch in one variant of the stacks. Cells are independent: they run in processes here,
or on a Dask scheduler's workers (:mod:`patchq.proofs.cluster`), which make the same trees from the same
lock and patches.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from patchq.environment.machine import Machine, this_machine
from patchq.git.objects import CommitInfo
from patchq.git.replay import leave_out
from patchq.git.repository import Git
from patchq.names import CommitId, ProofRequest, TreeId
from patchq.project.project import Project
from patchq.project.stack import Stack, find_patch
from patchq.stacks.apply import carried_stacks
from patchq.system import fsio, runner

RESULT_VERSION = 1
WITH, WITHOUT = "with", "without"
#: Of a proof's run in one variant.
PASSED, FAILED, ERROR, NOT_RUN = "passed", "failed", "error", "not run"


@dataclass(frozen=True, slots=True)
class Proof:
    """A patch and the tests that prove it."""

    upstream: str
    ref: str
    patch: str
    files: tuple[str, ...]
    needs: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.upstream}/{self.patch}"


@dataclass(frozen=True, slots=True)
class Variant:
    """The trees of one run: ``tips`` are commits by upstream; ``left_out`` what isn't in them."""

    kind: str
    tips: Mapping[str, CommitId]
    trees: Mapping[str, TreeId]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """One proof in one variant."""

    proof: Proof
    variant: Variant
    key: str
    set_name: str


@dataclass(frozen=True, slots=True)
class CellResult:
    """``state`` of a cell, its tests' outcomes, and the machine that they ran on."""

    proof: str
    variant: str
    state: str
    tests: tuple[dict[str, str], ...] = ()
    said: str = ""
    seconds: float = 0.0
    machine: Mapping[str, str] = field(default_factory=dict)
    trees: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the cells of one patch come to. ``state``: ``proven`` (both sides ran), ``passed`` (only
    the one with it was asked for), ``failed``, ``not proven`` or ``not run``."""

    proof: Proof
    state: str
    said: str
    cells: tuple[CellResult, ...]
    command: str = ""

    @property
    def ok(self) -> bool:
        return self.state in ("proven", "passed")


def verdict_of(proof: Proof, cells: Sequence[CellResult], prove: bool) -> Verdict:
    """Judge one patch's cells."""
    by_kind = {c.variant: c for c in cells}
    here = by_kind[WITH]
    again = f"patchq test {proof.name}" + (" --prove" if prove else "")
    if here.state == NOT_RUN:
        return Verdict(proof, NOT_RUN, here.said, tuple(cells), again)
    if here.state != PASSED:
        return Verdict(proof, "failed", f"with the patch: {here.said}", tuple(cells), again)
    if not prove:
        return Verdict(proof, "passed", f"{len(here.tests)} tests", tuple(cells))
    gone = by_kind[WITHOUT]
    if gone.state == FAILED:
        failures = [t for t in gone.tests if t["outcome"] == "assertion"]
        first = failures[0]["said"].splitlines()[0][:160] if failures and failures[0]["said"] else ""
        return Verdict(proof, "proven", f"without it {len(failures)} of {len(gone.tests)} fail: {first}", tuple(cells))
    if gone.state == PASSED:
        said = "passes without the patch: the proof can't fail, or upstream holds the change already"
    elif gone.state == ERROR:
        said = f"without the patch it errors instead of failing: {gone.said}"
    else:
        said = f"without the patch: {gone.said}"
    return Verdict(proof, "not proven", said, tuple(cells), again)


def run_proofs(
    project: Project,
    patches: Sequence[str] = (),
    *,
    set_name: str = "",
    prove: bool = False,
    fresh: bool = False,
    run_cells: Callable[[Project, Sequence[Cell]], Iterable[CellResult]] | None = None,
    progress: Callable[[CellResult], None] = lambda _: None,
) -> list[Verdict]:
    """Run the proofs of a set's patches, all or the named ones, and judge them.

    :param prove: run each also on the stacks without its patch, and demand a failed assertion there.
    :param fresh: run again what has a result for the same inputs.
    :param run_cells: what runs cells that this machine's results don't have; here by default.
    """
    set_name = project.choose_set(set_name)
    machine = this_machine()
    with project.locked("test"):
        stacks = project.stacks(set_name)
        chosen = _chosen(stacks, patches)
        whole = whole_set(project, stacks, set_name)
        proofs = [p for p in _proofs(stacks) if not chosen or p.name in chosen]
        cells: list[Cell] = []
        for proof in proofs:
            variants = [whole.variant] + ([whole.without(proof.name)] if prove else [])
            cells += [Cell(proof, v, result_key(project, proof, v, machine), set_name) for v in variants]
    results = _run(project, cells, machine, fresh, run_cells or run_here, progress)
    # Where both sides have the same trees (the change is upstream's already), one run serves both.
    named = [replace(results[c.key], variant=c.variant.kind, left_out=c.variant.left_out) for c in cells]
    return [verdict_of(p, [r for c, r in zip(cells, named, strict=True) if c.proof == p], prove) for p in proofs]


def _chosen(stacks: list[Stack], patches: Sequence[str]) -> set[str]:
    found = [find_patch(stacks, name) for name in patches]
    return {f"{stack.pin.upstream}/{name}" for stack, name in found}


def _proofs(stacks: Sequence[Stack]) -> list[Proof]:
    found = []
    for stack in stacks:
        for name, header in stack.headers():
            found.append(Proof(stack.pin.upstream, stack.pin.ref, name, header.values("Proof"), header.needs))
    return found


class _Whole:
    """The whole set in the store, from which variants without a patch are derived in memory."""

    def __init__(
        self,
        store: Git,
        commits: Mapping[str, list[tuple[str, CommitInfo]]],
        bases: Mapping[str, CommitId],
        requires: Mapping[str, set[str]],
    ) -> None:
        self.store, self.commits, self.requires = store, commits, requires
        self.bases = dict(bases)
        tips = {u: (c[-1][1].commit if c else bases[u]) for u, c in commits.items()}
        self.variant = self.with_tips(WITH, tips)

    def with_tips(self, kind: str, tips: Mapping[str, CommitId], left_out: tuple[str, ...] = ()) -> Variant:
        """A variant of these tips."""
        names = sorted(tips)
        trees = self.store.tree_of([tips[n] for n in names])
        return Variant(kind, dict(tips), dict(zip(names, trees, strict=True)), left_out)

    def bare(self) -> Variant:
        """The pins without any patch."""
        every = tuple(n for commits in self.commits.values() for n, _ in commits)
        return self.with_tips("bare", self.bases, every)

    def without(self, name: str) -> Variant:
        """The set without a patch, those that say that they require it, and those that don't apply without it."""
        gone = {name}
        while more := {n for n, needed in self.requires.items() if needed & gone} - gone:
            gone |= more
        tips = dict(self.variant.tips)
        for upstream, commits in self.commits.items():
            if not any(n in gone for n, _ in commits):
                continue
            kept = leave_out(
                self.store, upstream, self.bases[upstream], commits, gone, lambda other, _: gone.add(other)
            )
            tips[upstream] = kept[-1].commit if kept else self.bases[upstream]
        return self.with_tips(WITHOUT, tips, tuple(sorted(gone)))


def whole_set(project: Project, stacks: Sequence[Stack], set_name: str) -> _Whole:
    commits: dict[str, list[tuple[str, CommitInfo]]] = {}
    bases: dict[str, CommitId] = {}
    requires: dict[str, set[str]] = {}
    for carried in carried_stacks(project, stacks, set_name):
        upstream = carried.stack.pin.upstream
        commits[upstream] = [(f"{upstream}/{name}", info) for name, info in carried.commits]
        bases[upstream] = carried.base
        for name, header in carried.stack.headers():
            requires[f"{upstream}/{name}"] = set(header.values("Requires"))
    return _Whole(project.store, commits, bases, requires)


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
    with project.locked("test"):
        whole = whole_set(project, project.stacks(set_name), set_name)
        tips, names = dict(whole.variant.tips), tuple(p.name for p in proofs)
        here = whole.with_tips(WITH, {**tips, upstream: ends[1]})
        bare = whole.with_tips(WITHOUT, {**tips, upstream: ends[0]}, names)
        cells = [Cell(p, v, result_key(project, p, v, machine), set_name) for p in proofs for v in (here, bare)]
    results = _run(project, cells, machine, False, run_here, progress)
    named = [replace(results[c.key], variant=c.variant.kind, left_out=c.variant.left_out) for c in cells]
    return [verdict_of(p, [r for c, r in zip(cells, named, strict=True) if c.proof == p], True) for p in proofs]


def prove_at(project: Project, request: ProofRequest) -> tuple[str, str]:
    """Run a proof on a tree that is no stack's yet; returns its state and why. The caller holds the project's lock."""
    whole = whole_set(project, project.stacks(request.set_name), request.set_name)
    start = whole.bare() if request.bare else whole.variant
    variant = whole.with_tips(start.kind, {**start.tips, request.upstream: request.tip})
    proof = Proof(request.upstream, "", request.patch, request.files, request.needs)
    with trees_lock(project):
        result = run_cell(project, Cell(proof, variant, "", request.set_name))
    return result.state, result.said


def variant_of(project: Project, cell: Cell) -> Variant:
    """A cell's variant, made anew in this project's store: how another machine comes by its commits."""
    with project.locked("test"):
        whole = whole_set(project, project.stacks(cell.set_name), cell.set_name)
        return whole.variant if cell.variant.kind == WITH else whole.without(cell.proof.name)


def result_key(project: Project, proof: Proof, variant: Variant, machine: Machine) -> str:
    """What a result depends on: trees, the proof's files, Python, torch, GPU, CUDA."""
    files = sorted({f.split("::")[0] for f in proof.files})
    digest = hashlib.sha256()
    for path in proof_inputs(project, files):
        digest.update(path.relative_to(project.layout.root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    body = [RESULT_VERSION, dict(sorted(variant.trees.items())), proof.files, digest.hexdigest(), machine.facts()]
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def proof_inputs(project: Project, files: Sequence[str]) -> list[Path]:
    """A proof's files, what lies beside them, and the conftests above them."""
    root = project.layout.root
    found: set[Path] = set()
    for file in files:
        path = root / file
        found |= {p for p in path.parent.glob("*") if p.is_file() and (p == path or not p.name.startswith("test_"))}
        found |= {c for c in (f / "conftest.py" for f in path.parents if root in (f, *f.parents)) if c.is_file()}
    return sorted(p for p in found if p.is_file())


def _run(
    project: Project,
    cells: Sequence[Cell],
    machine: Machine,
    fresh: bool,
    run_cells: Callable[[Project, Sequence[Cell]], Iterable[CellResult]],
    progress: Callable[[CellResult], None],
) -> dict[str, CellResult]:
    results: dict[str, CellResult] = {}
    todo: dict[str, Cell] = {}
    for cell in cells:
        kept = None if fresh else load_result(project, cell.key)
        if kept:
            results[cell.key] = kept
            progress(kept)
        else:
            todo[cell.key] = cell
    order = list(todo.values())
    for cell, result in zip(order, run_cells(project, order), strict=True):
        # A result is kept under what it depends on; "not run" depends on nothing but this machine.
        if result.state != NOT_RUN and result.machine == machine.facts():
            save_result(project, cell.key, result)
        results[cell.key] = result
        progress(result)
    return results


def load_result(project: Project, key: str) -> CellResult | None:
    """A result that is kept, or None."""
    path = project.layout.private / "results" / f"{key}.json"
    data = fsio.read_or_none(path)
    if data is None:
        return None
    raw = fsio.load_state(data, path, RESULT_VERSION)
    raw.pop("version")
    return CellResult(**{**raw, "tests": tuple(raw["tests"]), "left_out": tuple(raw["left_out"]), "cached": True})


def save_result(project: Project, key: str, result: CellResult) -> None:
    """Keep a result."""
    path = project.layout.private / "results" / f"{key}.json"
    fsio.write_atomic(path, fsio.dump_json({"version": RESULT_VERSION, **asdict(result)}))


# Running

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def run_here(project: Project, cells: Sequence[Cell]) -> Iterable[CellResult]:
    """Run cells in processes of this machine, as many at once as it has cores for."""
    return in_slots(project, cells, lambda cell, slot: run_cell(project, cell, slot))


def in_slots(project: Project, items: Sequence[_Item], work: Callable[[_Item, int], _Result]) -> Iterable[_Result]:
    """Work on items, as many at once as this machine has cores, each with the number of trees of its own."""
    import os
    from concurrent.futures import ThreadPoolExecutor
    from queue import SimpleQueue

    slots: SimpleQueue[int] = SimpleQueue()
    count = max(1, min(os.cpu_count() or 1, len(items)))
    for number in range(count):
        slots.put(number)

    def in_one(item: _Item) -> _Result:
        slot = slots.get()
        try:
            return work(item, slot)
        finally:
            slots.put(slot)

    with trees_lock(project), ThreadPoolExecutor(count) as pool:
        yield from pool.map(in_one, items)


def trees_lock(project: Project) -> AbstractContextManager[bool]:
    """Held while the trees under ``.patchq/prove`` are used: two runs would take them from each other."""
    return fsio.lock(project.layout.private / "prove.lock", verb="test", wait=project.wait)


def run_cell(project: Project, cell: Cell, slot: int = 0) -> CellResult:
    """Run one proof against one variant's trees, checked out in a place of their own."""
    import time

    machine = this_machine()
    proof, variant = cell.proof, cell.variant
    missing = [n for n in proof.needs if n not in machine.can]
    about: dict[str, Any] = {
        "machine": machine.facts(), "trees": dict(variant.trees), "left_out": variant.left_out,
    }  # fmt: skip
    if missing:
        return CellResult(proof.name, variant.kind, NOT_RUN, said=f"needs {', '.join(missing)}", **about)
    if not proof.files:
        return CellResult(proof.name, variant.kind, ERROR, said="the patch names no Proof:", **about)
    start = time.monotonic()
    folder = checkout(project, variant, slot)
    tests, said = run_pytest(project, folder, proof.files)
    seconds = round(time.monotonic() - start, 2)
    state, words = judge(tests, said)
    return CellResult(proof.name, variant.kind, state, tuple(tests), words, seconds, **about)


def judge(tests: Sequence[Mapping[str, str]], said: str) -> tuple[str, str]:
    """The state that tests' outcomes come to, and why.

    Errors weigh most: a proof that can't be imported has shown nothing, whatever else failed.
    """
    first = {o: next((t for t in tests if t["outcome"] == o), None) for o in ("error", "assertion", "skipped")}
    if error := first["error"]:
        return ERROR, f"{error['test']}: {error['said'].strip().splitlines()[-1] if error['said'].strip() else 'error'}"
    if failure := first["assertion"]:
        return FAILED, f"{failure['test']}: {failure['said'].splitlines()[0] if failure['said'] else 'failed'}"
    if skipped := first["skipped"]:
        return NOT_RUN, skipped["said"].removeprefix("not run: ") or "skipped"
    if not tests:
        return ERROR, "no test ran: " + (said.strip().splitlines() or ["pytest said nothing"])[-1]
    return PASSED, f"{len(tests)} tests"


def checkout(project: Project, variant: Variant, slot: int) -> Path:
    """Put a variant's trees into the slot's folder; only what differs from its last one is written."""
    root = project.layout.private / "prove" / f"slot{slot}"
    for upstream, tip in variant.tips.items():
        target = root / upstream
        index = root / f"{upstream}.index"
        env = {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(target), "GIT_DIR": str(project.layout.store)}
        target.mkdir(parents=True, exist_ok=True)
        runner.run(["git", "read-tree", "--reset", "-u", tip], cwd=target, env=env)
        for path, nested in project.lock.nested_in(upstream).items():
            link = target / path
            if nested in variant.tips and not link.is_symlink():
                if link.is_dir():
                    link.rmdir()
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(root / nested)
    return root


def run_pytest(
    project: Project, trees: Path, files: Sequence[str], *, cwd: Path | None = None, timeout: float | None = None
) -> tuple[list[dict[str, str]], str]:
    """Run test files against trees in a process of its own; returns each test's outcome, and what pytest said.

    :param cwd: where to run, the project's folder by default.
    :param timeout: seconds; past it the outcomes are none and what was said tells so.
    """
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        results = Path(text) / "results.json"
        packages = {
            u.build.package: str(trees / u.name)
            for u in project.lock.upstreams.values()
            if u.build and (trees / u.name).is_dir()
        }
        env = {
            "PATCHQ_TREES": str(trees),
            "PATCHQ_IMPORTS": json.dumps(packages),
            "PATCHQ_RESULTS": str(results),
            # Trees change between runs faster than the clock that bytecode is compared by.
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            "CUDA_CACHE_DISABLE": "1",
        }
        options = ["-q", "-p", "patchq.testing", "-p", "no:cacheprovider", "-o", "addopts=", "--no-header"]
        argv = [sys.executable, "-m", "pytest", *options, *files]
        try:
            done = runner.run(argv, cwd=cwd or project.layout.root, env=env, timeout=timeout, ok_codes=range(-64, 256))
        except runner.CommandError as error:
            return [], error.said
        said = (done.stdout + done.stderr).decode("utf-8", "replace")
        data = fsio.read_or_none(results)
        return (json.loads(data) if data else []), said
