"""Sides of the merge at which a patch stopped, and the trees that candidates produce from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from patchq.formats.diff import REGULAR
from patchq.git.mergetree import Stage
from patchq.git.objects import CommitInfo
from patchq.git.repository import Git
from patchq.merge.patches import replace_files, stage_paths
from patchq.names import BlobId, CommitId, TreeId

EXECUTABLE = b"100755"
#: Suffixes of code in which blanks within or before a line have no meaning.
BLANKS_FREE = frozenset(
    {".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".inl", ".cu", ".cuh"}
    | {".js", ".jsx", ".ts", ".tsx", ".java", ".go", ".rs", ".cs", ".php"}
)
PROSE = frozenset({".md", ".rst", ".txt"})


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The three sides of a conflicting merge, and git's result.

    :ivar patch: commit of the patch on the old ref.
    :ivar ours: commit of the new ref with the patches applied so far.
    :ivar parked: commit on top of ``ours`` with the result of git's merge. Conflicting files contain conflict markers.
    """

    git: Git
    patch: CommitInfo
    ours: CommitId
    parked: CommitId
    stages: tuple[Stage, ...]

    @property
    def base(self) -> CommitId:
        """Return the commit for which the patch was written."""
        return self.patch.parents[0]

    @property
    def commits(self) -> tuple[CommitId, CommitId, CommitId]:
        """Commits of the three sides: base, ours and theirs."""
        return self.base, self.ours, self.patch.commit

    @cached_property
    def paths(self) -> tuple[bytes, ...]:
        """Conflicting paths."""
        return tuple(stage_paths(self.stages))

    @cached_property
    def files(self) -> dict[bytes, tuple[bytes, bytes, bytes]] | None:
        """Contents of each conflicting path: base, ours and theirs.

        None if one of the paths isn't a text file on all three sides.
        """
        blobs: dict[bytes, dict[int, BlobId]] = {}
        for stage in self.stages:
            if stage.entry.mode not in (REGULAR, EXECUTABLE):
                return None
            blobs.setdefault(stage.path, {})[stage.number] = stage.entry.blob
        contents = self.git.read_blobs(chain.from_iterable(map(dict.values, blobs.values())))
        if any(b"\0" in content for content in contents.values()):
            return None
        files = {}
        for path, sides in blobs.items():
            if sides.keys() != {1, 2, 3}:
                return None
            files[path] = (contents[sides[1]], contents[sides[2]], contents[sides[3]])
        return files

    def with_files(self, files: Mapping[bytes, bytes | None]) -> TreeId:
        """Return the tree of git's merge with the given files replaced. A content of None removes the file."""
        modes = {stage.path: stage.entry.mode for stage in self.stages}
        return replace_files(self.git, self.parked, self.patch, files, modes)

    @cached_property
    def touched(self) -> frozenset[bytes]:
        """Paths that conflict or that the patch changes."""
        return self._changed(self.base, self.patch.commit).union(self.paths)

    def changed_by(self, tree: TreeId) -> frozenset[bytes]:
        """Return the paths that conflict, that the patch changes, or in which a candidate differs from ``ours``."""
        return self._changed(self.ours, tree) | self.touched

    def _changed(self, before: str, after: str) -> frozenset[bytes]:
        return frozenset(change.path for change in self.git.changes(before, after))

    def texts(self, treeish: str, paths: Collection[bytes]) -> dict[bytes, bytes]:
        """Return the contents of a tree's files at these paths."""
        return self.git.texts(self.git.list_tree(treeish, sorted(paths)))

    def contents(self, tree: TreeId, path: bytes) -> list[bytes]:
        """Return a file's contents in base, ours, theirs and a candidate; empty where the file is missing."""
        return [files.get(path, b"") for files in self.versions(tree, [path])]

    def versions(self, tree: TreeId, paths: Collection[bytes]) -> list[dict[bytes, bytes]]:
        """Return the contents of these paths in base, ours, theirs and a candidate."""
        return [self.texts(each, paths) for each in (*self.commits, tree)]
