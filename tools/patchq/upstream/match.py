"""Match a patch against upstream's trees: how much of it each file has, and since when.

A patch is graded by its files, and a file by its blocks (:mod:`patchq.merge.blocks`). Upstream's history, or where none
is available its releases, then say more (:mod:`patchq.upstream.commits`, :mod:`patchq.upstream.releases`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from patchq.formats import diff
from patchq.merge.blocks import blocks, is_there, share, text_of, word_of
from patchq.merge.patches import ABSORBED, STOPS, Landing, Patch
from patchq.merge.target import Column
from patchq.names import show_path
from patchq.upstream.commits import Landed
from patchq.upstream.releases import Releases
from patchq.upstream.status import UpstreamCommit, Verdict

IDENTICAL, CONTAINED, EDITED, ABSENT = "identical", "contained", "edited", ""
#: The share of a change from which on it is shown as edited, and the one that must be left when it has landed
#: and later versions went over it.
_HALF, _LEFT = 0.5, 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSight:
    """What was seen of one file's part of a patch.

    :ivar where: the label of the version at which it was first seen; empty where it never was.
    :ivar share: which part of its lines upstream has at the last version.
    :ivar reverted: it was there, and is not any more.
    """

    path: str
    grade: str
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
    """Look for one file's part of a patch in upstream's versions of it.

    :param patched: the file as the patch leaves it; None where the patch removes it.
    :param base: the file as upstream had it when the patch was written.
    :param versions: upstream's later versions with what to call them, oldest first, the last one the target.
    """
    target = versions[-1][1]
    if patched is None or base is None or not hunks:
        # A file that comes or goes, or has no lines: only the very same result is a sign.
        same = [label for label, content in versions if content == patched]
        if target == patched and base != patched:
            return FileSight(path=path, grade=IDENTICAL, where=same[0], share=1.0)
        if patched is None or target is None or base is not None:
            return FileSight(path=path, grade=ABSENT, where=same[0] if same else "", share=0.0, reverted=bool(same))
    before, now = text_of(base), text_of(target)
    parts = blocks(hunks)
    if not parts:
        return FileSight(path=path, grade=ABSENT, where="", share=0.0)
    left = share(parts, before, now)
    words = {word_of(line) for block in parts for line in block.added}
    for label, content in versions:
        if content is None or not all(word in content for word in words):
            continue  # not all lines can be there
        if content == patched and content != base:
            grade = IDENTICAL
        elif all(is_there(block, before, text_of(content), parts.count(block)) for block in parts):
            grade = CONTAINED
        else:
            continue
        if content is target or content == target or left > _LEFT:
            return FileSight(path=path, grade=grade, where=label, share=left)
        return FileSight(path=path, grade=EDITED if left > 0 else ABSENT, where=label, share=left, reverted=True)
    return FileSight(path=path, grade=EDITED if left >= _HALF else ABSENT, where="", share=left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What was seen of a whole patch. ``grade`` is the least of its files', ``where`` the last of their firsts.

    :ivar past: what upstream's history says of it; ``by_history``: as one commit with the patch's own id.
    """

    grade: str
    where: str
    files: tuple[FileSight, ...]
    past: str = ""
    by_history: bool = False
    commits: tuple[UpstreamCommit, ...] = ()

    @property
    def retirable(self) -> bool:
        """Whether it is there in full; else a person has to say."""
        return self.grade in (IDENTICAL, CONTAINED)

    @property
    def said(self) -> str:
        """The evidence, in words."""
        words = []
        for f in self.files:
            if f.reverted:
                words.append(f"{f.path}: was there at {f.where}, and is not any more")
            elif f.grade in (IDENTICAL, CONTAINED):
                words.append(f"{f.path}: {f.grade} since {f.where}")
            else:
                words.append(f"{f.path}: {round(100 * f.share)} % of its lines are there")
        return "; ".join([*words, self.past] if self.past else words)


def judge(files: Sequence[FileSight], labels: Sequence[str]) -> Sight:
    """A patch from its files: all of them must be there.

    :param labels: of the versions, oldest first.
    """
    if not files:
        return Sight(grade=ABSENT, where="", files=())
    order = (IDENTICAL, CONTAINED, EDITED, ABSENT)
    worst = max((f.grade for f in files), key=order.index)
    if worst == ABSENT and any(f.grade != ABSENT or f.reverted for f in files):
        # Part of it landed, or all did and was taken back: that is worth a look, and no more.
        worst = EDITED
    seen = [f.where for f in files if f.where]
    where = max(seen, key=list(labels).index) if worst in (IDENTICAL, CONTAINED) and seen else ""
    return Sight(grade=worst, where=where, files=tuple(files))


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
            show_path(e.path),
            patch.hunks.get(e.path, ()),
            patched.get(e.new.blob) if e.new else None,
            content(base, e.path),
            [(label, content(column, e.path)) for label, column in versions],
        )
        for e in patch.edits
    ]
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


def with_past(seen: Sight, past: Verdict | None) -> Sight:
    """What was seen, and what history says: it knows what landed and was changed on, and what was reverted."""
    if past is None:
        return seen
    said = replace(seen, past=past.said, by_history=past.taken and past.identical, commits=past.commits)
    if past.taken and not seen.retirable:
        return replace(said, grade=IDENTICAL if past.identical else CONTAINED, files=())
    if past.undone and not seen.retirable:
        return replace(said, grade=EDITED)
    return said if past.taken or seen.grade else seen


class Asked:
    """Whom to ask about a stack's patches at one target: upstream's history, or where none is at hand its releases."""

    def __init__(self, past: Landed | None, releases: Releases | None) -> None:
        self.past, self.releases = past, releases

    def about(self, patch: Patch, seen: Sight) -> Sight:
        """What was seen of a patch, with what they say. Releases aren't asked what can be seen."""
        if self.past or not self.releases:
            return with_past(seen, self.past.look(patch) if self.past else None)
        return seen if seen.retirable else with_past(seen, self.releases.look(patch))


def once_more(patches: Sequence[Patch], column: Column, past: Landed | None) -> frozenset[str]:
    """The patches that would land on a tree though upstream has them: it took them, and went on with their lines."""
    if past is None:
        return frozenset()
    landed = (patches[n] for n, landing in column.landings.items() if landing.outcome not in STOPS)
    return frozenset(patch.name for patch in landed if past.has_whole(patch))


def verdict(landing: Landing, seen: Sight, ref: str) -> tuple[str, str, str]:
    """Of a patch that stops on a ref: its outcome, how much of it upstream has, and the evidence."""
    if landing.outcome == ABSORBED and not seen.retirable:
        said = f"nothing of it is left to add at {ref}"
        return ABSORBED, IDENTICAL, f"{said}; {seen.past}" if seen.past else said
    outcome = ABSORBED if seen.retirable else landing.outcome
    return outcome, seen.grade, seen.said if seen.grade else ""
