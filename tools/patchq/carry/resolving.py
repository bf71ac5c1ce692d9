"""``resolve``: a resolution is kept if it says how everything ends, applies, reads well, and its proof agrees.

Whoever made it, a person, a script, a merger or an assistant: the same checks judge it, and what they refuse leaves
all as it was.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from patchq.carry import candidates, stops
from patchq.carry.candidates import Candidate
from patchq.carry.rebase import settle
from patchq.carry.state import CARRYING, Progress, Result, Step, Stop, load, stop_worktree
from patchq.carry.stops import Prove
from patchq.errors import EditedTreeError, PatchqError, UserError
from patchq.formats.header import parse as parse_mail
from patchq.names import CommitId, TreeId, show_path
from patchq.project.project import Project
from patchq.stacks.check import check_diff
from patchq.stacks.engine import Engine, Incoming
from patchq.stacks.export import format_patches

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a resolution is from: one of these, or the stop's worktree as it is."""

    files: tuple[str, ...] = ()
    recorded: bool = False
    ref: str = ""
    merger: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """``name``: ``settled``, ``applies``, ``text``, ``python``, ``fails without``, ``passes with``; ``state``:
    ``passed``, ``failed`` or ``not run``, which refuses too."""

    name: str
    state: str
    said: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a candidate was judged, and if it is ``kept``, where the rebase stands now.

    :ivar diff: what the patch would be.
    """

    upstream: str
    patch: str
    how: str
    kept: bool
    checks: tuple[Check, ...]
    diff: str
    rebase: Result | None = None

    @property
    def refused(self) -> tuple[Check, ...]:
        """What speaks against it."""
        return tuple(c for c in self.checks if c.state != PASSED)


def resolve(project: Project, upstream: str, source: Source, *, prove: Prove, dry_run: bool = False) -> Resolution:
    """Judge a resolution of the stopped patch; one that passes is recorded, lands, and the rebase goes on.

    :param dry_run: only judge it.
    :raises UserError: if no patch stops, or there is no such resolution.
    :raises EditedTreeError: if it isn't from the worktree, and that holds somebody's edits.
    """
    with project.locked("resolve"):
        progress = load(project, upstream)
        stop = stopped(progress)
        held = stop_worktree(project, progress).snapshot(pass_over=True)
        candidate = _candidate(project, progress, stop, source, held)
        if candidate.tree != held and held != progress.files and not dry_run:
            raise EditedTreeError(
                f"{upstream}: the worktree holds edits of the stopped patch; they are kept",
                hint=f"`patchq resolve {upstream}` judges them; `git checkout HEAD -- .` there drops them",
            )
        step = stops.as_step(project, progress, stop, candidate.tree, candidate.how)
        checks = judge(project, progress, stop, step, candidate, prove)
        text = project.store.diffs_of([CommitId(step.commit)])[0].decode("utf-8", "replace")
        found = Resolution(upstream, stop.patch, candidate.how, False, tuple(checks), text)
        if found.refused or dry_run:
            return found
        result = settle(project, progress, stop, replace(step, proof=PASSED), held, prove)
        return replace(found, kept=True, rebase=result)


def stopped(progress: Progress) -> Stop:
    """The patch that waits for a person.

    :raises UserError: if none does.
    """
    if progress.phase == CARRYING and progress.stop and progress.stop.ready:
        return progress.stop
    raise UserError(
        f"the rebase of {progress.upstream} was interrupted; no patch waits yet",
        hint=f"`patchq rebase {progress.upstream} --continue`",
    )


def _candidate(project: Project, progress: Progress, stop: Stop, source: Source, held: TreeId) -> Candidate:
    if source.files:
        return candidates.from_files(project, progress, stop, source.files)
    if source.recorded:
        return candidates.from_recorded(project, progress, stop)
    if source.ref:
        return candidates.from_ref(project, progress, stop, source.ref)
    if source.merger:
        return candidates.from_merger(project, progress, stop, source.merger)
    return Candidate(held, "", stops.unmerged(stop_worktree(project, progress)))


def judge(
    project: Project, progress: Progress, stop: Stop, step: Step, candidate: Candidate, prove: Prove
) -> list[Check]:  # fmt: skip
    """The checks of a resolution, up to the first that refuses it; the proof, which is dearest, comes last."""
    checks: list[Check] = []
    commit = CommitId(step.commit)
    tests: Sequence[tuple[str, Callable[[], tuple[str, str]]]] = (
        ("settled", lambda: _settled(project, progress, stop, candidate)),
        ("applies", lambda: _applies(project, progress, stop, commit, candidate.tree)),
        ("text", lambda: _text(project, commit)),
        ("python", lambda: _python(project, progress, commit)),
        ("passes with", lambda: _proof(project, progress, stop, commit, prove)),
        ("fails without", lambda: _no_proof(project, progress, stop, prove)),
    )
    for name, test in tests:
        state, said = test()
        checks.append(Check(name, state, said))
        if state != PASSED:
            break
    return checks


def _settled(project: Project, progress: Progress, stop: Stop, candidate: Candidate) -> tuple[str, str]:
    """Whether each conflicting file is decided: without markers, and not left as it was parked."""
    marked, undecided = stops.unsettled(project, stop, candidate.tree, candidate.undecided)
    if marked:
        return FAILED, f"{show_path(marked[0])} has conflict markers"
    if undecided:
        return FAILED, f"{show_path(undecided[0])}: {stops.UNDECIDED}"
    if candidate.tree == project.store.tree_of([progress.tip])[0]:
        return FAILED, "nothing is left of the patch"
    return PASSED, f"{len({path for path, *_ in stop.stages})} files"


def _applies(project: Project, progress: Progress, stop: Stop, commit: CommitId, tree: TreeId) -> tuple[str, str]:
    """Whether the patch file that it comes to makes that tree again, with zero fuzz and no offset."""
    (mail,) = format_patches(project.store, progress.tip, commit, 1)
    engine = Engine(project.store, progress.upstream, project.lock.nested_in(progress.upstream))
    try:
        header, text = parse_mail(mail, stop.patch)
        (applied,) = engine.apply(progress.tip, [Incoming(stop.patch, header, text, stop.patch)])
    except PatchqError as error:
        return FAILED, error.message
    if applied.offsets or project.store.tree_of([applied.commit])[0] != tree:
        return FAILED, "its patch file gives another tree"
    return PASSED, f"onto {progress.upstream} {progress.onto.ref}, exactly"


def _text(project: Project, commit: CommitId) -> tuple[str, str]:
    """What ``check`` says of a diff."""
    (text,) = project.store.diffs_of([commit])
    found = [message for _, message, _ in check_diff(text)]
    return (FAILED, "; ".join(found)) if found else (PASSED, "no debugging, no markers")


def _python(project: Project, progress: Progress, commit: CommitId) -> tuple[str, str]:
    """Whether the Python files that it changes still compile; one of upstream's that doesn't, needn't."""
    changed = [c for c in project.store.changes_of([commit])[0] if c.new and c.path.endswith(b".py")]
    contents = project.store.read_blobs(e.blob for c in changed for e in (c.old, c.new) if e)
    for change in changed:
        assert change.new
        said = _compiled(contents[change.new.blob])
        if said and not (change.old and _compiled(contents[change.old.blob])):
            return FAILED, f"{show_path(change.path)} doesn't compile: {said}"
    return PASSED, f"{len(changed)} files compile"


def _compiled(source: bytes) -> str:
    """What Python's parser says of a file; empty if nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(source)
        except (SyntaxError, ValueError, RecursionError) as error:
            return str(error) or type(error).__name__
    return ""


def _proof(project: Project, progress: Progress, stop: Stop, commit: CommitId, prove: Prove) -> tuple[str, str]:
    state, said = stops.run_proof(project, progress, stop.patch, commit, prove)
    if state == PASSED:
        return PASSED, said
    return (NOT_RUN, said) if state == NOT_RUN else (FAILED, f"with the patch its proof {state}: {said}")


def _no_proof(project: Project, progress: Progress, stop: Stop, prove: Prove) -> tuple[str, str]:
    """The proof must fail by an assertion where the patch is left out."""
    state, said = stops.run_proof(project, progress, stop.patch, progress.tip, prove)
    if state == FAILED:
        return PASSED, said
    if state == PASSED:
        return FAILED, "its proof passes without the patch: upstream has the change, or the proof can't fail"
    return (NOT_RUN if state == NOT_RUN else FAILED), f"without the patch its proof: {state}: {said}"
