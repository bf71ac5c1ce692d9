"""Checks of a resolution, whoever made it: a user, a script, a merger or what was recorded.

``rebase --continue`` and ``resolve`` apply the same ones; what they refuse leaves all as it was.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from patchq.errors import PatchqError
from patchq.formats.header import parse as parse_mail
from patchq.merge.upstream_lines import DroppedLine, find_dropped, show_dropped
from patchq.names import CommitId, TreeId, show_path
from patchq.project.project import Project
from patchq.rebase import stops
from patchq.rebase.candidates import Candidate
from patchq.rebase.state import Progress, Step, Stop
from patchq.rebase.stops import Prove
from patchq.stacks.check import check_diff
from patchq.stacks.engine import Engine, Incoming
from patchq.stacks.export import format_patches
from patchq.system import runner
from patchq.upstream.history import at_hand

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
#: Dropped lines whose commits are looked for: each is a search through history.
_MOST_ASKED = 10
#: Characters of a line that git is given to search for.
_MOST_TEXT = 1000
#: The names of checks that other modules ask for.
SETTLED, APPLIES, UPSTREAM_LINES = "settled", "applies", "upstream lines"


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a resolution.

    :ivar name: ``settled``, ``applies``, ``upstream lines``, ``text``, ``python``, ``passes with`` or
        ``fails without``.
    :ivar state: ``passed``, ``failed``, which refuses, or ``not run``, which is named.
    """

    name: str
    state: str
    said: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What the user wants of the checks.

    :ivar proofs: run the patch's proof.
    :ivar dropped: upstream's lines that the patch may drop: ``PATH:LINE``, or ``PATH`` for all of a file.
    """

    proofs: bool = True
    dropped: tuple[str, ...] = ()


def dropped_by(project: Project, progress: Progress, stop: Stop, commit: CommitId) -> list[DroppedLine]:
    """Return upstream's lines that a commit drops, as the stopped patch."""
    old = CommitId(progress.commits[stop.patch])
    return find_dropped(project.store, old=old, new=commit, upstream=progress.base)


def commits_of(project: Project, progress: Progress, lines: Sequence[DroppedLine]) -> dict[DroppedLine, str]:
    """Find the upstream commits that added lines, where upstream's history is available locally."""
    found: dict[DroppedLine, str] = {}
    if not lines:
        return found
    with at_hand(project, progress.upstream) as history:
        old, new = (
            history.commit(pin) if history else None for pin in (stops.source_pin(project, progress), progress.onto)
        )
        if history is None or not old or not new:
            return found
        for line in lines[:_MOST_ASKED]:
            if "\0" in line.text or len(line.text) > _MOST_TEXT:
                continue  # of a binary file: no argument of a command can hold it
            argv = (
                "log",
                "-1",
                "--format=%H",
                f"-S{line.text.strip()}",
                f"{old}..{new}",
                "--",
                f":(literal){line.path}",
            )
            with suppress(runner.CommandError):  # what leads to a commit isn't there
                commit = history.git.run(*argv).decode().strip()
                if commit:
                    found[line] = commit
    return found


def judge(
    project: Project, progress: Progress, stop: Stop, step: Step, candidate: Candidate, *, prove: Prove, wish: Wish
) -> list[Check]:
    """Run the checks, up to the first that refuses; the proof, which takes longest, comes last."""
    checks: list[Check] = []
    commit = CommitId(step.commit)
    tests: list[tuple[str, Callable[[], tuple[str, str]]]] = [
        (SETTLED, lambda: _settled(project, progress, stop, candidate)),
        (APPLIES, lambda: _applies(project, progress, stop, commit, candidate.tree)),
        (UPSTREAM_LINES, lambda: _upstream_lines(project, progress, stop, commit, wish)),
        ("text", lambda: _text(project, commit)),
        ("python", lambda: _python(project, progress, commit)),
    ]
    if wish.proofs:
        tests.append(("passes with", lambda: _proof(project, progress, stop, commit, prove)))
        tests.append(("fails without", lambda: _no_proof(project, progress, stop, prove)))
    for name, test in tests:
        state, said = test()
        checks.append(Check(name, state, said))
        if state == FAILED or (state == NOT_RUN and name == "passes with"):
            break
    return checks


def _upstream_lines(project: Project, progress: Progress, stop: Stop, commit: CommitId, wish: Wish) -> tuple[str, str]:
    """Check that no line of upstream's goes, but those that the user names."""
    dropped = dropped_by(project, progress, stop, commit)
    left = [line for line in dropped if not line.is_one_of(wish.dropped)]
    if left:
        commits = commits_of(project, progress, left)
        return FAILED, f"upstream added these lines, and the resolution drops them: {show_dropped(left, commits)}"
    return PASSED, f"{len(dropped)} dropped, as named" if dropped else "none is dropped"


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
