"""Whether upstream has taken a patch, by its history: in which commits, and what became of it since.

Evidence is, from the strongest: a commit with the patch's own patch id; a commit that made the change of every block
of it, or several commits that did; a file that some commit left as the patch leaves it. What upstream does to those
lines later is no revert: one is where the lines that were there before stand there again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from patchq.carry.absorbed import Block, Text, UpstreamCommit, blocks, blocks_both, is_there, telling, text_of
from patchq.carry.landing import Patch
from patchq.errors import SourceError
from patchq.formats import diff
from patchq.git.diffs import PathChange
from patchq.git.objects import CommitInfo, TreeEntry
from patchq.git.repository import Git
from patchq.names import BlobId, CommitId, show_path
from patchq.system import runner

_PULL_REQUEST = re.compile(r"\(#(\d+)\)\s*$|^Merge pull request #(\d+)")
#: The share of a patch's lines from which on it counts as reverted when they are.
_BACK = 0.25
#: The share of lines that must stand in another file for them to have moved there.
_MOVED = 0.75
#: What became of a part of a patch.
PRESENT, CHANGED, UNDONE, ABSENT = "present", "changed on", "reverted", "absent"


def _few(words: Sequence[str]) -> str:
    """Some of them, and how many more there are."""
    more = f" and {len(words) - 3} more" if len(words) > 3 else ""
    return ", ".join(words[:3]) + more


@dataclass(frozen=True, slots=True)
class Verdict:
    """What history says of a patch.

    :ivar taken: upstream took all of it, and didn't take it back; ``identical``: as one commit with its patch id.
    :ivar commits: what that rests on, in order.
    :ivar missing: files of which a part was never there; ``undone``: those of which one was taken back.
    """

    taken: bool
    identical: bool
    commits: tuple[UpstreamCommit, ...] = ()
    missing: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """The evidence, in words."""
        by_kind = {did: [c.said for c in self.commits if c.did == did] for did in ("landed", CHANGED, UNDONE)}
        words = [f"landed as {_few(by_kind['landed'])}"] if by_kind["landed"] else []
        if by_kind[UNDONE]:
            words.append(f"reverted by {_few(by_kind[UNDONE])}: {_few(self.undone)}")
        elif by_kind[CHANGED]:
            words.append(f"changed on since by {_few(by_kind[CHANGED])}")
        if self.missing:
            words.append(f"not there in full: {_few(self.missing)}")
        return "; ".join(words)


@dataclass(frozen=True, slots=True)
class Version:
    """A file after commit ``number`` of the line, -1 before all of them; ``entry`` is None where it is gone."""

    number: int
    path: bytes
    entry: TreeEntry | None


@dataclass(slots=True)
class _Fate:
    """What became of a part: when it landed, and by which commit it is no more as it landed."""

    state: str = ABSENT
    landed: int = -1
    lost: int = -1


class Line:
    """Upstream's commits from one ref to another, oldest first, along first parents."""

    def __init__(
        self, git: Git, base: CommitId, target: CommitId, releases: Mapping[CommitId, str],
        need: Callable[[Iterable[BlobId]], None] = lambda _: None,
        known: dict[CommitId, list[PathChange]] | None = None,
    ) -> None:  # fmt: skip
        """:param known: what commits change; gets those of this line too, which others mostly share."""
        self.git, self.base, self.need = git, base, need
        self.commits: list[CommitInfo] = git.log(f"{base}..{target}")
        known = {} if known is None else known
        new = [c.commit for c in self.commits if c.commit not in known]
        known.update(zip(new, git.changes_of(new, first_parent=True), strict=True))
        self.changes = [known[c.commit] for c in self.commits]
        self.touching: dict[bytes, list[tuple[int, PathChange]]] = {}
        for number, changes in enumerate(self.changes):
            for change in changes:
                self.touching.setdefault(change.path, []).append((number, change))
        self.paths = [frozenset(c.path for c in changes) for changes in self.changes]
        self._releases = sorted((n, releases[c.commit]) for n, c in enumerate(self.commits) if c.commit in releases)
        self._ids: dict[int, str] = {}
        self._blobs: dict[BlobId, bytes] = {}
        self._renames: dict[int, dict[bytes, bytes]] = {}
        self._made: dict[int, dict[bytes, list[Block]]] = {}

    def commit(self, number: int, did: str) -> UpstreamCommit:
        """A commit as evidence."""
        info = self.commits[number]
        subject = info.message.split("\n", 1)[0]
        match = _PULL_REQUEST.search(subject)
        release = next((name for n, name in self._releases if n >= number), "")
        return UpstreamCommit(did, info.commit, subject, next(filter(None, match.groups())) if match else "", release)

    def same(self, patch: Patch, patch_id: str) -> list[int]:
        """The commits with the patch's id."""
        likely = [n for n, paths in enumerate(self.paths) if paths == patch.paths]
        if wanted := [n for n in likely if n not in self._ids]:
            self._need_all(wanted)
            ids = self.git.patch_ids_of([self.commits[n].commit for n in wanted])
            self._ids.update(zip(wanted, ids, strict=True))
        return [n for n in likely if patch_id and self._ids[n] == patch_id]

    def versions(self, path: bytes, first: TreeEntry | None, made: Container[bytes] = ()) -> list[Version]:
        """A file through the commits, to where it was renamed.

        :param made: places of which one, if it was renamed to it, is another file, and this one is gone.
        """
        found, after = [Version(-1, path, first)], -1
        while True:
            for number, change in self.touching.get(path, ()):
                if number > after:
                    found.append(Version(number, path, change.new))
                    place = self._renamed(number).get(path) if change.new is None else None
                    if place and place not in made:
                        break
            else:
                return found
            assert place is not None
            after, path = number, place
            entry = next(c.new for c in self.changes[number] if c.path == place)
            found[-1] = Version(number, path, entry)

    def _renamed(self, number: int) -> dict[bytes, bytes]:
        if number not in self._renames:
            self._need_all([number])
            self._renames[number] = self.git.renames_of(self.commits[number].commit)
        return self._renames[number]

    def read_diffs(self, numbers: set[int]) -> None:
        """Learn what commits change, block by block, all at once."""
        wanted = sorted(numbers - self._made.keys() - {-1})
        self._need_all(wanted)
        texts = self.git.diffs_of([self.commits[n].commit for n in wanted], as_merged=True) if wanted else []
        for number, text in zip(wanted, texts, strict=True):
            try:
                files = diff.parse(text, self.commits[number].commit)
            except diff.Unsupported:
                files = []
            made = {f.new_path: blocks(f.hunks) for f in files if f.new_path and not f.binary}
            self._made[number] = made

    def makes(self, number: int, path: bytes, block: Block, times: int = 0) -> bool:
        """Whether a commit makes the very change of a block between the same lines, or anywhere so many times."""
        made = self._made.get(number, {}).get(path, ())
        same = [b for b in made if (b.removed, b.added) == (block.removed, block.added)]
        return any(b.wide == block.wide for b in same) or 0 < times <= len(same)

    def moves(self, number: int, path: bytes, block: Block) -> bool:
        """Whether a commit adds most of a block's lines to other files."""
        other = {line for p, made in self._made.get(number, {}).items() if p != path for b in made for line in b.added}
        lines = telling(block.added)
        return bool(lines) and len(lines & other) >= _MOVED * len(lines)

    def is_revert(self, number: int, lines: int) -> bool:
        """Whether a commit that took so many lines of a patch back is there for that."""
        message = self.commits[number].message
        if re.match(r"revert\b", message, re.IGNORECASE) or "This reverts commit " in message:
            return True
        made = self._made.get(number, {}).values()
        size = sum(len(b.added) + len(b.removed) for found in made for b in found)
        return 3 * lines >= 2 * size

    def read(self, entries: Sequence[TreeEntry | None]) -> None:
        """Read files, all at once."""
        wanted = {e.blob for e in entries if e and e.mode not in (diff.GITLINK, diff.SYMLINK)} - self._blobs.keys()
        if wanted:
            self.need(wanted)
            self._blobs.update(self.git.read_blobs(wanted))

    def _need_all(self, numbers: Sequence[int]) -> None:
        """Bring the files that commits change."""
        sides = [e for n in numbers for change in self.changes[n] for e in (change.old, change.new)]
        self.need({e.blob for e in sides if e and e.mode != diff.GITLINK})

    def text(self, entry: TreeEntry | None) -> bytes | None:
        """A file's content, or None where there is none to read."""
        return self._blobs.get(entry.blob) if entry else None


def names_of(message: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """What a commit's message calls itself, the pull requests that it names, its own first, and the commits."""
    subject = message.split("\n", 1)[0]
    own = _PULL_REQUEST.search(subject)
    numbers = [next(filter(None, own.groups()))] if own else []
    numbers += re.findall(r"/pull/(\d+)", message)
    ids = re.findall(r"(?:cherry picked from commit|Backport:?|/commit/)[ \[]*([0-9a-f]{8,40})\b", message)
    return _PULL_REQUEST.sub("", subject).strip().lower(), tuple(numbers), tuple(ids)


class Landed:
    """Asks a line of commits about patches.

    :param patch_ids: git's of the patches, by name.
    """

    def __init__(self, line: Line, patch_ids: Mapping[str, str]) -> None:
        self.line, self.patch_ids = line, patch_ids

    def has_whole(self, patch: Patch) -> bool:
        """Whether upstream took a patch as one commit with its id, and didn't take it back."""
        try:
            known = bool(self.line.same(patch, self.patch_ids.get(patch.name, "")))
        except (SourceError, runner.CommandError):
            return False
        verdict = self.look(patch) if known else None
        return verdict is not None and verdict.taken

    def look(self, patch: Patch) -> Verdict | None:
        """What the line says of a patch; None where it says nothing, or what it would say isn't all here."""
        try:
            return self._look(patch)
        except (SourceError, runner.CommandError):
            return None

    def _look(self, patch: Patch) -> Verdict | None:
        line = self.line
        if not patch.edits or not any(path in line.touching for path in patch.paths):
            return None
        same = line.same(patch, self.patch_ids.get(patch.name, ""))
        # A rename is a file that goes and one that comes: what upstream renamed as the patch does has gone, too.
        comes = {e.path for e in patch.edits if e.old is None}
        tracks = {e.path: line.versions(e.path, e.old, () if e.new else comes) for e in patch.edits}
        line.read([v.entry for versions in tracks.values() for v in versions])
        line.read([e.new for e in patch.edits])
        line.read_diffs({v.number for versions in tracks.values() for v in versions})
        named = self._named(patch)
        fates: dict[bytes, list[tuple[_Fate, int]]] = {}
        for edit in patch.edits:
            fates[edit.path] = _File(line, patch, edit, tracks[edit.path], named).fates(max(same, default=None))
        return self._verdict(fates, bool(same))

    def _named(self, patch: Patch) -> set[int]:
        """The commits that have the patch's subject, or the pull request or commit that it names."""
        subject, numbers, ids = names_of(patch.commit.message)
        found = set()
        for n, info in enumerate(self.line.commits):
            theirs = names_of(info.message)
            if theirs[0] == subject or set(theirs[1][:1]) & set(numbers) or any(info.commit.startswith(i) for i in ids):
                found.add(n)
        return found

    def _verdict(self, fates: Mapping[bytes, Sequence[tuple[_Fate, int]]], identical: bool) -> Verdict | None:
        every = [fate for part in fates.values() for fate, _ in part]
        if not every or all(f.state == ABSENT for f in every):
            return None
        missing = tuple(show_path(p) for p, part in fates.items() if any(f.state == ABSENT for f, _ in part))
        undone = tuple(show_path(p) for p, part in fates.items() if any(f.state == UNDONE for f, _ in part))
        back: Counter[int] = Counter()
        for part in fates.values():
            for fate, lines in part:
                if fate.state == UNDONE:
                    back[fate.lost] += lines
        total = sum(lines for part in fates.values() for _, lines in part)
        reverted = back.total() >= _BACK * total or any(self.line.is_revert(n, lines) for n, lines in back.items())
        if back and not reverted:  # a few lines of many, by a commit that is there for something else
            undone = ()
            for fate in every:
                fate.state = CHANGED if fate.state == UNDONE else fate.state
        landed = Counter(f.landed for f in every if f.landed >= 0)
        commits = [self.line.commit(n, "landed") for n in sorted(landed)]
        for did in (CHANGED, UNDONE):
            numbers = {f.lost for f in every if f.state == did and f.lost >= 0}
            commits += [self.line.commit(n, did) for n in sorted(numbers)]
        return Verdict(not missing and not undone, identical, tuple(commits), missing, undone)


class _File:
    """One file's part of a patch, through the commits that touch it."""

    def __init__(
        self, line: Line, patch: Patch, edit: PathChange, versions: Sequence[Version], named: set[int]
    ) -> None:  # fmt: skip
        self.line, self.patch, self.edit, self.versions, self.named = line, patch, edit, versions, named

    @cached_property
    def contents(self) -> list[bytes | None]:
        return [self.line.text(v.entry) for v in self.versions]

    def fates(self, since: int | None) -> list[tuple[_Fate, int]]:
        """What became of each block, with how many lines it is.

        :param since: the commit that is known to have made the change.
        """
        pairs = blocks_both(self.patch.hunks.get(self.edit.path, ()))
        base, patched = self.contents[0], self.line.text(self.edit.new)
        if not pairs or base is None or patched is None:
            return [(self._whole(since), 1)]
        times = Counter(block for block, _ in pairs)
        found = []
        for block, inverse in pairs:
            fate = self._fate(block, inverse, times[block], since)
            found.append((fate, len(block.added) + len(block.removed)))
        return found

    def _whole(self, since: int | None) -> _Fate:
        """Of a file that comes, goes, or has no lines: only the very same result is a sign."""
        old, new = self.edit.old, self.edit.new
        fate = _Fate()
        for version in self.versions[1:]:
            entry = version.entry
            if fate.state in (ABSENT, UNDONE) and (entry == new or version.number == since):
                fate = _Fate(PRESENT, version.number)
            elif fate.state in (PRESENT, CHANGED) and entry != new:
                fate.state, fate.lost = (UNDONE if entry == old else CHANGED), version.number
            elif fate.state == CHANGED and entry == new:
                fate.state = PRESENT
        return fate

    def _fate(self, block: Block, inverse: Block, times: int, since: int | None) -> _Fate:
        fate, base = _Fate(), text_of(self.contents[0])
        before = at_landing = base
        moved = False
        for version, content in zip(self.versions[1:], self.contents[1:], strict=True):
            now = text_of(content)
            if fate.state in (ABSENT, UNDONE):
                number, named = version.number, version.number in self.named
                made = number == since or self.line.makes(number, version.path, block, times if named else 0)
                made = made or is_there(block, before, now, times)
                if made or is_there(block, base, now, times):
                    fate, at_landing = _Fate(PRESENT, version.number), now
            elif fate.state == PRESENT and (
                (back := self.line.makes(version.number, version.path, inverse)) or not _stands(block, at_landing, now)
            ):
                fate.lost = version.number
                moved = self.line.moves(version.number, version.path, block)
                back = back or self.line.makes(version.number, version.path, inverse, times)
                back = not moved and (back or _taken_back(block, inverse, before, now, times))
                fate.state = UNDONE if back else CHANGED
            elif fate.state == CHANGED and _stands(block, at_landing, now):
                fate.state = PRESENT
            elif fate.state == CHANGED and not moved and _taken_back(block, inverse, at_landing, now, times):
                fate.state, fate.lost = UNDONE, version.number
            before = now
        return fate


def _taken_back(block: Block, inverse: Block, before: Text, now: Text, times: int) -> bool:
    """Whether upstream took a change back between two versions: its lines went, and what was there before stands."""
    if not now.there:
        return False
    each = Counter(block.added)
    lines = list(telling(block.added)) or list(each)
    if any(now.count(line) > before.count(line) - each[line] * times for line in lines):
        return False
    if inverse.added:
        return is_there(inverse, before, now, times)
    return _beside(inverse, now) > _beside(inverse, before)


def _beside(block: Block, text: Text) -> int:
    """How often the lines around a removal stand beside one another."""
    if not block.above:
        return int(text.line(0) == block.below)
    return sum(text.line(at + 1) == block.below for at in text.find([block.above]))


def _stands(block: Block, landed: Text, now: Text) -> bool:
    """Whether a change that had landed is still there."""
    if block.added:
        return len(now.find(block.added)) >= len(landed.find(block.added))
    return now.there and len(now.find(block.removed)) <= len(landed.find(block.removed))
