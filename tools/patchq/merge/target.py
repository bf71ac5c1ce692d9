"""A ref's column: a stack's patches on one tree, as far as they land without git."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from patchq.formats import diff
from patchq.formats.ledger import FileOffset
from patchq.git.diffs import PathChange
from patchq.git.merges import Side
from patchq.git.objects import TreeEntry, blob_id
from patchq.git.repository import Git
from patchq.merge._linemap import SAME, LineMap, LineMaps, place, stand_alone
from patchq.merge.blocks import seems_made
from patchq.merge.patches import ABSORBED, CLEAN, OFFSET, Landing, Patch
from patchq.names import BlobId, TreeId, show_path


class Column:
    """The patches on one tree. Of its thousands of entries only those are kept that the patches can meet."""

    def __init__(self, git: Git, tree: TreeId, patches: Sequence[Patch], maps: LineMaps | None = None) -> None:
        self.git, self.tree, self.patches = git, tree, patches
        self.maps = maps or LineMaps(git, ())
        self.landings: dict[int, Landing] = {}
        self.contents: dict[BlobId, bytes] = {}
        #: Those of them that git doesn't have.
        self.unwritten: set[BlobId] = set()
        self.changed: set[bytes] = set()
        #: The last patch that changes a path: after it nobody asks for the path's line map.
        self.last = {path: patch for patch in patches for path in patch.paths}
        touched = {path for patch in patches for path in patch.paths}
        folders = {parent for path in touched for parent in parents_of(path)}
        near = touched | folders
        left = {folder for patch in patches for folder in patch.left}
        #: Folders that a patch leaves, with files in them that it doesn't know.
        self.left: set[bytes] = set()
        #: Those of them that the tree has.
        self.folders = {b""}
        self.entries: dict[bytes, TreeEntry] = {}
        for path, entry in git.list_tree(tree).items():
            parents = parents_of(path)
            self.folders.update(folders.intersection(parents))
            if left and path not in touched:
                self.left.update(left.intersection(parents))
            if path in near or not touched.isdisjoint(parents):
                self.entries[path] = entry
        self.bare = dict(self.entries)
        #: The patches that upstream has, by its history: they aren't tried, whether or not they would land once more.
        self.taken: frozenset[str] = frozenset()
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

    def read_maps(self) -> None:
        """Learn what upstream did to the files that the patches change, all at once."""
        wanted = {edit.path for patch in self.patches for edit in patch.edits if self._may_have_place(patch, edit)}
        if wanted:
            self.maps.read(self.patches[0].parent, self.tree, wanted)

    def _may_have_place(self, patch: Patch, edit: PathChange) -> bool:
        """Whether a file that upstream changed has all old lines of a patch's hunks, as it stands."""
        there, hunks = self.entries.get(edit.path), patch.hunks.get(edit.path)
        if not (there and hunks and edit.old) or there in (edit.old, edit.new) or there.mode != edit.old.mode:
            return False
        return stand_alone(hunks, self.content(there.blob))

    def put(self, changes: Sequence[PathChange]) -> None:
        """Change the tree."""
        for change in changes:
            if change.new is None:
                self.entries.pop(change.path, None)
            else:
                self.entries[change.path] = change.new
            self.changed.add(change.path)

    # Landing

    def advance(self) -> list[Request]:
        """Land what needs no git; returns the merges that can be asked for now, together."""
        requests: list[Request] = []
        waiting: set[bytes] = set()
        for number, patch in enumerate(self.patches):
            if number in self.landings:
                continue
            if patch.paths & waiting:
                if not self.left.isdisjoint(patch.left) or self._sides(patch) is None:
                    break  # its merge is of whole trees, in which no later patch may be yet
                waiting |= patch.paths
                continue
            if patch.name in self.taken:
                self.leave_out(patch)
                self.landings[number] = Landing(patch=patch.name, outcome=ABSORBED)
                continue
            # What stays in a folder that a patch renames goes with it: only a merge of whole trees sees that.
            alone = self.left.isdisjoint(patch.left)
            landing = self._in_process(patch) if alone else None
            if landing:
                self.put(landing.changes)
                self.landings[number] = landing
                continue
            sides = self._sides(patch) if alone else None
            if sides is None:
                # A merge of whole trees may move any path: it waits for all before it, and all after for it.
                if not waiting:
                    requests.append(Request(column=self, number=number, patch=patch, sides=None))
                break
            requests.append(Request(column=self, number=number, patch=patch, sides=sides))
            waiting |= patch.paths
        return requests

    def _in_process(self, patch: Patch) -> Landing | None:
        """Land a patch whose every path is as it was, or takes its hunks where upstream's edits put them."""
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
            return Landing(patch=patch.name, outcome=ABSORBED)
        if already or any(c.new and c.path not in entries and self.in_the_way(c.path) for c in new):
            return None
        for edit, entry, lines in placed:
            # Where its mode alone changed, the map from its content to upstream's is as good for the patches after it.
            hunks = patch.hunks.get(edit.path)
            if hunks and edit.new and entry.blob != edit.new.blob and self.last[edit.path] is not patch:
                self.maps.put(edit.new.blob, entry.blob, lines.patched(hunks, landed=True))
        return Landing(
            patch=patch.name, outcome=OFFSET if offsets else CLEAN, changes=tuple(new), offsets=tuple(offsets)
        )

    def _place(
        self, patch: Patch, edit: PathChange, there: TreeEntry
    ) -> tuple[TreeEntry, LineMap, tuple[int, ...]] | None:
        """A file that upstream changed, with a patch's hunks where they belong, and how far each moved.

        None where that isn't certain: git's merge is to say then. It isn't where the line map has no place for a hunk,
        where its old lines stand in the file elsewhere too, and where upstream added what the hunk adds.
        """
        old, new, hunks = edit.old, edit.new, patch.hunks.get(edit.path)
        if old is None or new is None or there.mode != old.mode or old.mode in (diff.SYMLINK, diff.GITLINK):
            return None
        if old.blob == new.blob:  # its mode alone changes
            return TreeEntry(new.mode, there.blob), SAME, ()
        content = self.content(there.blob)
        if not hunks or not stand_alone(hunks, content):
            return None
        lines = self.maps.of(old.blob, there.blob, ask=there.blob not in self.unwritten)
        found = place(hunks, content, lines) if lines else None
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
        """Keep the line maps of a patch's files for those after it, though it didn't land."""
        for edit in patch.edits:
            there, hunks = self.entries.get(edit.path), patch.hunks.get(edit.path)
            if not (there and hunks and edit.old and edit.new) or self.last[edit.path] is patch:
                continue
            if lines := self.maps.of(edit.old.blob, there.blob, ask=False):
                self.maps.put(edit.new.blob, there.blob, lines.patched(hunks, landed=False))

    def in_the_way(self, path: bytes) -> bool:
        """Whether a file is where a new path has a folder, or a folder where it is a file."""
        if any(parent in self.entries for parent in parents_of(path)):
            return True
        return any(other.startswith(path + b"/") for other in self.entries)

    def _may_follow(self, edit: PathChange) -> bool:
        """Return whether a new file's folder is gone: git may know where that went."""
        path = self.moved.get(edit.path, edit.path)
        return edit.old is None and path not in self.entries and path.rpartition(b"/")[0] not in self.folders

    def _sides(self, patch: Patch) -> tuple[Side, ...] | None:
        """The files that a merge of this patch is of, where it can't reach any other; None where it may."""
        found = []
        for edit in patch.edits:
            path = self.moved.get(edit.path, edit.path)
            side = Side(path=path, base=edit.old, ours=self.entries.get(path), theirs=edit.new)
            modes = {e.mode for e in (side.base, side.ours, side.theirs) if e}
            if diff.GITLINK in modes or {diff.SYMLINK} < modes:
                return None  # a link and a file: git keeps both, one of them beside
            if path != edit.path and edit.old and edit.new is None:
                return None  # renamed here, removed there
            if side.ours is None and self.in_the_way(path):
                return None
            if self._may_follow(edit):
                return None
            found.append(side)
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A merge to ask git for: of the files that the patch changes (``sides``), or of whole trees (None)."""

    column: Column
    number: int
    patch: Patch
    sides: tuple[Side, ...] | None


def parents_of(path: bytes) -> list[bytes]:
    """Return the folders that a path lies in, the outermost first."""
    parts = path.split(b"/")
    return [b"/".join(parts[:n]) for n in range(1, len(parts))]
