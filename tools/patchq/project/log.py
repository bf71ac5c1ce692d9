"""Changes that the operations in the journal made to patches, pins and other files."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from patchq.errors import FormatError, PatchqError, StateError
from patchq.formats.lock import Pin
from patchq.formats.lock import parse as parse_lock
from patchq.formats.series import SUFFIX
from patchq.formats.series import parse as parse_series
from patchq.project.journal import Journal
from patchq.project.project import Project
from patchq.system.paths import folder_to_ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes that an operation made. Patches are named ``upstream/ref/patch``, pins ``upstream/ref``.

    :ivar set_pins: Changed entries of sets, as ``set: upstream/ref``.
    :ivar files: Other changed files of the project.
    :ivar worktrees: Upstreams whose worktree moved.
    """

    added: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    unpinned: tuple[str, ...] = ()
    set_pins: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    worktrees: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Operation in the journal.

    :ivar number: Number of the operation, from 1.
    :ivar undone: True if ``undo`` has reverted the operation and ``redo`` can carry it out again.
    """

    number: int
    time: str
    verb: str
    summary: str
    undone: bool
    changes: Changes


#: Content of a changed file before and after.
_Ends = tuple[bytes | None, bytes | None]


def operations(project: Project, limit: int = 0) -> list[Operation]:
    """Return the operations of a project, newest first.

    :param limit: Number of operations to return; 0 for all.
    """
    found: list[Operation] = []
    for number, undone, record in project.journal.operations():
        if limit and len(found) == limit:
            break
        operation = Operation(
            number=int(number),
            time=str(record.get("time", "")),
            verb=str(record["verb"]),
            summary=str(record["summary"]),
            undone=undone,
            changes=changes_of(project.journal, record),
        )
        found.append(operation)
    return found


def changes_of(journal: Journal, record: Mapping[str, Any], *, reverse: bool = False) -> Changes:
    """Return the changes that an operation made.

    :param reverse: Return the changes that reverting the operation makes.
    """
    patches: dict[str, list[str]] = {"added": [], "edited": [], "dropped": []}
    moved: list[str] = []
    others: list[str] = []
    lock: _Ends = (None, None)
    private = journal.layout.private.name
    for path, ends in sorted(record["files"].items()):
        if reverse:
            before, after = reversed(ends)
        else:
            before, after = ends
        parts = PurePosixPath(path).parts
        if parts[0] == private:
            continue
        if parts[0] == "patches" and len(parts) == 4 and path.endswith(SUFFIX):
            name = f"{parts[1]}/{folder_to_ref(parts[2])}/{parts[3].removesuffix(SUFFIX)}"
            kind = "edited"
            if before is None:
                kind = "added"
            elif after is None:
                kind = "dropped"
            patches[kind].append(name)
        elif parts[0] == "patches" and len(parts) == 4 and parts[3] == "series":
            names = _moved(_read(journal, before), _read(journal, after))
            moved += [f"{parts[1]}/{folder_to_ref(parts[2])}/{name}" for name in names]
        elif path == journal.layout.lock.name:
            lock = (_read(journal, before), _read(journal, after))
        else:
            others.append(path)
    pinned, unpinned, set_pins = _changed_pins(*lock)
    return Changes(
        added=tuple(patches["added"]),
        edited=tuple(patches["edited"]),
        moved=tuple(moved),
        dropped=tuple(patches["dropped"]),
        pinned=tuple(pinned),
        unpinned=tuple(unpinned),
        set_pins=tuple(set_pins),
        files=tuple(others),
        worktrees=tuple(dict.fromkeys(str(tree[0]) for tree in record["trees"])),
    )


def _read(journal: Journal, digest: str | None) -> bytes | None:
    """Return a file content from the journal; None if there was no file, or if the content is no longer stored."""
    try:
        return journal.content(digest)
    except StateError:
        return None


def _moved(before: bytes | None, after: bytes | None) -> list[str]:
    """Return the smallest set of patches whose moves explain the new order."""
    try:
        old = parse_series(before or b"", "series").names
        new = parse_series(after or b"", "series").names
    except FormatError:  # a series with conflict markers
        return []
    ours = [name for name in old if name in new]
    theirs = [name for name in new if name in old]
    kept = set(_common(ours, theirs))
    return [name for name in theirs if name not in kept]


def _common(one: Sequence[str], other: Sequence[str]) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    for block in matcher.get_matching_blocks():
        yield from one[block.a : block.a + block.size]


def _changed_pins(before: bytes | None, after: bytes | None) -> tuple[list[str], list[str], list[str]]:
    """Return the added or changed pins, the removed pins, and the changed entries of sets."""
    old, old_sets = _pins(before)
    new, new_sets = _pins(after)
    pinned = []
    for name, pin in new.items():
        if old.get(name) != pin:
            pinned.append(name)
    unpinned = [name for name in old if name not in new]
    return pinned, unpinned, [entry for entry in new_sets if entry not in old_sets]


def _pins(data: bytes | None) -> tuple[dict[str, Pin], list[str]]:
    try:
        lock = None
        if data:
            lock = parse_lock(data, "upstream.lock")
    except PatchqError:  # damaged, or of another version
        lock = None
    pins: dict[str, Pin] = {}
    entries: list[str] = []
    if lock is not None:
        for upstream in lock.upstreams.values():
            for ref, pin in upstream.pins.items():
                pins[f"{upstream.name}/{ref}"] = pin
        for set_name, refs in lock.sets.items():
            entries += [f"{set_name}: {upstream}/{ref}" for upstream, ref in refs.items()]
    return pins, entries
