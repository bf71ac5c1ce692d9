"""Differences between an environment or image and the build. ``patchq.cli.differences`` converts them to text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from patchq.names import show_path


class Level(str, Enum):
    """Severity of a difference. A ``PROBLEM`` means that the environment may run something other than the build."""

    PROBLEM = "problem"
    NOTE = "note"


class Code(str, Enum):
    """Kind of a difference. docs/reference/json.md describes each kind."""

    # Which package an import finds.
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
    # Thin wheels.
    THIN = "thin"
    THIN_IDLE = "thin-idle"
    THIN_OTHER_RELEASE = "thin-other-release"
    # Metadata and files of the package.
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
    # Other code that the interpreter imports and runs.
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
    # Images.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Difference between an environment or image and the build.

    :ivar paths: Affected files, escaped for printing.
    :ivar words: Other words to insert into the message.
    """

    code: Code
    level: Level
    paths: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


@dataclass
class Findings:
    """Differences that were found so far.

    :ivar allow: Names of files, distributions and variables that the lock allows. A difference that concerns an allowed
        name is only a note.
    :ivar groups: Entry point groups that the packages load, as listed in the lock.
    """

    allow: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    found: list[Difference] = field(default_factory=list)

    def add(self, code: Code, paths: Iterable[str] = (), *words: str, level: Level = Level.PROBLEM) -> None:
        one = Difference(
            code=code,
            level=level,
            paths=tuple(map(printable, paths)),
            words=tuple(map(printable, words)),
        )
        if one not in self.found:
            self.found.append(one)

    def note(self, code: Code, paths: Iterable[str] = (), *words: str) -> None:
        self.add(code, paths, *words, level=Level.NOTE)

    def add_any(self, code: Code, paths: Iterable[str], *words: str, level: Level = Level.PROBLEM) -> None:
        """Add a difference, unless ``paths`` is empty."""
        unique = sorted(set(paths))
        if unique:
            self.add(code, unique, *words, level=level)

    def judge(self, name: str, code: Code, paths: Iterable[str] = (), *words: str) -> None:
        """Add a difference. It is a note if the lock allows ``name``; otherwise it is a problem."""
        if name in self.allow:
            level = Level.NOTE
        else:
            level = Level.PROBLEM
        self.add(code, paths, *words, level=level)

    @property
    def problems(self) -> list[Difference]:
        return [one for one in self.found if one.level is Level.PROBLEM]


def printable(text: str) -> str:
    """Escape control characters and bytes that aren't UTF-8 in a text from an environment."""
    try:
        return show_path(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return show_path(text.encode("utf-8", "surrogatepass"))
