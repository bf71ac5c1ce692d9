"""Three-way merges of patches onto other trees in memory, for ``forecast`` and ``rebase``.

A patch is applied without git if each of its paths is unchanged or has a line map that places its hunks.
Other patches are merged by git's strategy ort. Independent merges share one ``git merge-tree --stdin``
process. If all files of a patch exist in the target tree, none of them was renamed. Then only these files are
merged, because merging whole trees of adjacent releases takes ten times as long.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain

from patchq.formats import diff
from patchq.formats.outcomes import Outcome
from patchq.formats.treepath import parents_of
from patchq.git.diffs import PathChange
from patchq.git.merges import Merged, MergeObjects, Pending, Side, by_path, flat_trees
from patchq.git.mergetree import Merge, Sides, Stage
from patchq.git.objects import TreeEntry, blob_id
from patchq.git.repository import Git, scratch
from patchq.merge._linemap import LineMaps
from patchq.merge.blocks import is_twice, mark_added, seems_made
from patchq.merge.patches import FileConflict, Landing, Patch, StopKind, StopReason, stage_paths, whole_files
from patchq.merge.rerere import Recorded
from patchq.merge.target import Column, MergeRequest
from patchq.merge.upstream_lines import dropped_lines
from patchq.names import BlobId, CommitId, TreeId, show_path
from patchq.patterns.regenerate import RuleStop
from patchq.system import runner

#: Cache of renamed files between two trees, because git's rename search takes most of the time.
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
    """Apply the patches to each base. If a patch stops, the later patches are applied without it.

    Results are kept in memory: ``Column.contents`` holds each blob that is not in the store.

    :param written_for: base commit of the stack that contains the patches.
    :param recorded: resolutions to apply without review.
    :param taken: names of patches that upstream already has.
    :param moves: cache of renamed files, updated in place.
    """
    with _following(store, patches, bases, written_for, moves) as (columns, merger):
        merger.recorded = recorded
        for column in columns:
            column.read_bare(_paths_of(patches))
            column.taken = taken
        _read_maps(columns)
        while requests := list(chain.from_iterable(map(Column.advance, columns))):
            merger.merge(requests)
    return columns


def _read_maps(columns: Sequence[Column]) -> None:
    """Read the line maps of all target trees, with one thread per core if there are several."""
    if len(columns) < 2:
        for column in columns:
            column.read_maps()
        return
    from concurrent.futures import ThreadPoolExecutor  # imports logging: a rebase does without

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(Column.read_maps, columns))


def _paths_of(patches: Iterable[Patch]) -> set[bytes]:
    """Return the paths that at least one of the patches changes."""
    found: set[bytes] = set()
    for patch in patches:
        found |= patch.paths
    return found


#: Number of trees whose files are in memory at the same time.
_TOGETHER = 5


def carry_each(
    store: Git,
    patches: Sequence[Patch],
    bases: Sequence[CommitId],
    written_for: CommitId,
    recorded: Recorded | None = None,
) -> list[Column]:
    """Run :func:`carry` for a few bases at a time, and discard the files' contents after each run."""
    columns = []
    for start in range(0, len(bases), _TOGETHER):
        part = carry(store, patches, bases[start : start + _TOGETHER], written_for, recorded=recorded)
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
    """Return target trees without any patch applied, for :func:`patchq.upstream.match.match`.

    :param read: read all files now with one process; otherwise, each file is read when it is first used.
    """
    with _following(store, patches, commits, written_for, moves) as (columns, _):
        if read:
            for column in columns:
                column.read_bare(_paths_of(patches))
    return columns


@contextmanager
def _following(
    store: Git, patches: Sequence[Patch], commits: Sequence[CommitId], written_for: CommitId, moves: Moves | None
) -> Iterator[tuple[list[Column], _Merger]]:
    """Yield target trees whose renamed files are known, and the merger that writes to a temporary repository.

    After the ``with`` block, the trees read from ``store`` instead of the temporary repository.
    """
    with scratch(store) as git:
        base, *trees = store.tree_of([written_for, *commits])
        versions = []
        for patch in patches:
            for edit in patch.edits:
                if edit.old and edit.path in patch.hunks:
                    versions.append(edit.old.blob)
        maps = LineMaps(git, versions)
        columns = [Column(git, tree, patches, maps) for tree in trees]
        merger = _Merger(git, {} if moves is None else moves)
        merger.follow(columns, base)
        yield columns, merger
        for column in columns:
            column.git, column.maps = store, LineMaps(store, ())


_PROBE = b"\nwhere this line is, there is the file: %d\n"


#: Number of merges of a few files that take as long as the start of a process.
_FILES_PER_PROCESS = 8


class _Merger:
    """Runner of all merges in one round. It uses one git process per core, and stores the results."""

    def __init__(self, git: Git, moves: Moves) -> None:
        self.git, self.moves = git, moves
        self.known: dict[tuple[Side, ...], Merged] = {}
        self.written: set[BlobId] = set()
        self.recorded: Recorded | None = None

    def follow(self, columns: Sequence[Column], base: TreeId) -> None:
        """Find the new paths of files and folders that the patches change and that a target tree doesn't contain.

        git finds renames during a merge. One merge that changes only these files finds the renames for all patches.
        """
        absences = [_paths_of(column.patches) - column.entries.keys() for column in columns]
        if not any(absences):
            return
        before = self.git.list_tree(base, sorted(set().union(*absences)))
        every = []
        for column, absent in zip(columns, absences, strict=True):
            every.append({path for path in absent if _may_have_moved(path, before, column)})
        self._settle_new_folders(columns, base, every, before)
        in_removed_folders = self._in_removed_folders(columns[0].patches, base, set().union(*every) - before.keys())
        lacking = []
        for column, gone in zip(columns, every, strict=True):
            if gone - in_removed_folders:
                lacking.append((column, sorted(gone - in_removed_folders)))
        if not lacking:
            return
        keys = [(base, column.tree, tuple(paths)) for column, paths in lacking]
        unknown = [key for key in dict.fromkeys(keys) if key not in self.moves]
        if unknown:
            self._search(base, unknown, before)
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
        """Find the new paths of a tree's files in other trees, and add them to ``moves``.

        Append a marker line to each file in a copy of the tree, and merge the copy with the other tree. In the merge
        result, a file's marker line is at the file's new path.
        """
        wanted: set[BlobId] = set()
        for path in chain.from_iterable(gone for _, _, gone in asked):
            if path in before:
                wanted.add(before[path].blob)
        blobs = self.git.read_blobs(wanted)
        with MergeObjects(self.git, self.written) as objects:
            pairs = []
            for _, tree, gone in asked:
                marked = {}
                for n, path in enumerate(gone):
                    old = before.get(path)
                    blob = objects.blob((blobs[old.blob] if old else b"") + _PROBE % n)
                    marked[path] = TreeEntry(old.mode if old else diff.REGULAR, blob)
                pairs.append(objects.sides((base, {}), (tree, {}), (base, marked)))
        merges = self._ask([objects.ids_of(pair) for pair in pairs], 1)
        for key, merge in zip(asked, merges, strict=True):
            # If git failed, no rename is known, and each patch's own merge searches for renames.
            found = [c for c in self.git.changes(key[1], merge.tree) if c.new]
            contents = self.git.read_blobs(c.new.blob for c in found if c.new and c.new.mode != diff.GITLINK)
            self.moves[key] = []
            for n, path in enumerate(key[2]):
                places = []
                for c in found:
                    if c.new and _PROBE % n in contents.get(c.new.blob, b""):
                        places.append(c)
                # If git found several new folders for a new file's folder, the file stays in place.
                unclear = bool(merge.stages) and path not in before and bool(places) and places[0].path == path
                if len(places) == 1 and not unclear and _can_be(path, places[0], path in before):
                    self.moves[key].append((path, places[0].path, places[0].old))

    def _settle_new_folders(
        self, columns: Sequence[Column], base: TreeId, every: Sequence[set[bytes]], before: Collection[bytes]
    ) -> None:
        """Exclude new files from the rename search if their folder doesn't exist in the base.

        Such files keep their paths, unless a parent folder is missing in the target tree. A file below a missing
        folder gets its path when the patch is merged, because the path depends on the patch's other changes in that
        folder.
        """
        own = {}
        for path in set().union(*every) - set(before):
            if b"/" in path:
                own[path] = path.rpartition(b"/")[0]
        if not own:
            return
        there: set[bytes] = set()
        for path in self.git.list_tree(base):
            there.update(parents_of(path))
        for column, gone in zip(columns, every, strict=True):
            for path in gone & own.keys():
                if own[path] in there:
                    continue
                gone.discard(path)
                if column.folders.issuperset(there.intersection(parents_of(path))):
                    column.folders.add(own[path])

    def _in_removed_folders(self, patches: Sequence[Patch], base: TreeId, added: Collection[bytes]) -> set[bytes]:
        """Return the new files whose folder existed in the base, but was removed by an earlier patch."""
        folders = {}
        for path in added:
            if b"/" in path:
                folders[path] = path.rpartition(b"/")[0] + b"/"

        def lacking(tree: TreeId, paths: Collection[bytes]) -> set[bytes]:
            wanted = sorted(set(map(folders.__getitem__, paths)))
            there = {}
            if wanted:
                there = self.git.list_tree(tree, wanted)
            found: set[bytes] = set()
            for p in paths:
                if not any(path.startswith(folders[p]) for path in there):
                    found.add(p)
            return found

        no_more, found = lacking(base, folders), set[bytes]()
        for path in folders.keys() - no_more:
            adding = _adding(patches, path)
            if adding:
                found |= lacking(adding.parent, [path])
        return found

    def merge(self, requests: Sequence[MergeRequest]) -> None:
        """Run these merges and store their results in the target trees."""
        small = {}
        for r in requests:
            if r.sides is not None and r.sides not in self.known:
                small[r.sides] = r
        whole = [r for r in requests if r.sides is None]
        with MergeObjects(self.git, self.written) as objects:
            marks = []
            for sides, r in small.items():
                if sides is not None:
                    marks.append(self._files(objects, r.column, sides))
            marks += [self._trees(objects, r) for r in whole]
        pairs = [objects.ids_of(pending) for pending in marks]
        labels = [(pair[-2], pair[-1]) for pair in pairs]
        merges = self._ask(pairs, 1 if whole else _FILES_PER_PROCESS)
        flat = flat_trees(self.git, [m.tree for m in merges[: len(small)]])
        count = len(small)
        for sides, merge, pair, tree in zip(small, merges[:count], labels[:count], flat, strict=True):
            assert sides is not None
            self.known[sides] = by_path(sides, merge, pair, tree)
        found = []
        for request, merge, pair in zip(whole, merges[count:], labels[count:], strict=True):
            changes = tuple(self.git.changes(pair[0], merge.tree))
            merged = Merged(changes=changes, stages=merge.stages, labels=pair, failed=merge.failed)
            found.append((request, merged))
        for request in requests:
            if request.sides is not None:
                found.append((request, self.known[request.sides]))
        wanted: set[BlobId] = set()
        for _, merged in found:
            wanted |= _files_of(merged)
        contents = self.git.read_blobs(wanted)
        for request, merged in found:
            for blob in _files_of(merged):
                request.column.contents[blob] = contents[blob]
            _land(request, merged, self.recorded)

    def _ask(self, pairs: Sequence[Sides], least: int) -> list[Merge]:
        """Merge sides in parallel processes, at most one per core. Each process gets at least ``least`` merges."""
        count = max(1, min(os.cpu_count() or 1, len(pairs) // least))
        parts = runner.in_threads(lambda n: self.git.merge(pairs[n::count]), range(count))
        return [parts[n % count][n // count] for n in range(len(pairs))]

    def _files(self, objects: MergeObjects, column: Column, sides: Sequence[Side]) -> Pending:
        """Write the sides of these files as flat trees."""
        for side in sides:
            if side.ours and side.ours.blob in column.contents:
                column.unwritten.discard(objects.blob(column.contents[side.ours.blob]))
        base: dict[bytes, TreeEntry | None] = {}
        ours: dict[bytes, TreeEntry | None] = {}
        theirs: dict[bytes, TreeEntry | None] = {}
        for number, side in enumerate(sides):
            name = b"%05d" % number
            base[name], ours[name], theirs[name] = side.base, side.ours, side.theirs
        return objects.sides(("", base), ("", ours), ("", theirs))

    def _trees(self, objects: MergeObjects, request: MergeRequest) -> Pending:
        column, patch = request.column, request.patch
        changed = {path: column.entries.get(path) for path in column.changed}
        for entry in changed.values():
            if entry and entry.blob in column.contents:
                column.unwritten.discard(objects.blob(column.contents[entry.blob]))
        return objects.sides((patch.parent, {}), (column.tree, changed), (patch.commit.tree, {}))


def _may_have_moved(path: bytes, before: Mapping[bytes, TreeEntry], column: Column) -> bool:
    """Return whether to search for the new path of a file that a target tree doesn't contain."""
    if path in before:
        return before[path].mode != diff.GITLINK
    return path.rpartition(b"/")[0] not in column.folders


def _files_of(merged: Merged) -> set[BlobId]:
    """Return the blobs of the files that a merge adds or changes."""
    found: set[BlobId] = set()
    for change in merged.changes:
        if change.new and change.new.mode != diff.GITLINK:
            found.add(change.new.blob)
    return found


def _adding(patches: Iterable[Patch], path: bytes) -> Patch | None:
    """Return the first patch that adds a file, or None."""
    for patch in patches:
        if any(edit.path == path and edit.old is None for edit in patch.edits):
            return patch
    return None


def _can_be(path: bytes, found: PathChange, was_there: bool) -> bool:
    """Return whether ``found``, the path at which a merge put a file, is the file's new path in the target tree.

    If the target tree has no file at this path, upstream has deleted the file, and the merge restored it. A file that
    the patch adds keeps its name. If a folder or symlink is in the way, git gives the file another name, which is not
    the new path.
    """
    if was_there:
        return found.old is not None
    return found.path.rpartition(b"/")[2] == path.rpartition(b"/")[2]


def _land(request: MergeRequest, merged: Merged, recorded: Recorded | None) -> None:
    column, patch = request.column, request.patch
    reasons: tuple[StopReason, ...] = ()
    if merged.failed:
        reasons = (StopReason(kind=StopKind.FAILED, text=merged.failed),)
        merged = _left_to_user(column, patch, merged)
    elif not merged.stages:
        merged, reasons = _refuse_repeats(column, patch, merged)
    if not merged.stages:
        if merged.changes:
            outcome = Outcome.MERGED
        else:
            outcome = Outcome.ABSORBED
        landing = Landing(patch=patch.name, outcome=outcome, changes=merged.changes)
        landing = column.by_its_rules(patch, landing)
        column.landings[request.number] = landing
        if landing.outcome == Outcome.CONFLICT:
            column.leave_out(patch)
        else:
            column.put(merged.changes)
        return
    if patch.rules and not merged.failed:
        ruled = _by_rule(column, patch, merged)
        if ruled.changes:
            column.put(ruled.changes)
            column.landings[request.number] = ruled
            return
        reasons += ruled.reasons
    if recorded and not merged.failed and (changes := _replayed(column, merged, recorded)):
        column.put(changes)
        resolved = whole_files(merged.stages)
        column.landings[request.number] = Landing(
            patch=patch.name, outcome=Outcome.REPLAYED, files=resolved, changes=changes
        )
        return
    column.leave_out(patch)
    outcome, paths = Outcome.CONFLICT, stage_paths(merged.stages)
    if missing := _all_missing(column, patch):
        outcome, paths = Outcome.OBSOLETE, missing
    files = _conflicts(column, merged, paths)
    column.landings[request.number] = Landing(
        patch=patch.name,
        outcome=outcome,
        files=tuple(files),
        changes=merged.changes,
        stages=merged.stages,
        labels=merged.labels,
        reasons=reasons,
    )


def _all_missing(column: Column, patch: Patch) -> list[bytes]:
    """Return the files that a patch edits if all of them are missing in the target tree, else ``[]``."""
    missing = []
    for edit in patch.edits:
        if edit.old is None:
            continue
        if column.moved.get(edit.path, edit.path) in column.entries:
            return []
        missing.append(edit.path)
    return missing


def _conflicts(column: Column, merged: Merged, paths: Iterable[bytes]) -> list[FileConflict]:
    """Return the conflicting files, with the lines of their conflict markers."""
    mark = re.compile(rb"^<<<<<<< " + re.escape(merged.labels[0].encode()), re.MULTILINE)
    blobs = {}
    for c in merged.changes:
        if c.new and c.new.blob in column.contents:
            blobs[c.path] = c.new.blob
    files = []
    for path in paths:
        text = column.contents[blobs[path]] if path in blobs else b""
        at = tuple(text.count(b"\n", 0, found.start()) + 1 for found in mark.finditer(text))
        files.append(FileConflict(show_path(path), at))
    return files


def _by_rule(column: Column, patch: Patch, merged: Merged) -> Landing:
    """Apply the rules of a patch whose merge conflicts.

    Return a conflict without changes if a rule doesn't match as often as it states, or if the changes repeat or drop
    upstream's lines.
    """
    try:
        changes = column.regenerate(patch)
    except RuleStop as stop:
        return _conflict(patch, StopReason(kind=StopKind.FAILED, text=str(stop)))
    for edit in patch.edits:
        ours = column.entries.get(column.moved.get(edit.path, edit.path))
        if edit.old and ours:
            before, content = partial(column.maps.text, edit.old.blob), column.content(ours.blob)
            if any(seems_made(block, before, content) for block in patch.blocks(edit.path)):
                return _conflict(patch, StopReason(kind=StopKind.RULES_REPEAT, path=show_path(edit.path)))
    ruled, reasons = _refuse_repeats(column, patch, Merged(changes=changes, stages=(), labels=merged.labels))
    if ruled.stages:
        return _conflict(patch, *(replace(reason, by_rules=True) for reason in reasons))
    for change in changes:
        if change.new and change.new.blob in column.unwritten:
            # git must have the file to make the line maps of later patches.
            column.git.run("hash-object", "-w", "--stdin", data=column.content(change.new.blob))
            column.unwritten.discard(change.new.blob)
    return Landing(
        patch=patch.name,
        outcome=Outcome.BY_RULE,
        files=tuple(_conflicts(column, merged, stage_paths(merged.stages))),
        changes=changes,
        stages=merged.stages,
        labels=merged.labels,
        conflicted=merged.changes,
    )


def _conflict(patch: Patch, *reasons: StopReason) -> Landing:
    return Landing(patch=patch.name, outcome=Outcome.CONFLICT, reasons=reasons)


def _left_to_user(column: Column, patch: Patch, merged: Merged) -> Merged:
    """Apply the patch to the files that upstream didn't change, and return the others as conflicts.

    This is the result of a merge that failed in git.
    """
    changes, stages, every = [], [], []
    for edit in patch.edits:
        path = column.moved.get(edit.path, edit.path)
        ours = column.entries.get(path)
        sides = []
        for number, entry in enumerate((edit.old, ours, edit.new), 1):
            if entry:
                sides.append(Stage(path, entry, number))
        every += sides
        if ours == edit.old and not (ours is None and column.in_the_way(path)):
            changes.append(PathChange(path, ours, edit.new))
        elif ours != edit.new:
            stages += sides
    if not stages:  # git failed for another reason than these files, for example a renamed folder
        return Merged(changes=(), stages=tuple(every), labels=merged.labels, failed=merged.failed)
    return Merged(changes=tuple(changes), stages=tuple(stages), labels=merged.labels, failed=merged.failed)


def _replayed(column: Column, merged: Merged, recorded: Recorded) -> tuple[PathChange, ...]:
    """Return the changes if recorded resolutions resolve all conflicts of a merge, else ``()``."""
    changes = {c.path: c for c in merged.changes}
    stages = set(stage_paths(merged.stages))
    parked = {}
    for path in stages & changes.keys():
        entry = changes[path].new
        if entry and entry.blob in column.contents:
            parked[path] = column.contents[entry.blob]
    for path, content in recorded.resolve(merged.stages, parked).items():
        old, new, blob = changes[path].old, changes[path].new, blob_id(content)
        assert new
        column.contents[blob] = content
        # git must have the file to make the line maps of later patches.
        column.git.run("hash-object", "-w", "--stdin", data=content)
        changes[path] = PathChange(path, old, TreeEntry(new.mode, blob))
        stages.discard(path)
    if stages:
        return ()
    return tuple(changes.values())


def _refuse_repeats(column: Column, patch: Patch, merged: Merged) -> tuple[Merged, tuple[StopReason, ...]]:
    """Mark the files in which a clean merge repeats or drops upstream's lines as conflicts, and return the reasons."""
    changes = {change.path: change for change in merged.changes}
    stages: list[Stage] = []
    reasons = []
    for edit in patch.edits:
        path = column.moved.get(edit.path, edit.path)
        change = changes.get(path)
        if not (change and change.old and change.new and edit.old and edit.new and edit.path in patch.hunks):
            continue
        blocks = patch.blocks(edit.path)
        ours, text = column.content(change.old.blob), column.content(change.new.blob)
        before = partial(column.maps.text, edit.old.blob)
        twice = []
        for block, times in Counter(blocks).items():
            if is_twice(block, before, ours, text, times=times):
                twice.append(block)
        sides = (edit.old, change.old, edit.new)
        all_stages = [Stage(path, entry, number) for number, entry in enumerate(sides, 1)]
        dropped = dropped_lines(
            old_before=before(), old_after=column.content(edit.new.blob), new_before=ours, new_after=text
        )
        if dropped:
            stages += all_stages
            first = dropped[0][1].decode("utf-8", "replace").strip()
            reasons.append(StopReason(kind=StopKind.DROPS_LINES, path=show_path(path), count=len(dropped), text=first))
        elif twice:
            content = mark_added(ours, text, twice, merged.labels)
            blob = blob_id(content)
            column.contents[blob] = content
            changes[path] = PathChange(path, change.old, TreeEntry(change.new.mode, blob))
            stages += all_stages
            reasons.append(StopReason(kind=StopKind.ADDS_TWICE, path=show_path(path)))
    result = Merged(changes=tuple(changes.values()), stages=(*merged.stages, *stages), labels=merged.labels)
    return result, tuple(reasons)
