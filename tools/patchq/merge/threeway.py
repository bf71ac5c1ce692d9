"""Patches carried onto other trees in memory: what ``forecast`` shows and ``rebase`` keeps.

A patch lands in process where each of its paths is as it was, or where a line map says for certain where its hunks
belong; the rest is for git's ort merge. All merges that don't wait for each other go through one ``git merge-tree
--stdin``. Where a patch changes files that are all there, its merge is one of those files alone: a release apart, two
whole trees take ten times as long, and nothing could have been renamed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from patchq.formats import diff
from patchq.git.diffs import PathChange
from patchq.git.merges import Merged, Objects, Side, by_path, flat_trees
from patchq.git.mergetree import Merge, Stage
from patchq.git.objects import TreeEntry, blob_id
from patchq.git.repository import Git, scratch
from patchq.merge._linemap import LineMaps
from patchq.merge.blocks import is_twice, mark_added
from patchq.merge.patches import ABSORBED, CONFLICT, MERGED, OBSOLETE, REPLAYED, FileConflict, Landing, Patch
from patchq.merge.rerere import Recorded
from patchq.merge.target import Column, Request, parents_of
from patchq.merge.upstream_lines import dropped_lines
from patchq.names import BlobId, CommitId, TreeId, show_path

#: Where files went from one tree to another, of those that were asked about: git's search takes most of a carry's time.
Moves = dict[tuple[TreeId, TreeId, tuple[bytes, ...]], list[tuple[bytes, bytes, TreeEntry | None]]]


def carry(
    store: Git,
    patches: Sequence[Patch],
    bases: Sequence[CommitId],
    written_for: CommitId,
    recorded: Recorded | None = None,
    taken: frozenset[str] = frozenset(),
    moves: Moves | None = None,
) -> list[Column]:
    """The patches on each base; one that stops is left out of what follows.

    What the landings hold is in memory: ``Column.contents`` has all that isn't in the store.

    :param written_for: the commit that the patches' stack begins at.
    :param recorded: resolutions to take where they fit, unseen.
    :param taken: patches that upstream is known to have.
    :param moves: what is known of files that moved, and gets what is found.
    """
    with _following(store, patches, bases, written_for, moves) as (columns, merger):
        merger.recorded = recorded
        for column in columns:
            column.read_bare(path for patch in patches for path in patch.paths)
            column.taken = taken
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(Column.read_maps, columns))
        while requests := [r for column in columns for r in column.advance()]:
            merger.merge(requests)
    return columns


#: Trees whose files are in memory together: more of them take more time, not more memory.
_TOGETHER = 5


def carry_each(
    store: Git,
    patches: Sequence[Patch],
    bases: Sequence[CommitId],
    written_for: CommitId,
    recorded: Recorded | None = None,
) -> list[Column]:
    """As :func:`carry`, of any number of bases: what comes of the patches, without the files' contents."""
    columns = []
    for start in range(0, len(bases), _TOGETHER):
        part = carry(store, patches, bases[start : start + _TOGETHER], written_for, recorded)
        for column in part:
            column.contents = {}
        columns += part
    return columns


def look_at(
    store: Git,
    patches: Sequence[Patch],
    commits: Sequence[CommitId],
    written_for: CommitId,
    *,
    read: bool = True,
    moves: Moves | None = None,
) -> list[Column]:
    """Trees as the patches see them, with no patch on any: for :func:`sight`.

    :param read: the files, too; else they are read when they are asked for.
    """
    with _following(store, patches, commits, written_for, moves) as (columns, _):
        for column in columns if read else ():
            column.read_bare(path for patch in patches for path in patch.paths)
    return columns


@contextmanager
def _following(
    store: Git, patches: Sequence[Patch], commits: Sequence[CommitId], written_for: CommitId, moves: Moves | None
) -> Iterator[tuple[list[Column], _Merger]]:
    """Columns that know where files went, and what merges in them; afterwards they read from the store."""
    with scratch(store) as git:
        base, *trees = store.tree_of([written_for, *commits])
        edits = [e for patch in patches for e in patch.edits if e.path in patch.hunks]
        maps = LineMaps(git, [e.old.blob for e in edits if e.old])
        columns = [Column(git, tree, patches, maps) for tree in trees]
        merger = _Merger(git, {} if moves is None else moves)
        merger.follow(columns, base)
        yield columns, merger
        for column in columns:
            column.git, column.maps = store, LineMaps(store, ())


_PROBE = b"\nwhere this line is, there is the file: %d\n"


class _Merger:
    """Asks git for merges, all of a round by one process, and lands what they come to."""

    def __init__(self, git: Git, moves: Moves) -> None:
        self.git, self.moves = git, moves
        self.known: dict[tuple[Side, ...], Merged] = {}
        self.written: set[BlobId] = set()
        self.recorded: Recorded | None = None

    def follow(self, columns: Sequence[Column], base: TreeId) -> None:
        """Find where files went that the patches change and a column lacks, and folders that they add files to.

        By a merge that changes just those: git finds a renamed file as it would for the patch, once for all.
        """
        absences = [{p for patch in c.patches for p in patch.paths} - c.entries.keys() for c in columns]
        if not any(absences):
            return
        before = self.git.list_tree(base, sorted(set().union(*absences)))
        every = []
        for column, absent in zip(columns, absences, strict=True):
            absent = {p for p in absent if p not in before or before[p].mode != diff.GITLINK}
            every.append({p for p in absent if p in before or p.rpartition(b"/")[0] not in column.folders})
        self._settle_new_folders(columns, base, every, before)
        anew = self._anew(columns[0].patches, base, set().union(*every) - before.keys())
        lacking = [(column, sorted(gone - anew)) for column, gone in zip(columns, every, strict=True) if gone - anew]
        if not lacking:
            return
        keys = [(base, column.tree, tuple(gone)) for column, gone in lacking]
        asked = [key for key in dict.fromkeys(keys) if key not in self.moves]
        if asked:
            self._search(base, asked, before)
        for key, (column, _) in zip(keys, lacking, strict=True):
            for path, place, old in self.moves[key]:
                column.folders.add(place.rpartition(b"/")[0])
                if place != path:
                    column.moved[path] = place
                if old:
                    column.entries[place] = column.bare[place] = old

    def _search(
        self, base: TreeId, asked: Sequence[tuple[TreeId, TreeId, tuple[bytes, ...]]], before: Mapping[bytes, TreeEntry]
    ) -> None:
        """Have git find files of a tree in others, each marked by a line of its own."""
        blobs = self.git.read_blobs(before[p].blob for _, _, gone in asked for p in gone if p in before)
        with Objects(self.git, self.written) as objects:
            pairs = []
            root = objects.commit(base)
            for _, tree, gone in asked:
                marked = {}
                for n, path in enumerate(gone):
                    old = before.get(path)
                    blob = objects.blob((blobs[old.blob] if old else b"") + _PROBE % n)
                    marked[path] = TreeEntry(old.mode if old else diff.REGULAR, blob)
                pairs.append((objects.commit(tree, parent=root), objects.commit(base, marked, parent=root)))
        merges = self._ask([(objects.id(ours), objects.id(theirs)) for ours, theirs in pairs])
        for key, merge in zip(asked, merges, strict=True):
            # Where git fell over it nothing is known to have moved: the patches' own merges say what comes of them.
            found = [c for c in self.git.changes(key[1], merge.tree) if c.new]
            contents = self.git.read_blobs(c.new.blob for c in found if c.new and c.new.mode != diff.GITLINK)
            self.moves[key] = []
            for n, path in enumerate(key[2]):
                places = [c for c in found if c.new and _PROBE % n in contents.get(c.new.blob, b"")]
                # Where git couldn't tell which of several folders a new file's folder became, the file stays, too.
                unclear = bool(merge.stages) and path not in before and bool(places) and places[0].path == path
                if len(places) == 1 and not unclear and _can_be(path, places[0], path in before):
                    self.moves[key].append((path, places[0].path, places[0].old))

    def _settle_new_folders(
        self, columns: Sequence[Column], base: TreeId, every: Sequence[set[bytes]], before: Collection[bytes]
    ) -> None:
        """Take new files out of what is to be found whose own folder the base lacks.

        They stay where they are, unless a folder above is gone: then it depends on what else a patch does there
        whether git takes them along, and its own merge says.
        """
        own = {path: path.rpartition(b"/")[0] for path in set().union(*every) - set(before) if b"/" in path}
        if not own:
            return
        there = {parent for path in self.git.list_tree(base) for parent in parents_of(path)}
        for column, gone in zip(columns, every, strict=True):
            for path in [path for path in gone if path in own and own[path] not in there]:
                gone.discard(path)
                if column.folders.issuperset(there.intersection(parents_of(path))):
                    column.folders.add(own[path])

    def _anew(self, patches: Sequence[Patch], base: TreeId, added: Collection[bytes]) -> set[bytes]:
        """Those of these new files whose folder the base has, and a patch before took away: it is another one now."""
        folders = {path: path.rpartition(b"/")[0] + b"/" for path in added if b"/" in path}

        def lacking(tree: TreeId, paths: Collection[bytes]) -> set[bytes]:
            wanted = sorted({folders[p] for p in paths})
            there = self.git.list_tree(tree, wanted) if wanted else {}
            return {p for p in paths if not any(path.startswith(folders[p]) for path in there)}

        no_more, found = lacking(base, folders), set[bytes]()
        for path in folders.keys() - no_more:
            adding = next((p for p in patches for e in p.edits if e.path == path and e.old is None), None)
            found |= lacking(adding.parent, [path]) if adding else set()
        return found

    def merge(self, requests: Sequence[Request]) -> None:
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
            (
                r,
                Merged(
                    changes=tuple(self.git.changes(pair[0], merge.tree)),
                    stages=merge.stages,
                    labels=pair,
                    failed=merge.failed,
                ),
            )
            for r, merge, pair in zip(whole, merges[count:], pairs[count:], strict=True)
        ]
        found += [(r, self.known[r.sides]) for r in requests if r.sides is not None]
        wanted = {c.new.blob for _, m in found for c in m.changes if c.new and c.new.mode != diff.GITLINK}
        contents = self.git.read_blobs(wanted)
        for r, merged in found:
            news = [c.new.blob for c in merged.changes if c.new and c.new.blob in contents]
            r.column.contents.update((blob, contents[blob]) for blob in news)
            _land(r, merged, self.recorded)

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
                column.unwritten.discard(objects.blob(column.contents[side.ours.blob]))
        base, ours, theirs = (
            {b"%05d" % n: entry for n, entry in enumerate(entries)}
            for entries in zip(*((s.base, s.ours, s.theirs) for s in sides), strict=True)
        )
        root = objects.commit("", base)
        return objects.commit("", ours, parent=root), objects.commit("", theirs, parent=root)

    def _trees(self, objects: Objects, request: Request) -> tuple[int, int]:
        column, patch = request.column, request.patch
        changed = {path: column.entries.get(path) for path in column.changed}
        for entry in changed.values():
            if entry and entry.blob in column.contents:
                column.unwritten.discard(objects.blob(column.contents[entry.blob]))
        root = objects.commit(patch.parent)
        return objects.commit(column.tree, changed, parent=root), objects.commit(patch.commit.tree, parent=root)


def _can_be(path: bytes, found: PathChange, was_there: bool) -> bool:
    """Return whether the place that a merge puts a file at is where the file went.

    A file of the base that git has to put back was deleted. A new one may meet a file that upstream has put there:
    git's merge of both decides. Where it meets a folder or a link, git gives it a name of its own.
    """
    return found.old is not None if was_there else found.path.rpartition(b"/")[2] == path.rpartition(b"/")[2]


def _land(request: Request, merged: Merged, recorded: Recorded | None) -> None:
    column, patch = request.column, request.patch
    said = merged.failed
    if merged.failed:
        merged = _left_to_a_person(column, patch, merged)
    elif not merged.stages:
        merged, said = _once(column, patch, merged)
    if not merged.stages:
        column.put(merged.changes)
        outcome = MERGED if merged.changes else ABSORBED
        column.landings[request.number] = Landing(patch=patch.name, outcome=outcome, changes=merged.changes)
        return
    if recorded and not merged.failed and (changes := _replayed(column, merged, recorded)):
        column.put(changes)
        resolved = tuple(FileConflict(show_path(path)) for path in sorted({s.path for s in merged.stages}))
        column.landings[request.number] = Landing(patch=patch.name, outcome=REPLAYED, files=resolved, changes=changes)
        return
    column.leave_out(patch)
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
        patch=patch.name,
        outcome=outcome,
        files=tuple(files),
        changes=merged.changes,
        stages=merged.stages,
        labels=merged.labels,
        said=said,
    )


def _left_to_a_person(column: Column, patch: Patch, merged: Merged) -> Merged:
    """A merge that git gave no answer to: what is as the patch knows it is changed, of all else there are the sides."""
    changes, stages, every = [], [], []
    for edit in patch.edits:
        path = column.moved.get(edit.path, edit.path)
        ours = column.entries.get(path)
        sides = [Stage(path, side, n) for n, side in enumerate((edit.old, ours, edit.new), 1) if side]
        every += sides
        if ours == edit.old and not (ours is None and column.in_the_way(path)):
            changes.append(PathChange(path, ours, edit.new))
        elif ours != edit.new:
            stages += sides
    if not stages:  # what git fell over is no file of these: a folder that moved, maybe
        return Merged(changes=(), stages=tuple(every), labels=merged.labels, failed=merged.failed)
    return Merged(changes=tuple(changes), stages=tuple(stages), labels=merged.labels, failed=merged.failed)


def _replayed(column: Column, merged: Merged, recorded: Recorded) -> tuple[PathChange, ...]:
    """What a merge with conflicts comes to by recorded resolutions; nothing where they don't resolve all of it."""
    changes = {c.path: c for c in merged.changes}
    stages = {s.path for s in merged.stages}
    parked = {
        p: column.contents[c.new.blob]
        for p, c in changes.items()
        if p in stages and c.new and c.new.blob in column.contents
    }
    for path, content in recorded.resolve(merged.stages, parked).items():
        old, new, blob = changes[path].old, changes[path].new, blob_id(content)
        assert new
        column.contents[blob] = content
        # git is asked for the line maps of those after it, which it has to know the file for.
        column.git.run("hash-object", "-w", "--stdin", data=content)
        changes[path] = PathChange(path, old, TreeEntry(new.mode, blob))
        stages.discard(path)
    return () if stages else tuple(changes.values())


def _once(column: Column, patch: Patch, merged: Merged) -> tuple[Merged, str]:
    """A clean merge; where it adds what upstream has added already, or drops such lines, a conflict there, and why."""
    changes, stages, said = {c.path: c for c in merged.changes}, [], []
    for edit in patch.edits:
        path = column.moved.get(edit.path, edit.path)
        change = changes.get(path)
        if not (change and change.old and change.new and edit.old and edit.new and edit.path in patch.hunks):
            continue
        blocks = patch.blocks(edit.path)
        ours, text = column.content(change.old.blob), column.content(change.new.blob)
        before = partial(column.maps.text, edit.old.blob)
        twice = [b for b in dict.fromkeys(blocks) if is_twice(b, before, ours, text, times=blocks.count(b))]
        dropped = dropped_lines(
            old_before=before(), old_after=column.content(edit.new.blob), new_before=ours, new_after=text
        )
        if dropped:
            stages += [Stage(path, e, n) for n, e in enumerate((edit.old, change.old, edit.new), 1)]
            first = dropped[0][1].decode("utf-8", "replace").strip()
            said.append(
                f"{show_path(path)}: git's merge drops {len(dropped)} lines of upstream's, the first: {first!r}"
            )
        elif twice:
            content = mark_added(ours, text, twice, merged.labels)
            blob = blob_id(content)
            column.contents[blob] = content
            changes[path] = PathChange(path, change.old, TreeEntry(change.new.mode, blob))
            entries = enumerate((edit.old, change.old, edit.new), 1)
            stages += [Stage(path, entry, number) for number, entry in entries]
            said.append(f"{show_path(path)}: upstream has added these lines already; git's merge adds them once more")
    return Merged(changes=tuple(changes.values()), stages=(*merged.stages, *stages), labels=merged.labels), "; ".join(
        said
    )
