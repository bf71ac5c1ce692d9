"""The sides of a stopped patch's merge, and the trees that candidates make of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from patchq.formats.diff import REGULAR
from patchq.git.mergetree import Stage
from patchq.git.objects import CommitInfo, TreeEntry
from patchq.git.repository import Git
from patchq.merge.patches import replace_files
from patchq.names import CommitId, TreeId

EXECUTABLE = b"100755"
#: Suffixes of code in which blanks within or before a line have no meaning.
BLANKS_FREE = frozenset(
    {".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".inl", ".cu", ".cuh"}
    | {".js", ".jsx", ".ts", ".tsx", ".java", ".go", ".rs", ".cs", ".php"}
)
PROSE = frozenset({".md", ".rst", ".txt"})


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Merge of a patch that conflicts.

    :ivar patch: commit of the patch on the old ref.
    :ivar ours: the new ref with the patches applied so far.
    :ivar parked: commit on ``ours`` with git's merge; conflicting files have markers.
    """

    git: Git
    patch: CommitInfo
    ours: CommitId
    parked: CommitId
    stages: tuple[Stage, ...]

    @property
    def base(self) -> CommitId:
        """Return the commit that the patch was written for."""
        return self.patch.parents[0]

    @cached_property
    def paths(self) -> tuple[bytes, ...]:
        """Conflicting paths."""
        return tuple(sorted({stage.path for stage in self.stages}))

    @cached_property
    def files(self) -> dict[bytes, tuple[bytes, bytes, bytes]] | None:
        """Base, ours and theirs of each conflicting path, or None if a path is no text on three sides."""
        sides: dict[bytes, dict[int, TreeEntry]] = {}
        for stage in self.stages:
            sides.setdefault(stage.path, {})[stage.number] = stage.entry
        if any(found.keys() != {1, 2, 3} for found in sides.values()):
            return None
        entries: list[TreeEntry] = []
        for found in sides.values():
            entries += found.values()
        if any(entry.mode not in (REGULAR, EXECUTABLE) for entry in entries):
            return None
        contents = self.git.read_blobs(entry.blob for entry in entries)
        if any(b"\0" in content for content in contents.values()):
            return None
        files = {}
        for path, found in sides.items():
            files[path] = _three([contents[found[n].blob] for n in (1, 2, 3)])
        return files

    def with_files(self, files: Mapping[bytes, bytes | None]) -> TreeId:
        """Return git's merge with these files replaced; None removes a file."""
        modes = {stage.path: stage.entry.mode for stage in self.stages}
        return replace_files(self.git, self.parked, self.patch, files, modes)

    @cached_property
    def touched(self) -> frozenset[bytes]:
        """Paths that conflict or that the patch changes."""
        changed = self.git.changes_of([self.patch.commit])[0]
        return frozenset({*self.paths, *(change.path for change in changed)})

    def changed_by(self, tree: TreeId) -> set[bytes]:
        """Return the paths that a candidate changes in ``ours``, besides those of the patch."""
        return {change.path for change in self.git.changes(self.ours, tree)} | self.touched

    def texts(self, treeish: str, paths: Collection[bytes]) -> dict[bytes, bytes]:
        """Return the files of a tree at these paths."""
        return self.git.texts(self.git.list_tree(treeish, sorted(paths)))


def _three(contents: list[bytes]) -> tuple[bytes, bytes, bytes]:
    base, ours, theirs = contents
    return base, ours, theirs
