"""Target tree: a tree to which a stack's patches are applied, as far as possible without starting git.

A patch with rules must give the same result by its rules; otherwise it stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from patchq.formats import diff
from patchq.formats.ledger import FileOffset
from patchq.formats.outcomes import Outcome
from patchq.formats.treepath import parents_of
from patchq.git.diffs import PathChange
from patchq.git.merges import Side
from patchq.git.mergetree import Stage
from patchq.git.objects import TreeEntry, blob_id
from patchq.git.repository import Git
from patchq.merge._linemap import SAME, LineMap, LineMaps, place, stand_alone
from patchq.merge.blocks import seems_made
from patchq.merge.patches import Landing, Patch, StopKind, StopReason, whole_files
from patchq.names import BlobId, TreeId, show_path
from patchq.patterns.regenerate import RuleStop, regenerate
from patchq.records import dataclass

#: Modes of regular files.
_FILES = (b"100644", b"100755")


class Column:
    """Target tree to which patches are applied. It contains only entries that the patches can affect."""

    def __init__(self, git: Git, tree: TreeId, patches: Sequence[Patch], maps: LineMaps | None = None) -> None:
        self.git, self.tree, self.patches = git, tree, patches
        self.maps = maps or LineMaps(git, ())
        self.landings: dict[int, Landing] = {}
        self.contents: dict[BlobId, bytes] = {}
        #: Blobs of ``contents`` that git does not have.
        self.unwritten: set[BlobId] = set()
        self.changed: set[bytes] = set()
        #: Last patch that changes each path. The path's line map is not needed after this patch.
        self.last: dict[bytes, Patch] = {}
        left: set[bytes] = set()
        for patch in patches:
            self.last.update(dict.fromkeys(patch.paths, patch))
            left |= patch.left
        self.entries, folders = git.list_near(tree, sorted(self.last))
        #: Folders of the patches' paths that exist in the tree.
        self.folders = {b"", *folders}
        #: Folders in which a patch leaves none of its files, but the tree has others.
        self.left: set[bytes] = set()
        if left:
            for path in git.list_tree(tree, sorted(left)).keys() - self.last.keys():
                self.left.update(left.intersection(parents_of(path)))
        self.bare = dict(self.entries)
        #: Names of patches that upstream has according to its history. They are not applied.
        self.taken: frozenset[str] = frozenset()
        #: New path of each file that upstream renamed, by the patches' path.
        self.moved: dict[bytes, bytes] = {}
        #: All entries of the tree, if the rules of a patch need them.
        self._every: dict[bytes, TreeEntry] | None = None

    def content(self, blob: BlobId) -> bytes:
        """Return a blob's bytes from memory or the store."""
        if blob not in self.contents:
            self.contents[blob] = self.git.read_blobs([blob])[blob]
        return self.contents[blob]

    def read_bare(self, paths: Iterable[bytes]) -> None:
        """Read upstream's files at these paths with one git process."""
        self.read(self.bare.get(self.moved.get(path, path)) for path in paths)

    def read(self, entries: Iterable[TreeEntry | None]) -> None:
        """Read files with one git process."""
        wanted = set()
        for entry in entries:
            if entry and entry.mode != diff.GITLINK and entry.blob not in self.contents:
                wanted.add(entry.blob)
        self.contents.update(self.git.read_blobs(wanted))

    def read_maps(self) -> None:
        """Read the line maps of the files that the patches change, with one git process."""
        wanted = set()
        for patch in self.patches:
            for edit in patch.edits:
                if self._may_have_place(patch, edit):
                    wanted.add(edit.path)
        if wanted:
            self.maps.read(self.patches[0].parent, self.tree, wanted)

    def _may_have_place(self, patch: Patch, edit: PathChange) -> bool:
        """Return whether a file that upstream has changed still contains all old lines of a patch's hunks."""
        there, hunks = self.entries.get(edit.path), patch.hunks.get(edit.path)
        if not (there and hunks and edit.old) or there in (edit.old, edit.new) or there.mode != edit.old.mode:
            return False
        return stand_alone(hunks, self.content(there.blob))

    def put(self, changes: Sequence[PathChange]) -> None:
        """Apply changes to the tree."""
        for change in changes:
            if change.new is None:
                self.entries.pop(change.path, None)
            else:
                self.entries[change.path] = change.new
            self.changed.add(change.path)

    # Applying

    def advance(self) -> list[MergeRequest]:
        """Apply the patches that don't need git. Return the merges that can now run together in git."""
        requests: list[MergeRequest] = []
        waiting: set[bytes] = set()
        for number, patch in enumerate(self.patches):
            if number in self.landings:
                continue
            if patch.rules and waiting:
                break  # the patch's rules read files that the requested merges write
            if patch.paths & waiting:
                if not self.left.isdisjoint(patch.left) or self._sides(patch) is None:
                    break  # the patch's merge uses whole trees, which must not contain a later patch
                waiting |= patch.paths
                continue
            if patch.name in self.taken:
                self.leave_out(patch)
                self.landings[number] = Landing(patch=patch.name, outcome=Outcome.ABSORBED)
                continue
            # If a patch renames a folder, its other files move too: only a merge of whole trees detects it.
            alone = self.left.isdisjoint(patch.left)
            if alone and (landing := self._in_process(patch)):
                self.landings[number] = self._finish(patch, landing)
                continue
            sides = None
            if alone:
                sides = self._sides(patch)
            if sides is None:
                # A merge of whole trees may move any path, so it runs alone and in order.
                if not waiting:
                    requests.append(MergeRequest(column=self, number=number, patch=patch, sides=None))
                break
            requests.append(MergeRequest(column=self, number=number, patch=patch, sides=sides))
            waiting |= patch.paths
        return requests

    def _finish(self, patch: Patch, landing: Landing) -> Landing:
        """Apply a patch's rules, and put the patch's changes into the tree unless the rules conflict."""
        landing = self.by_its_rules(patch, landing)
        if landing.outcome == Outcome.CONFLICT:
            self.leave_out(patch)
        else:
            self.put(landing.changes)
        return landing

    def _in_process(self, patch: Patch) -> Landing | None:
        """Apply a patch without git, if each of its paths is unchanged or has a line map that places the hunks."""
        entries = self.entries
        new: list[PathChange] = []
        placed: list[tuple[PathChange, TreeEntry, LineMap]] = []
        offsets: list[FileOffset] = []
        already = 0
        for edit in patch.edits:
            there = entries.get(edit.path)
            if edit.path in self.moved or self._may_follow(edit):
                return None
            if there == edit.old:
                new.append(PathChange(edit.path, there, edit.new))
            elif there == edit.new:
                already += 1
            elif there is None or (found := self._place(patch, edit, there)) is None:
                return None
            else:
                entry, lines, shifts = found
                new.append(PathChange(edit.path, there, entry))
                placed.append((edit, entry, lines))
                if any(shifts):
                    offsets.append(FileOffset(show_path(edit.path), shifts))
        if patch.edits and already == len(patch.edits):
            return Landing(patch=patch.name, outcome=Outcome.ABSORBED)
        if already or self._is_obstructed(new):
            return None
        for edit, entry, lines in placed:
            # If only the mode changed, the existing map is valid for later patches.
            hunks = patch.hunks.get(edit.path)
            if hunks and edit.new and entry.blob != edit.new.blob and self.last[edit.path] is not patch:
                self.maps.put(edit.new.blob, entry.blob, lines.patched(hunks, landed=True))
        return Landing(
            patch=patch.name,
            outcome=Outcome.OFFSET if offsets else Outcome.CLEAN,
            changes=tuple(new),
            offsets=tuple(offsets),
        )

    # Rules

    def file_paths(self) -> list[bytes]:
        """Return the paths of the regular files. The tree is listed at the first call."""
        if self._every is None:
            self._every = self.git.list_tree(self.tree)
        found = []
        for path in self._every.keys() | self.entries.keys():
            entry = self.entry(path)
            if entry and entry.mode in _FILES:
                found.append(path)
        return sorted(found)

    def read_files(self, paths: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the contents of the given paths that are regular files."""
        regular = []
        for path in paths:
            entry = self.entry(path)
            if entry and entry.mode in _FILES:
                regular.append((path, entry))
        self.read(entry for _, entry in regular)
        return {path: self.content(entry.blob) for path, entry in regular}

    def entry(self, path: bytes) -> TreeEntry | None:
        """Return the current entry at any path of the tree; None if the path doesn't exist."""
        if path in self.entries or path in self.changed or self._every is None:
            return self.entries.get(path)
        return self._every.get(path)

    def regenerate(self, patch: Patch) -> tuple[PathChange, ...]:
        """Apply a patch's rules and return the changes. The new files exist only in memory.

        :raises RuleStop: if a rule matches more or less often than it states.
        """
        changes = []
        for path, text in regenerate(patch.rules, self, self.moved).items():
            there = self.entry(path)
            assert there
            blob = blob_id(text)
            if blob != there.blob:
                if blob not in self.contents:
                    self.contents[blob] = text
                    self.unwritten.add(blob)
                changes.append(PathChange(path, there, TreeEntry(there.mode, blob)))
        return tuple(changes)

    def by_its_rules(self, patch: Patch, landing: Landing) -> Landing:
        """Return a conflict if the patch's rules give a different result than ``landing``.

        If the results are equal, or the rules need not be applied, return ``landing``.
        """
        unchanged = all(self.entries.get(edit.path) == edit.old for edit in patch.edits)
        if not patch.rules or landing.outcome == Outcome.ABSORBED:
            return landing
        if unchanged and not any(rule.has_glob for rule in patch.rules):
            return landing
        try:
            if set(self.regenerate(patch)) == set(landing.changes):
                return landing
            reason = StopReason(kind=StopKind.RULES_DIFFER)
        except RuleStop as stop:
            reason = StopReason(kind=StopKind.FAILED, text=str(stop))
        stages = []
        for edit in patch.edits:
            path = self.moved.get(edit.path, edit.path)
            for number, entry in enumerate((edit.old, self.entries.get(path), edit.new), 1):
                if entry:
                    stages.append(Stage(path, entry, number))
        return Landing(
            patch=patch.name,
            outcome=Outcome.CONFLICT,
            files=whole_files(stages),
            changes=landing.changes,
            stages=tuple(stages),
            labels=(self.tree, patch.commit.commit),
            reasons=(reason,),
        )

    def _is_obstructed(self, changes: Sequence[PathChange]) -> bool:
        """Return whether the path of a new file conflicts with an existing file or folder."""
        added = []
        for c in changes:
            if c.new and c.path not in self.entries:
                added.append(c.path)
        return any(map(self.in_the_way, added))

    def _place(
        self, patch: Patch, edit: PathChange, there: TreeEntry
    ) -> tuple[TreeEntry, LineMap, tuple[int, ...]] | None:
        """Apply a patch's hunks to a file that upstream has changed.

        Return the file with its map and the hunks' offsets.

        Return None (fall back to git's merge) if a hunk has no mapped line, if its old lines are not
        unique in the file, or if upstream added the lines that the hunk adds.
        """
        old, new, hunks = edit.old, edit.new, patch.hunks.get(edit.path)
        if old is None or new is None or there.mode != old.mode or old.mode in (diff.SYMLINK, diff.GITLINK):
            return None
        if old.blob == new.blob:  # only the mode changes
            return TreeEntry(new.mode, there.blob), SAME, ()
        content = self.content(there.blob)
        if not hunks or not stand_alone(hunks, content):
            return None
        lines = self.maps.of(old.blob, there.blob, ask=there.blob not in self.unwritten)
        found = None
        if lines:
            found = place(hunks, content, lines)
        if lines is None or found is None:
            return None
        before = partial(self.maps.text, old.blob)
        if any(seems_made(block, before, content) for block in patch.blocks(edit.path)):
            return None
        text, shifts = found
        blob = blob_id(text)
        if blob not in self.contents:
            self.contents[blob] = text
            self.unwritten.add(blob)
        return TreeEntry(new.mode, blob), lines, shifts

    def leave_out(self, patch: Patch) -> None:
        """Adapt the line maps for the later patches, if this patch was not applied."""
        for edit in patch.edits:
            there, hunks = self.entries.get(edit.path), patch.hunks.get(edit.path)
            if not (there and hunks and edit.old and edit.new) or self.last[edit.path] is patch:
                continue
            if lines := self.maps.of(edit.old.blob, there.blob, ask=False):
                self.maps.put(edit.new.blob, there.blob, lines.patched(hunks, landed=False))

    def in_the_way(self, path: bytes) -> bool:
        """Return whether one of the path's parent folders is a file in the tree, or the path itself is a folder."""
        if not self.entries.keys().isdisjoint(parents_of(path)):
            return True
        return any(other.startswith(path + b"/") for other in self.entries)

    def _may_follow(self, edit: PathChange) -> bool:
        """Return whether the folder of a new file is missing, so that git may detect that the folder was renamed."""
        path = self.moved.get(edit.path, edit.path)
        return edit.old is None and path not in self.entries and path.rpartition(b"/")[0] not in self.folders

    def _sides(self, patch: Patch) -> tuple[Side, ...] | None:
        """Return the three sides of each file to merge; None if the merge may affect other files, too."""
        found = []
        for edit in patch.edits:
            path = self.moved.get(edit.path, edit.path)
            side = Side(path=path, base=edit.old, ours=self.entries.get(path), theirs=edit.new)
            modes = {e.mode for e in (side.base, side.ours, side.theirs) if e}
            if diff.GITLINK in modes or {diff.SYMLINK} < modes:
                return None  # a symlink and a file: git keeps both under different names
            if path != edit.path and edit.old and edit.new is None:
                return None  # upstream renamed the file, and the patch removes it
            if side.ours is None and self.in_the_way(path):
                return None
            if self._may_follow(edit):
                return None
            if path != edit.path and edit.old is None and side.ours:
                return None  # a new file must not become the file that upstream renamed
            found.append(side)
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """Request for a merge by git.

    :ivar sides: for each file of the patch, its versions in base, upstream and patch; None to merge whole trees.
    """

    column: Column
    number: int
    patch: Patch
    sides: tuple[Side, ...] | None
