"""Text of an operation's changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from patchq.project.log import Changes

#: Number of names that a line shows.
_MOST = 8


def show_changes(changes: Changes) -> Iterator[str]:
    """Yield a line for each kind of change."""
    for word, names in (
        ("added", changes.added),
        ("edited", changes.edited),
        ("moved", changes.moved),
        ("dropped", changes.dropped),
        ("pinned", changes.pinned),
        ("unpinned", changes.unpinned),
        ("set", changes.set_pins),
        ("wrote", changes.files),
        ("worktree", changes.worktrees),
    ):
        if names:
            yield f"    {word}: {_list(names)}"


def _list(names: Sequence[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")
