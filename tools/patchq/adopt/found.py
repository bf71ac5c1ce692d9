"""Data classes for patches to import, before their trial on the stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from patchq.errors import PatchqError
from patchq.formats.header import Ident
from patchq.names import TextEnum, TreeId, counted
from patchq.replay.outcomes import Account


class ItemOutcome(TextEnum):
    """Outcome of one patch of an import."""

    APPLIES = "applies"
    OFFSET = "offset"
    MERGED = "merged"
    #: The tree already contains the change.
    THERE = "there"
    CONFLICT = "conflict"
    UNREADABLE = "unreadable"
    #: The import skips the entry, such as a cover letter.
    LEFT_OUT = "left out"
    #: Results of a repeated import: a new patch, or a patch that the stack already has.
    NEW = "new"
    CHANGED = "changed"
    EQUAL = "equal"
    #: The source no longer makes the patch.
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPatch:
    """Patch to import. Its author and message may be missing.

    :ivar where: location for error messages: the file, and the mail's number if there are several.
    :ivar strip: strip level of the file names (``patch -p``).
    :ivar folder: folder of the tree to which the stripped names are relative (``--directory``).
    :ivar exact: True if a recipe sets the strip level; patchq tries no other level for new files.
    :ivar reverse: True if the patch is applied in reverse.
    :ivar remove_empty: True if files that the patch leaves empty are removed.
    :ivar trees: trees before and after the change, for a patch without ``diff``.
    :ivar date: date of a patch without an author.
    :ivar origin: value for the ``Origin:`` trailer.
    :ivar merge: True for a merge commit. The import skips the commit if the tree already contains its changes.
    :ivar problem: error if the patch can't be read.
    :ivar notes: notes for the user about how the patch was read.
    :ivar account: outcome of the script's or Dockerfile's step that made the patch.
    :ivar left_out: True for an entry to skip, such as a cover letter; ``notes`` gives the reason.
    :ivar carried: outcome of a patch that an earlier import added to the stack: ``equal``, ``conflict`` if its source
        now makes another change, or ``gone`` if its source no longer makes it. ``name`` is then the patch's name in the
        stack. None for all other patches.
    :ivar place: number of the stack's patches below this patch; None for the top of the stack.
    """

    name: str
    where: str
    author: Ident | None
    message: str
    diff: bytes = b""
    strip: int = 1
    notes: tuple[str, ...] = ()
    left_out: bool = False
    folder: str = ""
    exact: bool = False
    reverse: bool = False
    remove_empty: bool = False
    trees: tuple[TreeId, TreeId] | None = None
    date: str = ""
    origin: str = ""
    topic: str = ""
    merge: bool = False
    problem: PatchqError | None = None
    account: Account | None = None
    carried: ItemOutcome | None = None
    place: int | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of ``import`` for reading patch files: ``-p``, ``--directory`` and ``--3way``."""

    strip: int | None = None
    folder: str = ""
    three_way: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Options for replaying a Dockerfile.

    :ivar context: build context; None for the Dockerfile's folder.
    :ivar arguments: build arguments.
    :ivar most_download: maximum number of bytes to download for the release's wheel.
    """

    context: Path | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    offline: bool = False
    most_download: int = 0


@dataclass(frozen=True, slots=True)
class Downloaded:
    """Download statistics of a release search.

    :ivar used: bytes downloaded.
    :ivar most: maximum number of bytes to download.
    :ivar untried: releases skipped because of the limit, in the order of the search.
    """

    used: int
    most: int
    untried: tuple[str, ...]

    def __str__(self) -> str:
        if not self.untried:
            return ""
        were = "was" if len(self.untried) == 1 else "were"
        return (
            f"{', '.join(self.untried)} {were} not tried, because of the download limit: {say_size(self.used)} of "
            f"{say_size(self.most)} are used; --most-download SIZE raises the limit"
        )


def say_size(size: int) -> str:
    """Format a size in bytes, KiB, MiB or GiB.

    >>> say_size(900), say_size(268435456), say_size(1600)
    ('900 bytes', '256 MiB', '1.6 KiB')
    """
    unit, shift = next((u for u in (("GiB", 30), ("MiB", 20), ("KiB", 10)) if size >> u[1]), ("bytes", 0))
    return f"{size / (1 << shift):.1f}".removesuffix(".0") + f" {unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Result of the release search for one patch.

    :ivar newest: newest tried release to which the patch applies; empty if none.
    :ivar oldest: oldest tried release to which the patch applies; empty if none.
    :ivar there: oldest tried release that already contains the change; empty if none.
    :ivar tried: number of releases tried.
    :ivar of: number of known releases other than the pinned one.
    :ivar downloaded: download statistics of the whole import.
    """

    newest: str
    oldest: str
    there: str
    tried: int
    of: int
    downloaded: Downloaded

    def __str__(self) -> str:
        count = f"of {counted(self.tried, 'release')} tried ({self.of} exist)"
        if self.newest:
            back = ""
            if self.oldest != self.newest:
                back = f", the oldest {self.oldest}"
            notes = f"it applies to {self.newest}, the newest {count}{back}"
        else:
            notes = f"it applies to none {count}"
        return notes + (f"; {self.there} already contains the change" if self.there else "")
