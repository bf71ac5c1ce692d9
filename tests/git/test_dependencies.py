"""What a patch needs, found file by file: the same as when each patch is merged as a whole tree."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from test_reorder import make_stack

from extent import LONG
from kit import git, numbered
from patchq.git.merges import changed_lines, merge_contents
from patchq.git.repository import Git, init_store
from patchq.names import BlobId
from patchq.stacks.deps import _Graph, _Onto


class ByTrees(_Graph):
    """The same search with each merge as one of whole trees."""

    def _sides(self, number: int, onto: _Onto) -> None:
        return None


@pytest.mark.parametrize("seed", range(40 if LONG else 12))
def test_the_same_as_by_whole_trees(tmp_path: Path, seed: int) -> None:
    store, base, entries = make_stack(tmp_path, random.Random(seed), 14)
    commits = [(e.name, e.commit) for e in entries]
    each = [[number] for number in range(len(commits))]
    found = _Graph(store, base, commits).all_needs(each)
    assert found == ByTrees(store, base, commits).all_needs(each)


def write_blobs(store: Git, *contents: bytes) -> list[BlobId]:
    return [BlobId(store.run("hash-object", "-w", "--stdin", data=c).decode().strip()) for c in contents]


def test_changed_lines_of_several_files(tmp_path: Path) -> None:
    """A file's last change may be its last line, with or without an end, and the next file follows at once."""
    store = init_store(tmp_path / "store.git")
    base, cut, grown, first, binary = write_blobs(
        store, numbered(9), numbered(7), numbered(9) + b"x", b"x\n" + numbered(9), b"\0"
    )
    pairs = [(base, cut), (base, grown), (base, first), (base, binary), (grown, base), (cut, base)]
    assert changed_lines(store, pairs) == [[(7, 9)], [(9, 9)], [(0, 0)], [], [(9, 10)], [(7, 7)]]


def test_text_that_looks_like_a_diff(tmp_path: Path) -> None:
    store = init_store(tmp_path / "store.git")
    base, other = write_blobs(store, b"a\n", b"a\ndiff --git a/0/1 b/0/1\n@@ -1 +1 @@\n-a\n")
    assert changed_lines(store, [(base, other), (other, base)]) == [[(1, 1)], [(1, 4)]]


def test_files_merged_together(tmp_path: Path) -> None:
    store = init_store(tmp_path / "store.git")
    base, first, last, both, other = write_blobs(
        store,
        numbered(9),
        b"x\n" + numbered(9),
        numbered(9) + b"x\n",
        b"x\n" + numbered(9) + b"x\n",
        b"y\n" + numbered(9),
    )
    assert merge_contents(store, [(base, first, last), (base, first, other), (base, last, first)]) == [both, None, both]
    assert git(store.folder, "for-each-ref") == ""
