"""Commits out of somebody else's repository, read as data: its configuration, hooks and attributes have no say."""

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
    """A commit of a range.

    :ivar before: the tree of its first parent; None if it has none.
    :ivar brought: the commits of the range that a merge brings to its first parent, oldest first.
    """

    info: CommitInfo
    before: TreeId | None
    brought: tuple[CommitInfo, ...] = ()


def borrow(store: Git, folder: Path, first: str, last: str) -> list[Borrowed]:
    """The commits of ``first..last`` along first parents in the repository at ``folder``, oldest first.

    Their trees are in the store afterwards, by the ids that their own bytes come to; the commits are not.

    :raises UserError: if the repository has no such range.
    :raises SourceError: if it lacks some of the range.
    """
    source = Foreign(folder)
    ends = [source.ref_or_none(name) for name in (first, last)]
    if not all(ends):
        raise UserError(
            f"{folder} has no range {first}..{last}",
            hint=f"`git -C {sh(folder)} log {sh(first)}..{sh(last)}` must work",
        )
    objects, shallow = (
        Path(source.line("rev-parse", "--path-format=absolute", "--git-path", name)) for name in ("objects", "shallow")
    )
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        beside = bare_repository(Path(text))
        borrow_objects(beside.folder, objects)
        if bounds := fsio.read_or_none(shallow):
            (beside.folder / "shallow").write_bytes(bounds)
        try:
            commits = beside.log(f"{ends[0]}..{ends[1]}")
            parents = list(dict.fromkeys(c.parents[0] for c in commits if c.parents))
            before: dict[CommitId, TreeId] = dict(zip(parents, beside.tree_of(parents) if parents else (), strict=True))
            brought = {
                c.commit: tuple(beside.log(*c.parents[1:], f"^{c.parents[0]}", f"^{ends[0]}", first_parent=False))
                for c in commits
                if len(c.parents) > 1
            }
            _bring(beside, store, sorted({*before.values(), *(c.tree for c in commits)}))
        except runner.CommandError as error:
            raise SourceError(
                f"{folder} lacks some of {first}..{last}: {error.said}",
                hint=f"if it is a partial clone: `git -C {sh(folder)} fetch --refetch --no-filter`",
            ) from None
    return [Borrowed(c, before[c.parents[0]] if c.parents else None, brought.get(c.commit, ())) for c in commits]


def _bring(beside: Git, store: Git, trees: list[TreeId]) -> None:
    if not trees or store.is_whole(trees):
        return
    # What git reads of an object it takes by its name; a pack carries contents, which are named anew.
    wanted = "".join(f"{tree}\n" for tree in trees).encode()
    store.run("index-pack", "--stdin", data=beside.run("pack-objects", "--stdout", "--revs", "-q", data=wanted))
    if not store.is_whole(trees):
        raise SourceError("objects there are not what their names say", hint="`git fsck` in that repository")
