"""Merges with other options of git: diff algorithms, ignored blanks, detection of more renames.

``git merge-tree`` of git 2.39 doesn't have these options. So ``git merge`` runs in a temporary worktree that contains
only the relevant files. If attributes name a merge driver or a filter, git doesn't run it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import PurePath

from patchq.formats.diff import GITLINK
from patchq.git.diffs import PathChange
from patchq.git.objects import TreeEntry
from patchq.git.repository import Git, bare_repository
from patchq.merge.patches import write_commits
from patchq.names import TreeId
from patchq.resolutions._sides import Sides
from patchq.system import fsio, runner

#: Options of ``git merge-recursive`` by strategy. Newer git runs its ort strategy instead.
STRATEGIES = {
    "histogram": "--diff-algorithm=histogram",
    "patience": "--diff-algorithm=patience",
    "minimal": "--diff-algorithm=minimal",
    "myers": "--diff-algorithm=myers",
    "ignore-space-at-eol": "--ignore-space-at-eol",
    "ignore-space-change": "--ignore-space-change",
    "ignore-all-space": "--ignore-all-space",
    "find-renames=30%": "--find-renames=30%",
}
#: Strategies that take the patch's lines where upstream changed only blanks.
IGNORE_BLANKS = ("ignore-space-change", "ignore-all-space")
#: Number of files above which patchq doesn't merge in a scratch worktree.
_MOST_FILES = 5000
_CONFIG = ("merge.directoryRenames=true", "merge.renameLimit=1000")


def merges(sides: Sides) -> Iterator[tuple[str, TreeId | None]]:
    """Yield each strategy with its merged tree. The tree is None if the strategy's merge also conflicts."""
    git = sides.git
    wanted = _wanted(sides)
    if len(wanted) > _MOST_FILES:
        return
    with fsio.temporary_folder() as folder:
        scratch = bare_repository(folder / "git", git)
        env = {"GIT_INDEX_FILE": str(folder / "index")}
        base, ours, theirs = (_part(scratch, git.list_tree(side), wanted, env) for side in sides.commits)
        for name, option in STRATEGIES.items():
            with fsio.temporary_folder(inside=folder) as place:
                (place / "files").mkdir()
                env = {"GIT_INDEX_FILE": str(place / "index"), "GIT_WORK_TREE": str(place / "files")}
                merged = _merge(scratch, option, (base, ours, theirs), env)
            yield name, _whole(sides, scratch, scratch.changes(ours, merged)) if merged else None


def _merge(git: Git, option: str, sides: tuple[TreeId, TreeId, TreeId], env: Mapping[str, str]) -> TreeId | None:
    """Merge base, ours and theirs in an empty worktree. Return None if git fails or leaves a conflict."""
    base, ours, theirs = sides
    try:
        git.run("read-tree", "--reset", "-u", ours, env=env)
        git.run("merge-recursive", option, base, "--", ours, theirs, env=env, config=_CONFIG)
        return TreeId(git.run("write-tree", env=env).decode().strip())
    except runner.CommandError:
        return None


def _wanted(sides: Sides) -> set[bytes]:
    """Return the paths to merge: conflicting paths, and paths that the patch changes.

    If upstream removed one of these files, also return the paths with the same suffix that upstream added,
    because one of them may be the file's new name.
    """
    git = sides.git
    found = set(sides.touched)
    before = git.list_tree(sides.base, sorted(found))
    after = git.list_tree(sides.ours, sorted(found))
    gone = {PurePath(os.fsdecode(path)).suffix for path in before.keys() - after.keys()}
    if gone:
        for change in git.changes(sides.base, sides.ours):
            if change.old is None and PurePath(os.fsdecode(change.path)).suffix in gone:
                found.add(change.path)
    return found


def _part(git: Git, tree: dict[bytes, TreeEntry], paths: set[bytes], env: Mapping[str, str]) -> TreeId:
    """Return a tree with only the entries of ``tree`` at the given paths, without submodules."""
    lines = []
    for path in sorted(paths & tree.keys()):
        entry = tree[path]
        if entry.mode != GITLINK:
            lines.append(b"%s %s\t%s\0" % (entry.mode, entry.blob.encode(), path))
    git.run("read-tree", "--empty", env=env)
    git.run("update-index", "-z", "--index-info", data=b"".join(lines), env=env)
    return TreeId(git.run("write-tree", env=env).decode().strip())


def _whole(sides: Sides, scratch: Git, changes: list[PathChange]) -> TreeId:
    """Return the tree of ``ours`` with the changes of a merge applied."""
    contents = scratch.read_blobs(change.new.blob for change in changes if change.new)
    (commit,) = write_commits(sides.git, sides.ours, [(sides.patch, changes)], contents)
    return sides.git.tree_of([commit])[0]
