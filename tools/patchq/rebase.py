"""``rebase``: a stack carried onto another ref, as ``patches/<upstream>/<ref>/``.

Patches land in memory, in their order. One that stops is parked in a worktree of its own, beside the applied
one, with markers that name patch and ref; the stack that it comes from stays as it is, applied. What has been
done is one state file, written before anything else moves: the worktree can always be made again from it. The
new stack, its pin, the ledger and the resolutions are written at the end, by one change of the journal.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from patchq import __version__, fsio, rerere
from patchq import ledger as ledgers
from patchq.absorbed import Sight
from patchq.apply import carried_stacks
from patchq.carry import (
    ABSORBED,
    CONFLICT,
    OBSOLETE,
    STOPS,
    Column,
    Landing,
    Patch,
    carry,
    read_patches,
    sight,
    write_commits,
)
from patchq.errors import BuildError, Conflict, ConflictError, SourceError, UserError
from patchq.export import Entry, write_stack
from patchq.git import PathChange, Stage, TreeEntry
from patchq.header import Ident
from patchq.journal import Change
from patchq.lock import Pin, Upstream, with_pin
from patchq.lock import parse as parse_lock
from patchq.paths import LOCK_NAME, check_name, ref_to_folder
from patchq.project import Project
from patchq.refs import complete_pin, pin_at, pins_between
from patchq.sources import Base, Fetcher
from patchq.stack import State, ledger_path, load_stack, pin_key
from patchq.types import BlobId, CommitId, ProofRequest, show_path
from patchq.worktree import Worktree, branch_of

VERSION = 1
CARRYING, FINISHING, ABORTING = "carrying", "finishing", "aborting"
RESOLVED, REPLAYED = "resolved", "replayed"

#: Runs a proof; returns ``passed``, ``failed``, ``error`` or ``not run``, and why.
Prove = Callable[[ProofRequest], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Step:
    """What became of one patch. ``commit`` is empty where the new stack doesn't have it."""

    patch: str
    outcome: str
    commit: str = ""
    files: tuple[tuple[str, int], ...] = ()
    grade: str = ""
    evidence: str = ""
    how: str = ""
    lines: int = 0
    proof: str = ""
    known: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """A patch that waits for a person.

    :ivar conflicts: of path and the lines at which conflicts begin; see :class:`patchq.carry.FileConflict`.
    :ivar parked: the commit whose tree the worktree was given, markers included.
    :ivar carries: how many of the patches after it would land as things stand; ``stops``: how many would not.
    :ivar ready: whether the worktree holds it, and is the user's.
    :ivar replayed: the tree to which what was recorded for it led; no proof has said that it is right.
    """

    patch: str
    outcome: str
    conflicts: tuple[tuple[str, tuple[int, ...]], ...]
    parked: str
    stages: tuple[tuple[str, str, str, int], ...]
    grade: str = ""
    evidence: str = ""
    said: str = ""
    carries: int = 0
    stops: int = 0
    ready: bool = False
    replayed: str = ""


@dataclass(slots=True)
class Progress:
    """A rebase under way, as the state file has it."""

    upstream: str
    set_name: str
    new_set: str
    from_ref: str
    onto: Pin
    old_base: CommitId
    base: CommitId
    source: str
    order: tuple[str, ...]
    commits: dict[str, str]
    target: tuple[str, ...]
    retire: bool = False
    leave_out: bool = False
    phase: str = CARRYING
    files: str = ""
    done: list[Step] = field(default_factory=list)
    stop: Stop | None = None
    attempts: list[ledgers.Attempt] = field(default_factory=list)

    @property
    def tip(self) -> CommitId:
        """The commit of the last patch that has landed."""
        return CommitId(next((s.commit for s in reversed(self.done) if s.commit), self.base))


@dataclass(frozen=True, slots=True)
class Result:
    """Where a rebase stands. ``state``: ``done``, ``stopped``, ``aborted``, or ``nothing`` to carry."""

    upstream: str
    from_ref: str
    onto: str
    state: str
    steps: tuple[Step, ...] = ()
    left: int = 0
    stop: Stop | None = None
    worktree: str = ""
    set_name: str = ""
    notes: tuple[str, ...] = ()


# The verbs


def start(
    project: Project, upstream: str, ref: str, *, prove: Prove, set_name: str = "", new_set: str = "",
    retire: bool = False, leave_out: bool = False,
) -> Result:  # fmt: skip
    """Carry a set's stack of an upstream onto a ref, up to the first patch that stops.

    Where the ref has a stack already, its patches stay as they are and those that it lacks are carried; what the
    ledger says is absorbed there is not tried again.

    :param new_set: the set that is to hold the new pin; one named after the ref by default.
    :param retire: retire what upstream has, if its proof passes on the bare new upstream.
    :param leave_out: leave out what stops, instead of stopping.
    :raises UserError: if a rebase of this upstream is under way.
    """
    set_name = project.choose_set(set_name)
    with project.locked("rebase"):
        if _path(project, upstream).exists() and not _over(project, _load(project, upstream)):
            raise UserError(
                f"a rebase of {upstream} is under way", hint="`patchq rebase NAME --continue`, `--skip` or `--abort`"
            )
        stacks = project.stacks(set_name, [upstream])
        pin = stacks[0].pin
        if pin.ref == ref:
            return Result(upstream, ref, ref, "nothing", notes=(f"{upstream} is at {ref} in the set {set_name}",))
        (carried,) = carried_stacks(project, stacks, set_name)
        onto = complete_pin(project, pin, pin_at(project, pin, ref))
        target = load_stack(project.layout, onto)
        base = _base(project, onto)
        there = carried_stacks(project, [target], set_name)[0] if target.names else None
        commits = {name: info.commit for name, info in carried.commits}
        commits |= {name: info.commit for name, info in there.commits} if there else {}
        retired = _retired(project, upstream, onto.ref) - set(target.names)
        order = [n for n in _merged_order(stacks[0].names, target.names) if n not in retired]
        if set(order) <= set(target.names):
            note = f"{upstream} {onto.ref} has all that there is to carry"
            return Result(upstream, pin.ref, onto.ref, "nothing", notes=(note,))
        progress = Progress(
            upstream, set_name, _choose_set(project, set_name, new_set, onto), pin.ref, onto, carried.base, base.commit,
            base.source, tuple(order), dict(commits), target.names, retire, leave_out,
        )  # fmt: skip
        return _run(project, progress, prove)


def resume(
    project: Project, upstream: str, *, prove: Prove, check_proof: bool = True, retire: bool = False, how: str = ""
) -> Result:
    """Take what the worktree holds as the stopped patch, and go on.

    :param check_proof: run the patch's proof on it, and stay stopped if it fails.
    :param retire: retire this patch instead: upstream has it, or something else that does the same, says a person,
        and the proof says so too.
    :param how: what to write into the ledger of the resolution.
    :raises ConflictError: if files still hold conflict markers.
    :raises BuildError: if the proof fails.
    :raises UserError: if nothing is left of the patch, or nothing of it was seen upstream to retire it for.
    """
    with project.locked("rebase"):
        progress = _load(project, upstream)
        if over := _over(project, progress):
            return over
        stop = progress.stop
        if stop is None or not stop.ready:
            return _again(project, progress, prove)
        if retire:
            step = _retire_on_word(project, progress, stop, prove, how)
            progress.files = str(_worktree(project, progress).snapshot())
            progress.done.append(step)
            progress.stop = None
            return _run(project, progress, prove)
        worktree = _worktree(project, progress)
        step = _resolved(project, progress, stop, worktree, how)
        if check_proof:
            state, said = _prove(project, progress, stop.patch, CommitId(step.commit), prove)
            if state in ("failed", "error"):
                raise BuildError(
                    f"{upstream}/{stop.patch} is resolved, but its proof {state}: {said}",
                    hint=f"mend it in {worktree.path} and `--continue`; `--no-proof` takes it as it is",
                )
            step = replace(step, proof=_proof_word(state, said))
        files = rerere.record(
            project.store, _stages(stop), _conflicting(project, stop, stop.parked),
            _conflicting(project, stop, step.commit), rerere.recorded(project.layout, upstream),
        )  # fmt: skip
        project.journal.perform(
            Change(
                "rebase",
                f"resolution of {upstream}/{stop.patch}",
                {p.relative_to(project.layout.root).as_posix(): data for p, data in files.items()},
            )
        )
        progress.files = str(project.store.tree_of([step.commit])[0])
        progress.done.append(step)
        progress.stop = None
        return _run(project, progress, prove)


def skip(project: Project, upstream: str, *, prove: Prove, how: str = "") -> Result:
    """Leave the stopped patch out of the new stack, and go on.

    :param how: what to write into the ledger.
    """
    with project.locked("rebase"):
        progress = _load(project, upstream)
        if over := _over(project, progress):
            return over
        stop = progress.stop
        if stop is None or not stop.ready:
            return _again(project, progress, prove)
        progress.files = str(_worktree(project, progress).snapshot())
        progress.done.append(_left_out(stop, how or "left out"))
        progress.stop = None
        return _run(project, progress, prove)


def abort(project: Project, upstream: str) -> Result:
    """Give the rebase up: nothing of it stays but the resolutions recorded so far."""
    with project.locked("rebase"):
        progress = _load(project, upstream)
        notes = []
        worktree = _worktree(project, progress)
        if worktree.exists and progress.stop and progress.stop.ready and progress.phase == CARRYING:
            tree = worktree.snapshot()
            if tree != project.store.tree_of([progress.stop.parked])[0]:
                nobody = Ident("patchq", "patchq@localhost", int(time.time()), "+0000")
                kept = project.store.commit_tree(tree, [progress.tip], nobody, f"{progress.stop.patch}, as it was\n")
                notes.append(f"the worktree's files are kept as the commit {kept} of {project.layout.store}")
        progress.phase = ABORTING
        _save(project, progress)
        _clean_up(project, progress)
        return Result(upstream, progress.from_ref, progress.onto.ref, "aborted", notes=tuple(notes))


def under_way(project: Project) -> list[str]:
    """The upstreams of which a rebase is under way."""
    return sorted(p.stem for p in (project.layout.private / "rebase").glob("*.json"))


# Carrying


def _run(project: Project, progress: Progress, prove: Prove) -> Result:
    """Land what lands; stop at what doesn't, or finish."""
    while True:
        names = progress.order[len(progress.done) :]
        if not names:
            return _finish(project, progress)
        patches = _patches(project, progress, names)
        (column,) = carry(project.store, patches, [progress.tip])
        if not _land(project, progress, patches, column, prove):
            return _result(project, progress, "stopped")


def _land(project: Project, progress: Progress, patches: Sequence[Patch], column: Column, prove: Prove) -> bool:
    """Take a column's landings over; False where a patch stops, True where it needs to be carried anew or is over."""
    landings = [column.landings[n] for n in range(len(patches))]
    run: list[tuple[Patch, Landing]] = []
    for number, (patch, landing) in enumerate(zip(patches, landings, strict=True)):
        if landing.outcome not in STOPS:
            run.append((patch, landing))
            continue
        _commit(project, progress, run, column)
        run = []
        stop = _stop(project, progress, patch, landing, column, landings[number + 1 :])
        progress.stop = stop
        step = _retire(project, progress, stop, prove) if progress.retire else None
        if step is None and landing.stages:
            step = _replay(project, progress, patch, prove)
            if step:
                progress.done.append(step)
                progress.stop = None
                _save(project, progress)
                return True
        stop = progress.stop
        if step is None and progress.leave_out:
            step = _left_out(stop, "left out")
        if step is None:
            progress.stop = stop
            _park(project, progress)
            return False
        progress.stop = None
        progress.done.append(step)
    _commit(project, progress, run, column)
    _save(project, progress)
    return True


def _over(project: Project, progress: Progress) -> Result | None:
    """End what a kill left almost ended: a rebase that is through, or given up."""
    if progress.phase == FINISHING:
        return _finish(project, progress)
    if progress.phase == ABORTING:
        _clean_up(project, progress)
        return Result(progress.upstream, progress.from_ref, progress.onto.ref, "aborted")
    return None


def _again(project: Project, progress: Progress, prove: Prove) -> Result:
    """Go on after a kill: what was not yet the user's is made anew."""
    progress.stop = None
    return _run(project, progress, prove)


def _patches(project: Project, progress: Progress, names: Sequence[str]) -> list[Patch]:
    """The patches to carry, each from the stack that it is taken from."""
    infos = {i.commit: i for i in project.store.log("--no-walk=unsorted", *(progress.commits[n] for n in names))}
    return read_patches(project.store, [(name, infos[CommitId(progress.commits[name])]) for name in names])


def _from_pin(project: Project, progress: Progress) -> Pin:
    pins = project.lock.upstreams[progress.upstream].pins
    if progress.from_ref not in pins:
        raise UserError(f"{progress.upstream} {progress.from_ref} is not pinned any more", hint="`--abort`")
    return pins[progress.from_ref]


def _commit(project: Project, progress: Progress, run: Sequence[tuple[Patch, Landing]], column: Column) -> None:
    """Make commits of landings, and steps."""
    commits = write_commits(
        project.store, progress.tip, [(p.commit, landing.changes) for p, landing in run], column.contents
    )
    for (patch, landing), commit in zip(run, commits, strict=True):
        progress.done.append(Step(patch.name, landing.outcome, commit, known=patch.name in progress.target))


def _stop(
    project: Project, progress: Progress, patch: Patch, landing: Landing, column: Column, rest: Sequence[Landing]
) -> Stop:
    """What to tell of a patch that doesn't land, and the tree to park."""
    changes, contents = list(landing.changes), dict(column.contents)
    ours = f"{progress.upstream} {progress.onto.ref}"
    theirs = f"{patch.name} (written for {progress.from_ref})"
    for n, change in enumerate(changes):
        if change.new and any(s.path == change.path for s in landing.stages) and change.new.blob in contents:
            text = contents[change.new.blob]
            for label, words in zip(landing.labels, (ours, theirs), strict=True):
                text = text.replace(b" " + label.encode(), b" " + words.encode())
            blob = BlobId(hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest())
            contents[blob] = text
            changes[n] = PathChange(change.path, change.old, TreeEntry(change.new.mode, blob))
    (parked,) = write_commits(project.store, progress.tip, [(patch.commit, changes)], contents)
    seen = _sight(project, progress, patch)
    grade = "identical" if landing.outcome == ABSORBED else seen.grade
    outcome = ABSORBED if landing.outcome == ABSORBED or seen.retirable else landing.outcome
    evidence = seen.said if seen.grade else ""
    if landing.outcome == ABSORBED and not seen.retirable:
        evidence = f"nothing of it is left to add at {progress.onto.ref}"
    return Stop(
        patch.name, outcome, tuple((f.path, f.lines) for f in landing.files), parked,
        tuple((os.fsdecode(s.path), s.entry.mode.decode(), s.entry.blob, s.number) for s in landing.stages),
        grade, evidence,
        carries=sum(found.outcome not in STOPS for found in rest), stops=sum(found.outcome in STOPS for found in rest),
    )  # fmt: skip


def _base(project: Project, pin: Pin, *, offline: bool = False) -> Base:
    fetcher = Fetcher(project.layout, project.lock, say=project.say, offline=offline, progress=project.progress)
    return fetcher.fetch([pin])[0]


def _sight(project: Project, progress: Progress, patch: Patch) -> Sight:
    """Look for the patch in the releases from the old ref to the new one, as far as they are pinned and here."""
    versions: list[tuple[str, str]] = []
    for pin in pins_between(project.lock.upstreams[progress.upstream], _from_pin(project, progress), progress.onto):
        try:
            versions.append((pin.ref, _base(project, pin, offline=True).commit))
        except SourceError:
            continue
    versions.append((progress.onto.ref, progress.base))
    trees = project.store.tree_of([progress.old_base, *(commit for _, commit in versions)])
    first, *rest = (Column(project.store, tree, [patch]) for tree in trees)
    return sight(patch, first, [(label, column) for (label, _), column in zip(versions, rest, strict=True)])


def _retire(project: Project, progress: Progress, stop: Stop, prove: Prove) -> Step | None:
    """Retire a patch that upstream has in full and whose proof passes without it; None where it stops after all."""
    if stop.outcome != ABSORBED:
        return None
    state, said = _prove(project, progress, stop.patch, progress.base, prove, bare=True)
    if state != "passed":
        word = f"its proof on the bare {progress.upstream} {progress.onto.ref}: {_proof_word(state, said)}"
        progress.stop = replace(stop, said=f"not retired: {word}")
        return None
    how = f"retired: upstream has it ({stop.evidence})"
    return Step(
        stop.patch, ABSORBED, "", _files(stop), stop.grade, stop.evidence, how, proof="passed on the bare upstream"
    )


def _retire_on_word(project: Project, progress: Progress, stop: Stop, prove: Prove, how: str) -> Step:
    """Retire a patch that a person says upstream has, if its proof passes without it."""
    name = f"{progress.upstream}/{stop.patch}"
    if not stop.grade:
        raise UserError(f"nothing of {name} was seen in {progress.onto.ref}", hint="`--skip` leaves it out")
    state, said = _prove(project, progress, stop.patch, progress.base, prove, bare=True)
    if state != "passed":
        raise BuildError(
            f"{name} is not retired: its proof on the bare {progress.upstream} {progress.onto.ref}: "
            f"{_proof_word(state, said)}",
            hint="resolve it and `--continue`, or `--skip` leaves it out",
        )
    how = how or f"retired: upstream has it ({stop.evidence})"
    return Step(
        stop.patch, ABSORBED, "", _files(stop), stop.grade, stop.evidence, how, proof="passed on the bare upstream"
    )


def _prove(
    project: Project, progress: Progress, patch: str, tip: CommitId, prove: Prove, *, bare: bool = False
) -> tuple[str, str]:
    stack = load_stack(project.layout, _from_pin(project, progress))
    header = (stack if patch in stack.names else load_stack(project.layout, progress.onto)).load(patch)[0]
    needs = tuple(w for v in header.values("Needs") for w in v.replace(",", " ").split())
    request = ProofRequest(progress.set_name, progress.upstream, patch, header.values("Proof"), needs, tip, bare)
    if not request.files:
        return "not run", "the patch names no proof"
    return prove(request)


def _proof_word(state: str, said: str) -> str:
    return state if state == "passed" else f"{state}: {said}"


def _left_out(stop: Stop, how: str) -> Step:
    outcome = stop.outcome if stop.outcome in (OBSOLETE, CONFLICT) else CONFLICT
    return Step(stop.patch, outcome, "", _files(stop), stop.grade, stop.evidence, how)


def _files(stop: Stop) -> tuple[tuple[str, int], ...]:
    return tuple((path, len(lines)) for path, lines in stop.conflicts)


# The worktree of a stop


def _worktree(project: Project, progress: Progress) -> Worktree:
    return project.worktree(f"{progress.upstream}@{ref_to_folder(progress.onto.ref)}")


def _park(project: Project, progress: Progress) -> None:
    """Bring the worktree to the stop; from here on it is the user's."""
    stop = progress.stop
    assert stop
    _save(project, progress)
    worktree = _worktree(project, progress)
    branch = branch_of(worktree.upstream)
    now = project.store.ref_or_none(branch)
    if now != progress.tip:
        project.store.update_refs([(branch, now, progress.tip)])
    tree = stop.replayed or project.store.tree_of([stop.parked])[0]
    worktree.create(progress.tip)
    # The first time, the next one, or after a kill: each file is as it was, as it is to be, or half way.
    worktree.resume(CommitId(progress.files) if progress.files else None, CommitId(tree))
    rerere.mark_conflicts(worktree.git, _stages(stop))
    progress.files = str(tree)
    progress.stop = replace(stop, ready=True)
    _save(project, progress)


def _conflicting(project: Project, stop: Stop, tree: str) -> dict[bytes, bytes]:
    """The files of a tree that both sides changed, of those that conflict."""
    stages = _stages(stop)
    both = {path for path in _paths(stop) if {s.number for s in stages if s.path == path} >= {2, 3}}
    entries = {path: e for path, e in project.store.list_tree(tree).items() if path in both}
    contents = project.store.read_blobs(e.blob for e in entries.values())
    return {path: contents[e.blob] for path, e in entries.items()}


def _replay(project: Project, progress: Progress, patch: Patch, prove: Prove) -> Step | None:
    """Resolve a conflict by what was recorded, if that resolves all of it and the proof agrees."""
    stop = progress.stop
    assert stop
    parked = _conflicting(project, stop, stop.parked)
    resolved = rerere.replay(project.store, _stages(stop), parked, rerere.recorded(project.layout, progress.upstream))
    if not resolved or set(resolved) != set(_paths(stop)):
        return None
    entries = {path: e for path, e in project.store.list_tree(stop.parked).items() if path in resolved}
    blobs = {path: BlobId(hashlib.sha1(b"blob %d\0" % len(c) + c).hexdigest()) for path, c in resolved.items()}
    changes = [PathChange(path, None, TreeEntry(e.mode, blobs[path])) for path, e in entries.items()]
    (on_parked,) = write_commits(
        project.store, CommitId(stop.parked), [(patch.commit, changes)], {blobs[p]: c for p, c in resolved.items()}
    )
    (tree,) = project.store.tree_of([on_parked])
    commit = project.store.commit_tree(tree, [progress.tip], patch.commit.author, patch.commit.message)
    how = "the recorded resolution of " + ", ".join(show_path(p) for p in sorted(resolved))
    state, said = _prove(project, progress, stop.patch, commit, prove)
    if state == "passed":
        lines = _changed_lines(project, patch.commit.commit, commit)
        return Step(patch.name, REPLAYED, commit, _files(stop), how=f"by {how}", lines=lines, proof=state)
    if state == "not run":
        said = f"{how} resolves it, and no proof says that it is right ({said}): look at it"
        progress.stop = replace(stop, replayed=str(tree), said=said)
    else:
        progress.stop = replace(stop, said=f"{how} was tried, and with it its proof {state}: {said}")
    return None


def _resolved(project: Project, progress: Progress, stop: Stop, worktree: Worktree, how: str) -> Step:
    """What the worktree holds, as the stopped patch."""
    files = {p: fsio.read_or_none(worktree.path / os.fsdecode(p)) for p in _paths(stop)}
    open_paths = [p for p, content in files.items() if content is not None and not rerere.is_settled(content)]
    if open_paths:
        conflicts = [
            Conflict(progress.upstream, stop.patch, show_path(p), "still has conflict markers") for p in open_paths
        ]
        names = ", ".join(c.path for c in conflicts)
        raise ConflictError(
            f"{progress.upstream}/{stop.patch}: conflict markers are left in {names}", conflicts,
            hint=f"resolve them in {worktree.path}, then `patchq rebase {progress.upstream} --continue`",
        )  # fmt: skip
    unmerged = {e.split(b"\t", 1)[1] for e in worktree.git.run("ls-files", "-u", "-z").split(b"\0") if e}
    undecided = sorted(p for p in unmerged if {s.number for s in _stages(stop) if s.path == p} < {1, 2, 3})
    if undecided and worktree.snapshot() == project.store.tree_of([stop.parked])[0]:
        names = ", ".join(show_path(p) for p in undecided)
        raise ConflictError(
            f"{progress.upstream}/{stop.patch}: {names}: one side changed it, the other removed it or has its own",
            [Conflict(progress.upstream, stop.patch, show_path(p), "is not decided") for p in undecided],
            hint=f"`git rm` or `git add` it in {worktree.path}, or `patchq rebase {progress.upstream} --skip`",
        )
    tree = worktree.snapshot()
    if tree == project.store.tree_of([progress.tip])[0]:
        raise UserError(
            f"nothing is left of {progress.upstream}/{stop.patch}",
            hint="`--skip` leaves it out of the new stack; if upstream has it, `--continue --retire`",
        )
    (info,) = project.store.log(f"{progress.commits[stop.patch]}^!")
    commit = project.store.commit_tree(tree, [progress.tip], info.author, info.message)
    lines = _changed_lines(project, info.commit, commit)
    outcome = REPLAYED if tree == stop.replayed else RESOLVED
    return Step(stop.patch, outcome, commit, _files(stop), stop.grade, stop.evidence, how, lines)


def _changed_lines(project: Project, old: CommitId, new: CommitId) -> int:
    sides = []
    for text in project.store.diffs_of([old, new]):
        sides.append(
            [line for line in text.split(b"\n") if line[:1] in b"+-" and not line.startswith((b"+++", b"---"))]
        )
    return ledgers.changed_lines(*sides)


def _stages(stop: Stop) -> list[Stage]:
    return [Stage(os.fsencode(p), TreeEntry(mode.encode(), BlobId(blob)), n) for p, mode, blob, n in stop.stages]


def _paths(stop: Stop) -> list[bytes]:
    return sorted({os.fsencode(path) for path, *_ in stop.stages})


# The end


def _finish(project: Project, progress: Progress) -> Result:
    """Write the new stack, its pin, and what was learnt; then take the worktree away."""
    layout, onto = project.layout, progress.onto
    kept = [s for s in progress.done if s.commit]
    change = Change("rebase", f"rebase {progress.upstream} {progress.from_ref} onto {onto.ref}")
    if kept:
        stack = load_stack(layout, onto)
        infos = {i.commit: i for i in project.store.log(f"{progress.base}..{progress.tip}")}
        entries = [Entry(s.patch, infos[CommitId(s.commit)]) for s in kept]
        (tree,) = project.store.tree_of([progress.tip])
        state = State(
            progress.new_set, onto.ref, pin_key(onto), progress.base, progress.source, progress.base, tree, ()
        )
        write_stack(project, change, stack, state, entries, None, move=False)
        parent = project.lock.upstreams[progress.upstream]
        lock = with_pin(
            layout.lock.read_bytes(), Upstream(parent.name, parent.url, parent.into), onto, progress.new_set,
            like=progress.set_name,
        )  # fmt: skip
        parse_lock(lock)
        change.files[LOCK_NAME] = lock
    if progress.phase != FINISHING:
        progress.phase, progress.attempts = FINISHING, _attempts(project, progress)
        _save(project, progress)
    ledger = ledger_path(layout, progress.upstream)
    change.files[ledger.relative_to(layout.root).as_posix()] = ledgers.add(
        fsio.read_or_none(ledger) or b"", progress.attempts
    )
    project.journal.perform(change)
    project.__dict__.pop("lock", None)
    result = _result(project, progress, "done")
    _clean_up(project, progress)
    return result


def _attempts(project: Project, progress: Progress) -> list[ledgers.Attempt]:
    """The ledger's lines for what was carried now."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    between = pins_between(project.lock.upstreams[progress.upstream], _from_pin(project, progress), progress.onto)
    new = [s for s in progress.done if not s.known]
    ids = project.store.patch_ids_of([CommitId(progress.commits[s.patch]) for s in new])
    return [
        ledgers.Attempt(
            s.patch, pid, progress.from_ref, progress.onto.ref, s.outcome, f"patchq {__version__}", now,
            tuple(ledgers.FileOutcome(path, hunks) for path, hunks in s.files), s.grade, s.evidence,
            # Between two releases nobody looked, so it may have been an earlier one.
            progress.onto.ref if s.files and not between else "", s.how, s.lines, s.proof,
        )
        for s, pid in zip(new, (pid or "0" * 40 for pid in ids), strict=True)
    ]  # fmt: skip


def _clean_up(project: Project, progress: Progress) -> None:
    worktree = _worktree(project, progress)
    worktree.remove(force=True)
    branch = branch_of(worktree.upstream)
    now = project.store.ref_or_none(branch)
    if now:
        project.store.update_refs([(branch, now, None)])
    fsio.remove(_path(project, progress.upstream))


# State


def _path(project: Project, upstream: str) -> Path:
    return project.layout.private / "rebase" / f"{upstream}.json"


def _save(project: Project, progress: Progress) -> None:
    fsio.write_atomic(_path(project, progress.upstream), fsio.dump_json({"version": VERSION, **asdict(progress)}))


def _load(project: Project, upstream: str) -> Progress:
    path = _path(project, upstream)
    data = fsio.read_or_none(path)
    if data is None:
        raise UserError(f"no rebase of {upstream} is under way", hint=f"`patchq rebase {upstream} --onto REF`")
    raw = fsio.load_state(data, path, VERSION)
    raw.pop("version")
    stop = raw.pop("stop")
    done = [Step(**{**s, "files": tuple((p, n) for p, n in s["files"])}) for s in raw.pop("done")]
    files = [
        ledgers.Attempt(**{**a, "files": tuple(ledgers.FileOutcome(**f) for f in a["files"])})
        for a in raw.pop("attempts")
    ]
    found = Progress(
        **{**raw, "onto": Pin(**raw["onto"]), "order": tuple(raw["order"]), "target": tuple(raw["target"])},
        done=done, attempts=files,
    )  # fmt: skip
    if stop:
        found.stop = Stop(
            **{
                **stop,
                "conflicts": tuple((path, tuple(lines)) for path, lines in stop["conflicts"]),
                "stages": tuple((p, mode, blob, n) for p, mode, blob, n in stop["stages"]),
            }
        )
    return found


def _result(project: Project, progress: Progress, state: str) -> Result:
    stop = progress.stop if state == "stopped" else None
    folder = str(_worktree(project, progress).path) if stop else ""
    left = len(progress.order) - len(progress.done)
    return Result(
        progress.upstream, progress.from_ref, progress.onto.ref, state, tuple(progress.done), left, stop, folder,
        progress.new_set,
    )  # fmt: skip


def _choose_set(project: Project, set_name: str, new_set: str, onto: Pin) -> str:
    """The set for the new pin: as asked, else one that has it already, else one named after it."""
    if new_set:
        return check_name(new_set, "a set")
    having = [n for n, refs in project.lock.sets.items() if refs.get(onto.upstream) == onto.ref]
    return next(iter(having), f"{set_name}-{onto.upstream}-{ref_to_folder(onto.ref).replace('%', '-')}")


def _merged_order(source: Sequence[str], target: Sequence[str]) -> list[str]:
    """The source's order, with what only the target has after the patch that it follows there."""
    order = list(source)
    for n, name in enumerate(target):
        if name not in order:
            at = order.index(target[n - 1]) + 1 if n else 0
            order.insert(at, name)
    return order


def _retired(project: Project, upstream: str, ref: str) -> set[str]:
    """The patches that the ledger says upstream has at a ref."""
    data = fsio.read_or_none(ledger_path(project.layout, upstream)) or b""
    return {patch for (patch, onto), a in ledgers.parse(data).latest().items() if onto == ref and a.outcome == ABSORBED}
