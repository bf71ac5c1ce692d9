"""Three-way merges in memory: ``git merge-tree``.

With git 2.50 or newer, one persistent process runs all merges of a repository, and merges trees with a given base.
Older versions can only merge commits. For these versions, patchq writes the base as the common parent of two commits,
and each call starts a new process.
"""

from __future__ import annotations

import functools
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path

from patchq.formats.header import Ident
from patchq.git.command import options
from patchq.git.objects import Objects, TreeEntry
from patchq.names import BlobId, CommitId, TreeId
from patchq.records import dataclass
from patchq.system import runner

#: zdiff3 adds the patch's base to conflict markers.
_MERGE_CONFIG = ("merge.conflictStyle=zdiff3", "merge.directoryRenames=true")
_IN_PLACE = ("merge.conflictStyle=zdiff3", "merge.directoryRenames=false")

#: Signals by which git dies if it crashes. SIGTERM or SIGKILL come from outside and are not a merge result.
_CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)


#: Commits (ours, theirs). For git 2.50 or newer: commits or trees (base, ours, theirs).
Sides = tuple[str, ...]
#: First git that merges trees with a given base and flushes each result.
_MERGES_TREES = (2, 50)


@dataclass(frozen=True, slots=True)
class Stage:
    """Side of a conflicting path in git's index: 1 is the base, 2 ours, 3 theirs."""

    path: bytes
    entry: TreeEntry
    number: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Result of a merge. Conflicting files in the tree contain conflict markers, labelled by the commits.

    :ivar failed: message if git crashed, and empty otherwise. After a crash, ``tree`` is the tree of ours.
    """

    tree: TreeId
    stages: tuple[Stage, ...]
    failed: str = ""

    @property
    def paths(self) -> list[bytes]:
        """Return the conflicting paths."""
        return sorted({s.path for s in self.stages})


class Merging(Objects):
    """Merge operations of a repository."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._sides: dict[tuple[str, str], CommitId] = {}

    def merge_tree(self, base: str, ours: str, theirs: str, *, follow_folders: bool = True) -> Merge:
        """Merge three trees in memory. Renames are followed.

        :param follow_folders: move a new file if the other side renamed its folder.
        """
        sides: Sides = (base, ours, theirs)
        if not merges_trees():
            root = self._side(base, "")
            sides = (self._side(ours, root), self._side(theirs, root))
        return self.merge([sides], follow_folders=follow_folders)[0]

    def merge(self, pairs: Sequence[Sides], *, follow_folders: bool = True) -> list[Merge]:
        """Run several merges in memory with one process. If git crashes, run each merge again in its own process."""
        if not pairs:
            return []
        try:
            return self._merged(pairs, _MERGE_CONFIG if follow_folders else _IN_PLACE)
        except runner.CommandError as error:
            if -error.code not in _CRASHES:
                raise
            if len(pairs) == 1:
                failed = f"git's own merge ended with {signal.Signals(-error.code).name}"
                if error.output:
                    failed += f": {error.output.splitlines()[-1]}"
                return [Merge(self.tree_of([pairs[0][-2]])[0], (), failed)]
        merges: list[Merge] = []
        for pair in pairs:
            merges += self.merge([pair], follow_folders=follow_folders)
        return merges

    def _merged(self, pairs: Sequence[Sides], config: tuple[str, ...]) -> list[Merge]:
        fields = iter(self._results([_line(pair) for pair in pairs], config).split(b"\0"))
        found: list[Merge] = []
        for pair in pairs:
            clean = next(fields)
            tree = TreeId(next(fields).decode())
            stages: list[Stage] = []
            while entry := next(fields):
                meta, path = entry.split(b"\t", 1)
                mode, blob, number = meta.split(b" ")
                stages.append(Stage(path, TreeEntry(mode, BlobId(blob.decode())), int(number)))
            if clean != b"1" and not stages:
                stages = self._unstaged(pair, config)
            assert (clean == b"1") == (not stages), "git's merge status contradicts its stages"
            found.append(Merge(tree, tuple(stages)))
        return found

    def _results(self, lines: Sequence[str], config: tuple[str, ...]) -> bytes:
        """Return the output of ``git merge-tree`` for these input lines, from a persistent process if possible."""
        argv = ("merge-tree", "--write-tree", "--stdin", "-z", "--no-messages")
        if merges_trees():
            from patchq.git._reader import merger  # not needed by most commands

            for number in range(os.cpu_count() or 1):
                found = merger(self, (*options(config), *argv), number)
                if found is None:
                    break
                if (results := found.merge(lines)) is not None:
                    return results
                if found.ended:
                    break  # a new process reports the failure
        return self.run(*argv, data="".join(lines).encode(), config=config)

    def _unstaged(self, pair: Sides, config: tuple[str, ...]) -> list[Stage]:
        """Return the stages of conflicts that git reports only as messages, without index entries.

        For example, one side renames a folder, the other side adds a file to this folder, and the file's new
        path already exists.
        """
        argv = ("merge-tree", "--write-tree", "--stdin", "-z", "--messages")
        out = self.run(*argv, data=_line(pair).encode(), config=config)
        fields = iter(out.split(b"\0")[3:])
        paths: set[bytes] = set()
        while count := next(fields, b"").strip():
            about = [next(fields) for _ in range(int(count))]
            kind = next(fields)
            next(fields)  # the message
            if kind.startswith(b"CONFLICT"):
                paths.update(about)
        stages: list[Stage] = []
        for number, side in enumerate(pair[-2:], 2):
            entries = self.list_tree(side, sorted(paths))
            stages += [Stage(path, entries[path], number) for path in sorted(entries)]
        return stages

    def _side(self, tree: str, parent: str) -> CommitId:
        """Return a commit for one side of a merge. The commit is cached, because a patch is merged onto many trees."""
        if (tree, parent) not in self._sides:
            author = Ident("patchq", "patchq@localhost", 946684800, "+0000")
            if parent:
                made = self.commit_tree(tree, (parent,), author, "side\n")
            else:
                made = self.commit_tree(tree, (), author, "base\n")
            self._sides[tree, parent] = made
        return self._sides[tree, parent]


def merges_trees() -> bool:
    """Return whether the installed git can merge trees with a given base in a persistent process."""
    import shutil  # slow to import, and most commands merge nothing

    return _version(shutil.which("git") or "git") >= _MERGES_TREES


@functools.cache
def _version(program: str) -> tuple[int, ...]:
    """Return the major and minor version of a git program."""
    numbers = re.search(rb"(\d+)\.(\d+)", runner.run([program, "--version"]).stdout)
    return tuple(map(int, numbers.groups())) if numbers else ()


def _line(sides: Sides) -> str:
    """Return the input line of ``git merge-tree`` for a merge."""
    if len(sides) == 3:
        return f"{sides[0]} -- {sides[1]} {sides[2]}\n"
    return f"{sides[0]} {sides[1]}\n"
