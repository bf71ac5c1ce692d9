"""A patch as what it changes, and what becomes of it on a tree: the data of a carry, from commits and back to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from patchq.formats import diff
from patchq.formats.ledger import FileOffset
from patchq.git.diffs import PathChange
from patchq.git.fastimport import commit_start, import_commits, quote_path
from patchq.git.mergetree import Stage
from patchq.git.objects import CommitInfo
from patchq.git.repository import Git
from patchq.merge.blocks import Block, blocks
from patchq.names import BlobId, CommitId, TreeId

#: Of a patch on a ref, from the cheapest. ``absorbed``: its effect is there already, byte for byte.
CLEAN, OFFSET, MERGED, ABSORBED, OBSOLETE, CONFLICT = "clean", "offset", "merged", "absorbed", "obsolete", "conflict"
#: By a recorded resolution.
REPLAYED = "replayed"
#: Those that stop a rebase.
STOPS = (ABSORBED, OBSOLETE, CONFLICT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A patch as paths that change, and as hunks by the path they are for.

    :ivar left: folders that none of upstream's files is in any more: by what the patch renames, they may have moved.
    """

    name: str
    commit: CommitInfo
    parent: TreeId
    edits: tuple[PathChange, ...]
    hunks: Mapping[bytes, Sequence[diff.Hunk]]
    left: frozenset[bytes] = frozenset()
    _blocks: dict[bytes, list[Block]] = field(default_factory=dict, repr=False, compare=False)

    def blocks(self, path: bytes) -> list[Block]:
        """What it changes of a file, without context; see :mod:`patchq.merge.blocks`."""
        if path not in self._blocks:
            self._blocks[path] = blocks(self.hunks.get(path, ()))
        return self._blocks[path]

    @property
    def paths(self) -> set[bytes]:
        """The paths that it changes."""
        return {e.path for e in self.edits}


@dataclass(frozen=True, slots=True)
class FileConflict:
    """A file that stops a patch. ``lines``: where in the file with markers each conflict begins, from 1; none
    where the file as a whole conflicts or is gone."""

    path: str
    lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """What becomes of a patch on a tree.

    :ivar changes: what of the tree it replaces; where it stops, with markers in the files of ``stages``.
    :ivar labels: the commit ids that git put on the markers, for ours and for the patch.
    :ivar offsets: how far lines moved, of ``offset``; upstream's edits say that they did, by a line map.
    :ivar said: why it stops, where that is not seen from its files.
    """

    patch: str
    outcome: str
    files: tuple[FileConflict, ...] = ()
    changes: tuple[PathChange, ...] = ()
    stages: tuple[Stage, ...] = ()
    labels: tuple[str, str] = ("", "")
    offsets: tuple[FileOffset, ...] = ()
    said: str = ""


def read_patches(store: Git, commits: Sequence[tuple[str, CommitInfo]]) -> list[Patch]:
    """Patches by name and commit. Their hunks are what git's merges take for the change, to the line."""
    ids = [info.commit for _, info in commits]
    parents = store.tree_of([info.parents[0] for _, info in commits])
    found = []
    for (name, info), parent, edits, text in zip(
        commits, parents, store.changes_of(ids), store.diffs_of(ids, as_merged=True), strict=True
    ):
        try:
            files = diff.parse(text, name)
        except diff.Unsupported:
            files = []
        hunks = {f.old_path: f.hunks for f in files if f.old_path and f.old_path == f.new_path and not f.binary}
        found.append(
            Patch(
                name=name,
                commit=info,
                parent=parent,
                edits=tuple(edits),
                hunks=hunks,
                left=_left(store, info.commit, edits),
            )
        )
    return found


def _left(store: Git, commit: CommitId, edits: Sequence[PathChange]) -> frozenset[bytes]:
    """The folders that a commit which renames files, or may, leaves without any."""
    folders = {e.path.rpartition(b"/")[0] for e in edits if e.new is None} - {b""}
    if not folders or all(e.old for e in edits):
        return frozenset()
    there = store.list_tree(commit, [folder + b"/" for folder in sorted(folders)])
    return frozenset(f for f in folders if not any(path.startswith(f + b"/") for path in there))


def write_commits(
    store: Git,
    onto: CommitId,
    commits: Sequence[tuple[CommitInfo, Sequence[PathChange]]],
    contents: Mapping[BlobId, bytes],
) -> list[CommitId]:
    """Commits on top of one another, each with its author and message, by one ``git fast-import``."""
    if not commits:
        return []
    ref = b"refs/patchq/scratch/carry"
    with import_commits(store, ref) as (out, ids):
        parent = onto.encode()
        for number, (info, changes) in enumerate(commits, 1):
            out.write(commit_start(ref, number, info.author, info.message, parent))
            for change in changes:
                path, new = quote_path(change.path), change.new
                if new is None:
                    out.write(b"D %s\n" % path)
                elif new.blob in contents:
                    out.write(b"M %s inline %s\ndata %d\n" % (new.mode, path, len(contents[new.blob])))
                    out.write(contents[new.blob] + b"\n")
                else:
                    out.write(b"M %s %s %s\n" % (new.mode, new.blob.encode(), path))
            parent = b":%d" % number
    return [ids[number] for number in range(1, len(commits) + 1)]
