"""Names for the things that must not be mixed up, and characters as they are shown. Data only."""

from __future__ import annotations

import shlex
import unicodedata
from dataclasses import dataclass, field
from typing import NewType

CommitId = NewType("CommitId", str)
TreeId = NewType("TreeId", str)
BlobId = NewType("BlobId", str)


class Shown(dict[int, str]):
    """For :meth:`str.translate`: what each character is shown as, found out when it first comes.

    Controls, and what can't be seen or turns others around, are shown as escapes, such as ``\\x1b`` and ``\\u202e``.
    """

    def __init__(self, kept: str = "") -> None:
        super().__init__({ord(c): c for c in kept})

    def __missing__(self, code: int) -> str:
        char = chr(code)
        # Blanks of other widths are somebody's typography, and harmless.
        plain = char.isprintable() or unicodedata.category(char) == "Zs"
        self[code] = char if plain else char.encode("unicode_escape").decode()
        return self[code]


TEXT, LINE = Shown("\n\t"), Shown()


def show_path(path: bytes) -> str:
    """Return a tree path for people: what isn't UTF-8, is a control or can't be seen is escaped."""
    return path.decode("utf-8", "backslashreplace").translate(LINE)


def sh(word: object) -> str:
    """Return a word of a command that is printed for people to type: quoted, where a shell would read it otherwise.

    >>> sh("v1.0"), sh("v1.0;x")
    ('v1.0', "'v1.0;x'")
    """
    return shlex.quote(str(word))


@dataclass(frozen=True, slots=True)
class Offset:
    """A hunk that applied exactly, but ``lines`` lines away from where its header says."""

    path: str
    hunk: str
    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
