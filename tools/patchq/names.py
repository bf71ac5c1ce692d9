"""Types for values that must not be confused, and functions that format names for messages."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterable
from dataclasses import field
from enum import Enum
from typing import NewType

from patchq.records import dataclass

CommitId = NewType("CommitId", str)
TreeId = NewType("TreeId", str)
BlobId = NewType("BlobId", str)


class TextEnum(str, Enum):
    """Enum whose members equal their text in files and in JSON, and print as this text."""

    def __str__(self) -> str:
        return str(self.value)


class Shown(dict[int, str]):
    """Table for :meth:`str.translate` that maps each character to its displayed form.

    Entries are added on first use. Control characters, invisible characters and characters that
    change the text direction become escapes, such as ``\\x1b`` and ``\\u202e``.
    """

    def __init__(self, kept: str = "") -> None:
        super().__init__({ord(c): c for c in kept})

    def __missing__(self, code: int) -> str:
        char = chr(code)
        # Spaces of other widths are ordinary typography, and harmless.
        plain = char.isprintable() or unicodedata.category(char) == "Zs"
        if plain:
            self[code] = char
        else:
            self[code] = char.encode("unicode_escape").decode()
        return self[code]


TEXT, LINE = Shown("\n\t"), Shown()


def show_path(path: bytes) -> str:
    """Return a tree path for display. Escape invalid UTF-8, control and invisible characters."""
    return path.decode("utf-8", "backslashreplace").translate(LINE)


def show_paths(paths: Iterable[bytes]) -> str:
    """Return several tree paths for display, separated by commas."""
    return ", ".join(map(show_path, paths))


def name_for(path: str) -> str:
    """Suggest a name for a new patch that changes a file. The name appears in commands that users may copy.

    >>> name_for("vllm/model_executor/envs.py"), name_for(".gitignore")
    ('envs', 'gitignore')
    """
    stem = path.rpartition("/")[2].lstrip(".").partition(".")[0]
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-") or "edits"


def sh(word: object) -> str:
    """Quote a word of a command that users may copy, if a shell would interpret the word.

    >>> print(sh("v1.0"), sh("v1.0;x"), sh("it's"))
    v1.0 'v1.0;x' "it's"
    """
    text = str(word)
    if "'" in text and not re.search(r'["$`\\!]', text):
        return f'"{text}"'
    return shlex.quote(text)


def proof_path(patch: str) -> str:
    """Return the default path of the test that proves a patch.

    >>> proof_path("up/fix-it")
    'tests/stacks/up/test_fix_it.py'
    """
    upstream, _, name = patch.partition("/")
    return f"tests/stacks/{upstream}/test_{re.sub('[^A-Za-z0-9]', '_', name)}.py"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    >>> counted(1, "patch"), counted(2, "patch"), counted(0, "entry"), counted(3, "wheel")
    ('1 patch', '2 patches', '0 entries', '3 wheels')

    """
    if number == 1:
        return f"1 {noun}"
    if noun.endswith(("ch", "sh", "s", "x")):
        return f"{number} {noun}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{number} {noun[:-1]}ies"
    return f"{number} {noun}s"


@dataclass(frozen=True, slots=True)
class Offset:
    """Hunk that applied exactly, but ``lines`` lines away from the position in its header."""

    path: str
    hunk: str
    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedPatch:
    """Patch of a stack as a commit on the worktree's branch.

    :ivar empty: True if the patch changes nothing.
    :ivar by_rule: True if the patch's diff doesn't apply and its rules made the change instead.
    """

    name: str
    commit: CommitId
    offsets: tuple[Offset, ...] = ()
    empty: bool = False
    by_rule: bool = False

    @property
    def outcome(self) -> str:
        """Outcome of applying the patch: ``clean``, ``offset`` or ``by rule``."""
        if self.by_rule:
            return "by rule"
        if self.offsets:
            return "offset"
        return "clean"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackResult:
    """State of one stack after it was applied."""

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
    """Request to run a proof on the tree of the commit ``tip``.

    The set's stacks are applied to the other upstreams.

    :ivar bare: True to run without the patches of the other upstreams.
    """

    set_name: str
    upstream: str
    patch: str
    files: tuple[str, ...]
    needs: tuple[str, ...]
    tip: CommitId
    bare: bool = False
