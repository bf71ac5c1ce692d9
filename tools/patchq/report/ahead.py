"""Cost of carrying the patches of a set to each newer pinned release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from patchq.forecast.summary import say_counts
from patchq.formats.ledger import CARRIED, Drop
from patchq.formats.outcomes import CellState, Outcome
from patchq.names import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCell:
    """Outcome of one patch on one ref.

    :ivar outcome: outcome in the ledger or the forecast. Other values: ``carried`` (the ref's stack contains the
        patch), ``dropped`` (the ledger drops the patch), empty (no information).
    :ivar file: file from which the outcome comes.
    :ivar line: line in this file, from 1; 0 means the whole file.
    :ivar paths: files that conflict.
    :ivar since: first ref at which upstream has the patch.
    :ivar dropped: decision in the ledger, if the outcome is ``dropped``.
    """

    outcome: Outcome | CellState
    evidence: str = ""
    file: str = ""
    line: int = 0
    paths: tuple[str, ...] = ()
    since: str = ""
    dropped: Drop | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """Cost of carrying a set's stack to one release.

    :ivar needs: patches that need review, each with its conflicting files.
    :ivar retire: patches that upstream has, each with the first ref that contains the patch.
    :ivar unknown: patches for which there is neither a forecast nor a rebase.
    :ivar dropped: patches that the ledger drops.
    :ivar has_stack: True if the ref has its own stack.
    """

    upstream: str
    ref: str
    lands: tuple[str, ...]
    needs: tuple[tuple[str, tuple[str, ...]], ...]
    retire: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]
    dropped: tuple[Drop, ...] = ()
    has_stack: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        """Return the files that need review."""
        found: dict[str, None] = {}
        for _, paths in self.needs:
            found.update(dict.fromkeys(paths))
        return tuple(found)

    @property
    def message(self) -> str:
        """Return the counts on one line."""
        applied = "apply"
        if len(self.lands) == 1:
            applied = "applies"
        parts = [
            (len(self.retire), "upstream has"),
            (len(self.lands), applied),
            (len(self.dropped), "dropped"),
            (len(self.unknown), "without a forecast"),
        ]
        files = []
        if self.files:
            files = [counted(len(self.files), "file")]
        return say_counts(parts, len(self.needs), files)


def count(
    upstream: str,
    refs: Sequence[str],
    rows: Mapping[str, Sequence[ReportCell]],
    ahead: Mapping[str, Sequence[str]],
) -> list[Ahead]:
    """Count the outcomes on each newer ref.

    :param rows: cells of each patch, one for each ref in ``refs``.
    :param ahead: patches to count, by ref.
    """
    found = []
    for column, ref in enumerate(refs):
        cells = {}
        for name in ahead.get(ref, ()):
            cells[f"{upstream}/{name}"] = rows[name][column]
        if cells:
            found.append(_count_one(upstream, ref, cells))
    return found


def _count_one(upstream: str, ref: str, cells: Mapping[str, ReportCell]) -> Ahead:
    lands, needs, retire, unknown, dropped = [], [], [], [], []
    for patch, cell in cells.items():
        if cell.outcome in (*CARRIED, CellState.WRITTEN):
            lands.append(patch)
        if cell.outcome in (Outcome.CONFLICT, Outcome.OBSOLETE):
            needs.append((patch, cell.paths))
        if cell.outcome == Outcome.ABSORBED:
            retire.append((patch, cell.since))
        if not cell.outcome:
            unknown.append(patch)
        if cell.dropped:
            dropped.append(replace(cell.dropped, patch=patch))
    return Ahead(
        upstream=upstream,
        ref=ref,
        lands=tuple(lands),
        needs=tuple(needs),
        retire=tuple(retire),
        unknown=tuple(unknown),
        dropped=tuple(dropped),
    )
