"""Cherry-picks in memory, without a worktree. Each cherry-pick is a three-way merge of trees."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from patchq.errors import Conflict, ConflictError
from patchq.git.objects import CommitInfo
from patchq.git.repository import Git
from patchq.names import AppliedPatch, CommitId, TreeId, show_path


def pick(store: Git, upstream: str, name: str, parent: TreeId, tree: TreeId, onto: TreeId) -> TreeId:
    """Apply the difference between the trees ``parent`` and ``tree`` to the tree ``onto``, in memory.

    New files keep their paths. git's detection of renamed directories is off, because single renamed files in a stack
    would mislead it.

    :raises ConflictError: with the conflicting files.
    """
    if parent == onto:
        return tree
    merged = store.merge_tree(parent, onto, tree, follow_folders=False)
    if merged.failed:
        raise ConflictError(
            f"{upstream}: {name} can't be merged at its new place: {merged.failed}; nothing was changed",
            [
                Conflict(upstream=upstream, patch=name, path=show_path(c.path), reason=merged.failed)
                for c in store.changes(parent, tree)
            ],
            hint="use a newer git, or change the order with `git rebase -i` in the worktree, then run `patchq export`",
        )
    if merged.stages:
        paths = [show_path(path) for path in merged.paths]
        raise ConflictError(
            f"{upstream}: {name} conflicts at its new place: {', '.join(paths)}; nothing was changed",
            [Conflict(upstream=upstream, patch=name, path=path, reason="3-way merge conflict") for path in paths],
            hint="resolve the conflict with `git rebase -i` in the worktree, then run `patchq export`",
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
    """Drop patches from a stack, and cherry-pick the later patches.

    :param commits: patch names and commits, from ``base`` up.
    :param gone: names of the patches to drop.
    :param conflicted: function that is called for a patch that conflicts. If it doesn't raise an exception,
        this patch is dropped, too.
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
        kept.append(AppliedPatch(name=name, commit=tip))
    return kept
