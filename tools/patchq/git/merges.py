"""Merges of a few files each. One ``git merge-tree`` process runs many merges.

The sides of a merge are commits. The files in these commits have numbers as names. The trees for all merges are written
together.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchq.git.diffs import PathChange
from patchq.git.fastimport import import_commits, quote_path
from patchq.git.mergetree import Merge, Sides, Stage, merges_trees
from patchq.git.objects import TreeEntry, blob_id
from patchq.git.repository import Git, Scratch
from patchq.names import BlobId, CommitId, TreeId
from patchq.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The three versions of one path in a merge: the patch's base, the target, the patch's result."""

    path: bytes
    base: TreeEntry | None
    ours: TreeEntry | None
    theirs: TreeEntry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Result of a merge, by path. For the field ``failed``, see :class:`Merge`."""

    changes: tuple[PathChange, ...]
    stages: tuple[Stage, ...]
    labels: tuple[str, str]
    failed: str = ""


#: A tree (empty for none) and the files to replace in it.
Files = tuple[str, Mapping[bytes, TreeEntry | None]]
#: The sides of a merge: trees, or marks of commits that are not written yet.
Pending = tuple[int | str, ...]


class MergeObjects:
    """Writer of the commits for the sides of merges. All commits are written by the end of the ``with`` block.

    In a scratch repository, patchq itself writes the commits as a pack. In other repositories, one ``git fast-import``
    process writes them. In any repository, this process writes the commits that replace files of an existing tree, and
    the children of these commits.
    """

    def __init__(self, git: Git, written: set[BlobId]) -> None:
        self.git = git
        self.written = written
        self.count = 0
        self.ids: dict[int, CommitId] = {}
        self.same: dict[object, int] = {}
        self.parts: list[bytes] = []
        self.pack = _Pack(git.folder) if isinstance(git, Scratch) else None

    def __enter__(self) -> MergeObjects:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is not None:
            return
        if self.pack:
            self.pack.write()
        if self.parts:
            with import_commits(self.git, b"refs/side") as (out, ids):
                out.write(b"".join(self.parts))
            self.ids |= ids

    def id(self, mark: int) -> CommitId:
        """Return the id of a commit. The id is known only after the ``with`` block."""
        return self.ids[mark]

    def sides(self, base: Files, ours: Files, theirs: Files) -> Pending:
        """Add the sides of a merge. Pass the result to :meth:`ids_of`."""
        if merges_trees():
            return tuple(
                tree if tree and not changed else self.commit(tree, changed) for tree, changed in (base, ours, theirs)
            )
        root = self.commit(*base)
        return self.commit(*ours, parent=root), self.commit(*theirs, parent=root)

    def ids_of(self, sides: Pending) -> Sides:
        """Return the commit ids of the sides to merge. They are known only after the ``with`` block."""
        return tuple(side if isinstance(side, str) else self.id(side) for side in sides)

    def blob(self, content: bytes) -> BlobId:
        """Return the id of a blob. Write the blob if the store doesn't contain it."""
        blob = blob_id(content)
        if blob not in self.written:
            self.written.add(blob)
            if self.pack:
                self.pack.add(b"blob", content)
            else:
                self.parts.append(b"blob\ndata %d\n%s\n" % (len(content), content))
        return blob

    def commit(self, tree: str, changed: Mapping[bytes, TreeEntry | None] | None = None, *, parent: int = 0) -> int:
        """Add a commit and return its mark.

        :param tree: tree to start from; empty for an empty tree.
        :param changed: paths to replace in the tree, or to remove (None).
        :param parent: mark of the parent commit; 0 for none.
        """
        changed = changed or {}
        key = (tree, tuple(sorted(changed.items(), key=lambda item: item[0])), parent)
        if key in self.same:
            return self.same[key]
        self.count += 1
        self.same[key] = self.count
        if self.pack and not (tree and changed) and (not parent or parent in self.ids):
            above = b"parent %s\n" % self.ids[parent].encode() if parent else b""
            tree = tree or self.pack.tree({path: entry for path, entry in changed.items() if entry})
            text = b"tree %s\n%sauthor %s\ncommitter %s\n\nside\n" % (tree.encode(), above, _AUTHOR, _AUTHOR)
            self.ids[self.count] = CommitId(self.pack.add(b"commit", text))
        else:
            self._import(tree, changed, parent)
        return self.count

    def _import(self, tree: str, changed: Mapping[bytes, TreeEntry | None], parent: int) -> None:
        """Add a commit for ``git fast-import``."""
        if not parent:
            self.parts.append(b"reset refs/side\n\n")
        self.parts.append(b"commit refs/side\nmark :%d\n" % self.count)
        self.parts.append(b"author %s\ncommitter %s\ndata 5\nside\n" % (_AUTHOR, _AUTHOR))
        if parent:
            self.parts.append(b"from %s\n" % (self.ids[parent].encode() if parent in self.ids else b":%d" % parent))
        if tree:
            self.parts.append(b'M 040000 %s ""\n' % tree.encode())
        else:
            self.parts.append(b"deleteall\n")
        for path, entry in changed.items():
            if entry is not None:
                fields = (entry.mode, entry.blob.encode(), quote_path(path))
                self.parts.append(b"M %s %s %s\n" % fields)
            elif tree:
                self.parts.append(b"D %s\n" % quote_path(path))


_AUTHOR = b"patchq <patchq@localhost> 946684800 +0000"
#: Numbers of object types in packs.
_TYPES = {b"commit": 1, b"tree": 2, b"blob": 3}


class _Pack:
    """Objects to write as a pack, stored without compression.

    See ``gitformat-pack(5)``. Offsets in the index have 31 bits, so a pack is written before its size exceeds this
    range.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "objects" / "pack"
        self._objects: dict[str, tuple[int, bytes]] = {}
        self._size = 0

    def add(self, kind: bytes, content: bytes) -> str:
        """Add an object and return its id."""
        oid = hashlib.sha1(b"%s %d\0" % (kind, len(content)) + content).hexdigest()
        if self._size > 1 << 30:
            self.write()
        if oid not in self._objects:
            self._objects[oid] = (_TYPES[kind], content)
            self._size += len(content)
        return oid

    def tree(self, files: Mapping[bytes, TreeEntry]) -> TreeId:
        """Add the tree of these files, with its folders, and return its id."""
        rows: dict[bytes, tuple[bytes, str]] = {}
        folders: defaultdict[bytes, dict[bytes, TreeEntry]] = defaultdict(dict)
        for path, entry in files.items():
            name, _, rest = path.partition(b"/")
            if rest:
                folders[name][rest] = entry
            else:
                rows[name] = (entry.mode, entry.blob)
        for name, inside in folders.items():
            rows[name + b"/"] = (b"40000", self.tree(inside))  # git sorts a folder by its name with a slash
        content = bytearray()
        for name, (mode, oid) in sorted(rows.items()):
            content += b"%s %s\0%s" % (mode, name.removesuffix(b"/"), bytes.fromhex(oid))
        return TreeId(self.add(b"tree", bytes(content)))

    def write(self) -> None:
        """Write the pack, then the index that git needs to find it."""
        if not self._objects:
            return
        pack = bytearray(struct.pack(">4sLL", b"PACK", 2, len(self._objects)))
        ids = sorted(self._objects)
        names = [bytes.fromhex(oid) for oid in ids]
        sums, offsets = [], []
        for oid in ids:
            number, content = self._objects[oid]
            size, head = len(content) >> 4, bytearray([number << 4 | len(content) & 15])
            while size:
                head[-1] |= 128
                head.append(size & 127)
                size >>= 7
            entry = bytes(head) + zlib.compress(content, 0)
            sums.append(zlib.crc32(entry))
            offsets.append(len(pack))
            pack += entry
        pack += hashlib.sha1(pack).digest()
        below = [bisect_left(names, bytes([first + 1])) for first in range(255)]
        numbers = [*below, len(ids), *sums, *offsets]
        index = struct.pack(">4sL256L", b"\xfftOc", 2, *numbers[:256]) + b"".join(names)
        index += struct.pack(f">{2 * len(ids)}L", *numbers[256:]) + pack[-20:]
        path = self._folder / f"pack-{pack[-20:].hex()}"
        self._folder.mkdir(exist_ok=True)
        if not path.with_suffix(".idx").exists():  # if the index exists, git may be reading this pack
            path.with_suffix(".pack").write_bytes(pack)
            path.with_suffix(".idx").write_bytes(index + hashlib.sha1(index).digest())
        self._objects.clear()
        self._size = 0


def merge_trees(git: Git, sides: Sequence[tuple[TreeId, TreeId, Mapping[bytes, TreeEntry], TreeId]]) -> list[Merge]:
    """Merge trees in memory with two git processes.

    :param sides: for each merge: base, ours, files to replace in ours, theirs.
    """
    pending: list[Pending] = []
    with MergeObjects(git, set()) as objects:
        for base, ours, changed, theirs in sides:
            pending.append(objects.sides((base, {}), (ours, changed), (theirs, {})))
    return git.merge([objects.ids_of(each) for each in pending])


FileSides = tuple[BlobId, BlobId, BlobId]


def merge_contents(git: Git, sides: Sequence[FileSides]) -> list[BlobId | None]:
    """Merge files (base, ours, theirs) in memory, all in one merge of trees.

    :returns: the merged blobs; None for a file that conflicts.
    """
    if not sides:
        return []
    names, (_, ours, theirs) = _as_trees(git, sides)
    merge = git.merge([(ours, theirs)])[0]
    if merge.failed:
        # Bisect to the files that crash git.
        middle = len(sides) // 2
        if not middle:
            return [None]
        return merge_contents(git, sides[:middle]) + merge_contents(git, sides[middle:])
    merged = git.list_tree(merge.tree)
    conflicts = set(merge.paths)
    contents: list[BlobId | None] = []
    for name in names:
        if name in conflicts:
            contents.append(None)
        else:
            contents.append(merged[name].blob)
    return contents


def changed_lines(git: Git, pairs: Sequence[tuple[BlobId, BlobId]]) -> list[list[tuple[int, int]]]:
    """Return, for each pair of files, the line ranges of the first file that the second file changes.

    Lines are compared as in git's merges. ``(2, 4)`` means the third and fourth lines of the first file; ``(2, 2)``
    means that lines were added before the third line. Binary files have no changes.
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
    """Return the ranges of old lines that hunks change."""
    found: list[tuple[int, int]] = []
    at = first = -1
    for line in [*hunks.split(b"\n"), b""]:
        kind = line[:1]
        if kind in (b"-", b"+") and at >= 0:
            if first < 0:
                first = at
            if kind == b"-":
                at += 1
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
    """Write each side as a commit. The first side is the parent of the others.

    :returns: the names of the files in these commits, and the commits.
    """
    # Use folders of 256 files, because fast-import searches a folder linearly.
    names = [b"%d/%d" % divmod(number, 256) for number in range(len(files))]
    marks: list[int] = []
    with MergeObjects(git, set()) as objects:
        for blobs in zip(*files, strict=True):
            entries: dict[bytes, TreeEntry | None] = {}
            for name, blob in zip(names, blobs, strict=True):
                entries[name] = TreeEntry(b"100644", blob)
            parent = 0
            if marks:
                parent = marks[0]
            marks.append(objects.commit("", entries, parent=parent))
    return names, [objects.id(mark) for mark in marks]


def flat_trees(git: Git, trees: Sequence[TreeId]) -> list[dict[int, TreeEntry]]:
    """Return the entries of trees whose files are named by numbers. One process reads all trees."""
    raw = git.read_blobs(BlobId(tree) for tree in trees)
    return [_flat_entries(raw[BlobId(tree)]) for tree in trees]


def _flat_entries(tree: bytes) -> dict[int, TreeEntry]:
    """Parse a raw tree object."""
    entries: dict[int, TreeEntry] = {}
    at = 0
    while at < len(tree):
        end = tree.index(b"\0", at)
        mode, name = tree[at:end].split(b" ", 1)
        entries[int(name)] = TreeEntry(mode, BlobId(tree[end + 1 : end + 21].hex()))
        at = end + 21
    return entries


def by_path(sides: Sequence[Side], merge: Merge, labels: tuple[str, str], tree: Mapping[int, TreeEntry]) -> Merged:
    """Convert the result of a merge of files with numbers as names to a result with the files' paths."""
    changes: list[PathChange] = []
    for number, side in enumerate(sides):
        result = tree.get(number)
        if result != side.ours:
            changes.append(PathChange(side.path, side.ours, result))
    stages: list[Stage] = []
    for stage in merge.stages:
        path = sides[int(stage.path)].path
        stages.append(Stage(path, stage.entry, stage.number))
    return Merged(changes=tuple(changes), stages=tuple(stages), labels=labels, failed=merge.failed)
