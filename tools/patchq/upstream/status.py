"""State of each hunk of a patch after upstream's steps: present, changed since, or reverted.

A step is a commit or, if no commits are available locally, the difference between two releases. A later
change of a patch's lines counts as a revert only if it restores the lines from before the patch. A merge that drops the
change of a side branch is such a step, too (see ``commits.SideBranches``).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from itertools import chain

from patchq.git.diffs import PathChange
from patchq.git.objects import TreeEntry
from patchq.merge.blocks import Block, Text, blocks_both, is_there, telling, text_of
from patchq.merge.patches import Patch
from patchq.names import CommitId, TextEnum, show_path
from patchq.records import dataclass

#: Minimum share of reverted lines for a patch to count as reverted.
_BACK = 0.25
#: Minimum share of a block's lines in other files for the block to count as moved.
MOVED = 0.75
#: Minimum share of a block's own words in the lines at its place for them to count as its edit.
_LIKE = 0.75
_WORD = re.compile(rb"\w+")


def _few(words: Sequence[str]) -> str:
    """Join up to three names, and add the number of the others: ``a, b, c and 2 more``."""
    more = ""
    if len(words) > 3:
        more = f" and {len(words) - 3} more"
    return ", ".join(words[:3]) + more


class HunkState(TextEnum):
    """State of a hunk upstream, and what a commit did to a patch's hunks."""

    PRESENT = "landed"
    CHANGED = "changed on"
    UNDONE = "reverted"
    ABSENT = "absent"
    #: A step either reverted or rewrote the lines.
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamCommit:
    """Upstream commit that is evidence about a patch.

    If no commits are available locally, ``commit`` is empty and the evidence is a release. If ``subject`` is
    set in this case, the evidence is the stack's own patch with that subject, which the release contains.

    :ivar did: state of the patch's hunks after the commit.
    :ivar pull_request: number of the commit's pull request; empty if unknown.
    :ivar release: first release that contains the commit; empty if unknown.
    """

    did: HunkState
    commit: CommitId
    subject: str
    pull_request: str
    release: str

    @property
    def message(self) -> str:
        """Return the commit, its pull request and its release as text."""
        about = [f"pull request {self.pull_request}" if self.pull_request else "", self.release]
        words, name = ", ".join(filter(None, about)), self.commit[:12] or self.subject
        if name:
            return name + (f" ({words})" if words else "")
        return words


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamVerdict:
    """State of a patch in upstream's history.

    :ivar taken: True if upstream has the whole patch and did not revert it.
    :ivar identical: True if upstream has a commit with the same patch id.
    :ivar commits: upstream commits that are evidence, in order.
    :ivar missing: files with a hunk that upstream never had.
    :ivar undone: files with a hunk that upstream reverted.
    """

    taken: bool
    identical: bool
    commits: tuple[UpstreamCommit, ...] = ()
    missing: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()

    @property
    def _as(self) -> str:
        if any(c.commit for c in self.commits):
            return "as "
        return "in "

    @property
    def message(self) -> str:
        """Return the evidence as text."""
        by_kind: dict[HunkState, list[str]] = defaultdict(list)
        for commit in self.commits:
            by_kind[commit.did].append(commit.message)
        words = []
        if by_kind[HunkState.PRESENT]:
            words.append(f"landed {self._as}{_few(by_kind[HunkState.PRESENT])}")
        if by_kind[HunkState.UNDONE]:
            words.append(f"reverted by {_few(by_kind[HunkState.UNDONE])}: {_few(self.undone)}")
        elif by_kind[HunkState.GONE]:
            words.append(f"taken back or rewritten by {_few(by_kind[HunkState.GONE])}: {_few(self.undone)}")
        elif by_kind[HunkState.CHANGED]:
            words.append(f"changed on since by {_few(by_kind[HunkState.CHANGED])}")
        if self.missing:
            words.append(f"incomplete: {_few(self.missing)}")
        return "; ".join(words)


@dataclass(frozen=True, slots=True)
class FileVersion:
    """Version of a file after commit ``number`` of the line, or before all commits (-1).

    :ivar entry: tree entry with the file's content and mode; None if the file is deleted.
    """

    number: int
    path: bytes
    entry: TreeEntry | None


@dataclass(slots=True, kw_only=True)
class HunkStatus:
    """State of one hunk upstream. Steps are given by number, or -1 for none.

    :ivar landed: step that introduced the hunk; the last such step if upstream reverted the hunk in between.
    :ivar lost: step that last changed or reverted the hunk.
    :ivar first: first step after which upstream had the hunk.
    :ivar unsure: True if the step ``lost`` is too large to distinguish a revert from a rewrite.
    :ivar cleared: True if upstream deleted the file together with others in its folder, such as changelog
        fragments.
    """

    state: HunkState = HunkState.ABSENT
    landed: int = -1
    lost: int = -1
    first: int = -1
    unsure: bool = False
    cleared: bool = False

    @property
    def became(self) -> HunkState:
        """Return the state, or ``gone`` if a revert and a rewrite cannot be distinguished."""
        if self.unsure and self.state == HunkState.UNDONE:
            return HunkState.GONE
        return self.state

    def again(self, number: int) -> HunkStatus:
        """Return the status of a hunk that is present again since step ``number``, with the step that introduced it."""
        return HunkStatus(state=HunkState.PRESENT, landed=number, first=number if self.first < 0 else self.first)


class StatusSteps(ABC):
    """Numbered steps of upstream, either commits or releases."""

    @abstractmethod
    def text(self, entry: TreeEntry | None) -> bytes | None:
        """Return a file's content; None if it can't be read."""

    @abstractmethod
    def made(self, number: int) -> Mapping[bytes, Sequence[Block]]:
        """Return a step's changed blocks by path; empty if its diff was not read."""

    @abstractmethod
    def message(self, number: int) -> str:
        """Return a step's message."""

    @abstractmethod
    def commit(self, number: int, did: HunkState) -> UpstreamCommit:
        """Return a step as evidence."""

    def is_coarse(self, number: int) -> bool:
        """Return whether a step contains so many changes that they could hide a revert."""
        return False

    def clears(self, number: int, path: bytes) -> bool:
        """Return whether a step deletes a file together with other files in its folder."""
        return False

    def makes(self, number: int, path: bytes, block: Block, times: int = 0) -> bool:
        """Return whether a step makes the same change as a block, between the same lines.

        :param times: if positive, also accept a change between other lines, if the step makes it at least
            ``times`` times.
        """
        same = []
        for b in self.made(number).get(path, ()):
            if (b.removed, b.added) == (block.removed, block.added):
                same.append(b)
        return any(b.wide == block.wide for b in same) or 0 < times <= len(same)

    def moves(self, number: int, path: bytes, block: Block) -> bool:
        """Return whether a step adds most of a block's lines to other files."""
        other: set[bytes] = set()
        for changed, found in self.made(number).items():
            if changed != path:
                for theirs in found:
                    other.update(theirs.added)
        lines = telling(block.added)
        return bool(lines) and len(lines & other) >= MOVED * len(lines)

    def is_revert(self, number: int, lines: int) -> bool:
        """Return whether a step that reverts ``lines`` lines of a patch consists mainly of this revert."""
        message = self.message(number)
        if re.match(r"revert\b", message, re.IGNORECASE) or "This reverts commit " in message:
            return True
        size = sum(map(size_of, chain.from_iterable(self.made(number).values())))
        return 3 * lines >= 2 * size


def judge(
    steps: StatusSteps, statuses: Mapping[bytes, Sequence[tuple[HunkStatus, int]]], identical: bool
) -> UpstreamVerdict | None:
    """Return the verdict on a patch from the states and sizes of its hunks; None if upstream never had any hunk."""
    parts = list(chain.from_iterable(statuses.values()))
    every = [status for status, _ in parts]
    if not any(f.landed >= 0 for f in every):
        return None
    total = sum(lines for _, lines in parts)
    cleared = [(status, lines) for status, lines in parts if status.cleared]
    if 2 * sum(lines for _, lines in cleared) > total:  # the patch is mainly about these files
        for status, _ in cleared:
            status.state = HunkState.UNDONE
    missing = _paths_with(statuses, HunkState.ABSENT)
    undone = _paths_with(statuses, HunkState.UNDONE)
    if HunkState.UNDONE in {status.state for status in every} and not _is_reverted(steps, statuses, total):
        undone = ()  # a commit with another purpose reverted a few lines
        for status in every:
            if status.state == HunkState.UNDONE:
                status.state = HunkState.CHANGED
    landed = Counter(f.landed for f in every if f.landed >= 0)
    commits = [steps.commit(n, HunkState.PRESENT) for n in sorted(landed)]
    for did in (HunkState.CHANGED, HunkState.UNDONE, HunkState.GONE):
        numbers = {f.lost for f in every if f.became == did and f.lost >= 0}
        commits += [steps.commit(n, did) for n in sorted(numbers)]
    return UpstreamVerdict(
        taken=not missing and not undone, identical=identical, commits=tuple(commits), missing=missing, undone=undone
    )


def _is_reverted(steps: StatusSteps, statuses: Mapping[bytes, Sequence[tuple[HunkStatus, int]]], total: int) -> bool:
    """Return whether the undone hunks amount to a revert of the patch, which has ``total`` lines."""
    back: Counter[int] = Counter()
    sure: Counter[int] = Counter()
    earlier: Counter[int] = Counter()
    for status, lines in chain.from_iterable(statuses.values()):
        if status.state == HunkState.UNDONE:
            back[status.lost] += lines
            if not status.unsure:
                sure[status.lost] += lines
        elif status.state == HunkState.CHANGED:
            earlier[status.lost] += lines
    if back.total() >= _BACK * total or any(_is_file_reverted(steps, part) for part in statuses.values()):
        return True
    # Upstream's old lines may differ from the patch's, so a revert may seem to change some lines.
    # If a step changes more lines than it reverts, it builds on the patch.
    return any(steps.is_revert(n, k + earlier[n] * (earlier[n] <= k)) for n, k in sure.items() if k)


def _is_file_reverted(steps: StatusSteps, part: Sequence[tuple[HunkStatus, int]]) -> bool:
    """Return whether coarse steps reverted a large part of a file of the patch.

    Because a coarse step contains many changes, its reverted lines are compared only with the lines of this
    file.
    """
    here = 0
    for status, lines in part:
        if status.state == HunkState.UNDONE and not status.unsure and steps.is_coarse(status.lost):
            here += lines
    return 0 < here >= _BACK * sum(lines for _, lines in part)


def _paths_with(statuses: Mapping[bytes, Sequence[tuple[HunkStatus, int]]], state: HunkState) -> tuple[str, ...]:
    """Return the paths with a hunk in this state."""
    found = []
    for path, part in statuses.items():
        if any(status.state == state for status, _ in part):
            found.append(show_path(path))
    return tuple(found)


def size_of(block: Block) -> int:
    """Count a block's added and removed lines."""
    return len(block.added) + len(block.removed)


class File:
    """File of a patch that is followed through upstream's steps."""

    def __init__(
        self,
        steps: StatusSteps,
        patch: Patch,
        edit: PathChange,
        versions: Sequence[FileVersion],
        named: Container[int] = (),
        floor: Text | None = None,
    ) -> None:
        """Store the file and its versions.

        :param named: steps that name the patch.
        :param floor: upstream's file before all steps, without the stack's earlier patches; None to ignore
            these patches.
        """
        self.steps, self.patch, self.edit, self.versions = steps, patch, edit, versions
        self.named, self.floor = named, floor

    @cached_property
    def contents(self) -> list[bytes | None]:
        return [self.steps.text(v.entry) for v in self.versions]

    def statuses(self, since: int | None) -> list[tuple[HunkStatus, int]]:
        """Return the state of each block, with its number of lines.

        :param since: commit that is known to have made the change.
        """
        pairs = blocks_both(self.patch.hunks.get(self.edit.path, ()))
        base, patched = self.contents[0], self.steps.text(self.edit.new)
        if not pairs or base is None or patched is None:
            size = sum(size_of(block) for block, _ in pairs) or len(text_of(patched or base).lines)
            return [(self._whole(since), max(1, size))]
        times = Counter(block for block, _ in pairs)
        alike = Counter((block.removed, block.added) for block, _ in pairs)
        found = []
        for block, inverse in pairs:
            status = self._fate(block, inverse, times[block], alike[block.removed, block.added], since)
            found.append((status, size_of(block)))
        return found

    def _whole(self, since: int | None) -> HunkStatus:
        """Return the state of an added, deleted or empty file. Only identical contents count."""
        old, new = self.edit.old, self.edit.new
        status = HunkStatus()
        for version in self.versions[1:]:
            entry = version.entry
            if status.state in (HunkState.ABSENT, HunkState.UNDONE) and (entry == new or version.number == since):
                status = status.again(version.number)
            elif status.state in (HunkState.PRESENT, HunkState.CHANGED) and entry != new:
                status.cleared = old is entry is None and self.steps.clears(version.number, version.path)
                # If the patch deletes the file, any new content undoes the deletion.
                undone = new is None or (entry == old and not status.cleared)
                status.state, status.lost = (HunkState.UNDONE if undone else HunkState.CHANGED), version.number
            elif status.state == HunkState.CHANGED and entry == new:
                status.state = HunkState.PRESENT
        return status

    def _fate(self, block: Block, inverse: Block, times: int, alike: int, since: int | None) -> HunkStatus:
        """Return the state of one block.

        :param times: number of times that the patch makes this change between the same lines.
        :param alike: number of times that the patch makes this change between any lines.
        """
        status, base = HunkStatus(), text_of(self.contents[0])
        before = at_landing = base
        if self.floor and is_there(block, base, self.floor, times):
            # The block reverts an earlier patch of the stack: upstream always had the result.
            status, before, at_landing = HunkStatus(state=HunkState.PRESENT, first=0), self.floor, self.floor
        moved = False
        for version, content in zip(self.versions[1:], self.contents[1:], strict=True):
            now = text_of(content)
            if status.state in (HunkState.ABSENT, HunkState.UNDONE):
                number, named = version.number, version.number in self.named
                made = number == since or self.steps.makes(number, version.path, block, alike if named else 0)
                made = made or is_there(block, before, now, times) or is_there(block, base, now, times)
                if made and (number == since or self._above_floor(block, now, times)):
                    status, at_landing = status.again(version.number), now
            elif status.state == HunkState.PRESENT and (
                (back := self.steps.makes(version.number, version.path, inverse)) or not _stands(block, at_landing, now)
            ):
                status.lost = version.number
                moved = self.steps.moves(version.number, version.path, block)
                back = back or self.steps.makes(version.number, version.path, inverse, times)
                back = not moved and (back or _taken_back(block, inverse, before, now, times, base))
                if back:
                    status.state = HunkState.UNDONE
                else:
                    status.state = HunkState.CHANGED
            elif status.state == HunkState.CHANGED and _stands(block, at_landing, now):
                status.state = HunkState.PRESENT
            elif (
                status.state == HunkState.CHANGED
                and not moved
                and _taken_back(block, inverse, at_landing, now, times, base)
            ):
                status.state, status.lost = HunkState.UNDONE, version.number
            if (
                status.state == HunkState.CHANGED
                and not moved
                and self.steps.is_coarse(version.number)
                and _trackless(block, at_landing, now)
                and not _edited(block, base, now)
            ):
                status.state, status.lost, status.unsure = HunkState.UNDONE, version.number, True
            before = now
        return status

    def _above_floor(self, block: Block, now: Text, times: int) -> bool:
        """Return whether a block's change was made by upstream, and not by an earlier patch of the stack."""
        return self.floor is None or is_there(block, self.floor, now, times)


def _taken_back(block: Block, inverse: Block, before: Text, now: Text, times: int, base: Text) -> bool:
    """Return whether upstream reverted a block between two versions, so that the old lines are back.

    :param base: content of the file before the patch, to recognize lines that the patch only moves.
    """
    if not now.there:
        return False
    each = Counter(block.added)
    lines = list(telling(block.added)) or list(each)
    if any(now.count(line) > max(before.count(line) - each[line] * times, base.count(line)) for line in lines):
        return False
    if inverse.added:
        return is_there(inverse, before, now, times)
    return _beside(inverse, now) > _beside(inverse, before)


def _trackless(block: Block, landed: Text, now: Text) -> bool:
    """Return whether a coarse step removed all of a block's lines, or restored a line that the block replaces."""
    added, removed = telling(block.added) or set(block.added), telling(block.removed)
    if any(now.count(line) > landed.count(line) for line in removed - added):
        return True
    return not any(now.count(line) >= landed.count(line) > 0 for line in added)


def _edited(block: Block, base: Text, now: Text) -> bool:
    """Return whether upstream has an edited form of a block's added lines at the block's place.

    These lines contain most words of the added lines, and no word that the block removes.
    """
    added = set(_WORD.findall(b"\n".join(block.added)))
    removed = set(_WORD.findall(b"\n".join(block.removed)))
    own, size = added - removed, len(block.added)
    places = [at + 1 for at in now.find([block.above])] + [at - size for at in now.find([block.below])]
    for at in places if own else ():
        there = now.lines[max(0, at) : max(0, at + size)]
        words = set(_WORD.findall(b"\n".join(there)))
        fresh = not any(base.count(line) for line in telling(there))
        if fresh and len(own & words) >= _LIKE * len(own) and not (removed - added) & words:
            return True
    return False


def _beside(block: Block, text: Text) -> int:
    """Count the places where the lines before and after a removed block are adjacent."""
    if not block.above:
        return int(text.line(0) == block.below)
    return sum(text.line(at + 1) == block.below for at in text.find([block.above]))


def _stands(block: Block, landed: Text, now: Text) -> bool:
    """Return whether a change that upstream made is still present."""
    if block.added:
        return len(now.find(block.added)) >= len(landed.find(block.added))
    return now.there and len(now.find(block.removed)) <= len(landed.find(block.removed))
