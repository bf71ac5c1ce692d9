"""Three-way merge of a worktree's commits with patch files that were changed after ``apply``.

For example, ``git pull`` updates the patch files while the worktree still contains the old stack. Commands that write
the stack then merge the patch files on disk with the worktree's commits. The merge base is the stack that was applied.
If both sides have changed the same patch, the command fails, so that no version is lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from patchq.errors import ConflictError, UserError
from patchq.git.objects import CommitInfo
from patchq.git.replay import pick
from patchq.git.repository import Git
from patchq.names import CommitId, TreeId, sh
from patchq.project.project import Project
from patchq.project.stack import Stack, State, pin_key
from patchq.sources.bases import Base
from patchq.stacks.apply import plan


@dataclass(frozen=True, slots=True)
class ReconciledEntry:
    """Commit that is written as the patch ``name``. For a fixup, the name is empty."""

    name: str
    commit: CommitInfo


@dataclass(frozen=True, kw_only=True, slots=True)
class Reconciled:
    """Stack that results from the merge.

    :ivar entries: patches up to the last applied patch, in order.
    :ivar rest: patches on disk after the last applied patch. Their files stay unchanged.
    :ivar merged: True if the patch files had changed, so that the entries are new commits.
    """

    entries: tuple[ReconciledEntry, ...]
    rest: tuple[str, ...]
    merged: bool


def entries_of(store: Git, state: State) -> list[ReconciledEntry]:
    """Return the applied patches with their commits."""
    commits = []
    if state.patches:
        commits = store.log(f"{state.base}..{state.tip}")
    return [ReconciledEntry(*pair) for pair in zip(state.names, commits, strict=True)]


def split_series(stack: Stack, state: State) -> tuple[list[str], list[str]]:
    """Split the series after the last patch that is applied in the worktree.

    The first part also contains new patches between applied ones.
    """
    names, applied = list(stack.names), set(state.names)
    end = len(names)
    while end and names[end - 1] not in applied:
        end -= 1
    return names[:end], names[end:]


def reconcile(
    project: Project, stack: Stack, state: State, worktree: Sequence[ReconciledEntry], *, edits: bool
) -> Reconciled:
    """Merge the worktree's patches with the patch files on disk.

    :param worktree: entries for the worktree's commits, with fixups that aren't folded yet.
    :param edits: True if the last entry contains uncommitted edits and the others are unchanged.
    :raises UserError: if both sides changed a patch or the order, or if the pin changed.
    :raises ConflictError: if a patch on disk doesn't apply, or if a merge conflicts.
    """
    upstream = stack.pin.upstream
    hint = _aside(project, upstream, state.tip, edits=edits)
    if state.pin_key != pin_key(stack.pin):
        raise UserError(
            f"{upstream} {stack.pin.ref} is now pinned to a different commit than when its stack was applied",
            hint=hint,
        )
    front, rest = split_series(stack, state)
    changed = _changed_on_disk(stack, state, front)
    if not changed and tuple(front) == state.names:
        return Reconciled(entries=tuple(worktree), rest=tuple(rest), merged=False)
    base = Base(stack.pin, state.base, state.source)
    disk = _planned(project, stack, base, state, front)
    applied = entries_of(project.store, state)
    chosen = _choose(project, stack, applied, disk, worktree, changed_on_disk=changed, hint=hint)
    entries = _carry(project.store, upstream, state.base, chosen, hint=hint)
    return Reconciled(entries=tuple(entries), rest=tuple(rest), merged=True)


def _changed_on_disk(stack: Stack, state: State, front: Sequence[str]) -> set[str]:
    """Return the applied patches whose files on disk differ from the applied version."""
    found: set[str] = set()
    for patch in state.patches:
        name = patch.applied.name
        if name in front and hashlib.sha256(stack.read(name)).hexdigest() != patch.sha256:
            found.add(name)
    return found


def _planned(project: Project, stack: Stack, base: Base, state: State, front: Sequence[str]) -> list[ReconciledEntry]:
    if not front:
        return []
    after = plan(project, stack, base, state, state.set_name, count=len(front)).after
    return entries_of(project.store, after)


def _choose(
    project: Project,
    stack: Stack,
    applied: Sequence[ReconciledEntry],
    disk: Sequence[ReconciledEntry],
    worktree: Sequence[ReconciledEntry],
    *,
    changed_on_disk: set[str],
    hint: str,
) -> list[ReconciledEntry]:
    """Merge the changes of both sides, relative to ``applied``: choose the version of each patch, and the order."""
    before = {e.name: e for e in applied}
    there = {e.name: e for e in disk}
    here = {e.name: e for e in worktree if e.name}
    changed_here = _changed(project.store, before, here)
    both = []
    for name in before:
        gone_there, gone_here = name not in there, name not in here
        touched_there = name in changed_on_disk or gone_there
        touched_here = name in changed_here or gone_here
        if touched_there and touched_here and not (gone_there and gone_here):
            both.append(name)
    for name in here:
        if name in there and name not in before:
            both.append(name)
    if both:
        raise UserError(
            f"{stack.pin.upstream}: {', '.join(both)} changed both on disk and in the worktree since the stack was "
            "applied",
            hint=hint,
        )
    gone = set()
    for name in before:
        if name not in there or name not in here:
            gone.add(name)
    order = _merge_orders(before=list(before), disk=list(there), worktree=list(here))
    if order is None:
        raise UserError(
            f"{stack.pin.upstream}: the order of the patches was changed both on disk and in the worktree",
            hint=hint,
        )
    chosen = []
    for name in order:
        if name not in gone:
            chosen.append(here[name] if name in changed_here or name not in there else there[name])
    # Fixups come last, because fold() needs their targets first.
    return chosen + [e for e in worktree if not e.name]


def _changed(store: Git, before: dict[str, ReconciledEntry], here: dict[str, ReconciledEntry]) -> set[str]:
    """Return the patches whose diff, message or author differs between ``before`` and ``here``."""
    others = []
    for name, e in here.items():
        if name in before and e.commit.commit != before[name].commit.commit:
            others.append(name)
    ours = store.patch_ids_of([here[name].commit.commit for name in others])
    theirs = store.patch_ids_of([before[name].commit.commit for name in others])
    found = set()
    for name, new, old in zip(others, ours, theirs, strict=True):
        one, other = here[name].commit, before[name].commit
        if new != old or one.message != other.message or one.author != other.author:
            found.add(name)
    return found


def _merge_orders(*, before: list[str], disk: list[str], worktree: list[str]) -> list[str] | None:
    """Merge two orders of patches. Keep each added patch after its predecessor.

    :returns: the merged order; None if the two sides moved patches differently.
    """
    kept = []
    for name in before:
        if name in disk and name in worktree:
            kept.append(name)
    on_disk = [name for name in disk if name in kept]
    in_worktree = [name for name in worktree if name in kept]
    if on_disk in (kept, in_worktree):
        return _with_added(worktree, disk, before)
    if in_worktree == kept:
        return _with_added(disk, worktree, before)
    return None


def _with_added(order: list[str], other: Sequence[str], before: Sequence[str]) -> list[str]:
    """Insert each new patch of ``other`` after the patch that precedes it in ``other``."""
    found = list(order)
    for at, name in enumerate(other):
        if name in found or name in before:
            continue
        place = 0
        for above in other[:at]:
            if above in found:
                place = found.index(above) + 1
        found.insert(place, name)
    return found


def _carry(
    store: Git, upstream: str, base: CommitId, entries: Sequence[ReconciledEntry], *, hint: str
) -> list[ReconciledEntry]:
    """Rebase each patch onto the patch below it, in the store."""
    parents = [e.commit.parents[0] for e in entries]
    trees = {}
    if parents:
        trees = dict(zip(parents, store.tree_of(parents), strict=True))
    onto: TreeId = store.tree_of([base])[0]
    tip, found = base, []
    for entry in entries:
        name = entry.name or entry.commit.message.split("\n", 1)[0]
        try:
            onto = pick(store, upstream, name, trees[entry.commit.parents[0]], entry.commit.tree, onto)
        except ConflictError as error:
            error.message = f"{error.message}; the patch files changed after the stack was applied"
            error.hint = hint
            raise
        parents_now = (tip,)
        tip = store.commit_tree(onto, [tip], entry.commit.author, entry.commit.message)
        found.append(ReconciledEntry(entry.name, replace(entry.commit, commit=tip, tree=onto, parents=parents_now)))
    return found


def _aside(project: Project, upstream: str, tip: CommitId, *, edits: bool) -> str:
    """Return commands for the user to rebase the worktree's changes onto the stack on disk."""
    tree = f"git -C {sh(project.worktree(upstream).path)}"
    if edits:
        return (
            f"`{tree} stash -u && patchq apply {upstream} && {tree} stash pop`, resolve what conflicts, and run the "
            "command again"
        )
    return (
        f"`{tree} branch -f mine && {tree} reset --hard {tip} && patchq apply {upstream} && "
        f"{tree} cherry-pick {tip}..mine`, resolve what conflicts, and run the command again"
    )
