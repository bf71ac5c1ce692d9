"""Exceptions of patchq. The core raises them; only the CLI prints them.

Each exception has an exit code, which is part of the public API, and a hint with the next command. Some exceptions also
name the patch and the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

from patchq.records import dataclass

#: User and password in an http(s) URL, and the password in any other URL. A scheme starts only at
#: the beginning of a word: trying each letter of a long word would take quadratic time.
_SECRET = re.compile(r"(https?://)[^\s/?#]*@|((?<![\w+.-])\w[\w+.-]*://[^\s/?#:@]*):[^\s/?#]*@")


def without_secrets(text: str) -> str:
    """Remove passwords from the URLs in a text.

    In http(s) URLs, also remove the user name, which may be a token.

    >>> without_secrets("https://me:secret@host/x, https://token@host, ssh://git:secret@host, ssh://git@host:22/~me")
    'https://host/x, https://host, ssh://git@host, ssh://git@host:22/~me'
    """
    return _SECRET.sub(lambda match: match[1] or f"{match[2]}@", text)


def nearest(word: str, known: Sequence[str], otherwise: str = "") -> str:
    """Return a hint that suggests the most similar known word; ``otherwise`` if none is similar.

    >>> nearest("aply", ["apply", "drop"])
    'did you mean apply?'
    """
    import difflib

    near = difflib.get_close_matches(word, known, 1)
    if near:
        return f"did you mean {near[0]}?"
    return otherwise


class PatchqError(Exception):
    """Base class of the errors that patchq explains to its user.

    ``hint`` is the next command or step.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str) -> None:
        self.message, self.hint = without_secrets(message), without_secrets(hint)
        super().__init__(self.message)


class UserError(PatchqError):
    """Request that patchq can't carry out in the current state."""


class FormatError(PatchqError):
    """Lock, series, patch, diff or archive that doesn't follow its format."""


class SourceError(PatchqError):
    """Upstream that can't be fetched, or that differs from the lock."""


class BusyError(PatchqError):
    """Project lock that another patchq process holds."""


class EditedTreeError(PatchqError):
    """Worktree with changes that aren't in the stack; patchq never overwrites it."""


class StateError(PatchqError):
    """State file under ``.patchq`` that this version of patchq can't use."""


class StateTooNew(StateError):
    """State file written by a newer patchq. This version doesn't try to interpret it."""


class StateTooOld(StateError):
    """File in a format that this version of patchq no longer reads."""


class BuildError(PatchqError):
    """Failed build or test."""

    exit_code = 5


class EnvironmentFault(PatchqError):
    """Environment that can't run a proof: a package is missing, or the process was killed."""

    exit_code = 6


class ConflictKind(str, Enum):
    """Kind of a :class:`Conflict`."""

    #: The file doesn't contain the old lines of a hunk, or contains them in several places.
    LINES = "lines"
    #: The file doesn't contain the old lines of a hunk, but it contains the new lines.
    APPLIED = "applied"
    #: The tree has no file of that name.
    MISSING = "missing"
    #: The file is missing, and a file of the same name is in another folder.
    MOVED = "moved"
    #: Another file, folder or symlink is at the path of a new file.
    OBSTRUCTED = "obstructed"
    #: A repeated import of a script or recipe gives another change than the stack's patch.
    CHANGED_STEP = "changed step"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Place where a patch doesn't match the upstream file.

    ``hunk`` is the ``@@`` line of the hunk, or an empty string if the file as a whole is the problem. ``expected`` and
    ``found`` are lines, decoded for display. ``places`` are the line numbers, from 1, of the expected lines if they
    occur more than once. ``owner`` is the earlier patch of the same import that causes the mismatch, or empty.
    """

    upstream: str
    patch: str
    path: str
    reason: str
    hunk: str = ""
    line: int = 0
    expected: Sequence[str] = ()
    found: Sequence[str] = ()
    places: Sequence[int] = ()
    owner: str = ""
    kind: ConflictKind = ConflictKind.OTHER


class ConflictError(PatchqError):
    """Patch that doesn't apply. Nothing was changed."""

    exit_code = 3

    def __init__(self, message: str, conflicts: Sequence[Conflict], *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.conflicts = tuple(conflicts)
