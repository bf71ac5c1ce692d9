"""The exceptions of patchq. The core raises them; only the CLI's one boundary prints them.

Each carries data (which patch, which file), the exit code that is part of the API, and the
command to type next.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

#: The user and password of an address of the web, and the password of any other. A scheme begins where no word is under
#: way: tried at each letter of a long word, it would take the square of its length.
_SECRET = re.compile(r"(https?://)[^\s/?#]*@|((?<![\w+.-])\w[\w+.-]*://[^\s/?#:@]*):[^\s/?#]*@")


def without_secrets(text: str) -> str:
    """Return a text whose addresses have no password; those of the web have no user either, who may be a token.

    >>> without_secrets("https://me:secret@host/x, https://token@host, ssh://git:secret@host, ssh://git@host:22/~me")
    'https://host/x, https://host, ssh://git@host, ssh://git@host:22/~me'
    """
    return _SECRET.sub(lambda match: match[1] or f"{match[2]}@", text)


def nearest(word: str, known: Sequence[str], otherwise: str = "") -> str:
    """A hint with what was probably meant, or ``otherwise``.

    >>> nearest("aply", ["apply", "drop"])
    'did you mean apply?'
    """
    import difflib

    near = difflib.get_close_matches(word, known, 1)
    return f"did you mean {near[0]}?" if near else otherwise


class PatchqError(Exception):
    """Base of every error that patchq explains to its user.

    ``hint`` is what to type or do next; every error has one.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str) -> None:
        self.message, self.hint = without_secrets(message), without_secrets(hint)
        super().__init__(self.message)


class UserError(PatchqError):
    """What was asked for can't be done as things stand."""


class FormatError(PatchqError):
    """A lock, series, patch, diff or archive that doesn't follow its format."""


class SourceError(PatchqError):
    """An upstream couldn't be had, or isn't what the lock says."""


class BusyError(PatchqError):
    """Another patchq holds the project's lock."""


class EditedTreeError(PatchqError):
    """A worktree holds work that isn't in the stack; it is never overwritten."""


class StateError(PatchqError):
    """A state file under ``.patchq`` that this patchq can't use."""


class StateTooNew(StateError):
    """Written by a newer patchq: nothing is guessed about it."""


class StateTooOld(StateError):
    """Written in a format that this patchq no longer reads."""


class BuildError(PatchqError):
    """A build or a test failed."""

    exit_code = 5


class EnvironmentFault(PatchqError):
    """The environment can't run a proof: a package is missing, or the process was killed."""

    exit_code = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One place where a patch doesn't fit what upstream has.

    ``hunk`` is the hunk's own ``@@`` line, or empty where the file as a whole is the problem;
    ``expected`` and ``found`` are lines, decoded for people; ``places`` the lines, from 1, where the
    expected ones stand, if that is in more than one place.
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


class ConflictError(PatchqError):
    """A patch doesn't apply. Nothing was changed."""

    exit_code = 3

    def __init__(self, message: str, conflicts: Sequence[Conflict], *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.conflicts = tuple(conflicts)
