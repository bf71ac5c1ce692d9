"""What was found to adopt, before it is known whether it fits. Data only."""

from __future__ import annotations

from dataclasses import dataclass

from patchq.errors import PatchqError
from patchq.formats.header import Ident
from patchq.names import TreeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A patch as it lies elsewhere; without an author or a message it doesn't say them.

    :ivar where: what to call it in an error: its file, and which mail of it.
    :ivar strip: patch's ``-p``; with ``folder`` (its ``--directory``) how its names become the tree's.
    :ivar trees: in place of a diff, the trees before and after it.
    :ivar date: when it was made, where it has no author to say that of.
    :ivar origin: where it was before, for its ``Origin:``.
    :ivar merge: a merge commit, which is left out if the tree has its changes.
    :ivar problem: why it can't be read.
    :ivar said: what a person should know of how it was read; with ``left_out`` it is no patch, and that is said.
    """

    name: str
    where: str
    author: Ident | None
    message: str
    diff: bytes = b""
    strip: int = 1
    said: tuple[str, ...] = ()
    left_out: bool = False
    folder: str = ""
    trees: tuple[TreeId, TreeId] | None = None
    date: str = ""
    origin: str = ""
    topic: str = ""
    merge: bool = False
    problem: PatchqError | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How files are to be read: patch's ``-p`` and ``--directory`` for all of them, and ``git apply --3way``."""

    strip: int | None = None
    folder: str = ""
    three_way: bool = False


@dataclass(frozen=True, slots=True)
class Downloaded:
    """What looking for releases has brought.

    :ivar used: bytes, of ``most`` that may come.
    :ivar untried: the releases that would have needed more, in the order in which they were wanted.
    """

    used: int
    most: int
    untried: tuple[str, ...]

    def __str__(self) -> str:
        if not self.untried:
            return ""
        were = "was" if len(self.untried) == 1 else "were"
        return (
            f"{', '.join(self.untried)} {were} not tried: {say_size(self.used)} were downloaded, and no more than "
            f"{say_size(self.most)} may be; --most-download SIZE raises that"
        )


def say_size(size: int) -> str:
    """Bytes in words.

    >>> say_size(900), say_size(268435456), say_size(1600)
    ('900 bytes', '256 MiB', '1.6 KiB')
    """
    unit, shift = next((u for u in (("GiB", 30), ("MiB", 20), ("KiB", 10)) if size >> u[1]), ("bytes", 0))
    return f"{size / (1 << shift):.1f}".removesuffix(".0") + f" {unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """The releases that a patch applies on, of those that were tried.

    :ivar newest: empty where it applies on none; so is ``oldest``.
    :ivar there: the oldest that has its change already.
    :ivar tried: how many were, ``of`` how many there are beside the pinned one.
    :ivar downloaded: for all patches of the import together.
    """

    newest: str
    oldest: str
    there: str
    tried: int
    of: int
    downloaded: Downloaded

    def __str__(self) -> str:
        count = f"of {self.tried} releases tried, {self.of} there are"
        if self.newest:
            back = f", the oldest {self.oldest}" if self.oldest != self.newest else ""
            said = f"it applies on {self.newest}, the newest {count}{back}"
        else:
            said = f"it applies on none {count}"
        return said + (f"; {self.there} has its change already" if self.there else "")
