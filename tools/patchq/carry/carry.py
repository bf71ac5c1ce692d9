"""Patches carried onto other trees in memory: what ``forecast`` shows and ``rebase`` keeps.

A patch lands in process where each of its paths is as it was or takes the hunks without fuzz; the rest is for
git's ort merge. All merges that don't wait for each other go through one ``git merge-tree --stdin``. Where a
patch changes files that are all there, its merge is one of those files alone: a release apart, two whole trees
take ten times as long, and nothing could have been renamed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from patchq.carry.absorbed import IDENTICAL, Sight, judge, look
from patchq.formats import diff
from patchq.git.diffs import PathChange
from patchq.git.fastimport import commit_start, import_commits, quote_path
from patchq.git.merges import Merged, Objects, Side, by_path, flat_trees
from patchq.git.mergetree import Merge, Stage
from patchq.git.objects import CommitInfo, TreeEntry, blob_id
from patchq.git.repository import Git, scratch
from patchq.names import BlobId, CommitId, TreeId, show_path

#: Of a patch on a ref, from the cheapest. ``absorbed``: its effect is there already, byte for byte.
CLEAN, OFFSET, MERGED, ABSORBED, OBSOLETE, CONFLICT = "clean", "offset", "merged", "absorbed", "obsolete", "conflict"
#: Those that stop for a person.
STOPS = (ABSORBED, OBSOLETE, CONFLICT)


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch as paths that change, and as hunks by the path they are for."""

    name: str
    commit: CommitInfo
    parent: TreeId
    edits: tuple[PathChange, ...]
    hunks: Mapping[bytes, Sequence[diff.Hunk]]

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


@dataclass(frozen=True, slots=True)
class Landing:
    """What becomes of a patch on a tree.

    :ivar changes: what of the tree it replaces; where it stops, with markers in the files of ``stages``.
    :ivar labels: the commit ids that git put on the markers, for ours and for the patch.
    """

    patch: str
    outcome: str
    files: tuple[FileConflict, ...] = ()
    changes: tuple[PathChange, ...] = ()
    stages: tuple[Stage, ...] = ()
    labels: tuple[str, str] = ("", "")


def read_patches(store: Git, commits: Sequence[tuple[str, CommitInfo]]) -> list[Patch]:
    """Patches by name and commit."""
    ids = [info.commit for _, info in commits]
    parents = store.tree_of([info.parents[0] for _, info in commits])
    found = []
    for (name, info), parent, edits, text in zip(
        commits, parents, store.changes_of(ids), store.diffs_of(ids), strict=True
    ):
        try:
            files = diff.parse(text, name)
        except diff.Unsupported:
            files = []
        hunks = {f.old_path: f.hunks for f in files if f.old_path and f.old_path == f.new_path and not f.binary}
        found.append(Patch(name, info, parent, tuple(edits), hunks))
    return found


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


class Column:
    """The patches on one tree. Of its thousands of entries only those are kept that the patches can meet."""

    def __init__(self, git: Git, tree: TreeId, patches: Sequence[Patch]) -> None:
        self.git, self.tree, self.patches = git, tree, patches
        self.landings: dict[int, Landing] = {}
        self.contents: dict[BlobId, bytes] = {}
        self.changed: set[bytes] = set()
        touched = {path for patch in patches for path in patch.paths}
        near = touched | {parent for path in touched for parent in _parents(path)}
        folders = {path.rpartition(b"/")[0] for path in touched}
        self.folders = {b""}
        self.entries: dict[bytes, TreeEntry] = {}
        for path, entry in git.list_tree(tree).items():
            parents = _parents(path)
            self.folders.update(folders.intersection(parents))
            if path in near or not touched.isdisjoint(parents):
                self.entries[path] = entry
        self.bare = dict(self.entries)
        #: Where files went that the patches know by another path.
        self.moved: dict[bytes, bytes] = {}

    def content(self, blob: BlobId) -> bytes:
        """A blob's bytes, from memory or the store."""
        if blob not in self.contents:
            self.contents[blob] = self.git.read_blobs([blob])[blob]
        return self.contents[blob]

    def read_bare(self, paths: Iterable[bytes]) -> None:
        """Read the files at these paths as upstream has them, all at once."""
        self.read(self.bare.get(self.moved.get(path, path)) for path in paths)

    def read(self, entries: Iterable[TreeEntry | None]) -> None:
        """Read files, all at once."""
        wanted = {e.blob for e in entries if e and e.mode != diff.GITLINK} - self.contents.keys()
        self.contents.update(self.git.read_blobs(wanted))

    def put(self, changes: Sequence[PathChange]) -> None:
        """Change the tree."""
        for change in changes:
            if change.new is None:
                self.entries.pop(change.path, None)
            else:
                self.entries[change.path] = change.new
            self.changed.add(change.path)

    # Landing

    def advance(self) -> list[_Request]:
        """Land what needs no git; returns the merges that can be asked for now, together."""
        requests: list[_Request] = []
        waiting: set[bytes] = set()
        for number, patch in enumerate(self.patches):
            if number in self.landings:
                continue
            if patch.paths & waiting:
                waiting |= patch.paths
                continue
            landing = self._in_process(patch)
            if landing:
                self.put(landing.changes)
                self.landings[number] = landing
                continue
            sides = self._sides(patch)
            if sides is None:
                # A merge of whole trees may move any path: it waits for all before it, and all after for it.
                if not waiting:
                    requests.append(_Request(self, number, patch, None))
                break
            requests.append(_Request(self, number, patch, sides))
            waiting |= patch.paths
        return requests

    def _in_process(self, patch: Patch) -> Landing | None:
        """Land a patch whose every path is as it was, or takes its hunks without fuzz."""
        entries = self.entries
        new: list[PathChange] = []
        moved = already = 0
        for edit in patch.edits:
            there = entries.get(edit.path)
            if edit.path in self.moved:
                return None
            if there == edit.old:
                new.append(PathChange(edit.path, there, edit.new))
            elif there == edit.new:
                already += 1
            elif (
                there is None
                or edit.old is None
                or edit.new is None
                or edit.path not in patch.hunks
                or there.mode != edit.old.mode
            ):
                return None
            else:
                try:
                    content, shifted = diff.apply_hunks(patch.hunks[edit.path], self.content(there.blob))
                except diff.Mismatch:
                    return None
                blob = blob_id(content)
                self.contents[blob] = content
                new.append(PathChange(edit.path, there, TreeEntry(edit.new.mode, blob)))
                moved += bool(shifted)
        if patch.edits and already == len(patch.edits):
            return Landing(patch.name, ABSORBED)
        if already or any(c.new and c.path not in entries and self._in_the_way(c.path) for c in new):
            return None
        return Landing(patch.name, OFFSET if moved else CLEAN, changes=tuple(new))

    def _in_the_way(self, path: bytes) -> bool:
        """Whether a file is where a new path has a folder, or a folder where it is a file."""
        if any(parent in self.entries for parent in _parents(path)):
            return True
        return any(other.startswith(path + b"/") for other in self.entries)

    def _sides(self, patch: Patch) -> tuple[Side, ...] | None:
        """The files that a merge of this patch is of, where it can't reach any other; None where it may."""
        found = []
        for edit in patch.edits:
            path = self.moved.get(edit.path, edit.path)
            side = Side(path, edit.old, self.entries.get(path), edit.new)
            if diff.GITLINK in (e.mode for e in (side.base, side.ours, side.theirs) if e):
                return None
            if path != edit.path and edit.old and edit.new is None:
                return None  # renamed here, removed there
            added = edit.old is None and side.ours is None
            if added and (self._in_the_way(path) or path.rpartition(b"/")[0] not in self.folders):
                return None  # where its folder is gone, git may know where that went
            found.append(side)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class _Request:
    """A merge to ask git for: of the files that the patch changes (``sides``), or of whole trees (None)."""

    column: Column
    number: int
    patch: Patch
    sides: tuple[Side, ...] | None


def carry(store: Git, patches: Sequence[Patch], bases: Sequence[CommitId], written_for: CommitId) -> list[Column]:
    """The patches on each base; one that stops is left out of what follows.

    What the landings hold is in memory: ``Column.contents`` has all that isn't in the store.

    :param written_for: the commit that the patches' stack begins at.
    """
    with _following(store, patches, bases, written_for) as (columns, merger):
        for column in columns:
            column.read_bare(path for patch in patches for path in patch.paths)
        while requests := [r for column in columns for r in column.advance()]:
            merger.merge(requests)
    return columns


#: Trees whose files are in memory together: more of them take more time, not more memory.
_TOGETHER = 5


def carry_each(store: Git, patches: Sequence[Patch], bases: Sequence[CommitId], written_for: CommitId) -> list[Column]:
    """As :func:`carry`, of any number of bases: what comes of the patches, without the files' contents."""
    columns = []
    for start in range(0, len(bases), _TOGETHER):
        part = carry(store, patches, bases[start : start + _TOGETHER], written_for)
        for column in part:
            column.contents = {}
        columns += part
    return columns


def look_at(store: Git, patches: Sequence[Patch], commits: Sequence[CommitId], written_for: CommitId) -> list[Column]:
    """Trees as the patches see them, with no patch on any: for :func:`sight`."""
    with _following(store, patches, commits, written_for) as (columns, _):
        for column in columns:
            column.read_bare(path for patch in patches for path in patch.paths)
    return columns


@contextmanager
def _following(
    store: Git, patches: Sequence[Patch], commits: Sequence[CommitId], written_for: CommitId
) -> Iterator[tuple[list[Column], _Merger]]:
    """Columns that know where files went, and what merges in them; afterwards they read from the store."""
    with scratch(store) as git:
        base, *trees = store.tree_of([written_for, *commits])
        columns = [Column(git, tree, patches) for tree in trees]
        merger = _Merger(git)
        merger.follow(columns, base)
        yield columns, merger
        for column in columns:
            column.git = store


_PROBE = b"\nwhere this line is, there is the file: %d\n"


class _Merger:
    """Asks git for merges, all of a round by one process, and lands what they come to."""

    def __init__(self, git: Git) -> None:
        self.git = git
        self.known: dict[tuple[Side, ...], Merged] = {}
        self.written: set[BlobId] = set()

    def follow(self, columns: Sequence[Column], base: TreeId) -> None:
        """Find where files went that the patches change and a column lacks, and folders that they add files to.

        By a merge that changes just those: git finds a renamed file as it would for the patch, once for all.
        """
        absences = [{p for patch in c.patches for p in patch.paths} - c.entries.keys() for c in columns]
        before = self.git.list_tree(base, sorted(set().union(*absences))) if any(absences) else {}
        lacking = []
        for column, absent in zip(columns, absences, strict=True):
            absent = {p for p in absent if p not in before or before[p].mode != diff.GITLINK}
            gone = sorted(p for p in absent if p in before or p.rpartition(b"/")[0] not in column.folders)
            if gone:
                lacking.append((column, gone))
        if not lacking:
            return
        blobs = self.git.read_blobs(before[p].blob for _, gone in lacking for p in gone if p in before)
        with Objects(self.git, self.written) as objects:
            pairs = []
            root = objects.commit(base)
            for column, gone in lacking:
                marked = {}
                for n, path in enumerate(gone):
                    old = before.get(path)
                    blob = objects.blob((blobs[old.blob] if old else b"") + _PROBE % n)
                    marked[path] = TreeEntry(old.mode if old else diff.REGULAR, blob)
                pairs.append((objects.commit(column.tree, parent=root), objects.commit(base, marked, parent=root)))
        merges = self._ask([(objects.id(ours), objects.id(theirs)) for ours, theirs in pairs])
        for (column, gone), merge in zip(lacking, merges, strict=True):
            found = [c for c in self.git.changes(column.tree, merge.tree) if c.new]
            contents = self.git.read_blobs(c.new.blob for c in found if c.new)
            for n, path in enumerate(gone):
                places = [c for c in found if c.new and _PROBE % n in contents[c.new.blob]]
                if len(places) != 1:
                    continue
                place = places[0]
                if (path in before) != (place.old is not None):
                    continue
                column.folders.add(place.path.rpartition(b"/")[0])
                if place.path != path:
                    column.moved[path] = place.path
                if place.old:
                    column.entries[place.path] = column.bare[place.path] = place.old

    def merge(self, requests: Sequence[_Request]) -> None:
        """Merge, and land."""
        small = {r.sides: r for r in requests if r.sides is not None and r.sides not in self.known}
        whole = [r for r in requests if r.sides is None]
        with Objects(self.git, self.written) as objects:
            marks = [self._files(objects, r.column, sides) for sides, r in small.items() if sides is not None]
            marks += [self._trees(objects, r) for r in whole]
        pairs = [(objects.id(ours), objects.id(theirs)) for ours, theirs in marks]
        merges = self._ask(pairs)
        flat = flat_trees(self.git, [m.tree for m in merges[: len(small)]])
        count = len(small)
        for sides, merge, pair, tree in zip(small, merges[:count], pairs[:count], flat, strict=True):
            assert sides is not None
            self.known[sides] = by_path(sides, merge, pair, tree)
        found = [
            (r, Merged(tuple(self.git.changes(pair[0], merge.tree)), merge.stages, pair))
            for r, merge, pair in zip(whole, merges[count:], pairs[count:], strict=True)
        ]
        found += [(r, self.known[r.sides]) for r in requests if r.sides is not None]
        wanted = {c.new.blob for _, m in found for c in m.changes if c.new and c.new.mode != diff.GITLINK}
        contents = self.git.read_blobs(wanted)
        for r, merged in found:
            news = [c.new.blob for c in merged.changes if c.new and c.new.blob in contents]
            r.column.contents.update((blob, contents[blob]) for blob in news)
            _land(r, merged)

    def _ask(self, pairs: Sequence[tuple[CommitId, CommitId]]) -> list[Merge]:
        """The merges of pairs, by one process for each core: a merge takes git as long as its files are long."""
        count = max(1, min(os.cpu_count() or 1, len(pairs)))
        with ThreadPoolExecutor(count) as pool:
            parts = list(pool.map(lambda n: self.git.merge(pairs[n::count]), range(count)))
        return [parts[n % count][n // count] for n in range(len(pairs))]

    def _files(self, objects: Objects, column: Column, sides: Sequence[Side]) -> tuple[int, int]:
        """Commits of flat trees that hold only these files, by number."""
        for side in sides:
            if side.ours and side.ours.blob in column.contents:
                objects.blob(column.contents[side.ours.blob])
        base, ours, theirs = (
            {b"%05d" % n: entry for n, entry in enumerate(entries)}
            for entries in zip(*((s.base, s.ours, s.theirs) for s in sides), strict=True)
        )
        root = objects.commit("", base)
        return objects.commit("", ours, parent=root), objects.commit("", theirs, parent=root)

    def _trees(self, objects: Objects, request: _Request) -> tuple[int, int]:
        column, patch = request.column, request.patch
        changed = {path: column.entries.get(path) for path in column.changed}
        for entry in changed.values():
            if entry and entry.blob in column.contents:
                objects.blob(column.contents[entry.blob])
        root = objects.commit(patch.parent)
        return objects.commit(column.tree, changed, parent=root), objects.commit(patch.commit.tree, parent=root)


def _land(request: _Request, merged: Merged) -> None:
    column, patch = request.column, request.patch
    if not merged.stages:
        column.put(merged.changes)
        outcome = MERGED if merged.changes else ABSORBED
        column.landings[request.number] = Landing(patch.name, outcome, changes=merged.changes)
        return
    old = [e.path for e in patch.edits if e.old is not None]
    gone = old and not any(column.moved.get(path, path) in column.entries for path in old)
    outcome, paths = (OBSOLETE, old) if gone else (CONFLICT, sorted({s.path for s in merged.stages}))
    mark = b"<<<<<<< " + merged.labels[0].encode()
    blobs = {c.path: c.new.blob for c in merged.changes if c.new and c.new.blob in column.contents}
    files = []
    for path in paths:
        lines = diff.split_lines(column.contents[blobs[path]]) if path in blobs else []
        at = tuple(n for n, line in enumerate(lines, 1) if line.startswith(mark))
        files.append(FileConflict(show_path(path), at))
    column.landings[request.number] = Landing(
        patch.name, outcome, tuple(files), merged.changes, merged.stages, merged.labels
    )


def sight(patch: Patch, base: Column, versions: Sequence[tuple[str, Column]]) -> Sight:
    """Whether upstream has a patch already.

    :param base: the tree that the stack was written for.
    :param versions: upstream's later trees with what to call them, oldest first, the last one the target.
    """

    def content(column: Column, path: bytes) -> bytes | None:
        entry = column.bare.get(column.moved.get(path, path))
        return column.content(entry.blob) if entry and entry.mode != diff.GITLINK else None

    patched = {e.new.blob: base.content(e.new.blob) for e in patch.edits if e.new and e.new.mode != diff.GITLINK}
    files = [
        look(
            show_path(e.path), patch.hunks.get(e.path, ()), patched.get(e.new.blob) if e.new else None,
            content(base, e.path), [(label, content(column, e.path)) for label, column in versions],
        )
        for e in patch.edits
    ]  # fmt: skip
    return judge(files, [label for label, _ in versions])


def sights(
    patch: Patch, base: Column, versions: Sequence[tuple[str, Column]], targets: Sequence[int]
) -> dict[int, Sight]:
    """:func:`sight` with each of these versions as the target, by its number; the files are read once, and dropped."""
    if not targets:
        return {}
    versions = versions[: max(targets) + 1]
    columns = [base, *(column for _, column in versions)]
    entries = [column.bare.get(column.moved.get(path, path)) for column in columns for path in patch.paths]
    entries += [edit.new for edit in patch.edits]
    contents = base.git.read_blobs({e.blob for e in entries if e and e.mode != diff.GITLINK})
    for column in columns:
        column.contents = contents
    found = {n: sight(patch, base, versions[: n + 1]) for n in targets}
    for column in columns:
        column.contents = {}
    return found


def verdict(landing: Landing, seen: Sight, ref: str) -> tuple[str, str, str]:
    """Of a patch that stops on a ref: its outcome, how much of it upstream has, and the evidence."""
    if landing.outcome == ABSORBED and not seen.retirable:
        return ABSORBED, IDENTICAL, f"nothing of it is left to add at {ref}"
    outcome = ABSORBED if seen.retirable else landing.outcome
    return outcome, seen.grade, seen.said if seen.grade else ""


def _parents(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:n]) for n in range(1, len(parts))]
