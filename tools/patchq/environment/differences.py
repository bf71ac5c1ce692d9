"""The ways in which an environment or an image is not what was built. ``patchq.cli.differences`` renders them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from patchq.names import show_path


class Level(str, Enum):
    """``PROBLEM``: the build that was asked for may not be what runs. ``NOTE``: nothing is wrong."""

    PROBLEM = "problem"
    NOTE = "note"


class Code(str, Enum):
    """One kind of difference. docs/reference/json.md describes each."""

    # A package: which one an import finds.
    NOT_INSTALLED = "not-installed"
    NOT_PATCHED = "not-patched"
    NO_PATCHES = "no-patches"
    COPIES = "copies"
    OTHER_STACK = "other-stack"
    DIFFERENT_STACKS = "different-stacks"
    MIXED_INSTALLS = "mixed-installs"
    INSTALLED_TWICE = "installed-twice"
    EDITABLE = "editable"
    REDIRECTED = "redirected"
    NAMESPACE = "namespace"
    SIBLING = "sibling"
    # Its metadata and files.
    METADATA = "metadata"
    RECORD_MISSING = "record-missing"
    RECORD_MALFORMED = "record-malformed"
    RECORD_OUTSIDE = "record-outside"
    RECORD_UNHASHED = "record-unhashed"
    CHANGED = "changed"
    MISSING = "missing"
    ADDED = "added"
    LINK = "link"
    SPECIAL = "special"
    UNREADABLE = "unreadable"
    MANIFEST_MALFORMED = "manifest-malformed"
    MANIFEST_DISAGREES = "manifest-disagrees"
    WHEEL_DIFFERS = "wheel-differs"
    WHEEL_CHANGED = "wheel-changed"
    WHEEL_UNKNOWN = "wheel-unknown"
    WHEEL_UNREADABLE = "wheel-unreadable"
    SCRIPT = "script"
    CACHE_FORGED = "cache-forged"
    CACHE_UNCHECKED = "cache-unchecked"
    CACHE_UNREADABLE = "cache-unreadable"
    CACHE_STALE = "cache-stale"
    CACHE_UNJUDGED = "cache-unjudged"
    # What else the interpreter imports and runs.
    STARTUP_CODE = "startup-code"
    STARTUP_PATH = "startup-path"
    FINDERS = "finders"
    PRELOADED = "preloaded"
    SHADOWED = "shadowed"
    STDLIB = "stdlib"
    PLUGIN = "plugin"
    INTERPRETER = "interpreter"
    VARIABLE = "variable"
    LIBRARY = "library"
    # An image's own.
    LABEL = "label"
    LABELS_UNJUDGED = "labels-unjudged"
    ATTESTATION_MISSING = "attestation-missing"
    ATTESTATION_DIFFERS = "attestation-differs"
    ATTESTATION_OTHER = "attestation-other"
    ATTESTATION_MALFORMED = "attestation-malformed"
    SIGNATURE = "signature"
    MATERIALS_MISSING = "materials-missing"
    MATERIALS_DIFFER = "materials-differ"
    SITE_LINK = "site-link"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference.

    :ivar paths: the files that it is about, made printable.
    :ivar words: what its sentence names besides.
    """

    code: Code
    level: Level
    paths: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


@dataclass
class Findings:
    """The differences found so far.

    :ivar allow: names of files, distributions and variables that the lock allows; what is allowed becomes a note.
    :ivar groups: groups of entry points that the lock adds to those that the packages load.
    """

    allow: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    found: list[Difference] = field(default_factory=list)

    def add(self, code: Code, paths: Iterable[str] = (), *words: str, level: Level = Level.PROBLEM) -> None:
        one = Difference(code, level, tuple(map(printable, paths)), tuple(map(printable, words)))
        if one not in self.found:
            self.found.append(one)

    def note(self, code: Code, paths: Iterable[str] = (), *words: str) -> None:
        self.add(code, paths, *words, level=Level.NOTE)

    def add_any(self, code: Code, paths: Iterable[str], *words: str, level: Level = Level.PROBLEM) -> None:
        """Add a difference if it is about any path."""
        some = sorted(set(paths))
        if some:
            self.add(code, some, *words, level=level)

    def judge(self, name: str, code: Code, paths: Iterable[str] = (), *words: str) -> None:
        """Add a difference: a note if the lock allows ``name``, else a problem."""
        allowed = name in self.allow
        self.add(code, paths, *words, level=Level.NOTE if allowed else Level.PROBLEM)

    @property
    def problems(self) -> list[Difference]:
        return [one for one in self.found if one.level is Level.PROBLEM]


def printable(text: str) -> str:
    """Return text of an environment for people: paths that are no UTF-8, and control characters, escaped."""
    try:
        return show_path(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return show_path(text.encode("utf-8", "surrogatepass"))
