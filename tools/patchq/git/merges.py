"""Merges of a few files each, as git's ort makes them, many by one process.

The files of a merge are flat trees, named by their numbers; its sides are commits, all by one ``git fast-import``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchq.git.diffs import PathChange
from patchq.git.fastimport import import_commits, quote_path
from patchq.git.mergetree import Merge, Stage
from patchq.git.objects import TreeEntry, blob_id
from patchq.git.repository import Git
from patchq.names import BlobId, CommitId, TreeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A path of a merge, as it was written for, as it is, and as the patch has it."""

    path: bytes
    base: TreeEntry | None
    ours: TreeEntry | None
    theirs: TreeEntry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What a merge comes to, by path; ``failed`` as :class:`Merge` has it."""

    changes: tuple[PathChange, ...]
    stages: tuple[Stage, ...]
    labels: tuple[str, str]
    failed: str = ""


class Objects:
    """Commits for the sides of merges, by one ``git fast-import``."""

    def __init__(self, git: Git, written: set[BlobId]) -> None:
        self.git, self.written, self.count = git, written, 0
        self.ids: dict[int, CommitId] = {}
        self.same: dict[object, int] = {}
        self.parts: list[bytes] = []

    def __enter__(self) -> Objects:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is not None or not self.parts:
            return
        with import_commits(self.git, b"refs/side") as (out, self.ids):
            out.write(b"".join(self.parts))

    def id(self, mark: int) -> CommitId:
        """The id of a commit, when all are written."""
        return self.ids[mark]

    def blob(self, content: bytes) -> BlobId:
        """A blob's id; it is written if it wasn't."""
        blob = blob_id(content)
        if blob not in self.written:
            self.written.add(blob)
            self.parts.append(b"blob\ndata %d\n%s\n" % (len(content), content))
        return blob

    def commit(self, tree: str, changed: Mapping[bytes, TreeEntry | None] | None = None, *, parent: int = 0) -> int:
        """The mark of a commit of a tree (empty: of none) in which some paths are changed."""
        key = (tree, tuple(sorted((changed or {}).items(), key=lambda item: item[0])), parent)
        if key in self.same:
            return self.same[key]
        self.count += 1
        nobody = b"patchq <patchq@localhost> 946684800 +0000"
        part = [b"" if parent else b"reset refs/side\n\n", b"commit refs/side\nmark :%d\n" % self.count]
        part += [b"author %s\ncommitter %s\ndata 5\nside\n" % (nobody, nobody)]
        part += [b"from :%d\n" % parent if parent else b""]
        part += [b'M 040000 %s ""\n' % tree.encode() if tree else b"deleteall\n"]
        for path, entry in (changed or {}).items():
            if entry is None:
                part.append(b"D %s\n" % quote_path(path) if tree else b"")
            else:
                part.append(b"M %s %s %s\n" % (entry.mode, entry.blob.encode(), quote_path(path)))
        self.parts += part
        self.same[key] = self.count
        return self.count


def merge_trees(git: Git, sides: Sequence[tuple[TreeId, TreeId, Mapping[bytes, TreeEntry], TreeId]]) -> list[Merge]:
    """Merge trees in memory, all by two processes.

    :param sides: base, ours, files that replace some of ours, theirs.
    """
    with Objects(git, set()) as objects:
        roots = [objects.commit(base) for base, *_ in sides]
        marks = [
            (objects.commit(ours, changed, parent=root), objects.commit(theirs, parent=root))
            for root, (_, ours, changed, theirs) in zip(roots, sides, strict=True)
        ]
    return git.merge([(objects.id(ours), objects.id(theirs)) for ours, theirs in marks])


FileSides = tuple[BlobId, BlobId, BlobId]


def merge_contents(git: Git, sides: Sequence[FileSides]) -> list[BlobId | None]:
    """Merge files (base, ours, theirs) in memory as one merge of a tree of them; None for one that conflicts."""
    if not sides:
        return []
    names, (_, ours, theirs) = _as_trees(git, sides)
    merge = git.merge([(ours, theirs)])[0]
    if merge.failed:
        middle = len(sides) // 2
        return [*merge_contents(git, sides[:middle]), *merge_contents(git, sides[middle:])] if middle else [None]
    merged = git.list_tree(merge.tree)
    conflicts = set(merge.paths)
    return [None if name in conflicts else merged[name].blob for name in names]


def changed_lines(git: Git, pairs: Sequence[tuple[BlobId, BlobId]]) -> list[list[tuple[int, int]]]:
    """Return the lines of each pair's first file that the second changes, as git's merges compare them.

    Each change is the number of its first line, from 0, and that of the line behind it. There are none for files that
    git doesn't compare by lines.
    """
    if not pairs:
        return []
    names, commits = _as_trees(git, pairs)
    found: dict[bytes, list[tuple[int, int]]] = {name: [] for name in names}
    for part in (b"\n" + git.diff_as_merged(*commits)).split(b"\ndiff --git a/"):
        name, _, hunks = part.partition(b" b/")
        if name in found:
            found[name] = _lines_of(hunks)
    return list(found.values())


def _lines_of(hunks: bytes) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    at = first = -1
    for line in [*hunks.split(b"\n"), b""]:
        kind = line[:1]
        if kind in (b"-", b"+") and at >= 0:
            first = at if first < 0 else first
            at += kind == b"-"
            continue
        if first >= 0 and kind != b"\\":
            found.append((first, at))
            first = -1
        if kind == b"@":
            start, _, count = line[4:].split(b" ", 1)[0].partition(b",")
            at = int(start) - (count != b"0")
        elif kind == b" ":
            at += 1
    return found


def _as_trees(git: Git, files: Sequence[tuple[BlobId, ...]]) -> tuple[list[bytes], list[CommitId]]:
    """Write each side of some files as a commit on the first side; returns the files' names in them, too."""
    # In folders of 256: fast-import searches a folder from its start for each file.
    names = [b"%d/%d" % divmod(number, 256) for number in range(len(files))]
    marks: list[int] = []
    with Objects(git, set()) as objects:
        for blobs in zip(*files, strict=True):
            entries = {name: TreeEntry(b"100644", blob) for name, blob in zip(names, blobs, strict=True)}
            marks.append(objects.commit("", entries, parent=marks[0] if marks else 0))
    return names, [objects.id(mark) for mark in marks]


def flat_trees(git: Git, trees: Sequence[TreeId]) -> list[dict[int, TreeEntry]]:
    """The entries of trees whose files are named by numbers, all by one process."""
    raw = git.read_blobs(BlobId(tree) for tree in trees)
    found = []
    for tree in trees:
        entries, data, at = {}, raw[BlobId(tree)], 0
        while at < len(data):
            end = data.index(b"\0", at)
            mode, name = data[at:end].split(b" ", 1)
            entries[int(name)] = TreeEntry(mode, BlobId(data[end + 1 : end + 21].hex()))
            at = end + 21
        found.append(entries)
    return found


def by_path(
    sides: Sequence[Side], merge: Merge, pair: tuple[CommitId, CommitId], tree: Mapping[int, TreeEntry]
) -> Merged:
    """A merge of files by number, as one of paths."""
    changes = tuple(
        PathChange(side.path, side.ours, tree.get(n)) for n, side in enumerate(sides) if tree.get(n) != side.ours
    )
    return Merged(
        changes=changes,
        stages=tuple(Stage(sides[int(s.path)].path, s.entry, s.number) for s in merge.stages),
        labels=pair,
        failed=merge.failed,
    )
