"""Stopped patches: their conflict worktrees, their resolutions, and drops."""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property

from patchq.errors import BuildError, Conflict, ConflictError, UserError
from patchq.formats import ledger as ledgers
from patchq.formats.diff import GITLINK, SYMLINK
from patchq.formats.header import Header, Ident, parse_trailers
from patchq.formats.lock import Pin
from patchq.formats.outcomes import Outcome, ProofState
from patchq.formats.treepath import parents_of
from patchq.git.diffs import PathChange
from patchq.git.mergetree import Stage
from patchq.git.objects import CommitInfo, TreeEntry, blob_id
from patchq.git.repository import Git, scratch
from patchq.git.worktree import Worktree, branch_of
from patchq.merge import rerere
from patchq.merge.patches import STOPS, Landing, Patch, replace_files, stage_paths, write_commits
from patchq.merge.target import Column
from patchq.merge.threeway import Moves, look_at
from patchq.merge.upstream_lines import find_dropped, show_dropped
from patchq.names import BlobId, CommitId, ProofRequest, TreeId, sh, show_path, show_paths
from patchq.project.journal import KEPT
from patchq.project.project import Project
from patchq.project.stack import load_stack
from patchq.rebase.state import PatchStep, RebaseProgress, Stop, save, stop_worktree
from patchq.records import dataclass
from patchq.sources.bases import Base
from patchq.sources.pins import Fetcher
from patchq.system import fsio
from patchq.upstream.commits import Landed
from patchq.upstream.history import at_hand
from patchq.upstream.match import Asked, UpstreamMatch, matches, once_more, verdict
from patchq.upstream.releases import Releases, on_the_way

_CACHE = re.compile(rb"(?:^|/)(?:__pycache__|\.pytest_cache|\.mypy_cache|\.ruff_cache)/")
_MOST_NAMED = 20
#: Message for a conflicting path without markers that the user has not resolved.
UNDECIDED = "one side changed it, and the other removed or replaced it"

#: Function that runs a proof and returns the proof's state and a message.
Prove = Callable[[ProofRequest], tuple[ProofState, str]]


def stop_at(
    progress: RebaseProgress, patch: Patch, landing: Landing, rest: Sequence[Landing], upstream: StoppedUpstream
) -> Stop:
    """Return the stop for a patch that doesn't apply. Its conflict worktree isn't created yet."""
    seen = upstream.look(patch)
    outcome, grade, evidence = verdict(landing, seen, progress.onto.ref)
    stopping = sum(found.outcome in STOPS for found in rest)
    return Stop(
        patch=patch.name,
        outcome=outcome,
        conflicts=tuple((f.path, f.lines) for f in landing.files),
        parked="",
        stages=tuple((os.fsdecode(s.path), s.entry.mode.decode(), s.entry.blob, s.number) for s in landing.stages),
        grade=grade,
        evidence=evidence,
        message=landing.message,
        carries=len(rest) - stopping,
        stops=stopping,
        by_history=seen.by_history,
    )


def parked_commit(
    project: Project, progress: RebaseProgress, patch: Patch, landing: Landing, column: Column
) -> CommitId:
    """Write the commit to check out in the conflict worktree. Its conflict markers name the ref and the patch."""
    changes, contents = list(landing.changes), dict(column.contents)
    conflicting_paths = stage_paths(landing.stages)
    ours = f"{progress.upstream} {progress.onto.ref}"
    theirs = f"{patch.name} (written for {progress.from_ref})"
    for n, change in enumerate(changes):
        if change.new and change.path in conflicting_paths and change.new.blob in contents:
            text = contents[change.new.blob]
            for label, words in zip(landing.labels, (ours, theirs), strict=True):
                text = text.replace(b" " + label.encode(), b" " + words.encode())
            blob = blob_id(text)
            contents[blob] = text
            changes[n] = PathChange(change.path, change.old, TreeEntry(change.new.mode, blob))
    (parked,) = write_commits(project.store, progress.tip, [(patch.commit, changes)], contents)
    return parked


class StoppedUpstream:
    """Upstream's history or releases between the old and the new ref, read when first used."""

    def __init__(self, project: Project, progress: RebaseProgress, patches: Sequence[Patch], moves: Moves) -> None:
        self.project, self.progress, self.patches, self.moves = project, progress, patches, moves
        self._open = ExitStack()

    @cached_property
    def _columns(self) -> tuple[Column, list[tuple[str, Column]]]:
        progress = self.progress
        pin = source_pin(self.project, progress)
        way = on_the_way(self.project, pin, progress.onto, {})
        commits = [progress.old_base, *(release.commit for release in way), progress.base]
        store = self.project.store
        first, *rest = look_at(store, self.patches, commits, progress.old_base, read=False, moves=self.moves)
        return first, list(zip([*(release.ref for release in way), progress.onto.ref], rest, strict=True))

    @cached_property
    def _past(self) -> Landed | None:
        history = self._open.enter_context(at_hand(self.project, self.progress.upstream))
        old = source_pin(self.project, self.progress)
        if history:
            return history.past(old, self.progress.onto, self.patches)
        return None

    @cached_property
    def _asked(self) -> Asked:
        if self._past:
            return Asked(self._past, None)
        git = self._open.enter_context(scratch(self.project.store))
        return Asked(None, Releases(git, *self._columns, self.patches))

    def __enter__(self) -> StoppedUpstream:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def once_more(self, column: Column) -> frozenset[str]:
        """Return the patches that still apply, although upstream has already made the same change."""
        return once_more(self.patches, column, self._past)

    def look(self, patch: Patch) -> UpstreamMatch:
        """Compare a patch with upstream's code."""
        base, versions = self._columns
        last = len(versions) - 1
        return self._asked.about(patch, matches(patch, base, versions, [last])[last])


def retire(project: Project, progress: RebaseProgress, stop: Stop, prove: Prove) -> PatchStep | None:
    """Drop a patch if upstream has its whole change and its proof passes on bare upstream.

    :returns: the step for the patch; None if the patch is not dropped.
    """
    if stop.outcome != Outcome.ABSORBED:
        return None
    state, message = run_proof(project, progress, stop.patch, progress.base, prove, bare=True)
    if state != ProofState.PASSED:
        word = f"its proof on the bare {progress.upstream} {progress.onto.ref}: {proof_word(state, message)}"
        progress.stop = replace(stop, message=f"not retired: {word}")
        return None
    return _retired(stop)


def retire_on_word(project: Project, progress: RebaseProgress, stop: Stop, prove: Prove, how: str) -> PatchStep:
    """Drop a patch that upstream has or replaced, according to the user.

    The patch's proof must pass on bare upstream. If the proof can't run, ``how`` is required, and upstream must
    have the whole patch.

    :raises UserError: if upstream has no part of the patch and ``how`` is empty.
    :raises BuildError: if the proof fails, or if it can't run and the other evidence is not enough.
    """
    name = f"{progress.upstream}/{stop.patch}"
    if not stop.grade and not how:
        raise UserError(
            f"no part of {name} was found in {progress.onto.ref}",
            hint="if upstream replaced the patch, describe the replacement with --how TEXT; `--skip` drops the patch",
        )
    state, message = run_proof(project, progress, stop.patch, progress.base, prove, bare=True)
    if state == ProofState.PASSED:
        return _retired(stop, how)
    if state == ProofState.NOT_RUN and stop.outcome == Outcome.ABSORBED and how:
        on_evidence = on_evidence_alone(stop.evidence, how)
        return replace(_retired(stop, on_evidence), proof=proof_word(state, message))
    rebase = f"patchq rebase {progress.upstream}"
    hint = f"resolve the conflict, then run `{rebase} --continue`; or leave the patch out: `{rebase} --skip`"
    if state == ProofState.NOT_RUN and stop.outcome == Outcome.ABSORBED:
        hint = (
            f"to drop the patch without a proof: `{rebase} --continue --retire --how REASON`; to leave it out: "
            f"`{rebase} --skip`"
        )
    raise BuildError(
        f"{name} is not retired: its proof on the bare {progress.upstream} {progress.onto.ref}: "
        f"{proof_word(state, message)}",
        hint=hint,
    )


def on_evidence_alone(evidence: str, how: str) -> str:
    """Return the ledger's text for a drop that no proof confirms."""
    return f"retired on evidence, with no proof: {how} ({evidence})"


def _retired(stop: Stop, how: str = "") -> PatchStep:
    return PatchStep(
        patch=stop.patch,
        outcome=Outcome.ABSORBED,
        commit="",
        files=_files(stop),
        grade=stop.grade,
        evidence=stop.evidence,
        how=how or f"retired: upstream has it ({stop.evidence})",
        proof="passed on the bare upstream",
    )


def run_proof(
    project: Project, progress: RebaseProgress, patch: str, tip: CommitId, prove: Prove, *, bare: bool = False
) -> tuple[ProofState, str]:
    """Run a patch's proof on a commit.

    :param bare: True if the commit is upstream's, without any patch.
    :returns: the state and the message of the proof.
    """
    header = header_of(project, progress, patch)
    request = ProofRequest(
        set_name=progress.set_name,
        upstream=progress.upstream,
        patch=patch,
        files=header.values("Proof"),
        needs=header.needs,
        tip=tip,
        bare=bare,
    )
    if not request.files:
        return ProofState.NOT_RUN, "the patch names no proof"
    project.say(f"  the proof of {patch} on {'the bare ' if bare else ''}{progress.upstream} {progress.onto.ref} …")
    state, message = prove(request)
    project.say(f"  the proof of {patch}: {state}")
    return state, message


def header_of(project: Project, progress: RebaseProgress, patch: str) -> Header:
    """Return the header of a patch, from the source stack or from the new ref's stack."""
    stack = load_stack(project.layout, source_pin(project, progress))
    return (stack if patch in stack.names else load_stack(project.layout, progress.onto)).load(patch)[0]


def proof_word(state: ProofState, message: str) -> str:
    """Return the ledger's text for a proof result."""
    if state == ProofState.PASSED:
        return state
    return f"{state}: {message}"


def skipped(stop: Stop, how: str = "") -> PatchStep:
    """Return the step for a stopped patch that the user drops."""
    return _without(stop, how or "left out" + _if_absorbed(stop))


def postponed(stop: Stop) -> PatchStep:
    """Return the step for a stopped patch that is left for a later rebase, but not dropped."""
    message = ""
    if stop.message:
        message = f"; {stop.message}"
    how = ledgers.NOT_CARRIED_YET + _if_absorbed(stop) + message
    return replace(_without(stop, how), undecided=True, stopped=stop.message)


def _without(stop: Stop, how: str) -> PatchStep:
    return PatchStep(
        patch=stop.patch,
        outcome=stop.outcome,
        commit="",
        files=_files(stop),
        grade=stop.grade,
        evidence=stop.evidence,
        how=how,
    )


def _if_absorbed(stop: Stop) -> str:
    if stop.outcome == Outcome.ABSORBED:
        return f": upstream has it ({stop.evidence})"
    return ""


def _files(stop: Stop) -> tuple[tuple[str, int], ...]:
    return tuple((path, len(lines)) for path, lines in stop.conflicts)


def park(project: Project, progress: RebaseProgress) -> None:
    """Check out the conflict of the stopped patch in the conflict worktree, ready for the user."""
    stop = progress.stop
    assert stop
    save(project, progress)
    worktree = stop_worktree(project, progress)
    branch = branch_of(worktree.upstream)
    now = project.store.ref_or_none(branch)
    if now != progress.tip:
        project.store.update_refs([(branch, now, progress.tip)])
    tree = stop.resolution or stop.replayed or project.store.tree_of([stop.parked])[0]
    # After a kill or a power cut, some files may be old, new or incomplete.
    worktree.mend()
    worktree.create(progress.tip)
    worktree.resume(CommitId(progress.files) if progress.files else None, CommitId(tree))
    rerere.mark_conflicts(worktree.git, stop_stages(stop))
    # Git doesn't sync the files of a checkout, and an incomplete file would look like an edit of the user.
    fsio.sync_file_system(project.layout.private)
    progress.files = str(tree)
    progress.stop = replace(stop, ready=True)
    save(project, progress)


def unopposed_paths(project: Project, progress: RebaseProgress, stop: Stop) -> list[str]:
    """Return the changed files of a stopped patch that merge without a conflict."""
    if not stop.parked or not stop.stages:
        return []
    changed = _changed_paths(project.store, progress.tip, stop.parked)
    return list(map(show_path, sorted(changed.difference(stop.paths))))


def _changed_paths(store: Git, before: str, after: str) -> set[bytes]:
    return {change.path for change in store.changes(before, after)}


def _stage_numbers(stop: Stop) -> dict[bytes, set[int]]:
    """Return the stage numbers in git's index for each conflicting path."""
    found: dict[bytes, set[int]] = defaultdict(set)
    for stage in stop_stages(stop):
        found[stage.path].add(stage.number)
    return found


def conflicting(project: Project, stop: Stop, tree: str) -> dict[bytes, bytes]:
    """Return the contents in ``tree`` of the conflicting files that both sides contain, by path."""
    both = []
    for path, numbers in sorted(_stage_numbers(stop).items()):
        if numbers >= {2, 3}:
            both.append(path)
    files = {}
    if both:
        for path, entry in project.store.list_tree(tree, both).items():
            if entry.mode not in (SYMLINK, GITLINK):
                files[path] = entry
    return project.store.texts(files)


def replay(project: Project, progress: RebaseProgress, patch: Patch, prove: Prove) -> PatchStep | None:
    """Apply a recorded resolution, if it resolves every conflict and the proof passes.

    :returns: the step; None if the patch must stop.
    """
    stop = progress.stop
    assert stop
    parked = conflicting(project, stop, stop.parked)
    resolved = rerere.replay(
        project.store, stop_stages(stop), parked, layout=project.layout, upstream=progress.upstream
    )
    if not resolved or sorted(resolved) != stop.paths:
        return None
    tree = replace_files(project.store, CommitId(stop.parked), patch.commit, resolved, {})
    commit = project.store.commit_tree(tree, [progress.tip], patch.commit.author, patch.commit.message)
    how = f"the recorded resolution of {show_paths(stop.paths)}"
    if any(rerere.is_away(parked[path], content) for path, content in resolved.items()):
        message = f"{how} resolves it, but changes lines outside the conflict, maybe in the wrong place: review it"
        progress.stop = replace(stop, replayed=str(tree), message=message)
        return None
    if dropped := find_dropped(project.store, old=patch.commit.commit, new=commit, upstream=progress.base):
        message = f"{how} resolves it, but drops lines that upstream added: {show_dropped(dropped)}"
        progress.stop = replace(stop, replayed=str(tree), message=message)
        return None
    state, message = run_proof(project, progress, stop.patch, commit, prove)
    if state == ProofState.PASSED:
        lines = _changed_lines(project, patch.commit.commit, commit)
        return PatchStep(
            patch=patch.name,
            outcome=Outcome.REPLAYED,
            commit=commit,
            files=_files(stop),
            how=f"by {how}",
            lines=lines,
            proof=state,
        )
    if state == ProofState.NOT_RUN:
        message = f"{how} resolves it, but no proof confirms it ({message}): review it"
        progress.stop = replace(stop, replayed=str(tree), message=message)
    else:
        # Without ``replayed``, the worktree gets the conflict with its markers again.
        progress.stop = replace(stop, message=f"{how} was tried, but then the proof {state}: {message}")
    return None


def codemod(project: Project, progress: RebaseProgress, patch: Patch, prove: Prove) -> PatchStep | None:
    """Run the command in a stopped patch's ``Codemod:`` trailer, in the sandbox.

    :returns: the step with the command's result; None unless the proof passes on this result.
    """
    from patchq.replay.scripts import CODEMOD, run_command  # slow to import

    stop, store = progress.stop, project.store
    assert stop
    commands = [value for key, value in parse_trailers(patch.commit.message) if key == CODEMOD]
    if len(commands) != 1:
        return None
    project.say(f"  {patch.name}: running `{commands[0]}` …")
    try:
        tree = run_command(store, progress.tip, commands[0])
    except UserError as error:
        progress.stop = replace(stop, message=error.message)
        return None
    if _changed_paths(store, progress.tip, tree) != patch.paths:
        progress.stop = replace(stop, message="its command changes other files than the patch")
        return None
    commit = store.commit_tree(tree, [progress.tip], patch.commit.author, patch.commit.message)
    if dropped := find_dropped(store, old=patch.commit.commit, new=commit, upstream=progress.base):
        progress.stop = replace(stop, message=f"its command drops lines that upstream added: {show_dropped(dropped)}")
        return None
    state, message = run_proof(project, progress, stop.patch, commit, prove)
    if state != ProofState.PASSED:
        progress.stop = replace(stop, message=f"its command was run, and its proof: {proof_word(state, message)}")
        return None
    lines = _changed_lines(project, patch.commit.commit, commit)
    return PatchStep(
        patch=patch.name,
        outcome=Outcome.BY_RULE,
        commit=commit,
        files=_files(stop),
        how="by its command",
        lines=lines,
        proof=state,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """Resolution taken from the conflict worktree.

    :ivar tree: tree that contains only the patch's changes.
    :ivar held: tree that contains all changes in the worktree.
    :ivar left_out: changed or added paths that are not part of the patch.
    """

    tree: TreeId
    held: TreeId
    left_out: tuple[str, ...] = ()


def take_own(
    project: Project, progress: RebaseProgress, stop: Stop, worktree: Worktree, include: Sequence[str]
) -> Taken:
    """Return the resolution in the conflict worktree: conflicting paths, the patch's own paths, and staged paths.

    :param include: more files or folders to take.
    """
    held = worktree.snapshot()
    own = _own_paths(project, progress, stop, worktree)
    included = {os.fsencode(path.rstrip("/")) for path in include}
    others = []
    for change in project.store.changes(progress.files, held):
        places = {change.path, *parents_of(change.path), b"."}
        if change.path not in own and included.isdisjoint(places):
            others.append(PathChange(change.path, change.new, change.old))
    if not others:
        return Taken(tree=held, held=held)
    info = original(project, progress, stop)
    on_held = project.store.commit_tree(held, [progress.tip], info.author, info.message)
    (without,) = write_commits(project.store, on_held, [(info, others)], {})
    names = (show_path(change.path) for change in others)
    return Taken(tree=project.store.tree_of([without])[0], held=held, left_out=tuple(names))


def _own_paths(project: Project, progress: RebaseProgress, stop: Stop, worktree: Worktree) -> set[bytes]:
    """Return the paths that belong to the stopped patch or are staged."""
    store = project.store
    commit = progress.commits[stop.patch]
    own = set(stop.paths)
    own |= _changed_paths(store, progress.tip, stop.parked)
    own |= _changed_paths(store, f"{commit}^", commit)
    if stop.resolution:
        own |= _changed_paths(store, stop.parked, stop.resolution)
    staged = worktree.git.run("diff-index", "--cached", "-z", "--name-only", progress.files).split(b"\0")
    return own | set(staged[:-1])


def put_aside(project: Project, worktree: Worktree, taken: Taken) -> str:
    """Keep the changes that a resolution leaves out as a commit, and restore the tracked files of the worktree.

    Untracked files stay where they are.

    :returns: a note for the user; empty if nothing was left out.
    """
    if not taken.left_out:
        return ""
    store, head = project.store, worktree.head()
    assert head
    kept = _keep(store, taken.held, head, "Left out of a resolution\n")
    for change in store.changes(taken.tree, taken.held):
        if change.old:
            path = os.fsdecode(change.path)
            worktree.git.run("restore", f"--source={taken.tree}", "--worktree", "--staged", "--", f":(literal){path}")
    fsio.sync_file_system(project.layout.private)
    names = ", ".join(taken.left_out)
    return f"left out, because the patch doesn't change these files: {names}; kept as the commit {kept}"


def _keep(store: Git, tree: TreeId, parent: CommitId, message: str) -> CommitId:
    """Commit a tree, and create a ref so that git keeps the commit."""
    nobody = Ident("patchq", "patchq@localhost", int(time.time()), "+0000")
    commit = store.commit_tree(tree, [parent], nobody, message)
    store.run("update-ref", f"{KEPT}{commit}", commit)
    return commit


def keep_files(project: Project, progress: RebaseProgress, stop: Stop, tree: TreeId) -> str:
    """Keep the user's edits in the conflict worktree as a commit.

    :param tree: tree of the worktree.
    :returns: a note for the user; empty if there are no edits.
    """
    store = project.store
    if tree == store.tree_of([stop.parked])[0]:
        return ""
    kept = _keep(store, tree, progress.tip, f"{stop.patch}, as it was\n")
    return f"the worktree's files are kept as the commit {kept} of {project.layout.store}"


def keep_commits(project: Project, progress: RebaseProgress, worktree: Worktree) -> str:
    """Keep the commits that the user made in the conflict worktree.

    Their files are part of the resolution, but the patch keeps its own message.

    :returns: a note for the user; empty if there are no commits.
    """
    head = worktree.head()
    if head is None or head == progress.tip:
        return ""
    project.store.run("update-ref", f"{KEPT}{head}", head)
    return f"the patch keeps its own message; your commits and their messages are kept as the commit {head}"


def keep_ignored(project: Project, worktree: Worktree) -> str:
    """Before a worktree is removed, keep its ignored files as a commit.

    Caches of Python, pytest, mypy and ruff are not kept.

    :returns: a note for the user; empty if there are no such files.
    """
    store, head = project.store, worktree.head()
    if head is None:
        return ""
    listed = worktree.git.run("ls-files", "--others", "--ignored", "--exclude-standard", "-z").split(b"\0")[:-1]
    paths = []
    for p in listed:
        if not _CACHE.search(p) and p.rstrip(b"/") not in worktree.nested:
            paths.append(p)
    if not paths:
        return ""
    with fsio.temporary_folder() as folder:
        env = {"GIT_INDEX_FILE": str(folder / "index")}
        worktree.git.run("read-tree", head, env=env)
        worktree.git.run("update-index", "--add", "-z", "--stdin", data=b"\0".join(paths) + b"\0", env=env)
        tree = TreeId(worktree.git.run("write-tree", env=env).decode().strip())
    kept = _keep(store, tree, head, "Ignored files of a worktree\n")
    names = show_paths(paths[:_MOST_NAMED])
    if len(paths) > _MOST_NAMED:
        names += f" and {len(paths) - _MOST_NAMED} more"
    return f"the worktree is removed; its ignored files are kept as the commit {kept}: {names}"


def resolved(
    project: Project, progress: RebaseProgress, stop: Stop, worktree: Worktree, taken: Taken, how: str
) -> PatchStep:
    """Return the step for a stopped patch that ``taken`` resolves.

    :raises ConflictError: if files still have conflict markers, or if the user hasn't chosen a side for a
        conflicting file without markers.
    :raises UserError: if the resolved patch changes nothing.
    """
    tree = taken.tree
    marked, undecided = unsettled(project, stop, tree, unmerged(worktree))
    name = f"{progress.upstream}/{stop.patch}"
    if marked:
        raise ConflictError(
            f"{name}: conflict markers are left in {show_paths(marked)}",
            _conflicts(progress, stop, marked, "still has conflict markers"),
            hint=f"resolve the conflicts in {worktree.path}, then run `patchq rebase {progress.upstream} --continue`",
        )
    if undecided:
        command = "`git add PATH` or `git rm PATH`"
        if any(s.entry.mode == GITLINK and s.path in undecided for s in stop_stages(stop)):
            command = "`git update-index --cacheinfo 160000,COMMIT,PATH`"
        raise ConflictError(
            f"{name}: {show_paths(undecided)}: {UNDECIDED}",
            _conflicts(progress, stop, undecided, "is not decided"),
            hint=f"run {command} in {worktree.path}, or run `patchq rebase {progress.upstream} --skip`",
        )
    if tree == project.store.tree_of([progress.tip])[0]:
        edited = ""
        if taken.left_out:
            edited = f"`--include {sh(taken.left_out[0])}` includes your edits of that file; "
        raise UserError(
            f"nothing is left of {name}",
            hint=f"{edited}`--skip` leaves the patch out of the new stack; if upstream has it, `--continue "
            "--retire` drops it",
        )
    return as_step(project, progress, stop, tree, how)


def _conflicts(progress: RebaseProgress, stop: Stop, paths: Sequence[bytes], reason: str) -> list[Conflict]:
    found = []
    for path in map(show_path, paths):
        found.append(Conflict(upstream=progress.upstream, patch=stop.patch, path=path, reason=reason))
    return found


def unmerged(worktree: Worktree) -> frozenset[bytes]:
    """Return the conflicting paths that the user hasn't yet resolved by `git add` or `git rm`."""
    entries = worktree.git.run("ls-files", "--unmerged", "-z").split(b"\0")
    found = []
    for entry in entries:
        if entry:
            found.append(entry.split(b"\t", 1)[1])
    return frozenset(found)


def unsettled(project: Project, stop: Stop, tree: TreeId, left: Collection[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return two lists: the paths with conflict markers in a tree, and the unresolved paths without markers."""
    paths = stop.paths
    if not paths:
        return [], []
    there = project.store.list_tree(tree, paths)
    parked = project.store.list_tree(stop.parked, paths)
    texts = project.store.texts(there)
    deleted_by_both = {1}
    marked, undecided = [], []
    for path, numbers in sorted(_stage_numbers(stop).items()):
        if path in texts and not rerere.is_settled(texts[path]):
            marked.append(path)
        elif path in left and numbers != deleted_by_both and there.get(path) == parked.get(path):
            undecided.append(path)
    return marked, undecided


def as_step(project: Project, progress: RebaseProgress, stop: Stop, tree: TreeId, how: str) -> PatchStep:
    """Commit a tree with the stopped patch's message and author; return the patch's step."""
    info = original(project, progress, stop)
    commit = project.store.commit_tree(tree, [progress.tip], info.author, info.message)
    lines = _changed_lines(project, info.commit, commit)
    if tree == stop.replayed:
        outcome = Outcome.REPLAYED
    else:
        outcome = Outcome.RESOLVED
    return PatchStep(
        patch=stop.patch,
        outcome=outcome,
        commit=commit,
        files=_files(stop),
        grade=stop.grade,
        evidence=stop.evidence,
        how=how,
        lines=lines,
    )


def original(project: Project, progress: RebaseProgress, stop: Stop) -> CommitInfo:
    """Return the commit of the stopped patch in the stack that is being carried."""
    (info,) = project.store.log(f"{progress.commits[stop.patch]}^!")
    return info


def _changed_lines(project: Project, old: CommitId, new: CommitId) -> int:
    """Count the lines in which two versions of a patch differ."""
    sides = []
    for text in project.store.diffs_of([old, new]):
        lines = []
        for line in text.split(b"\n"):
            if line[:1] in b"+-" and not line.startswith((b"+++", b"---")):
                lines.append(line)
        sides.append(lines)
    return ledgers.changed_lines(*sides)


def stop_stages(stop: Stop) -> list[Stage]:
    """Return the conflicting paths as stages of git's index: base (1), ours (2) and the patch (3)."""
    return [Stage(os.fsencode(p), TreeEntry(mode.encode(), BlobId(blob)), n) for p, mode, blob, n in stop.stages]


def source_pin(project: Project, progress: RebaseProgress) -> Pin:
    """Return the pin whose stack is being carried.

    :raises UserError: if the pin was removed from the lock.
    """
    pins = project.lock.upstreams[progress.upstream].pins
    if progress.from_ref not in pins:
        raise UserError(
            f"{progress.upstream} {progress.from_ref} is not pinned any more", hint="abort the rebase with `--abort`"
        )
    return pins[progress.from_ref]


def base_of(project: Project, pin: Pin, *, offline: bool = False) -> Base:
    """Return the base commit of a pin. Fetch it if it isn't available locally."""
    fetcher = Fetcher(project.layout, project.lock, say=project.say, offline=offline, progress=project.progress)
    return fetcher.fetch([pin])[0]
