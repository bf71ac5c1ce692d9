"""Whether upstream has a patch already: its trees, as the patches see them, put to :mod:`patchq.merge.blocks`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from patchq.formats import diff
from patchq.merge.blocks import CONTAINED, EDITED, IDENTICAL, Sight, judge, look
from patchq.merge.patches import ABSORBED, STOPS, Landing, Patch
from patchq.merge.target import Column
from patchq.names import show_path
from patchq.upstream._status import Verdict
from patchq.upstream.commits import Landed
from patchq.upstream.releases import Releases


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
