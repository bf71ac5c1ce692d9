"""Three-way merges in memory: ``git merge-tree``."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.formats.header import Ident
from patchq.git.objects import Objects, TreeEntry
from patchq.names import BlobId, CommitId, TreeId
from patchq.system import runner

#: Conflicts show what the patch was written against, too; a new file goes where its folder went.
_MERGE_CONFIG = ("merge.conflictStyle=zdiff3", "merge.directoryRenames=true")
_IN_PLACE = ("merge.conflictStyle=zdiff3", "merge.directoryRenames=false")


#: What git ends with by a fault of its own, such as an assertion; what somebody else ended it with is no answer.
_FELL = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)


@dataclass(frozen=True, slots=True)
class Stage:
    """One side of a path that conflicts: 1 the base's, 2 ours, 3 theirs."""

    path: bytes
    entry: TreeEntry
    number: int


@dataclass(frozen=True, slots=True)
class Merge:
    """What a merge comes to. Where it conflicts (``stages``) the tree's files hold markers, labelled by the commits.

    :ivar failed: how git itself ended in the middle of it, in words; the tree is that of ours then.
    """

    tree: TreeId
    stages: tuple[Stage, ...]
    failed: str = ""

    @property
    def paths(self) -> list[bytes]:
        """The paths that conflict."""
        return sorted({s.path for s in self.stages})


class Merging(Objects):
    """Merging trees and commits."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._sides: dict[tuple[str, str], CommitId] = {}

    def merge_tree(self, base: str, ours: str, theirs: str, *, follow_folders: bool = True) -> Merge:
        """Merge three trees in memory: git's ort merge, renames followed.

        :param follow_folders: put a new file where the other files of its folder went.

        git 2.39 takes no merge base, so the three trees become commits with a shared parent.
        """
        root = self._side(base, "")
        pair = self._side(ours, root), self._side(theirs, root)
        return self.merge([pair], follow_folders=follow_folders)[0]

    def merge(self, pairs: Sequence[tuple[CommitId, CommitId]], *, follow_folders: bool = True) -> list[Merge]:
        """Merge pairs of commits in memory, all by one process; where git falls over one of them, each by its own."""
        if not pairs:
            return []
        try:
            return self._merged(pairs, _MERGE_CONFIG if follow_folders else _IN_PLACE)
        except runner.CommandError as error:
            if -error.code not in _FELL:
                raise
            if len(pairs) > 1:
                return [merge for pair in pairs for merge in self.merge([pair], follow_folders=follow_folders)]
            last = error.said.splitlines()[-1:]
            failed = (
                f"git's own merge ended with {signal.Signals(-error.code).name}{': ' if last else ''}{''.join(last)}"
            )
            return [Merge(self.tree_of([pairs[0][0]])[0], (), failed)]

    def _merged(self, pairs: Sequence[tuple[CommitId, CommitId]], config: tuple[str, ...]) -> list[Merge]:
        out = self.run(
            "merge-tree",
            "--write-tree",
            "--stdin",
            "-z",
            "--no-messages",
            data="".join(f"{ours} {theirs}\n" for ours, theirs in pairs).encode(),
            config=config,
        )
        fields, found = iter(out.split(b"\0")), []
        for pair in pairs:
            clean, tree, stages = next(fields), TreeId(next(fields).decode()), []
            while entry := next(fields):
                meta, path = entry.split(b"\t", 1)
                mode, blob, number = meta.split(b" ")
                stages.append(Stage(path, TreeEntry(mode, BlobId(blob.decode())), int(number)))
            if clean != b"1" and not stages:
                stages = self._unstaged(pair, config)
            assert (clean == b"1") == (not stages), "git says of a merge both that it is clean and that it is not"
            found.append(Merge(tree, tuple(stages)))
        return found

    def _unstaged(self, pair: tuple[CommitId, CommitId], config: tuple[str, ...]) -> list[Stage]:
        """The paths of a merge that git stops at with no entry of its index in conflict: it says them in words alone.

        So it does where a folder that one side renamed has files of the other, and in their new place is something.
        """
        out = self.run(
            "merge-tree",
            "--write-tree",
            "--stdin",
            "-z",
            "--messages",
            data=f"{pair[0]} {pair[1]}\n".encode(),
            config=config,
        )
        fields, paths = iter(out.split(b"\0")[3:]), set[bytes]()
        while count := next(fields, b"").strip():
            about = [next(fields) for _ in range(int(count))]
            kind, _ = next(fields), next(fields)
            paths.update(about if kind.startswith(b"CONFLICT") else ())
        sides = enumerate((self.list_tree(side, sorted(paths)) for side in pair), 2)
        return [Stage(path, entry, number) for number, side in sides for path, entry in sorted(side.items())]

    def _side(self, tree: str, parent: str) -> CommitId:
        """A commit for a side of a merge, made once: the same patch is merged onto many trees."""
        if (tree, parent) not in self._sides:
            nobody = Ident("patchq", "patchq@localhost", 946684800, "+0000")
            message = "side\n" if parent else "base\n"
            self._sides[tree, parent] = self.commit_tree(tree, (parent,) if parent else (), nobody, message)
        return self._sides[tree, parent]
