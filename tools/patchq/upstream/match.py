"""Comparison of a patch with upstream's trees: how much of the patch upstream has, and since which release.

The grade of a patch is computed from its files' grades, and the grade of a file from its blocks
(:mod:`patchq.merge.blocks`). The result is refined by upstream's history (:mod:`patchq.upstream.commits`) or,
if no history is available, by its releases (:mod:`patchq.upstream.releases`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from patchq.formats import diff
from patchq.formats.outcomes import Grade, Outcome
from patchq.merge.blocks import blocks, is_there, share, text_of, word_of
from patchq.merge.patches import STOPS, Landing, Patch
from patchq.merge.target import Column
from patchq.names import show_path
from patchq.records import dataclass
from patchq.upstream.commits import Landed
from patchq.upstream.releases import Releases
from patchq.upstream.status import UpstreamCommit, UpstreamVerdict

#: Minimum share of a patch's lines that is reported as edited.
_HALF = 0.5
#: Minimum share of a patch's lines that must remain in the target after upstream had all of them.
_LEFT = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSight:
    """Result of comparing one file of a patch with upstream.

    :ivar where: label of the first version that contains the change; empty if no version does.
    :ivar share: share of the changed lines that the last version contains.
    :ivar reverted: True if an earlier version contains the change and the last one doesn't.
    """

    path: str
    grade: Grade
    where: str
    share: float
    reverted: bool = False


def look(
    path: str,
    hunks: Sequence[diff.Hunk],
    patched: bytes | None,
    base: bytes | None,
    versions: Sequence[tuple[str, bytes | None]],
) -> FileSight:
    """Compare one file of a patch with upstream's versions of the file.

    :param patched: content of the file after the patch; None if the patch deletes it.
    :param base: content of the file in the upstream tree for which the patch was written.
    :param versions: labels and contents of upstream's later versions, oldest first, target last.
    """
    target = versions[-1][1]
    if patched is None or base is None or not hunks:
        # An added, deleted or empty file has no blocks: only an identical result is evidence.
        first = next((label for label, content in versions if content == patched), None)
        if first is not None and target == patched and base != patched:
            return FileSight(path=path, grade=Grade.IDENTICAL, where=first, share=1.0)
        if patched is None or target is None or base is not None:
            reverted = first is not None
            return FileSight(path=path, grade=Grade.NONE, where=first or "", share=0.0, reverted=reverted)
    before, now = text_of(base), text_of(target)
    parts = blocks(hunks)
    if not parts:
        return FileSight(path=path, grade=Grade.NONE, where="", share=0.0)
    left = share(parts, before, now)
    words: set[bytes] = set()
    for block in parts:
        words.update(map(word_of, block.added))
    times = Counter(parts)
    for label, content in versions:
        if content is None or not all(word in content for word in words):
            continue  # at least one added line is missing
        if content == patched and content != base:
            grade = Grade.IDENTICAL
        elif all(is_there(block, before, text_of(content), count) for block, count in times.items()):
            grade = Grade.CONTAINED
        else:
            continue
        if content is target or content == target or left > _LEFT:
            return FileSight(path=path, grade=grade, where=label, share=left)
        return FileSight(
            path=path, grade=Grade.EDITED if left > 0 else Grade.NONE, where=label, share=left, reverted=True
        )
    return FileSight(path=path, grade=Grade.EDITED if left >= _HALF else Grade.NONE, where="", share=left)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamMatch:
    """Result of comparing a whole patch with upstream.

    :ivar grade: lowest grade of the patch's files.
    :ivar where: label of the first version that contains the changes of all files.
    :ivar past: evidence from upstream's history.
    :ivar by_history: True if upstream's history contains a commit with the same patch id.
    """

    grade: Grade
    where: str
    files: tuple[FileSight, ...]
    past: str = ""
    by_history: bool = False
    commits: tuple[UpstreamCommit, ...] = ()

    @property
    def retirable(self) -> bool:
        """Return whether upstream has the whole patch, so that it can be dropped without a review."""
        return self.grade in (Grade.IDENTICAL, Grade.CONTAINED)

    @property
    def message(self) -> str:
        """Return the evidence as text."""
        words = []
        for f in self.files:
            if f.reverted:
                words.append(f"{f.path}: was there at {f.where}, and is not any more")
            elif f.grade in (Grade.IDENTICAL, Grade.CONTAINED):
                words.append(f"{f.path}: {f.grade} since {f.where}")
            else:
                words.append(f"{f.path}: {round(100 * f.share)} % of its lines are there")
        return "; ".join([*words, self.past] if self.past else words)


def judge(files: Sequence[FileSight], labels: Sequence[str]) -> UpstreamMatch:
    """Grade a patch by the results for its files.

    :param labels: labels of the versions, oldest first.
    """
    if not files:
        return UpstreamMatch(grade=Grade.NONE, where="", files=())
    order = (Grade.IDENTICAL, Grade.CONTAINED, Grade.EDITED, Grade.NONE)
    worst = max((f.grade for f in files), key=order.index)
    if worst == Grade.NONE and any(f.grade != Grade.NONE or f.reverted for f in files):
        # Upstream has a part, or reverted the whole: report it for review.
        worst = Grade.EDITED
    seen = [f.where for f in files if f.where]
    where = ""
    if worst in (Grade.IDENTICAL, Grade.CONTAINED) and seen:
        where = max(seen, key=list(labels).index)
    return UpstreamMatch(grade=worst, where=where, files=tuple(files))


def match(patch: Patch, base: Column, versions: Sequence[tuple[str, Column]]) -> UpstreamMatch:
    """Compare a patch with upstream's trees.

    :param base: tree for which the stack was written.
    :param versions: upstream's later trees with their labels, oldest first, target last.
    """

    def content(column: Column, path: bytes) -> bytes | None:
        entry = column.bare.get(column.moved.get(path, path))
        if entry and entry.mode != diff.GITLINK:
            return column.content(entry.blob)
        return None

    files = []
    for edit in patch.edits:
        patched = None
        if edit.new and edit.new.mode != diff.GITLINK:
            patched = base.content(edit.new.blob)
        files.append(
            look(
                show_path(edit.path),
                patch.hunks.get(edit.path, ()),
                patched=patched,
                base=content(base, edit.path),
                versions=[(label, content(column, edit.path)) for label, column in versions],
            )
        )
    return judge(files, [label for label, _ in versions])


def matches(
    patch: Patch, base: Column, versions: Sequence[tuple[str, Column]], targets: Sequence[int]
) -> dict[int, UpstreamMatch]:
    """Compare a patch with upstream's trees up to each target. Return the results by target.

    :param targets: for each comparison, the index in ``versions`` of the last tree.
    """
    if not targets:
        return {}
    versions = versions[: max(targets) + 1]
    columns = [base, *(column for _, column in versions)]
    entries = [edit.new for edit in patch.edits]
    for column in columns:
        entries += [column.bare.get(column.moved.get(path, path)) for path in patch.paths]
    contents = base.git.read_blobs({e.blob for e in entries if e and e.mode != diff.GITLINK})
    for column in columns:
        column.contents = contents
    found = {n: match(patch, base, versions[: n + 1]) for n in targets}
    for column in columns:
        column.contents = {}
    return found


def with_past(seen: UpstreamMatch, past: UpstreamVerdict | None) -> UpstreamMatch:
    """Combine the result of a comparison with upstream's history, which also shows later changes and reverts."""
    if past is None:
        return seen
    message = replace(seen, past=past.message, by_history=past.taken and past.identical, commits=past.commits)
    if past.taken and not seen.retirable:
        return replace(message, grade=Grade.IDENTICAL if past.identical else Grade.CONTAINED, files=())
    if past.undone and not seen.retirable:
        return replace(message, grade=Grade.EDITED)
    if past.taken or seen.grade:
        return message
    return seen


class Asked:
    """Source of evidence about a stack's patches at one target: upstream's history or, without it, releases."""

    def __init__(self, past: Landed | None, releases: Releases | None) -> None:
        self.past, self.releases = past, releases

    def about(self, patch: Patch, seen: UpstreamMatch) -> UpstreamMatch:
        """Add the evidence to the result of a comparison. Releases are not searched for a patch that upstream has."""
        if self.past or not self.releases:
            return with_past(seen, self.past.look(patch) if self.past else None)
        if seen.retirable:
            return seen
        return with_past(seen, self.releases.look(patch))


def once_more(patches: Sequence[Patch], column: Column, past: Landed | None) -> frozenset[str]:
    """Return the patches that still apply to a tree, although upstream has already made the same change."""
    if past is None:
        return frozenset()
    found = set()
    for number, landing in column.landings.items():
        if landing.outcome not in STOPS and past.has_whole(patches[number]):
            found.add(patches[number].name)
    return frozenset(found)


def verdict(landing: Landing, seen: UpstreamMatch, ref: str) -> tuple[Outcome, Grade, str]:
    """Return the outcome, grade and evidence of a patch that stops on a ref."""
    if landing.outcome == Outcome.ABSORBED and not seen.retirable:
        message = f"nothing of it is left to add at {ref}"
        return Outcome.ABSORBED, Grade.IDENTICAL, f"{message}; {seen.past}" if seen.past else message
    if seen.retirable:
        outcome = Outcome.ABSORBED
    else:
        outcome = landing.outcome
    return outcome, seen.grade, seen.message if seen.grade else ""
