"""What each pinned release costs the set's stack: the first thing that a report answers."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from patchq.carry.landing import ABSORBED, CONFLICT, OBSOLETE
from patchq.formats.ledger import CARRIED, WRITTEN, Attempt

#: Of a patch that a release's stack has no more, for upstream has it.
RETIRED = "retired"
#: Of one that a release's stack has no more, for nobody needs it there.
WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class Cell:
    """A patch on a ref: an outcome of the ledger or the forecast, ``carried`` where the ref's stack has it,
    ``retired`` where upstream has had it since that ref or an earlier one, or empty.

    :ivar file: what says so; ``line`` of it, from 1, or 0.
    :ivar paths: the files that stop it; ``since``: the ref at which it was retired, or first found upstream.
    :ivar decided: of a stop, why a person left it out of the stack that the ref has by now; empty where it waits.
    """

    outcome: str
    evidence: str = ""
    file: str = ""
    line: int = 0
    paths: tuple[str, ...] = ()
    since: str = ""
    decided: str = ""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a release comes to for the stack of a set.

    :ivar needs: the patches that need a person, with the files where; ``retire``: those that may be retired, and
        ``retired`` those that were, with the ref since which upstream has them; ``unknown``: nobody has looked.
    :ivar left_out: the patches that stopped and were left out of the ref's own stack, with why; ``withdrawn``: those
        that nobody needs there.
    """

    upstream: str
    ref: str
    lands: tuple[str, ...]
    needs: tuple[tuple[str, tuple[str, ...]], ...]
    retire: tuple[tuple[str, str], ...]
    retired: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    withdrawn: tuple[tuple[str, str], ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The files where a person is needed."""
        return tuple(dict.fromkeys(path for _, paths in self.needs for path in paths))

    @property
    def said(self) -> str:
        """In a line."""
        files = f" ({len(self.files)} file{'s' * (len(self.files) != 1)})" if self.files else ""
        parts = [
            (len(self.retired), "retired"), (len(self.retire), "upstream has"),
            (len(self.lands), "land" if len(self.lands) != 1 else "lands"), (len(self.withdrawn), "withdrawn"),
            (len(self.left_out), "left out there"), (len(self.unknown), "not looked at"),
        ]  # fmt: skip
        words = [f"{count} {word}" for count, word in parts if count]
        need = f"{len(self.needs)} need{'s' * (len(self.needs) == 1)} you{files}" if self.needs else "none needs you"
        return ", ".join([*words, need])


def is_retired(attempt: Attempt) -> bool:
    """Whether a line of the ledger says that a patch was retired, not just left out."""
    return attempt.outcome == ABSORBED and not attempt.how.startswith("left out")


def decision(attempt: Attempt, others: bool) -> str:
    """Why a patch that stopped on a ref was left out of the ref's own stack; empty while it waits for a person.

    :param others: whether that stack has patches: somebody has been there.
    """
    if attempt.outcome == WITHDRAWN:
        return f"{WITHDRAWN}: {attempt.how}" if attempt.how else WITHDRAWN
    stopped = attempt.outcome in (CONFLICT, OBSOLETE)
    return attempt.how if stopped and others and attempt.how != "not carried yet" else ""


def count(upstream: str, refs: Sequence[str], rows: Mapping[str, Sequence[Cell]], ahead: Container[str]) -> list[Ahead]:
    """What each ref that is ahead comes to.

    :param rows: by patch of the set's stack, a cell a ref of ``refs``.
    """
    found = []
    for n, ref in enumerate(refs):
        if ref not in ahead or not rows:
            continue
        cells = {f"{upstream}/{name}": row[n] for name, row in rows.items()}
        found.append(
            Ahead(
                upstream, ref,
                tuple(p for p, c in cells.items() if c.outcome in (*CARRIED, WRITTEN)),
                tuple((p, c.paths) for p, c in cells.items() if c.outcome in (CONFLICT, OBSOLETE) and not c.decided),
                tuple((p, c.since) for p, c in cells.items() if c.outcome == ABSORBED),
                tuple((p, c.since) for p, c in cells.items() if c.outcome == RETIRED),
                tuple(p for p, c in cells.items() if not c.outcome),
                tuple((p, c.decided) for p, c in cells.items() if c.decided and not c.decided.startswith(WITHDRAWN)),
                tuple((p, c.decided) for p, c in cells.items() if c.decided.startswith(WITHDRAWN)),
            )
        )  # fmt: skip
    return found
