"""Command ``rebase``: carry a stack onto another ref, and write the new stack to ``patches/<upstream>/<ref>/``.

Patches are applied in memory, in order. If a patch stops, its conflict is checked out in a separate worktree,
with conflict markers that name the patch and the ref. The applied stack does not change. A state file records
the progress. This file is written before anything else changes, so the conflict worktree can be recreated
from it. At the end, one journal operation writes the new stack, its pin and the ledger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import starmap

from patchq import __version__
from patchq.errors import UserError
from patchq.forecast.plan import Planner
from patchq.formats import ledger as ledgers
from patchq.formats.lock import Pin, Upstream
from patchq.formats.lock import parse as parse_lock
from patchq.formats.lockedit import with_pin
from patchq.formats.outcomes import Outcome, ProofState
from patchq.git.objects import CommitInfo
from patchq.git.worktree import branch_of
from patchq.merge import rerere
from patchq.merge.patches import STOPS, Landing, Patch, StopKind, StopReason, read_patches, write_commits
from patchq.merge.target import Column
from patchq.merge.threeway import Moves, carry
from patchq.names import CommitId, TreeId, sh
from patchq.patterns.rules import moved_to
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.project.refs import complete_pin, pins_between
from patchq.project.stack import Stack, State, ledger_with, load_stack, pin_key
from patchq.rebase import stops
from patchq.rebase.state import (
    ABORTING,
    CARRYING,
    FINISHING,
    PatchStep,
    RebaseProgress,
    RebaseState,
    Result,
    Settled,
    Stop,
    load,
    proposals_path,
    ready_stop,
    resolution_path,
    result,
    save,
    state_path,
    stop_worktree,
    take,
)
from patchq.rebase.stops import Prove
from patchq.rebase.switch import name_for
from patchq.stacks.export import write_stack
from patchq.stacks.reconcile import ReconciledEntry
from patchq.system import fsio, project_files
from patchq.system.paths import LOCK_NAME, check_name, find_twins
from patchq.upstream.history import at_hand


class Answer(Enum):
    """User's decision about a stopped patch, as named in the summary of the journal's operation."""

    RESOLUTION = "resolution"
    RETIREMENT = "retirement"
    SKIP = "skip"


# Commands


def start(
    project: Project,
    upstream: str,
    ref: str,
    *,
    prove: Prove,
    set_name: str = "",
    new_set: str = "",
    retire: bool = False,
    leave_out: bool = False,
    codemods: bool = False,
    only: Sequence[str] = (),
    from_ref: str = "",
) -> Result:
    """Carry an upstream's stack from the nearest pinned ref onto ``ref``, until a patch stops.

    If the ref already has a stack, its patches are kept and only the missing ones are carried.
    Patches that the ledger drops are not tried again.

    :param new_set: name of the set that gets the new pin (default: a set that already contains the pin, else a new
        set named after the ref).
    :param retire: drop patches that upstream has, if their proofs pass on the new ref without patches.
    :param leave_out: don't stop at patches that conflict, but leave them for a later rebase.
    :param codemods: if a patch stops, run the command in its ``Codemod:`` trailer, in the sandbox.
    :param only: missing patches to carry, even if the ledger drops them (default: all missing patches that
        the ledger doesn't drop).
    :param from_ref: pinned ref of the stack to carry (default: the nearest).
    :raises UserError: if a rebase of this upstream is in progress, or if a patch in ``only`` isn't in the
        stack.
    """
    set_name = project.choose_set(set_name)
    with project.locked("rebase"):
        if state_path(project, upstream).exists() and not _over(project, load(project, upstream)):
            raise UserError(
                f"a rebase of {upstream} is under way",
                hint=f"run `patchq rebase {upstream}` with `--continue`, `--skip` or `--abort`",
            )
        (own,) = project.stacks(set_name, [upstream])
        if own.pin.ref == ref and not from_ref:
            return Result(
                upstream=upstream,
                from_ref=ref,
                onto=ref,
                state=RebaseState.NOTHING,
                notes=_at_it(project, own, set_name),
            )
        if twins := find_twins([*project.lock.upstreams[upstream].pins, ref]):
            raise UserError(
                f"{upstream}: the pins {twins[0]} and {twins[1]} have the same folder on macOS and Windows",
                hint="rebase onto the commit id instead of the tag or branch",
            )
        onto = complete_pin(project, own.pin, ref)
        base = stops.base_of(project, onto)
        with at_hand(project, upstream) as history:
            plan = Planner(project, upstream, set_name, history, asked=from_ref, only=only).plan(onto)
        if set(plan.order) <= set(plan.known):
            notes = [f"{upstream} {onto.ref} already has every patch"] + ([plan.message] if plan.absent else [])
            return Result(
                upstream=upstream,
                from_ref=plan.from_ref,
                onto=onto.ref,
                state=RebaseState.NOTHING,
                notes=tuple(notes),
                dropped=plan.dropped,
            )
        project.say(plan.message)
        commits = {name: str(plan.commits[name].commit) for name in plan.order}
        new_set = _choose_set(project, set_name, new_set, onto)
        progress = RebaseProgress(
            upstream=upstream,
            set_name=set_name,
            new_set=new_set,
            from_ref=plan.from_ref,
            onto=onto,
            old_base=plan.base,
            base=base.commit,
            source=base.source,
            order=plan.order,
            commits=commits,
            target=plan.known,
            retire=retire,
            leave_out=leave_out,
            codemods=codemods,
            dropped=list(plan.dropped),
            target_digest=_stack_digest(project, onto),
        )
        return _run(project, progress, prove)


def _at_it(project: Project, own: Stack, set_name: str) -> tuple[str, ...]:
    """Return notes for a rebase onto the ref that the set already uses.

    If this ref has no patches, the notes name stacks that can be carried to it.
    """
    upstream, ref = own.pin.upstream, own.pin.ref
    notes = [f"{upstream} is at {ref} in the set {set_name}"]
    if not own.names:
        for pin in project.lock.upstreams[upstream].pins.values():
            if load_stack(project.layout, pin).names:
                command = f"patchq rebase {upstream} --onto {sh(ref)} --from {sh(pin.ref)} --set {set_name}"
                notes.append(f"{ref} has no patches; `{command}` carries those of {pin.ref} to it")
    return tuple(notes)


def skip(project: Project, upstream: str, *, prove: Prove, how: str = "") -> Result:
    """Leave the stopped patch out of the new stack, and continue the rebase.

    :param how: reason for the ledger.
    """
    with project.locked("rebase"):
        progress = load(project, upstream)
        stop = ready_stop(progress)
        if stop is None:
            return go_on_after_kill(project, progress, prove)
        files = stop_worktree(project, progress).snapshot(pass_over=True)
        notes = []
        if note := stops.keep_files(project, progress, stop, files):
            notes.append(f"{stop.patch}: {note}")
        if unopposed := stops.unopposed_paths(project, progress, stop):
            notes.append(f"{stop.patch}: its changes of {', '.join(unopposed)} are also skipped, although they apply")
        record_answer(project, progress, stop, files, Answer.SKIP)
        result = go_on(project, progress, stops.skipped(stop, how), files, prove)
        return replace(result, notes=(*notes, *result.notes))


def abort(project: Project, upstream: str) -> Result:
    """Abort the rebase. Only the resolutions recorded so far are kept."""
    with project.locked("rebase"):
        progress = load(project, upstream)
        notes: list[str] = []
        worktree = stop_worktree(project, progress)
        if worktree.exists and progress.stop and progress.stop.ready and progress.phase == CARRYING:
            tree = worktree.snapshot(pass_over=True)
            notes += filter(None, [stops.keep_files(project, progress, progress.stop, tree)])
        progress.phase = ABORTING
        save(project, progress)
        _clean_up(project, progress)
        return Result(
            upstream=upstream,
            from_ref=progress.from_ref,
            onto=progress.onto.ref,
            state=RebaseState.ABORTED,
            notes=tuple(notes),
        )


# Carrying


def _run(project: Project, progress: RebaseProgress, prove: Prove) -> Result:
    """Apply the remaining patches until one stops. If none stops, finish the rebase."""
    while True:
        names = progress.order[len(progress.done) :]
        if not names:
            return _finish(project, progress)
        patches = read_carried(project, progress, names)
        moves: Moves = {}
        (column,) = carry(project.store, patches, [progress.tip], progress.old_base, moves=moves)
        with stops.StoppedUpstream(project, progress, patches, moves) as upstream:
            if taken := upstream.once_more(column):
                (column,) = carry(project.store, patches, [progress.tip], progress.old_base, taken=taken, moves=moves)
            landed = _land(project, progress, patches, column, upstream, prove)
        if not landed:
            return result(project, progress, RebaseState.STOPPED)


def record_answer(
    project: Project,
    progress: RebaseProgress,
    stop: Stop,
    tree: TreeId,
    answer: Answer,
    files: Mapping[str, bytes | None] | None = None,
) -> None:
    """Record the user's decision about a stop as an operation, which ``undo`` can revert.

    :param tree: tree of the conflict worktree, which ``undo`` restores.
    :param files: files of the project to write in the same operation.
    """
    changed = dict(files or {})
    # `undo` finds the operation by this file, which no other operation changes.
    changed[resolution_path(project, progress.upstream)] = f"{stop.patch} {tree}\n".encode()
    summary = f"{answer.value} of {progress.upstream}/{stop.patch}"
    project.journal.perform(Change(verb="rebase", summary=summary, files=changed))
    progress.settled.append(Settled(stop=stop, steps=len(progress.done), tree=str(tree)))


def go_on(project: Project, progress: RebaseProgress, step: PatchStep, files: TreeId, prove: Prove) -> Result:
    """Add the step for the stopped patch, and continue the rebase.

    :param files: tree of the conflict worktree.
    """
    progress.files, progress.stop = str(files), None
    take(project, progress, step)
    return _run(project, progress, prove)


def _land(
    project: Project,
    progress: RebaseProgress,
    patches: Sequence[Patch],
    column: Column,
    upstream: stops.StoppedUpstream,
    prove: Prove,
) -> bool:
    """Convert apply results into steps of the rebase.

    :returns: False if a patch stops; True otherwise. If a patch was resolved without the user, the patches after it
        are not converted, because they must be applied again on top of the resolution.
    """
    landings = list(map(column.landings.__getitem__, range(len(patches))))
    recorded = rerere.recorded(project.layout, progress.upstream).is_dir()
    run: list[tuple[Patch, Landing]] = []
    ahead: dict[str, CommitId] = {}
    if progress.leave_out and not recorded:
        ahead = _commits_ahead(project, progress, patches, column)
    for number, (patch, landing) in enumerate(zip(patches, landings, strict=True)):
        if landing.outcome not in (*STOPS, Outcome.BY_RULE):
            run.append((patch, landing))
            continue
        _commit(project, progress, run, column, ahead)
        run = []
        if landing.outcome == Outcome.BY_RULE:
            landing, step = _prove_rule(project, progress, patch, landing, column, prove)
            if step:
                take(project, progress, step)
                continue
        by_rule = bool(landing.conflicted)  # the later patches were applied onto its result
        progress.stop = stops.stop_at(progress, patch, landing, landings[number + 1 :], upstream)
        step = _step_without_user(project, progress, patch, landing, column, recorded=recorded, prove=prove)
        if step is None:
            stops.park(project, progress)
            return False
        progress.stop = None
        take(project, progress, step)
        if step.commit or by_rule:  # the later patches must be applied again
            save(project, progress)
            return True
    _commit(project, progress, run, column, ahead)
    save(project, progress)
    return True


def _commits_ahead(
    project: Project, progress: RebaseProgress, patches: Sequence[Patch], column: Column
) -> dict[str, CommitId]:
    """Write the commits of the patches that apply; return the commits by patch name.

    Return an empty dict if a patch applies only by its rules, because its proof must run first.
    """
    whole = []
    for number, patch in enumerate(patches):
        landing = column.landings[number]
        if landing.outcome == Outcome.BY_RULE:
            return {}
        if landing.outcome not in STOPS:
            whole.append((patch, landing))
    return _commits(project, progress, whole, column)


def _step_without_user(
    project: Project,
    progress: RebaseProgress,
    patch: Patch,
    landing: Landing,
    column: Column,
    *,
    recorded: bool,
    prove: Prove,
) -> PatchStep | None:
    """Drop, resolve or postpone a stopped patch without the user, if possible.

    :param recorded: True if there are recorded resolutions for the upstream.
    :returns: the step for the patch; None if the user must decide.
    """
    assert progress.stop
    step = None
    if progress.retire or progress.stop.by_history:
        step = stops.retire(project, progress, progress.stop, prove)
    if step is None and (recorded or not progress.leave_out):
        parked = stops.parked_commit(project, progress, patch, landing, column)
        progress.stop = replace(progress.stop, parked=parked)
    if step is None and landing.stages and recorded:
        step = stops.replay(project, progress, patch, prove)
    if step is None and progress.codemods:
        step = stops.codemod(project, progress, patch, prove)
    if step is None and progress.leave_out:
        step = stops.postponed(progress.stop)
    return step


def _prove_rule(
    project: Project, progress: RebaseProgress, patch: Patch, landing: Landing, column: Column, prove: Prove
) -> tuple[Landing, PatchStep | None]:
    """Commit the changes that a patch's rules make, and run the patch's proof on them.

    :returns: the apply result and the step. If the proof fails, the apply result is the conflict that the patch has
        without its rules, and the step is None.
    """
    commit = _commits(project, progress, [(patch, landing)], column)[patch.name]
    state, message = stops.run_proof(project, progress, patch.name, commit, prove)
    if state in (ProofState.PASSED, ProofState.NOT_RUN):
        step = PatchStep(
            patch=patch.name,
            outcome=Outcome.BY_RULE,
            commit=commit,
            files=tuple((file.path, len(file.lines)) for file in landing.files),
            how="by its rules",
            proof=stops.proof_word(state, message),
            known=patch.name in progress.target,
        )
        return landing, step
    reason = StopReason(kind=StopKind.PROOF, text=f"{state}: {message}")
    return replace(landing, outcome=Outcome.CONFLICT, changes=landing.conflicted, reasons=(reason,)), None


def _over(project: Project, progress: RebaseProgress) -> Result | None:
    """Complete a rebase that was killed while it was finishing or aborting. For another phase, return None."""
    if progress.phase == FINISHING:
        return _finish(project, progress)
    if progress.phase == ABORTING:
        _clean_up(project, progress)
        return Result(
            upstream=progress.upstream, from_ref=progress.from_ref, onto=progress.onto.ref, state=RebaseState.ABORTED
        )
    return None


def go_on_after_kill(project: Project, progress: RebaseProgress, prove: Prove) -> Result:
    """Continue a rebase that was killed before its conflict worktree was ready, or while it was finishing."""
    if over := _over(project, progress):
        return over
    if progress.stop and progress.stop.resolution:  # `undo` was killed
        stops.park(project, progress)
        return result(project, progress, RebaseState.STOPPED)
    progress.stop = None
    return _run(project, progress, prove)


def read_carried(project: Project, progress: RebaseProgress, names: Sequence[str]) -> list[Patch]:
    """Read patches of the stack that is being carried."""
    ids = [progress.commits[name] for name in names]
    infos = {info.commit: info for info in project.store.log("--no-walk=unsorted", *ids)}
    commits = []
    for name, commit in zip(names, ids, strict=True):
        commits.append((name, infos[CommitId(commit)]))
    return read_patches(project.store, commits)


def _commits(
    project: Project, progress: RebaseProgress, run: Sequence[tuple[Patch, Landing]], column: Column
) -> dict[str, CommitId]:
    """Write the apply results as a chain of commits; return the commits by patch name."""
    made = []
    for patch, landing in run:
        message = moved_to(patch.commit.message, column.moved, patch.name)
        made.append((replace(patch.commit, message=message), landing.changes))
    commits = write_commits(project.store, progress.tip, made, column.contents)
    return {patch.name: commit for (patch, _), commit in zip(run, commits, strict=True)}


def _commit(
    project: Project,
    progress: RebaseProgress,
    run: Sequence[tuple[Patch, Landing]],
    column: Column,
    ahead: Mapping[str, CommitId],
) -> None:
    """Add a step for each apply result. Write the commits, unless ``ahead`` already contains them."""
    commits = ahead or _commits(project, progress, run, column)
    for patch, landing in run:
        commit = commits[patch.name]
        known = patch.name in progress.target
        offsets: tuple[ledgers.FileOffset, ...] = ()
        if not known:
            offsets = landing.offsets
        checked = ""
        if offsets:
            checked = ledgers.line_map(progress.from_ref, progress.onto.ref)
        step = PatchStep(
            patch=patch.name, outcome=landing.outcome, commit=commit, known=known, offsets=offsets, checked=checked
        )
        take(project, progress, step)


# Finishing


def _stack_digest(project: Project, pin: Pin) -> str:
    """Return a digest of a stack's series and patch files."""
    layout, stack = project.layout, load_stack(project.layout, pin)
    digest = hashlib.sha256()
    for path in (stack.series_relative(layout), *(stack.relative(layout, name) for name in stack.names)):
        data = project_files.read(layout.root, layout.root / path) or b""
        digest.update(b"%s\0%d\0%s" % (path.encode(), len(data), data))
    return digest.hexdigest()


def _refuse_changed_target(project: Project, progress: RebaseProgress) -> None:
    """Check that the new ref's stack has not changed since the rebase began, because the rebase overwrites it.

    :raises UserError: if the stack has changed.
    """
    upstream, onto = progress.upstream, progress.onto
    # A command that was killed while it finished may have written the new stack already.
    if progress.phase == FINISHING or not progress.target_digest:
        return
    if _stack_digest(project, onto) != progress.target_digest:
        raise UserError(
            f"the stack of {upstream} {onto.ref} was changed since the rebase began; nothing was written",
            hint=f"undo that change and run `patchq rebase {upstream} --continue`, or run `patchq rebase {upstream} "
            "--abort` and begin again; resolutions recorded so far are kept",
        )


def _finish(project: Project, progress: RebaseProgress) -> Result:
    """Write the new stack, its pin and the ledger; then remove the conflict worktree."""
    layout, onto = project.layout, progress.onto
    kept = [s for s in progress.done if s.commit]
    change = Change(verb="rebase", summary=f"rebase {progress.upstream} {progress.from_ref} onto {onto.ref}")
    notes: list[str] = []
    if kept:
        _refuse_changed_target(project, progress)
        stack = load_stack(layout, onto)
        infos = {i.commit: i for i in project.store.log(f"{progress.base}..{progress.tip}")}
        names = {f"{progress.upstream}/{s.patch}" for s in kept}
        entries = []
        for step in kept:
            info, gone = _without_requires(infos[CommitId(step.commit)], progress.upstream, names)
            entries.append(ReconciledEntry(step.patch, info))
            for name in gone:
                notes.append(f"{step.patch}: Requires: {name} is removed, because {onto.ref} has no such patch")
        (tree,) = project.store.tree_of([progress.tip])
        state = State(
            set_name=progress.new_set,
            ref=onto.ref,
            pin_key=pin_key(onto),
            base=progress.base,
            source=progress.source,
            tip=progress.base,
            tree=tree,
            patches=(),
        )
        write_stack(project, change, stack, state, entries, None, move=False)
        parent = project.lock.upstreams[progress.upstream]
        lock = with_pin(
            project_files.read(layout.root, layout.lock) or b"",
            Upstream(name=parent.name, url=parent.url, into=parent.into),
            onto,
            progress.new_set,
            like=progress.set_name,
        )
        parse_lock(lock)
        change.files[LOCK_NAME] = lock
    if progress.phase != FINISHING:
        progress.phase, progress.attempts = FINISHING, _attempts(project, progress)
        save(project, progress)
    change.files.update(ledger_with(layout, progress.upstream, progress.attempts))
    project.journal.perform(change)
    project.__dict__.pop("lock", None)
    found = replace(result(project, progress, RebaseState.DONE), notes=tuple(notes))
    if not kept and found.set_name not in project.lock.sets:
        found = replace(found, set_name="")  # no patch is left, so the new set was not made
    _clean_up(project, progress)
    return found


def _without_requires(info: CommitInfo, upstream: str, names: set[str]) -> tuple[CommitInfo, list[str]]:
    """Remove each ``Requires:`` trailer that names a patch of this upstream, unless the patch is in ``names``.

    :returns: the changed commit, and the patches that the removed trailers name.
    """
    lines, gone = [], []
    for line in info.message.splitlines(keepends=True):
        name = line.removeprefix("Requires:").strip()
        if line.startswith(f"Requires: {upstream}/") and name not in names:
            gone.append(name)
        else:
            lines.append(line)
    return replace(info, message="".join(lines)), gone


def _attempts(project: Project, progress: RebaseProgress) -> list[ledgers.Attempt]:
    """Return the ledger lines for the patches of this rebase."""
    now = fsio.utc_now()
    between = pins_between(
        project.lock.upstreams[progress.upstream], stops.source_pin(project, progress), progress.onto
    )
    new = [step for step in progress.done if not step.known]
    ids = project.store.patch_ids_of([CommitId(progress.commits[step.patch]) for step in new])
    found = []
    for step, patch_id in zip(new, ids, strict=True):
        broke = ""
        if step.files and not between:  # otherwise an earlier release may have broken the patch
            broke = progress.onto.ref
        found.append(
            ledgers.Attempt(
                patch=step.patch,
                patch_id=patch_id or "0" * 40,
                from_ref=progress.from_ref,
                onto=progress.onto.ref,
                outcome=step.outcome,
                tool=f"patchq {__version__}",
                time=now,
                files=tuple(starmap(ledgers.FileOutcome, step.files)),
                grade=step.grade,
                evidence=step.evidence,
                broke=broke,
                how=step.how,
                lines=step.lines,
                proof=step.proof,
                offsets=step.offsets,
                checked=step.checked,
                dropped=tuple(starmap(ledgers.DroppedLine, step.dropped)),
                undecided=step.undecided,
            )
        )
    return found


def _clean_up(project: Project, progress: RebaseProgress) -> None:
    worktree = stop_worktree(project, progress)
    if message := stops.keep_ignored(project, worktree):
        project.say(f"{progress.upstream}: {message}")
    worktree.remove(force=True)
    branch = branch_of(worktree.upstream)
    now = project.store.ref_or_none(branch)
    if now:
        project.store.update_refs([(branch, now, None)])
    fsio.remove(project.layout.root / resolution_path(project, progress.upstream))
    fsio.remove(proposals_path(project, progress.upstream))
    fsio.remove(state_path(project, progress.upstream))


def _choose_set(project: Project, set_name: str, new_set: str, onto: Pin) -> str:
    """Return the set for the new pin: ``new_set``, else a set that already contains the pin, else a new set's name.

    :param set_name: set to prefer if it contains the pin.
    """
    if new_set:
        return check_name(new_set, "a set")
    if project.lock.sets[set_name].get(onto.upstream) == onto.ref:
        return set_name
    having = []
    for n, refs in project.lock.sets.items():
        if refs.get(onto.upstream) == onto.ref:
            having.append(n)
    return next(iter(having), name_for(project.lock, set_name, onto.upstream, onto.ref))
