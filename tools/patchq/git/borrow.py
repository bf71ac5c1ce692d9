"""Copy of commits from another repository. That repository's configuration, hooks and attributes are ignored."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from patchq.errors import SourceError, UserError
from patchq.git.objects import CommitInfo
from patchq.git.repository import Foreign, Git, bare_repository, borrow_objects
from patchq.names import CommitId, TreeId, sh
from patchq.system import fsio, runner


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Commit that was copied from another repository.

    :ivar before: tree of the commit's first parent; None for a root commit.
    :ivar brought: for a merge commit, the commits that it merges into its first parent, oldest first.
    """

    info: CommitInfo
    before: TreeId | None
    brought: tuple[CommitInfo, ...] = ()


def borrow(store: Git, folder: Path, first: str, last: str) -> list[Borrowed]:
    """Return the first-parent commits of ``first..last`` in another repository, oldest first.

    Copy the trees of the commits to the store, but not the commits themselves. All object ids are computed
    again from the contents.

    :raises UserError: if the repository has no such range.
    :raises SourceError: if objects of the range are missing.
    """
    source = Foreign(folder)
    ends = [source.ref_or_none(name) for name in (first, last)]
    if not all(ends):
        raise UserError(
            f"{folder} has no range {first}..{last}",
            hint=f"check the range with `git -C {sh(folder)} log {sh(first)}..{sh(last)}`",
        )
    objects, shallow = (
        Path(source.line("rev-parse", "--path-format=absolute", "--git-path", name)) for name in ("objects", "shallow")
    )
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        temporary = bare_repository(Path(text))
        borrow_objects(temporary.folder, objects)
        if bounds := fsio.read_or_none(shallow):
            (temporary.folder / "shallow").write_bytes(bounds)
        try:
            commits = temporary.log(f"{ends[0]}..{ends[1]}")
            before = _parent_trees(temporary, commits)
            brought: dict[CommitId, tuple[CommitInfo, ...]] = {}
            for info in commits:
                if len(info.parents) > 1:
                    limits = (f"^{info.parents[0]}", f"^{ends[0]}")
                    merged = temporary.log(*info.parents[1:], *limits, first_parent=False)
                    brought[info.commit] = tuple(merged)
            trees = {info.tree for info in commits}
            _bring(temporary, store, sorted(trees.union(before.values())))
        except runner.CommandError as error:
            raise SourceError(
                f"{folder} lacks some of {first}..{last}: {error.output}",
                hint=f"if the repository is a partial clone, run `git -C {sh(folder)} fetch --refetch --no-filter`",
            ) from None
    borrowed: list[Borrowed] = []
    for info in commits:
        tree = None
        if info.parents:
            tree = before[info.parents[0]]
        borrowed.append(Borrowed(info, tree, brought.get(info.commit, ())))
    return borrowed


def _parent_trees(git: Git, commits: list[CommitInfo]) -> dict[CommitId, TreeId]:
    """Return the trees of the commits' first parents."""
    parents = list(dict.fromkeys(info.parents[0] for info in commits if info.parents))
    if not parents:
        return {}
    return dict(zip(parents, git.tree_of(parents), strict=True))


def _bring(temporary: Git, store: Git, trees: list[TreeId]) -> None:
    """Copy trees and all their files to the store.

    :raises SourceError: if the contents of an object don't match its id.
    """
    if not trees or store.is_whole(trees):
        return
    # git doesn't verify ids when it reads loose objects. index-pack computes them from the contents.
    wanted = "".join(f"{tree}\n" for tree in trees).encode()
    # Keep the deltas of packed objects. Computing new deltas would take most of an import's time.
    pack = temporary.run("pack-objects", "--stdout", "--revs", "-q", "--window=0", data=wanted)
    store.run("index-pack", "--stdin", data=pack)
    if not store.is_whole(trees):
        raise SourceError("some objects don't match their ids", hint="run `git fsck` in that repository")
