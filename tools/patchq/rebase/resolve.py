"""Resolutions of a stopped patch: where they come from, how they are checked and how they are recorded.

``rebase --continue`` uses the resolution in the conflict worktree. ``resolve`` can also use resolved files,
a recorded resolution, another ref's version of the patch, or a merge tool. Both commands run the same checks.
If a check fails, nothing changes. After a resolution, ``undo`` returns to the stopped patch.
"""

from __future__ import annotations

import ast
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from patchq.errors import BuildError, ConflictError, EditedTreeError, FormatError, PatchqError, SourceError, UserError
from patchq.formats.diff import GITLINK, REGULAR
from patchq.formats.header import Header
from patchq.formats.header import parse as parse_mail
from patchq.formats.lock import Lock
from patchq.formats.outcomes import ProofState
from patchq.merge import rerere
from patchq.merge.patches import STOPS, read_patches, replace_files, write_commits
from patchq.merge.threeway import carry
from patchq.merge.upstream_lines import UpstreamLine, find_dropped, show_dropped
from patchq.names import CommitId, TreeId, counted, sh, show_path, show_paths
from patchq.project.project import Project
from patchq.project.stack import Stack, load_stack
from patchq.rebase import stops
from patchq.rebase.run import Answer, go_on, go_on_after_kill, record_answer
from patchq.rebase.state import (
    CARRYING,
    PatchStep,
    RebaseProgress,
    Result,
    Stop,
    load,
    ready_stop,
    resolution_path,
    save,
    stop_worktree,
    stopped,
    upstreams_under_way,
)
from patchq.rebase.stops import Prove, Taken
from patchq.stacks.apply import carried_stacks
from patchq.stacks.check import check_diff
from patchq.stacks.engine import Engine, Incoming
from patchq.stacks.export import format_patches
from patchq.system import fsio, runner
from patchq.system.paths import check_inside
from patchq.upstream.history import History, at_hand

#: Maximum size of a resolution file in bytes, and time limit in seconds for a merge tool to merge one file.
MOST_BYTES, SECONDS = 64 << 20, 60

#: Maximum number of dropped lines for which patchq searches the commit. Each search reads the history.
_MOST_ASKED = 10
#: Maximum length of a line that git searches for.
_MOST_TEXT = 1000
#: Names of checks that other modules use.
SETTLED, APPLIES, UPSTREAM_LINES = "settled", "applies", "upstream lines"
PASSES_WITH, FAILS_WITHOUT = "passes with", "fails without"

# Commands


def resume(
    project: Project,
    upstream: str,
    *,
    prove: Prove,
    wish: ResolveRequest | None = None,
    include: Sequence[str] = (),
    retire: bool = False,
    how: str = "",
) -> Result:
    """Take the resolution of the stopped patch from the conflict worktree, and continue the rebase.

    The resolution consists of the conflicting paths, the patch's own paths and staged paths. Other changes in
    the worktree are reported, kept as a commit, and left out.

    :param wish: checks to skip, and removed lines of upstream to accept.
    :param include: more paths to take from the worktree.
    :param retire: True to drop the patch instead, because upstream has it or replaced it; see
        :func:`patchq.rebase.stops.retire_on_word`.
    :param how: description of the resolution for the ledger.
    :raises ConflictError: if files still have conflict markers.
    :raises BuildError: if a check or the proof fails.
    :raises UserError: if the resolved patch changes nothing, or if it would remove upstream's lines. Also if there
        is no evidence for ``retire``.
    """
    wish = wish or ResolveRequest()
    with project.locked("rebase"):
        progress = load(project, upstream)
        stop = ready_stop(progress)
        if stop is None:
            return go_on_after_kill(project, progress, prove)
        worktree = stop_worktree(project, progress)
        if retire:
            step = stops.retire_on_word(project, progress, stop, prove, how)
            tree = worktree.snapshot(pass_over=True)
            record_answer(project, progress, stop, tree, Answer.RETIREMENT)
            return go_on(project, progress, step, tree, prove)
        taken = stops.take_own(project, progress, stop, worktree, include)
        step = stops.resolved(project, progress, stop, worktree, taken, how)
        candidate = Candidate(taken.tree, how, stops.unmerged(worktree))
        checks = judge(project, progress, stop, step, candidate, prove=prove, wish=wish)
        dropped = dropped_by(project, progress, stop, CommitId(step.commit))
        _refuse(progress, stop, checks, dropped, wish, worktree.path)
        return settle(project, progress, stop, step_of(step, checks, dropped), taken, prove)


def _refuse(
    progress: RebaseProgress,
    stop: Stop,
    checks: Sequence[ResolutionCheck],
    dropped: Sequence[UpstreamLine],
    wish: ResolveRequest,
    path: Path,
) -> None:
    """Raise the error for the check that failed; do nothing if all passed.

    :raises UserError: if the resolution removes upstream's lines.
    :raises BuildError: if any other check failed.
    """
    name = f"{progress.upstream}/{stop.patch}"
    for check in checks:
        if check.state != ProofState.FAILED:
            continue
        if check.name == UPSTREAM_LINES:
            options = ""
            for line in dropped:
                if not line.is_one_of(wish.dropped):
                    options += f" --drop-upstream-line {sh(line.name)}"
            raise UserError(
                f"{name}: {check.message}",
                hint=f"put the lines back in {path}, or run "
                f"`patchq rebase {progress.upstream} --continue{options}` to drop them",
            )
        raise BuildError(
            f"the resolution of {name} is refused: {check.name}: {check.message}",
            hint=f"fix it in {path}, then run `patchq rebase {progress.upstream} --continue`; `--no-proof` skips the "
            "proof",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Source of a resolution. If no source is set, the resolution is taken from the conflict worktree.

    :ivar files: resolved files; see :func:`from_files`.
    :ivar recorded: True to use the project's recorded resolutions.
    :ivar ref: ref whose version of the patch to use.
    :ivar merger: name of the merge tool to run.
    :ivar include: more paths to take from the worktree.
    :ivar tree: tree of a proposed resolution.
    :ivar how: description of ``tree`` for the ledger.
    """

    files: tuple[str, ...] = ()
    recorded: bool = False
    ref: str = ""
    merger: str = ""
    include: tuple[str, ...] = ()
    tree: str = ""
    how: str = ""

    @property
    def is_worktree(self) -> bool:
        """Return whether the resolution is taken from the worktree."""
        return not (self.files or self.recorded or self.ref or self.merger or self.tree)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """Resolution of the stopped patch, with the results of its checks.

    :ivar kept: True if the resolution was recorded. Then ``rebase`` is the new state of the rebase.
    :ivar diff: diff of the resolved patch.
    :ivar left_out: changed files of the worktree that are not part of the resolution.
    """

    upstream: str
    patch: str
    how: str
    kept: bool
    checks: tuple[ResolutionCheck, ...]
    diff: str
    rebase: Result | None = None
    left_out: tuple[str, ...] = ()

    @property
    def refused(self) -> tuple[ResolutionCheck, ...]:
        """Return the checks that failed."""
        return tuple(c for c in self.checks if c.state == ProofState.FAILED)


def resolve(
    project: Project, upstream: str, source: Source, *, prove: Prove, wish: ResolveRequest, dry_run: bool = False
) -> Resolution:
    """Check a resolution of the stopped patch. If all checks pass, record it and continue the rebase.

    :param dry_run: only run the checks.
    :raises UserError: if no patch is stopped, or if the source contains no resolution.
    :raises EditedTreeError: if the worktree contains edits and isn't the source of the resolution.
    """
    with project.locked("resolve"):
        progress = load(project, upstream)
        stop = stopped(progress)
        worktree = stop_worktree(project, progress)
        if source.is_worktree:
            taken = stops.take_own(project, progress, stop, worktree, source.include)
            candidate = Candidate(taken.tree, "", stops.unmerged(worktree))
        else:
            held = worktree.snapshot(pass_over=True)
            taken = Taken(tree=held, held=held)
            candidate = _candidate(project, progress, stop, source)
            if candidate.tree != held and held != progress.files and not dry_run:
                raise EditedTreeError(
                    f"{upstream}: the worktree holds edits of the stopped patch; they are kept",
                    hint=f"`patchq resolve {upstream}` checks the edits; `git checkout HEAD -- .` in the worktree "
                    "discards them",
                )
        step = stops.as_step(project, progress, stop, candidate.tree, candidate.how)
        checks = judge(project, progress, stop, step, candidate, prove=prove, wish=wish)
        text = project.store.diffs_of([CommitId(step.commit)])[0].decode("utf-8", "replace")
        found = Resolution(
            upstream=upstream,
            patch=stop.patch,
            how=candidate.how,
            kept=False,
            checks=tuple(checks),
            diff=text,
            left_out=taken.left_out,
        )
        if found.refused or dry_run:
            return found
        step = step_of(step, checks, dropped_by(project, progress, stop, CommitId(step.commit)))
        result = settle(project, progress, stop, step, taken, prove)
        return replace(found, kept=True, rebase=result)


def _candidate(project: Project, progress: RebaseProgress, stop: Stop, source: Source) -> Candidate:
    if source.files:
        return from_files(project, progress, stop, source.files)
    if source.tree:
        return Candidate(TreeId(source.tree), source.how)
    if source.recorded:
        return from_recorded(project, progress, stop)
    if source.ref:
        return from_ref(project, progress, stop, source.ref)
    return from_merger(project, progress, stop, source.merger)


def find_resolution(project: Project) -> RebaseProgress | None:
    """Return the rebase in which the last operation resolved a stopped patch; None if there is no such rebase."""
    last = project.journal.last()
    changed = last[1]["files"] if last else ()
    for upstream in upstreams_under_way(project):
        path = resolution_path(project, upstream)
        if path not in changed:
            continue
        progress = load(project, upstream)
        if progress.phase != CARRYING or not progress.settled:
            return None
        # If patchq was killed while it recorded the decision, `settled` doesn't contain the stop yet.
        patch = (fsio.read_or_none(project.layout.root / path) or b"").decode().partition(" ")[0]
        return progress if progress.settled[-1].stop.patch == patch else None
    return None


def undo_resolution(project: Project) -> tuple[str, str] | None:
    """Undo the last operation if it resolved a stopped patch of a rebase in progress.

    The rebase returns to the stopped patch, and the files of that stop are restored in the worktree.

    :returns: the summary of the operation and the folder of the worktree; None if the last operation didn't
        resolve a stopped patch.
    :raises EditedTreeError: if the worktree contains edits for the patch that stopped next.
    """
    progress = find_resolution(project)
    if progress is None:
        return None
    upstream, patch = progress.upstream, progress.settled[-1].stop.patch
    worktree = stop_worktree(project, progress)
    if worktree.exists and progress.stop and progress.stop.ready:
        held = worktree.snapshot(pass_over=True)
        if held != progress.files:
            raise EditedTreeError(
                f"{upstream}: the worktree holds edits of {progress.stop.patch}, which stopped after {patch}; "
                "nothing was undone",
                hint=f"`git -C {sh(worktree.path)} stash -u` sets the edits aside",
            )
    settled = progress.settled.pop()
    del progress.done[settled.steps :]
    progress.stop = replace(settled.stop, ready=False, resolution=settled.tree)
    save(project, progress)
    # The rebase's progress isn't in the journal.
    done = project.journal.undo(redo=False)
    stops.park(project, progress)
    return str(done.record["summary"]), str(worktree.path)


# Recording


def step_of(step: PatchStep, checks: Sequence[ResolutionCheck], dropped: Sequence[UpstreamLine]) -> PatchStep:
    """Return a copy of ``step`` with the result of the proof and upstream's lines that the patch removes."""
    word = ""
    for check in checks:
        if check.name == PASSES_WITH:
            word = stops.proof_word(check.state, check.message)
    lines = ((line.path, line.line, line.text) for line in dropped)
    return replace(step, proof=word, dropped=tuple(lines))


def settle(
    project: Project, progress: RebaseProgress, stop: Stop, step: PatchStep, taken: Taken, prove: Prove
) -> Result:
    """Record the resolution of a stopped patch, and continue the rebase."""
    recorded = rerere.record(
        project.store,
        stops.stop_stages(stop),
        stops.conflicting(project, stop, stop.parked),
        stops.conflicting(project, stop, step.commit),
        layout=project.layout,
        upstream=progress.upstream,
    )
    files: dict[str, bytes | None] = {}
    for path, data in recorded.items():
        files[path.relative_to(project.layout.root).as_posix()] = data
    worktree = stop_worktree(project, progress)
    note = "; ".join(
        filter(None, [stops.put_aside(project, worktree, taken), stops.keep_commits(project, progress, worktree)])
    )
    if note:
        project.say(f"{stop.patch}: {note}")
    record_answer(project, progress, stop, taken.tree, Answer.RESOLUTION, files)
    result = go_on(project, progress, step, taken.tree, prove)
    if note:
        return replace(result, notes=(f"{stop.patch}: {note}", *result.notes))
    return result


# Candidates


@dataclass(frozen=True, slots=True)
class Candidate:
    """Tree that may resolve the stopped patch.

    :ivar how: source of the tree, as text for the ledger, for example ``from a.txt``.
    :ivar undecided: conflicting paths that the source doesn't resolve.
    """

    tree: TreeId
    how: str
    undecided: frozenset[bytes] = frozenset()


def from_files(project: Project, progress: RebaseProgress, stop: Stop, given: Sequence[str]) -> Candidate:
    """Return the candidate from resolved files, or from a patch file that is applied to the current tip.

    :param given: a single ``.patch`` or ``.diff`` file, or resolved files. ``FILE`` resolves the conflicting path
        that shares the most trailing components, ``PATH=FILE`` resolves ``PATH``, and ``PATH=`` removes ``PATH``.
    :raises UserError: if a file is missing, or if ``FILE`` doesn't match exactly one conflicting path.
    :raises ConflictError: if the patch doesn't apply exactly.
    """
    paths = list(map(os.fsdecode, stop.paths))
    if len(given) == 1 and "=" not in given[0] and given[0].endswith((".patch", ".diff")) and given[0] not in paths:
        return _from_patch(project, progress, stop, Path(given[0]))
    files: dict[bytes, bytes | None] = {}
    for text in given:
        path, equals, name = text.partition("=")
        if not equals:
            path, name = _path_of(text, paths), text
        inside = os.fsencode(str(check_inside(path, "a resolution")))
        if name:
            files[inside] = _read(Path(name))
        else:
            files[inside] = None
    how = "from " + ", ".join(given)
    return Candidate(_tree(project, progress, stop, files), how, frozenset(stop.paths) - files.keys())


def _path_of(given: str, paths: Sequence[str]) -> str:
    """Return the conflicting path that shares the most trailing components with a file.

    For example, ``/tmp/a/x.py`` matches ``src/a/x.py`` better than ``src/b/x.py``.

    :raises UserError: if no path or more than one path matches best.
    """

    def shared(path: str) -> int:
        """Count the trailing components that a path shares with the file."""
        count = 0
        for mine, other in zip(reversed(PurePath(given).parts), reversed(PurePath(path).parts), strict=False):
            if mine != other:
                break
            count += 1
        return count

    found = sorted(paths, key=shared, reverse=True)
    if not found or not shared(found[0]) or (len(found) > 1 and shared(found[0]) == shared(found[1])):
        raise UserError(
            f"{given} doesn't match exactly one of the conflicting files: {', '.join(paths)}",
            hint=f"name the path that the file resolves: --from {sh(f'{paths[0]}={given}')}",
        )
    return found[0]


def _read(path: Path) -> bytes:
    data = fsio.read_limited(path, MOST_BYTES)
    if data is None:
        raise UserError(f"{path} doesn't exist", hint="name a file that contains the resolution")
    return data


def _from_patch(project: Project, progress: RebaseProgress, stop: Stop, path: Path) -> Candidate:
    data = _read(path)
    try:
        _, text = parse_mail(data, str(path))
    except FormatError:
        text = data
    info = stops.original(project, progress, stop)
    engine = Engine(project.store, progress.upstream, project.lock.nested_in(progress.upstream))
    incoming = Incoming(name=stop.patch, header=Header(info.author, info.message), diff=text, where=str(path))
    (applied,) = engine.apply(progress.tip, [incoming])
    return Candidate(project.store.tree_of([applied.commit])[0], f"from {path}")


def recorded_files(project: Project, progress: RebaseProgress, stop: Stop) -> dict[bytes, bytes]:
    """Return the content of each conflicting file that a recorded resolution resolves, by path."""
    parked = stops.conflicting(project, stop, stop.parked)
    return rerere.replay(
        project.store, stops.stop_stages(stop), parked, layout=project.layout, upstream=progress.upstream
    )


def from_recorded(project: Project, progress: RebaseProgress, stop: Stop) -> Candidate:
    """Return the candidate from the project's recorded resolutions.

    :raises UserError: if no resolution is recorded. Also if the recorded resolution changes lines outside of the
        conflicts, because it then needs review.
    """
    files = recorded_files(project, progress, stop)
    parked = stops.conflicting(project, stop, stop.parked)
    if not files:
        raise UserError(
            f"no resolution is recorded for {progress.upstream}/{stop.patch}",
            hint="`patchq conflict` shows the conflict",
        )
    away = []
    for path, content in files.items():
        if rerere.is_away(parked[path], content):
            away.append(path)
    if away:
        raise UserError(
            f"the recorded resolution changes lines of {show_paths(sorted(away))} outside the conflict, "
            "maybe in the wrong place",
            hint=f"review the resolution in {stop_worktree(project, progress).path}; `patchq resolve` checks the "
            "files in that worktree",
        )
    how = f"by the recorded resolution of {show_paths(sorted(files))}"
    return Candidate(_tree(project, progress, stop, files), how, frozenset(stop.paths) - files.keys())


def at_refs(project: Project, progress: RebaseProgress, stop: Stop) -> Iterator[tuple[str, TreeId]]:
    """Yield pinned refs whose version of the stopped patch applies, each with the resulting tree.

    The ref whose stack is being carried is left out.
    """
    for ref, pin in project.lock.upstreams[progress.upstream].pins.items():
        stack = load_stack(project.layout, pin)
        if stop.patch not in stack.names or ref == progress.from_ref:
            continue
        with suppress(PatchqError):  # not available locally, or the ref's stack doesn't apply
            stops.base_of(project, pin, offline=True)
            tree = _with_version_of(project, progress, stop, stack)
            if tree:
                yield ref, tree


def _with_version_of(project: Project, progress: RebaseProgress, stop: Stop, stack: Stack) -> TreeId | None:
    """Apply the stopped patch's version in another ref's stack, and return the tree; None if that version conflicts.

    :raises ConflictError: if the other ref's stack doesn't apply to its base.
    """
    (carried,) = carried_stacks(project, [stack], progress.set_name)
    commit = dict(carried.commits)[stop.patch]
    (patch,) = read_patches(project.store, [(stop.patch, commit)])
    (column,) = carry(project.store, [patch], [progress.tip], carried.base)
    landing = column.landings[0]
    if landing.outcome in STOPS:
        return None
    commits = write_commits(project.store, progress.tip, [(patch.commit, landing.changes)], column.contents)
    return project.store.tree_of(commits)[0]


def from_ref(project: Project, progress: RebaseProgress, stop: Stop, ref: str) -> Candidate:
    """Return the candidate from another ref's version of the patch.

    :raises UserError: if the ref isn't pinned or isn't available locally, if it is the ref whose stack is being
        carried, if its stack doesn't contain the patch or doesn't apply, or if its version of the patch conflicts.
    """
    upstream, hint = progress.upstream, "`patchq conflict` lists the refs whose version of the patch applies"
    pins = project.lock.upstreams[upstream].pins
    if ref not in pins:
        raise UserError(f"{upstream} {ref} is not pinned", hint=hint)
    if ref == progress.from_ref:
        raise UserError(f"{upstream} {ref} contains the version of {stop.patch} that stopped", hint=hint)
    stack = load_stack(project.layout, pins[ref])
    if stop.patch not in stack.names:
        raise UserError(f"the stack of {upstream} {ref} has no patch {stop.patch}", hint=hint)
    try:
        stops.base_of(project, pins[ref], offline=True)
    except SourceError:
        raise UserError(f"{upstream} {ref} is not available locally", hint="run `patchq fetch --all`") from None
    try:
        tree = _with_version_of(project, progress, stop, stack)
    except ConflictError as error:
        raise UserError(f"the stack of {upstream} {ref} doesn't apply: {error.message}", hint=hint) from None
    if tree is None:
        raise UserError(f"{stop.patch} of {upstream} {ref} doesn't apply here either", hint=hint)
    return Candidate(tree, f"as at {ref}")


def from_merger(project: Project, progress: RebaseProgress, stop: Stop, name: str) -> Candidate:
    """Return the candidate from a structural merge tool that accepts the same arguments as mergiraf.

    :raises UserError: if the lock has no merger of this name, or if a conflicting file doesn't exist on all
        three sides.
    :raises SourceError: if the program is not installed, fails or leaves a conflict.
    """
    program = find_merger(project.lock, name)
    sides: dict[bytes, dict[int, bytes]] = {}
    stages = stops.stop_stages(stop)
    contents = project.store.read_blobs(s.entry.blob for s in stages if s.entry.mode != GITLINK)
    for stage in stages:
        if stage.entry.mode in (REGULAR, b"100755"):
            sides.setdefault(stage.path, {})[stage.number] = contents[stage.entry.blob]
    files = {}
    for path in stop.paths:
        if sides.get(path, {}).keys() != {1, 2, 3}:
            raise UserError(
                f"{show_path(path)} doesn't exist as a file on all three sides, so it can't be merged",
                hint=f"--from {sh(show_path(path) + '=')} removes the file; a file name after `=` replaces it",
            )
        files[path] = run_merger(program, path, sides[path])
    return Candidate(_tree(project, progress, stop, files), f"by the merger {name}")


def find_merger(lock: Lock, name: str) -> str:
    """Return the program of the merger ``name``.

    :raises UserError: if the lock has no merger of this name.
    """
    if name not in lock.mergers:
        known = ", ".join(lock.mergers) or "none"
        hint = f'known: {known}; to add one: [mergers.{name}] program = "{name}"'
        raise UserError(f"no merger {name!r} in upstream.lock", hint=hint)
    return lock.mergers[name]


def run_merger(program: str, path: bytes, sides: Mapping[int, bytes]) -> bytes:
    """Merge a file with a structural merge tool that accepts the same arguments as mergiraf.

    :param sides: contents of the file by git's stage number: base (1), ours (2) and the patch (3).
    :raises SourceError: if the program is not installed, fails or leaves a conflict.
    """
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        folder, end = Path(text), PurePath(os.fsdecode(path)).suffix
        names = ["base" + end, "ours" + end, "theirs" + end]
        for number, name in enumerate(names, 1):
            (folder / name).write_bytes(sides[number])
        argv = [program, "merge", *names, "--output", f"merged{end}"]
        try:
            runner.run(argv, cwd=folder, timeout=SECONDS)
        except runner.CommandError as error:
            why = "is not installed"
            if error.code != 127:
                why = f"didn't merge {show_path(path)}: {error.output or f'exit code {error.code}'}"
            raise SourceError(f"the merge program {program} {why}", hint="resolve the conflict by hand") from None
        data = fsio.read_or_none(folder / f"merged{end}")
    if data is None:
        raise SourceError(
            f"the merge program {program} wrote nothing for {show_path(path)}", hint="resolve the conflict by hand"
        )
    return data


def _tree(project: Project, progress: RebaseProgress, stop: Stop, files: Mapping[bytes, bytes | None]) -> TreeId:
    """Replace files in the tree that was checked out for the stopped patch, and return the new tree.

    :param files: new contents by path; None removes a file.
    """
    info = stops.original(project, progress, stop)
    modes = {s.path: s.entry.mode for s in stops.stop_stages(stop)}
    return replace_files(project.store, CommitId(stop.parked), info, files, modes)


# Checks


@dataclass(frozen=True, slots=True)
class ResolutionCheck:
    """Result of one check of a resolution.

    :ivar name: ``settled``, ``applies``, ``upstream lines``, ``text``, ``python``, ``passes with``
        or ``fails without``.
    :ivar state: ``passed``, ``failed`` or ``not run``. The resolution is refused only if a check is
        ``failed``.
    """

    name: str
    state: ProofState
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolveRequest:
    """Options for the checks.

    :ivar proofs: True to run the patch's proof.
    :ivar dropped: upstream's lines that the patch may remove: ``PATH:LINE``, or ``PATH`` for all lines of a
        file.
    """

    proofs: bool = True
    dropped: tuple[str, ...] = ()


def dropped_by(project: Project, progress: RebaseProgress, stop: Stop, commit: CommitId) -> list[UpstreamLine]:
    """Return upstream's lines that ``commit`` removes, but the original patch doesn't.

    :param commit: new version of the stopped patch.
    """
    old = CommitId(progress.commits[stop.patch])
    return find_dropped(project.store, old=old, new=commit, upstream=progress.base)


def carried_range(project: Project, progress: RebaseProgress, history: History | None) -> str:
    """Return the range of upstream's commits from the old ref to the new one, as an argument of ``git log``.

    The result is empty if the local history lacks one of the refs.
    """
    if history is None:
        return ""
    old, new = history.commit(stops.source_pin(project, progress)), history.commit(progress.onto)
    if old and new:
        return f"{old}..{new}"
    return ""


def commits_of(project: Project, progress: RebaseProgress, lines: Sequence[UpstreamLine]) -> dict[UpstreamLine, str]:
    """Return the upstream commit that added each of the given lines. Lines without a known commit are left out."""
    found: dict[UpstreamLine, str] = {}
    if not lines:
        return found
    with at_hand(project, progress.upstream) as history:
        between = carried_range(project, progress, history)
        if history is None or not between:
            return found
        for line in lines[:_MOST_ASKED]:
            if "\0" in line.text or len(line.text) > _MOST_TEXT:
                continue  # lines of a binary file can't be command-line arguments
            argv = (
                "log",
                "-1",
                "--format=%H",
                f"-S{line.text.strip()}",
                between,
                "--",
                f":(literal){line.path}",
            )
            with suppress(runner.CommandError):  # the history is incomplete
                commit = history.git.run(*argv).decode().strip()
                if commit:
                    found[line] = commit
    return found


def judge(
    project: Project,
    progress: RebaseProgress,
    stop: Stop,
    step: PatchStep,
    candidate: Candidate,
    *,
    prove: Prove,
    wish: ResolveRequest,
) -> list[ResolutionCheck]:
    """Run the checks until one fails. The proof takes longest and runs last."""
    checks: list[ResolutionCheck] = []
    commit = CommitId(step.commit)
    tests: list[tuple[str, Callable[[], tuple[ProofState, str]]]] = [
        (SETTLED, lambda: _settled(project, progress, stop, candidate)),
        (APPLIES, lambda: _applies(project, progress, stop, commit, candidate.tree)),
        (UPSTREAM_LINES, lambda: _upstream_lines(project, progress, stop, commit, wish)),
        ("text", lambda: _text(project, progress.upstream, commit)),
        ("python", lambda: _python(project, commit)),
    ]
    if wish.proofs:
        tests.append((PASSES_WITH, lambda: _proof(project, progress, stop, commit, prove)))
        tests.append((FAILS_WITHOUT, lambda: _no_proof(project, progress, stop, prove)))
    for name, test in tests:
        state, message = test()
        checks.append(ResolutionCheck(name, state, message))
        if state == ProofState.FAILED or (state == ProofState.NOT_RUN and name == PASSES_WITH):
            break
    return checks


def _upstream_lines(
    project: Project, progress: RebaseProgress, stop: Stop, commit: CommitId, wish: ResolveRequest
) -> tuple[ProofState, str]:
    """Check that the resolution removes no lines of upstream, unless the user accepts their removal."""
    dropped = dropped_by(project, progress, stop, commit)
    left = []
    for line in dropped:
        if not line.is_one_of(wish.dropped):
            left.append(line)
    if left:
        commits = commits_of(project, progress, left)
        return (
            ProofState.FAILED,
            f"upstream added these lines, and the resolution drops them: {show_dropped(left, commits)}",
        )
    return ProofState.PASSED, f"{len(dropped)} dropped, as named" if dropped else "none is dropped"


def _settled(project: Project, progress: RebaseProgress, stop: Stop, candidate: Candidate) -> tuple[ProofState, str]:
    """Check that every conflicting file is resolved, and that the patch still changes something."""
    marked, undecided = stops.unsettled(project, stop, candidate.tree, candidate.undecided)
    if marked:
        return ProofState.FAILED, f"{show_path(marked[0])} has conflict markers"
    if undecided:
        return ProofState.FAILED, f"{show_path(undecided[0])}: {stops.UNDECIDED}"
    if candidate.tree == project.store.tree_of([progress.tip])[0]:
        return ProofState.FAILED, "nothing is left of the patch"
    return ProofState.PASSED, f"{len(stop.paths)} files"


def _applies(
    project: Project, progress: RebaseProgress, stop: Stop, commit: CommitId, tree: TreeId
) -> tuple[ProofState, str]:
    """Check that the exported patch file applies without offsets and produces ``tree``."""
    (mail,) = format_patches(project.store, progress.tip, commit, 1)
    engine = Engine(project.store, progress.upstream, project.lock.nested_in(progress.upstream))
    try:
        header, text = parse_mail(mail, stop.patch)
        (applied,) = engine.apply(progress.tip, [Incoming(name=stop.patch, header=header, diff=text, where=stop.patch)])
    except PatchqError as error:
        return ProofState.FAILED, error.message
    if applied.offsets or project.store.tree_of([applied.commit])[0] != tree:
        return ProofState.FAILED, "applying its patch file gives another tree"
    return ProofState.PASSED, f"onto {progress.upstream} {progress.onto.ref}, exactly"


def _text(project: Project, upstream: str, commit: CommitId) -> tuple[ProofState, str]:
    """Run the text checks of the command ``check`` on the commit's diff."""
    (text,) = project.store.diffs_of([commit])
    found = [message for _, message, _ in check_diff(text, upstream)]
    if found:
        return (ProofState.FAILED, "; ".join(found))
    return (ProofState.PASSED, "no debugging, no markers")


def _python(project: Project, commit: CommitId) -> tuple[ProofState, str]:
    """Check that changed Python files compile. Files that didn't compile before are not checked."""
    new, old = {}, {}
    for change in project.store.changes_of([commit])[0]:
        if change.new and change.path.endswith(b".py"):
            new[change.path] = change.new
            if change.old:
                old[change.path] = change.old
    before = project.store.texts(old)
    for path, content in project.store.texts(new).items():
        message = _compiled(content)
        if message and not (path in before and _compiled(before[path])):
            return ProofState.FAILED, f"{show_path(path)} doesn't compile: {message}"
    return ProofState.PASSED, f"{counted(len(new), 'file')} compiled"


def _compiled(source: bytes) -> str:
    """Return the error message of Python's parser; empty if the source is valid."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(source)
        except (SyntaxError, ValueError, RecursionError) as error:
            return str(error) or type(error).__name__
    return ""


def _proof(
    project: Project, progress: RebaseProgress, stop: Stop, commit: CommitId, prove: Prove
) -> tuple[ProofState, str]:
    state, message = stops.run_proof(project, progress, stop.patch, commit, prove)
    if state == ProofState.PASSED:
        return ProofState.PASSED, message
    if state == ProofState.NOT_RUN:
        return (ProofState.NOT_RUN, message)
    return (ProofState.FAILED, f"with the patch its proof {state}: {message}")


def _no_proof(project: Project, progress: RebaseProgress, stop: Stop, prove: Prove) -> tuple[ProofState, str]:
    """Run the proof without the patch, to check that the proof then fails.

    :returns: state and message of the check. The state is ``PASSED`` if the proof fails by an assertion, ``NOT_RUN``
        if the proof can't run, and ``FAILED`` otherwise.
    """
    state, message = stops.run_proof(project, progress, stop.patch, progress.tip, prove)
    if state == ProofState.FAILED:
        return ProofState.PASSED, message
    if state == ProofState.PASSED:
        return ProofState.FAILED, "its proof passes without the patch: upstream has the change, or the proof can't fail"
    return (
        ProofState.NOT_RUN if state == ProofState.NOT_RUN else ProofState.FAILED
    ), f"without the patch its proof: {state}: {message}"
