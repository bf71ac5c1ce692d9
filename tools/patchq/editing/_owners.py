"""Owners of a file's lines: the patch of a stack that wrote each line.

A file has one version after each patch of the stack. A line that a patch leaves unchanged is the same object in the
versions before and after that patch. So an edit of a line in the last version can be repeated in every other version
that contains this object.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from patchq.formats.diff import split_lines
from patchq.git.repository import Git
from patchq.names import BlobId

_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_DIFF = ("--unified=0", "--inter-hunk-context=0", "--no-ext-diff", "--no-textconv", "--no-color", "--full-index")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedLines:
    """Lines of one version that the next version replaces. Both ranges are half-open and count from 0."""

    start: int
    end: int
    new_start: int
    new_end: int


def regions(store: Git, before: BlobId, after: BlobId) -> list[ReplacedLines] | None:
    """Return the regions in which two blobs differ; None if one of them is binary."""
    if before == after:
        return []
    text = store.run("diff", *_DIFF, before, after, config=("diff.algorithm=myers", "diff.indentHeuristic=true"))
    found = []
    for match in _HUNK.finditer(text):
        start, end = _range(match[1], match[2])
        new_start, new_end = _range(match[3], match[4])
        found.append(ReplacedLines(start=start, end=end, new_start=new_start, new_end=new_end))
    return found or None


def _range(first: bytes, count: bytes | None) -> tuple[int, int]:
    """Return the half-open range of lines in a hunk's header.

    For an empty range, the number in the header is the line before the range.
    """
    size = 1
    if count is not None:
        size = int(count)
    start = int(first) - (size > 0)
    return start, start + size


@dataclass(slots=True, eq=False)
class Line:
    """Line of a file, compared by identity.

    :ivar owner: number of the patch that wrote the line; None for a line of the base.
    """

    text: bytes
    owner: int | None


@dataclass(slots=True)
class Version:
    """Lines of a file after the first N patches of the stack.

    :ivar gaps: for each line and for the end of the file, the patches that removed lines directly before it.
    """

    lines: list[Line] = field(default_factory=list)
    gaps: list[frozenset[int]] = field(default_factory=lambda: [frozenset()])

    def patched(self, changed: Sequence[ReplacedLines], content: bytes, patch: int) -> Version:
        """Return the next version: the file after a patch changes its content to ``content``."""
        new = split_lines(content)
        lines: list[Line] = []
        gaps: list[frozenset[int]] = []
        at = 0
        for region in changed:
            lines += self.lines[at : region.start]
            gaps += self.gaps[at : region.start]
            if region.new_start < region.new_end:
                written = [Line(text, patch) for text in new[region.new_start : region.new_end]]
                lines += written
                gaps += [self.gaps[region.start], *[frozenset[int]()] * (len(written) - 1)]
                following = self.gaps[region.end]
            else:
                following = frozenset({patch}).union(*self.gaps[region.start : region.end + 1])
            # The gap before the next line has collected the patches since the last kept line.
            at = region.end
            if at < len(self.lines):
                lines.append(self.lines[at])
                gaps.append(following)
                at += 1
                end = self.gaps[-1]
            else:
                end = following
        if not changed:
            return Version(self.lines, self.gaps)
        lines += self.lines[at:]
        gaps += self.gaps[at : len(self.lines)]
        return Version(lines, [*gaps, end])

    def owners(self, region: ReplacedLines) -> set[int]:
        """Return the patches that own the edited lines.

        For an insertion, return the patches that own the adjacent lines.
        """
        start, end = region.start, region.end
        if start == end:
            lines = self.lines[max(start - 1, 0) : start + 1]
            gaps = self.gaps[start : start + 1]
        else:
            lines = self.lines[start:end]
            # In other versions, a patch that removed lines at the end of the file may still have lines there.
            gaps = self.gaps[start + 1 : end + (end == len(self.lines))]
        found = set[int]().union(*gaps)
        for line in lines:
            if line.owner is not None:
                found.add(line.owner)
        return found


@dataclass(slots=True, kw_only=True)
class LineEdits:
    """Edits of lines, which can be repeated in every version that contains these lines."""

    removed: set[int] = field(default_factory=set)
    before: dict[int, list[Line]] = field(default_factory=dict)
    after: dict[int, list[Line]] = field(default_factory=dict)
    at_start: list[Line] = field(default_factory=list)

    def add(self, last: Version, region: ReplacedLines, new: Sequence[bytes], owner: int) -> None:
        """Add the edit ``region`` of the last version. Its new lines belong to the patch ``owner``."""
        written = [Line(text, owner) for text in new[region.new_start : region.new_end]]
        old = last.lines[region.start : region.end]
        if old:
            self.removed.update(map(id, old))
            self.before[id(old[0])] = written
            return
        above = None
        if region.start:
            above = last.lines[region.start - 1]
        below = None
        if region.start < len(last.lines):
            below = last.lines[region.start]
        if below is not None and below.owner == owner and (above is None or above.owner != owner):
            self.before[id(below)] = written
        elif above is not None:
            self.after[id(above)] = written
        else:
            self.at_start = written

    def made(self, version: Version) -> bytes:
        """Return the content of a version after applying the edits to it."""
        found = list(self.at_start)
        for line in version.lines:
            key = id(line)
            found += self.before.get(key, ())
            if key not in self.removed:
                found.append(line)
            found += self.after.get(key, ())
        return b"".join(line.text for line in found)
