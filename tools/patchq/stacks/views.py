"""Data for the read-only commands ``status``, ``list``, ``show`` and ``ledger``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from patchq.errors import PatchqError, UserError
from patchq.formats import diff
from patchq.formats.header import Header
from patchq.formats.lock import Pin
from patchq.names import show_path
from patchq.project.project import Project
from patchq.project.stack import Stack, State, find_patch, ledger_path, load_state, pin_key
from patchq.records import dataclass
from patchq.system import fsio, project_files, runner

if TYPE_CHECKING:
    from patchq.formats.jsonlines import Problem
    from patchq.formats.ledger import Attempt, Ledger
    from patchq.git.worktree import TreeStatus, Worktree


class StackState(str, Enum):
    """State of the applied patches, compared with the patch files."""

    APPLIED = "applied"
    PARTIAL = "partial"
    OUTDATED = "outdated"
    OTHER_REF = "other ref"
    NOT_APPLIED = "not applied"


class WorktreeState(str, Enum):
    """State of the worktree, compared with the applied patches."""

    CLEAN = "clean"
    EDITED = "edited"
    COMMITS = "commits"
    MISSING = "missing"
    BUSY = "in a git operation"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackStatus:
    """Status of one stack.

    :ivar applied_ref: ref of the applied patches; empty if there are none.
    :ivar operation: unfinished git operation, such as a merge; empty for none.
    :ivar edited: edited files, if the worktree is edited or busy.
    :ivar untracked: untracked files, if the worktree is clean.
    """

    upstream: str
    ref: str
    commit: str
    source: str
    applied: int
    total: int
    state: StackState
    worktree: WorktreeState
    path: str
    applied_ref: str = ""
    operation: str = ""
    edited: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    tree: str = ""


def status(project: Project, set_name: str = "") -> list[StackStatus]:
    """Return the status of each stack of a set, and of its worktree."""
    set_name = project.choose_set(set_name)
    stacks = project.stacks(set_name)
    states = [load_state(project.layout, stack.pin.upstream) for stack in stacks]
    trees: list[Worktree | None] = []
    for stack, state in zip(stacks, states, strict=True):
        if state:
            trees.append(project.worktree(stack.pin.upstream))
        else:
            trees.append(None)
    looks = runner.in_threads(lambda tree: tree.status() if tree else None, trees)
    found: list[StackStatus] = []
    for stack, state, tree in zip(stacks, states, looks, strict=True):
        found.append(_stack_status(project, stack, state, tree))
    return found


def _stack_status(project: Project, stack: Stack, state: State | None, tree: TreeStatus | None) -> StackStatus:
    pin = stack.pin
    path = project.layout.tree(pin.upstream)
    shown = path.relative_to(project.layout.root).as_posix()
    if state is None or tree is None:
        return StackStatus(
            upstream=pin.upstream,
            ref=pin.ref,
            commit=pin.commit or "",
            source="",
            applied=0,
            total=len(stack.names),
            state=StackState.NOT_APPLIED,
            worktree=WorktreeState.MISSING,
            path=shown,
        )
    if tree.head is None:
        worktree = WorktreeState.MISSING
    elif tree.busy:
        worktree = WorktreeState.BUSY
    elif tree.edited:
        worktree = WorktreeState.EDITED
    elif tree.head != state.tip:
        worktree = WorktreeState.COMMITS
    else:
        worktree = WorktreeState.CLEAN
    return StackStatus(
        upstream=pin.upstream,
        ref=pin.ref,
        commit=pin.commit or "",
        source=state.source,
        applied=len(state.patches),
        total=len(stack.names),
        state=_compare(stack, state),
        worktree=worktree,
        path=shown,
        applied_ref=state.ref,
        operation=tree.busy,
        edited=tree.edited,
        untracked=tree.untracked,
        tree=state.tree,
    )


def _compare(stack: Stack, state: State) -> StackState:
    if state.ref != stack.pin.ref:
        return StackState.OTHER_REF
    if state.pin_key != pin_key(stack.pin):
        return StackState.OUTDATED
    names = state.names
    if names != stack.names[: len(names)]:
        return StackState.OUTDATED
    for item in state.patches:
        path = stack.path(item.applied.name)
        if not path.exists() or (
            fsio.stat_key(path) != item.key and project_files.hash_file(stack.root, path) != item.sha256
        ):
            return StackState.OUTDATED
    if len(names) == len(stack.names):
        return StackState.APPLIED
    return StackState.PARTIAL


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchInfo:
    """Data about a patch of a stack, for ``list`` and ``show``."""

    upstream: str
    ref: str
    name: str
    subject: str
    author: str
    topic: str
    status: str
    proofs: tuple[str, ...]
    needs: tuple[str, ...]
    requires: tuple[str, ...]
    files: tuple[tuple[str, int, int], ...]
    path: str
    problem: str = ""


def list_patches(project: Project, names: Sequence[str] = (), set_name: str = "", topic: str = "") -> list[PatchInfo]:
    """Return the patches of a set's stacks in order. If a patch can't be read, its ``problem`` is set."""
    stacks = project.stacks(project.choose_set(set_name), names)
    patches: list[PatchInfo] = []
    for stack in stacks:
        for name in stack.names:
            patch = _patch_info(project, stack, name)
            if not topic or patch.topic == topic:
                patches.append(patch)
    return patches


def show(project: Project, patch: str, set_name: str = "") -> tuple[PatchInfo, Header, bytes]:
    """Return the summary, header and diff of one patch.

    :raises UserError: if the patch doesn't exist.
    """
    stack, name = find_patch(project.stacks(project.choose_set(set_name)), patch)
    header, text = stack.load(name)
    return _patch_info(project, stack, name), header, text


def _patch_info(project: Project, stack: Stack, name: str) -> PatchInfo:
    pin: Pin = stack.pin
    path = stack.relative(project.layout, name)
    try:
        header, text = stack.load(name)
        files = touched(text, path)
    except PatchqError as error:
        return PatchInfo(
            upstream=pin.upstream,
            ref=pin.ref,
            name=name,
            subject="",
            author="",
            topic="",
            status="",
            proofs=(),
            needs=(),
            requires=(),
            files=(),
            path=path,
            problem=error.message,
        )
    return PatchInfo(
        upstream=pin.upstream,
        ref=pin.ref,
        name=name,
        subject=header.subject,
        author=f"{header.author.name} <{header.author.email}>",
        topic=header.value("Topic"),
        status=header.value("Upstream-Status"),
        proofs=header.values("Proof"),
        needs=header.needs,
        requires=header.values("Requires"),
        files=files,
        path=path,
    )


def touched(text: bytes, where: str) -> tuple[tuple[str, int, int], ...]:
    """Return each file of a diff with its numbers of added and removed lines.

    The numbers are -1 if patchq's own parser can't read the diff.

    :raises FormatError: for a damaged diff.
    """
    try:
        files = diff.parse(text, where)
    except diff.Unsupported:
        names: dict[str, tuple[str, int, int]] = {}
        for line in text.split(b"\n"):
            if line.startswith(b"diff --git "):
                name = show_path(line.split(b" b/", 1)[-1].rstrip(b'"'))
                names[name] = (name, -1, -1)
        return tuple(names.values())
    return tuple(map(_count_lines, files))


def _count_lines(file: diff.FilePatch) -> tuple[str, int, int]:
    """Return the path of a file with its numbers of added and removed lines."""
    added = removed = 0
    for hunk in file.hunks:
        added += len(hunk.new) - hunk.context
        removed += len(hunk.old) - hunk.context
    return show_path(file.path), added, removed


def read_ledgers(project: Project, names: Sequence[str] = (), patch: str = "") -> dict[str, Ledger]:
    """Return the ledgers of all upstreams, or of the named ones.

    :param patch: name of the patch whose attempts are returned. If empty, return all attempts.
    :raises UserError: for an unknown upstream, or if no ledger mentions the patch.
    """
    from patchq.formats.ledger import parse

    found = {}
    for name, path in _ledgers(project, names).items():
        found[name] = parse(project_files.read(project.layout.root, path) or b"")
    if patch:
        short = patch.rpartition("/")[2]
        for name, ledger in found.items():
            found[name] = replace(ledger, attempts=tuple(a for a in ledger.attempts if a.patch == short))
        if not any(ledger.attempts for ledger in found.values()):
            raise _not_in_ledgers(patch)
    return found


def stream_ledgers(
    project: Project, names: Sequence[str] = (), patch: str = ""
) -> Iterator[tuple[str, Iterator[Attempt | Problem]]]:
    """Yield each upstream with an iterator over its ledger, which is read only as needed.

    :raises UserError: at the end of the iteration, if no ledger mentions the patch.
    """
    from patchq.formats.jsonlines import Problem
    from patchq.formats.ledger import Attempt, stream

    output = not patch
    short = patch.rpartition("/")[2]
    for name, path in _ledgers(project, names).items():

        def chosen(path: Path = path) -> Iterator[Attempt | Problem]:
            nonlocal output
            every = stream(lambda: project_files.read_lines(project.layout.root, path))
            if not patch:
                yield from every
                return
            for one in every:
                if isinstance(one, Problem) or one.patch == short:
                    output = output or isinstance(one, Attempt)
                    yield one

        yield name, chosen()
    if not output:
        raise _not_in_ledgers(patch)


def _ledgers(project: Project, names: Sequence[str]) -> dict[str, Path]:
    for name in names:
        if name not in project.lock.upstreams:
            raise UserError(f"no upstream {name!r}", hint=f"there are {', '.join(project.lock.upstreams)}")
    ledgers: dict[str, Path] = {}
    for name in names or project.lock.upstreams:
        path = ledger_path(project.layout, name)
        if path.exists():
            ledgers[name] = path
    return ledgers


def _not_in_ledgers(patch: str) -> UserError:
    return UserError(f"no ledger has an entry for {patch}", hint="`patchq ledger` prints all entries")
