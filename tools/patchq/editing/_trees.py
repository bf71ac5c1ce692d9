"""Creation of copies of trees, with some files replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchq.git.merges import MergeObjects
from patchq.git.objects import TreeEntry
from patchq.git.repository import Git
from patchq.names import TreeId


@dataclass(frozen=True, slots=True)
class NewFile:
    """Mode and content of a file to write."""

    mode: bytes
    content: bytes


#: Files to write, or entries to use as they are, by path. None removes a file.
Replaced = Mapping[bytes, NewFile | TreeEntry | None]


def write_trees(store: Git, trees: Sequence[tuple[TreeId, Replaced]]) -> list[TreeId]:
    """Write a copy of each tree with its files replaced, and return the new trees. One git process writes all trees."""
    marks = []
    with MergeObjects(store, set()) as objects:
        for tree, replaced in trees:
            changed: dict[bytes, TreeEntry | None] = {}
            # Removals come first, because a folder may replace a file.
            for path in sorted(replaced, key=lambda path: replaced[path] is not None):
                file = replaced[path]
                if isinstance(file, NewFile):
                    file = TreeEntry(file.mode, objects.blob(file.content))
                changed[path] = file
            marks.append(objects.commit(tree, changed))
    return store.tree_of([objects.id(mark) for mark in marks])
