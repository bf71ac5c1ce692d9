"""Names for the things that must not be mixed up. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NewType

CommitId = NewType("CommitId", str)
TreeId = NewType("TreeId", str)
BlobId = NewType("BlobId", str)


def show_path(path: bytes) -> str:
    """A tree path for people: what isn't UTF-8 or isn't printable is escaped."""
    text = path.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True, slots=True)
class Offset:
    """A hunk that applied exactly, but ``lines`` lines away from where its header says."""

    path: str
    hunk: str
    lines: int


@dataclass(frozen=True, slots=True)
class AppliedPatch:
    """A patch of a stack as a commit on the worktree's branch.

    :ivar empty: it changes nothing.
    """

    name: str
    commit: CommitId
    offsets: tuple[Offset, ...] = ()
    empty: bool = False

    @property
    def outcome(self) -> str:
        """``clean`` or ``offset``, the ledger's words."""
        return "offset" if self.offsets else "clean"


@dataclass(frozen=True, slots=True)
class StackResult:
    """Where one stack stands after ``apply``."""

    upstream: str
    ref: str
    base: CommitId
    tip: CommitId
    tree: TreeId
    source: str
    patches: tuple[AppliedPatch, ...] = field(default=())
    total: int = 0
    changed: bool = False


@dataclass(frozen=True, slots=True)
class ProofRequest:
    """A proof to run with ``tip`` as its upstream's tree, and the set's stacks as the others'.

    :ivar bare: with no patch of the others either.
    """

    set_name: str
    upstream: str
    patch: str
    files: tuple[str, ...]
    needs: tuple[str, ...]
    tip: CommitId
    bare: bool = False
