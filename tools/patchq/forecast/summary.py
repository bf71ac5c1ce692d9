"""Summary of a ref's patches: the number of patches with each outcome."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from patchq.formats.ledger import FileOffset
from patchq.formats.outcomes import Grade, Outcome
from patchq.merge.patches import FileConflict
from patchq.names import counted
from patchq.records import dataclass
from patchq.upstream.status import UpstreamCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastCell:
    """Forecast of one patch on one ref.

    :ivar files: files that conflict or are deleted upstream.
    :ivar offsets: line offsets of the hunks.
    :ivar checked: name of the evidence that the offsets are right.
    :ivar message: reason why the patch stops, if ``files`` doesn't show the reason.
    :ivar grade: how well upstream's code matches a stopped patch; see :mod:`patchq.upstream.match`. ``evidence``
        describes the match.
    :ivar known: True if the ref's own stack contains the patch.
    :ivar commits: upstream commits that contain the matching changes, if history is available locally.
    :ivar unproved: True if a recorded resolution applies, but no proof can confirm the resolution on this machine.
    """

    patch: str
    ref: str
    outcome: Outcome
    files: tuple[FileConflict, ...] = ()
    grade: Grade = Grade.NONE
    evidence: str = ""
    offsets: tuple[FileOffset, ...] = ()
    checked: str = ""
    message: str = ""
    known: bool = False
    unproved: bool = False
    commits: tuple[UpstreamCommit, ...] = ()

    @property
    def needs_review(self) -> bool:
        """Return whether the patch needs review."""
        return self.outcome in (Outcome.CONFLICT, Outcome.OBSOLETE) or self.unproved

    @property
    def hunks(self) -> int:
        """Return the number of conflicts. A whole-file conflict counts as one."""
        return sum(max(1, len(file.lines)) for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefTally:
    """Patches of a ref by outcome, and the number of hunks and files that need review.

    :ivar known: patches in the ref's own stack.
    :ivar upstream_has: patches with the outcome ``absorbed``.
    :ivar lands: patches that the ref's stack can contain: ``clean``, ``offset``, ``merged``, ``by rule`` or
        ``resolved``. Patches with the outcome ``replayed`` are in ``replays``.
    :ivar dropped: patches that the ledger drops.
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
    def message(self) -> str:
        """Return the summary as one line: ``12 upstream has, 3 replay, 2 need review (4 hunks, 2 files)``."""
        parts = [
            (len(self.known), "already carried"),
            (len(self.upstream_has), "upstream has"),
            (len(self.lands), "land" if len(self.lands) != 1 else "lands"),
            (len(self.replays), "replay" if len(self.replays) != 1 else "replays"),
            (len(self.dropped), "dropped"),
        ]
        return say_counts(parts, len(self.needs), [counted(self.hunks, "hunk"), counted(self.files, "file")])


def say_counts(parts: Sequence[tuple[int, str]], needs: int, where: Sequence[str]) -> str:
    """Return the counts as one line that ends with the number of patches which need review."""
    words = [f"{count} {word}" for count, word in parts if count]
    places = ""
    if where:
        places = f" ({', '.join(where)})"
    need = "none needs review"
    if needs:
        need = f"{needs} need{'s' * (needs == 1)} review{places}"
    return ", ".join([*words, need])


def summary(ref: str, cells: Sequence[ForecastCell], dropped: Sequence[str] = ()) -> RefTally:
    """Summarize a ref's cells and dropped patches. Each patch is counted once."""
    work = []
    for c in cells:
        if c.needs_review and not c.known:
            work.append(c)
    rest = []
    for c in cells:
        if c not in work and not c.known:
            rest.append(c)
    files = set()
    for file in chain.from_iterable(cell.files for cell in work):
        files.add(file.path)
    return RefTally(
        ref=ref,
        known=tuple(c.patch for c in cells if c.known),
        upstream_has=tuple(c.patch for c in rest if c.outcome == Outcome.ABSORBED),
        lands=tuple(c.patch for c in rest if c.outcome not in (Outcome.ABSORBED, Outcome.REPLAYED)),
        replays=tuple(c.patch for c in rest if c.outcome == Outcome.REPLAYED),
        needs=tuple(c.patch for c in work),
        hunks=sum(c.hunks for c in work),
        files=len(files),
        dropped=tuple(dropped),
    )
