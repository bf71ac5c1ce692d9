"""What each pinned release costs the set's stack: the first thing that a report answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from patchq.forecast.summary import many, say_counts
from patchq.formats.ledger import CARRIED, WRITTEN, Drop
from patchq.merge.patches import ABSORBED, CONFLICT, OBSOLETE

#: The outcome of a patch that the ledger drops.
DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Cell:
    """A patch on a ref: an outcome of the ledger or the forecast, ``carried`` where the ref's stack has it,
    ``dropped`` where the ledger drops it, or empty.

    :ivar file: what says so; ``line`` of it, from 1, or 0.
    :ivar paths: the files that stop it; ``since``: the ref at which it was first found upstream.
    :ivar dropped: the decision, where the outcome is ``dropped``.
    """

    outcome: str
    evidence: str = ""
    file: str = ""
    line: int = 0
    paths: tuple[str, ...] = ()
    since: str = ""
    dropped: Drop | None = None


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a release comes to for the stack of a set.

    :ivar needs: the patches that need review, with their conflicting files; ``retire``: those that upstream has, with
        the ref since which, and that may be dropped; ``unknown``: those that no forecast or rebase was made for.
    :ivar dropped: the patches that the ledger drops.
    """

    upstream: str
    ref: str
    lands: tuple[str, ...]
    needs: tuple[tuple[str, tuple[str, ...]], ...]
    retire: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]
    dropped: tuple[Drop, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """Return the files that need review."""
        return tuple(dict.fromkeys(path for _, paths in self.needs for path in paths))

    @property
    def said(self) -> str:
        """Return it in a line."""
        parts = [
            (len(self.retire), "upstream has"), (len(self.lands), "land" if len(self.lands) != 1 else "lands"),
            (len(self.dropped), "dropped"), (len(self.unknown), "not looked at"),
        ]  # fmt: skip
        return say_counts(parts, len(self.needs), [many(len(self.files), "file")] if self.files else [])


def count(
    upstream: str, refs: Sequence[str], rows: Mapping[str, Sequence[Cell]], ahead: Mapping[str, Sequence[str]]
) -> list[Ahead]:
    """Count what each ref that is ahead comes to.

    :param rows: by patch, a cell for each ref of ``refs``.
    :param ahead: the patches to count, by ref.
    """
    found = []
    for n, ref in enumerate(refs):
        cells = {f"{upstream}/{name}": rows[name][n] for name in ahead.get(ref, ())}
        if not cells:
            continue
        found.append(
            Ahead(
                upstream, ref,
                tuple(p for p, c in cells.items() if c.outcome in (*CARRIED, WRITTEN)),
                tuple((p, c.paths) for p, c in cells.items() if c.outcome in (CONFLICT, OBSOLETE)),
                tuple((p, c.since) for p, c in cells.items() if c.outcome == ABSORBED),
                tuple(p for p, c in cells.items() if not c.outcome),
                tuple(replace(c.dropped, patch=p) for p, c in cells.items() if c.dropped),
            )
        )  # fmt: skip
    return found
