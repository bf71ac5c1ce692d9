"""Commits carried onto other trees in memory: by three-way merges, without a worktree."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from patchq.errors import Conflict, ConflictError
from patchq.git.objects import CommitInfo
from patchq.git.repository import Git
from patchq.names import AppliedPatch, CommitId, TreeId, show_path


def pick(store: Git, upstream: str, name: str, parent: TreeId, tree: TreeId, onto: TreeId) -> TreeId:
    """Carry what ``parent`` → ``tree`` changes onto ``onto`` in memory.

    A new file keeps its path. Patches of one stack differ from each other by single files, of which git would guess
    that their whole folder moved.

    :raises ConflictError: naming the files where it doesn't merge.
    """
    if parent == onto:
        return tree
    merged = store.merge_tree(parent, onto, tree, follow_folders=False)
    if merged.failed:
        raise ConflictError(
            f"{upstream}: {name} can't be carried there: {merged.failed}; nothing was changed",
            [Conflict(upstream, name, show_path(c.path), merged.failed) for c in store.changes(parent, tree)],
            hint="a newer git may; or change the order by `git rebase -i` in the worktree, then `patchq export`",
        )
    if merged.stages:
        paths = [show_path(path) for path in merged.paths]
        raise ConflictError(
            f"{upstream}: {name} doesn't merge there: {', '.join(paths)}; nothing was changed",
            [Conflict(upstream, name, path, "3-way merge conflict") for path in paths],
            hint="change the order by `git rebase -i` in the worktree, where you can resolve it, then `patchq export`",
        )
    return merged.tree


def leave_out(
    store: Git,
    upstream: str,
    base: CommitId,
    commits: Sequence[tuple[str, CommitInfo]],
    gone: Collection[str],
    conflicted: Callable[[str, ConflictError], None],
) -> list[AppliedPatch]:
    """A stack's commits without some of its patches, each of the others carried over the gap.

    :param commits: each patch's name and its commit, from ``base`` up.
    :param gone: names of those to leave out.
    :param conflicted: called for a patch that doesn't merge without them; unless it raises, that patch is
        left out as well.
    """
    before = onto = store.tree_of([base])[0]
    tip, kept = base, []
    for name, info in commits:
        parent, before = before, info.tree
        if name in gone:
            continue
        try:
            onto = pick(store, upstream, name, parent, info.tree, onto)
        except ConflictError as error:
            conflicted(name, error)
            continue
        tip = store.commit_tree(onto, [tip], info.author, info.message)
        kept.append(AppliedPatch(name, tip))
    return kept
