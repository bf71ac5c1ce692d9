"""Counts of a ref's patches: what upstream has, what lands, replays, was dropped, or needs review."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from patchq.formats.ledger import FileOffset
from patchq.merge.patches import ABSORBED, CONFLICT, OBSOLETE, REPLAYED, FileConflict
from patchq.upstream.status import UpstreamCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastCell:
    """A patch on a ref.

    :ivar files: those that conflict, or are gone.
    :ivar offsets: how far its lines moved, and in ``checked``, by what that is known.
    :ivar said: why it stops, where its files don't show it.
    :ivar grade: how much of a patch that stops upstream has; ``evidence`` says where. See :mod:`patchq.upstream.match`.
    :ivar known: the ref's own stack has it.
    :ivar commits: upstream's, that the evidence rests on, where its history is at hand.
    :ivar unproved: a recorded resolution resolves it, and it has no proof that could say whether that is right.
    """

    patch: str
    ref: str
    outcome: str
    files: tuple[FileConflict, ...] = ()
    grade: str = ""
    evidence: str = ""
    offsets: tuple[FileOffset, ...] = ()
    checked: str = ""
    said: str = ""
    known: bool = False
    unproved: bool = False
    commits: tuple[UpstreamCommit, ...] = ()

    @property
    def needs_you(self) -> bool:
        """Return whether a person is to look at it."""
        return self.outcome in (CONFLICT, OBSOLETE) or self.unproved

    @property
    def hunks(self) -> int:
        """How many places of its files conflict; a file as a whole is one."""
        return sum(max(1, len(file.lines)) for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefTally:
    """A ref's patches by what becomes of them, and the hunks and files that need review.

    :ivar upstream_has: absorbed, ``lands``: clean, moved, merged; ``known``: in the ref's own stack already.
    :ivar dropped: the patches that the ledger drops.
    """

    ref: str
    known: tuple[str, ...]
    upstream_has: tuple[str, ...]
    lands: tuple[str, ...]
    replays: tuple[str, ...]
    needs: tuple[str, ...]
    hunks: int
    files: int
    dropped: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """Return it in a line: ``12 upstream has, 3 replay, 2 need review (4 hunks, 2 files)``."""
        parts = [
            (len(self.known), "there already"),
            (len(self.upstream_has), "upstream has"),
            (len(self.lands), "land" if len(self.lands) != 1 else "lands"),
            (len(self.replays), "replay" if len(self.replays) != 1 else "replays"),
            (len(self.dropped), "dropped"),
        ]
        return say_counts(parts, len(self.needs), [many(self.hunks, "hunk"), many(self.files, "file")])


def say_counts(parts: Sequence[tuple[int, str]], needs: int, where: Sequence[str]) -> str:
    """Return counts in a line that ends with how many patches need review, and where."""
    words = [f"{count} {word}" for count, word in parts if count]
    places = f" ({', '.join(where)})" if where else ""
    need = f"{needs} need{'s' * (needs == 1)} review{places}" if needs else "none needs review"
    return ", ".join([*words, need])


def many(count: int, word: str) -> str:
    """Return a count with its noun."""
    return f"{count} {word}" + ("" if count == 1 else "s")


def tally(ref: str, cells: Sequence[ForecastCell], dropped: Sequence[str] = ()) -> RefTally:
    """Count a ref's cells, and the patches that the ledger drops there; each patch is counted once."""
    work = [c for c in cells if c.needs_you and not c.known]
    rest = [c for c in cells if c not in work and not c.known]
    files = {file.path for file in chain.from_iterable(cell.files for cell in work)}
    return RefTally(
        ref=ref,
        known=tuple(c.patch for c in cells if c.known),
        upstream_has=tuple(c.patch for c in rest if c.outcome == ABSORBED),
        lands=tuple(c.patch for c in rest if c.outcome not in (ABSORBED, REPLAYED)),
        replays=tuple(c.patch for c in rest if c.outcome == REPLAYED),
        needs=tuple(c.patch for c in work),
        hunks=sum(c.hunks for c in work),
        files=len(files),
        dropped=tuple(dropped),
    )
