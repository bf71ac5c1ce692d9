"""``resolve``: judge a resolution of the stopped patch, and go on with one that passes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from patchq.errors import EditedTreeError, UserError
from patchq.names import CommitId
from patchq.project.project import Project
from patchq.rebase import candidates, stops
from patchq.rebase.candidates import Candidate
from patchq.rebase.checks import FAILED, Check, Wish, dropped_by, judge
from patchq.rebase.run import settle, step_of
from patchq.rebase.state import CARRYING, Progress, Result, Stop, load, stop_worktree
from patchq.rebase.stops import Prove, Taken


@dataclass(frozen=True, slots=True)
class Source:
    """Where a resolution is from: one of these, or the stop's worktree as it is.

    :ivar include: more paths of the worktree to take.
    """

    files: tuple[str, ...] = ()
    recorded: bool = False
    ref: str = ""
    merger: str = ""
    include: tuple[str, ...] = ()

    @property
    def is_worktree(self) -> bool:
        """Return whether it is what the worktree holds."""
        return not (self.files or self.recorded or self.ref or self.merger)


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a candidate was judged, and if it is ``kept``, where the rebase stands now.

    :ivar diff: what the patch would be.
    :ivar left_out: files of the worktree that are no part of it.
    """

    upstream: str
    patch: str
    how: str
    kept: bool
    checks: tuple[Check, ...]
    diff: str
    rebase: Result | None = None
    left_out: tuple[str, ...] = ()

    @property
    def refused(self) -> tuple[Check, ...]:
        """Return the checks that refuse it."""
        return tuple(c for c in self.checks if c.state == FAILED)


def resolve(
    project: Project, upstream: str, source: Source, *, prove: Prove, wish: Wish, dry_run: bool = False
) -> Resolution:
    """Judge a resolution of the stopped patch; one that passes is recorded, and the rebase goes on.

    :param dry_run: only judge it.
    :raises UserError: if no patch stops, or there is no such resolution.
    :raises EditedTreeError: if it isn't from the worktree, and that holds somebody's edits.
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
                    hint=f"`patchq resolve {upstream}` judges them; `git checkout HEAD -- .` there drops them",
                )
        step = stops.as_step(project, progress, stop, candidate.tree, candidate.how)
        checks = judge(project, progress, stop, step, candidate, prove=prove, wish=wish)
        text = project.store.diffs_of([CommitId(step.commit)])[0].decode("utf-8", "replace")
        found = Resolution(upstream, stop.patch, candidate.how, False, tuple(checks), text, left_out=taken.left_out)
        if found.refused or dry_run:
            return found
        step = step_of(step, checks, dropped_by(project, progress, stop, CommitId(step.commit)))
        result = settle(project, progress, stop, step, taken, prove)
        return replace(found, kept=True, rebase=result)


def stopped(progress: Progress) -> Stop:
    """Return the patch that waits for the user.

    :raises UserError: if none does.
    """
    if progress.phase == CARRYING and progress.stop and progress.stop.ready:
        return progress.stop
    raise UserError(
        f"the rebase of {progress.upstream} was interrupted; no patch waits yet",
        hint=f"`patchq rebase {progress.upstream} --continue`",
    )


def _candidate(project: Project, progress: Progress, stop: Stop, source: Source) -> Candidate:
    if source.files:
        return candidates.from_files(project, progress, stop, source.files)
    if source.recorded:
        return candidates.from_recorded(project, progress, stop)
    if source.ref:
        return candidates.from_ref(project, progress, stop, source.ref)
    return candidates.from_merger(project, progress, stop, source.merger)
