"""Alarms for functions and macros that patches touch and that upstream changed."""

from __future__ import annotations

from collections.abc import Iterator

from patchq.drift import bodies
from patchq.drift.alarms import Alarm
from patchq.formats import diff
from patchq.git.repository import Git
from patchq.names import CommitId, show_path
from patchq.project.stack import Stack


def touched_alarms(store: Git, stack: Stack, old: CommitId, new: CommitId) -> Iterator[Alarm]:
    """Yield alarms for definitions that patches touch in ``old`` and that differ in ``new``."""
    before, after = store.list_tree(old), store.list_tree(new)
    for name, _ in stack.headers():
        try:
            files = diff.parse(stack.load(name)[1], name)
        except diff.Unsupported:
            continue
        for file in files:
            path = file.old_path
            if path is None or path not in before or not bodies.language_of(path):
                continue
            shown = show_path(path)
            there = after.get(path)
            if there is not None and there.blob == before[path].blob:
                continue
            blobs = store.read_blobs([before[path].blob, *([there.blob] if there else [])])
            mine = bodies.definitions(path, blobs[before[path].blob])
            theirs = bodies.definitions(path, blobs[there.blob]) if there else {}
            for hunk in file.hunks:
                for definition in mine.values():
                    if not _touches(hunk, definition):
                        continue
                    other = theirs.get(definition.name)
                    gone, found = (
                        f"{definition.name} is no longer in {shown}",
                        f"{definition.name} has another body there",
                    )
                    if other is None or other.tokens != definition.tokens:
                        kind, said = ("touched body", found) if other else ("touched function gone", gone)
                        at = definition.start
                        yield Alarm(
                            kind=kind,
                            upstream=stack.pin.upstream,
                            path=shown,
                            line=at,
                            function=definition.name,
                            callee="",
                            said=said,
                            patch=name,
                        )


def _touches(hunk: diff.Hunk, definition: bodies.Definition) -> bool:
    """Return whether a hunk changes lines of a definition, ignoring its context lines."""
    lead = 0
    while lead < min(len(hunk.old), len(hunk.new)) and hunk.old[lead] == hunk.new[lead]:
        lead += 1
    first = hunk.old_start + lead
    last = max(first, hunk.old_start + len(hunk.old) - 1 - hunk.trailing)
    return definition.start <= last and first <= definition.end
