"""State of the comparison between two versions of an upstream, for Python and C++ alike."""

from __future__ import annotations

import ast
import fnmatch
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from patchq.drift._cpp.facts import CppFile
from patchq.drift._python.facts import PythonFile, fields_of
from patchq.drift._versions.statements import Statement, cpp_statements, names_in, on_lines, python_statements
from patchq.drift._versions.tree import Found, Tree
from patchq.drift.alarms import Alarm, Kind, NotCompared, Unseen
from patchq.drift.bodies import language_of
from patchq.names import BlobId, show_path

#: Most files to search for the definition of a called name, if its class or file is unknown.
MOST_DEFINERS = 12
#: Types of nodes that declare a member of a C++ class or enum.
_FIELDS = ("field_declaration", "enumerator")
#: Most changed files with a function's name to search for its callers.
MOST_CALLING = 100
#: Minimum share of a touched function's lines that a copy contains.
COPIED = 0.6
#: Minimum similarity of a copy to a touched function, by tokens.
ALIKE = 0.75
#: Minimum number of lines of a function to search for copies of it.
LEAST_LINES = 4
#: Minimum length of a C++ name to resolve it to its only definition, even if no include leads there.
LEAST_ALONE = 6
#: Minimum length of a function's name to search for its callers. Shorter names are too common.
SHORTEST_NAME = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """Distinctive name on a changed line of a patch.

    :ivar changes: True if the patch assigns, defines or removes the name. Other code that reads the name then matters.
    :ivar only_set: True if many files mention the name. Then only changed assignments to the name are reported.
    """

    line: int
    scope: str
    changes: bool = False
    only_set: bool = False
    words: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Interests:
    """Names and statements on a patch's changed lines of a file.

    :ivar words: distinctive names.
    :ivar copies: statements that the patch replaces, by their text. New copies of these statements are reported.
    :ivar names: all names on the changed lines.
    """

    words: dict[str, Interest]
    copies: dict[str, Interest]
    names: frozenset[str]
    around: tuple[list[Statement], ...]


@dataclass(slots=True, kw_only=True)
class Touch:
    """Change of one file by one patch.

    :ivar removed: numbers of the removed lines in the file before the patch.
    :ivar lines: numbers of the added lines in the patched file.
    :ivar functions: functions and methods of the old base that the patch changes.
    :ivar added: definitions that the patch adds.
    """

    patch: str
    path: bytes
    before: bytes
    after: bytes
    removed: set[int] = field(default_factory=set)
    lines: set[int] = field(default_factory=set)
    functions: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    python: tuple[PythonFile, PythonFile] | None = None
    cpp: tuple[CppFile, CppFile] | None = None
    uses: list[tuple[Use, Found | None]] | None = None
    keys: list[ast.Constant] | None = None
    mentions: Interests | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """Expression on an added line. If the expression is called, ``call`` is the call."""

    node: ast.expr
    scope: str
    call: ast.Call | None = None


class Comparison:
    """Comparison of two trees for all patches of a stack."""

    def __init__(
        self,
        upstream: str,
        touches: Sequence[Touch],
        old: Tree,
        new: Tree,
        *,
        moved: Callable[[bytes], bytes | None],
        ignored: Sequence[str],
        kept: dict[str, Any] | None = None,
    ) -> None:
        self.upstream, self.touches, self.old, self.new = upstream, touches, old, new
        self.ignored = ignored
        self.kept = {} if kept is None else kept
        self.alarms: list[Alarm] = []
        self.unseen: list[NotCompared] = []
        self._removed: set[tuple[str, bytes, str, str]] = set()
        self._fields: dict[bytes, list[tuple[str, list[str], list[str]]]] = {}
        self._moved, self._moves = moved, dict[bytes, bytes | None]()
        self._by_language: dict[str, list[tuple[bytes, BlobId]]] = {}
        self._with_word: dict[str, dict[bytes, list[bytes]]] = {}
        paths = {**dict.fromkeys(old.entries), **dict.fromkeys(new.entries)}
        self.changed = {p for p in paths if old.blob(p) != new.blob(p)}

    def statements(self, tree: Tree, path: bytes) -> list[Statement]:
        """Return the statements of a file in the tree of one version."""
        blob = tree.blob(path)
        if blob is None:
            return []
        if blob not in self.old.files.statements:
            python, cpp = tree.python(path), tree.cpp(path)
            found = python_statements(python) if python else cpp_statements(cpp) if cpp else []
            self.old.files.statements[blob] = found
        return self.old.files.statements[blob]

    def with_word(self, tree: Tree, path: bytes, word: str) -> list[Statement]:
        """Return the statements of a file that contain a word."""
        name = max(names_in(word), key=len, default="").encode()
        lines = set()
        for number, line in enumerate(tree.content(path).split(b"\n"), 1):
            if name in line:
                lines.add(number)
        # To look for the words of a statement takes longer than to look for its lines.
        return [statement for statement in on_lines(self.statements(tree, path), lines) if word in statement.words]

    def changed_fields(self, path: bytes, target: bytes) -> list[tuple[str, list[str], list[str]]]:
        """Return the changed classes and enums of a file: name, old fields and new fields of each."""
        if path not in self._fields:
            self._fields[path] = list(_changed_fields(self.old, path, self.new, target))
        return self._fields[path]

    def new_path(self, path: bytes) -> bytes | None:
        """Return the path of an old file in the new version; None if the new version lacks the file."""
        if path in self.new.entries:
            return path
        if path not in self._moves:
            self._moves[path] = self._moved(path)
        return self._moves[path]

    def not_compared(self, touch: Touch, reason: Unseen, line: int = 0, text: str = "") -> None:
        self.unseen.append(
            NotCompared(patch=touch.patch, path=show_path(touch.path), reason=reason.value, line=line, text=text)
        )

    def alarm(
        self,
        touch: Touch,
        kind: Kind,
        line: int,
        function: str,
        *,
        callee: str = "",
        was: str = "",
        now: str = "",
        at: str = "",
        call: str = "",
    ) -> None:
        key = (touch.patch, touch.path, function, callee)
        if kind is Kind.REMOVED and key in self._removed:
            return
        if kind is Kind.REMOVED:
            self._removed.add(key)
        self.alarms.append(
            Alarm(
                kind=kind.value,
                upstream=self.upstream,
                path=show_path(touch.path),
                line=line,
                function=function or "<module>",
                callee=callee,
                patch=touch.patch,
                call=call,
                was=was,
                now=now,
                at=at,
            )
        )

    def callers(self, touch: Touch, line: int, name: str, places: Sequence[tuple[str, str]]) -> None:
        """Add one alarm for all new callers of a function. The alarm's place is the first caller."""
        if places:
            now = ", ".join(dict.fromkeys(scope for scope, _ in places))
            self.alarm(touch, Kind.CALLER, line, name, now=now, at=f"{places[0][1]} {places[0][0]}")

    def includes_added(self, touch: Touch) -> bool:
        """Return whether a patch adds an ``#include`` to a C++ file."""
        assert touch.cpp is not None
        return not set(touch.cpp[1].includes) <= set(touch.cpp[0].includes)

    def counted(self, path: bytes) -> bool:
        """Return whether to report callers in a file: False if a pattern in ``ignored`` matches the file's path."""
        text = path.decode("utf-8", "replace")
        return not any(fnmatch.fnmatchcase(text, pattern) for pattern in self.ignored)

    def files_like(self, marks: set[bytes], language: str) -> Iterator[bytes]:
        """Yield the changed files of the new version that contain most of the lines in ``marks``."""
        if language not in self._by_language:
            paths = [p for p in sorted(self.changed) if language_of(p) == language and self.counted(p)]
            there = []
            for path in paths:
                if blob := self.new.blob(path):
                    there.append((path, self.old.files.unrestored(blob)))
            self.old.files.bring(blob for _, blob in there)
            self._by_language[language] = there
        for path, blob in self._by_language[language]:
            if len(self.old.files.marks(blob) & marks) >= len(marks) * COPIED:
                yield path

    def files_with(self, word: bytes, language: str) -> list[bytes]:
        """Return the changed files that contain a word in the old or in the new version."""
        if language not in self._with_word:
            found: dict[bytes, list[bytes]] = {}
            paths = [p for p in sorted(self.changed) if language_of(p) == language]
            blobs = []
            for path in paths:
                blobs.append([self.old.files.unrestored(b) for b in (self.old.blob(path), self.new.blob(path)) if b])
            self.old.files.bring(itertools.chain.from_iterable(blobs))
            for path, pair in zip(paths, blobs, strict=True):
                there: set[bytes] = set()
                for blob in pair:
                    there |= self.old.files.words(blob)
                for one in there:
                    found.setdefault(one, []).append(path)
            self._with_word[language] = found
        return self._with_word[language].get(word, [])


def place_of(path: bytes, line: int) -> str:
    return f"{show_path(path)}:{line}"


@dataclass(frozen=True, slots=True)
class Reporter:
    """Callable that adds alarms about the changes of one definition."""

    whole: Comparison
    touch: Touch
    line: int
    scope: str
    callee: str
    at: str

    def __call__(self, kind: Kind, was: str, now: str, call: str = "") -> None:
        self.whole.alarm(
            self.touch, kind, self.line, self.scope, callee=self.callee, was=was, now=now, at=self.at, call=call
        )


def has_most(marks: set[bytes], lines: Iterable[bytes]) -> bool:
    return len(marks & {line.strip() for line in lines}) >= len(marks) * COPIED


def _changed_fields(old: Tree, path: bytes, new: Tree, target: bytes) -> Iterator[tuple[str, list[str], list[str]]]:
    sides = [_fields(tree, one) for tree, one in ((old, path), (new, target))]
    for name in sides[0].keys() & sides[1].keys():
        if sides[0][name] != sides[1][name]:
            yield name, sides[0][name], sides[1][name]


def _fields(tree: Tree, path: bytes) -> dict[str, list[str]]:
    """Return the fields of each class and the members of each enum in a file, by the name of the class or enum."""
    found: dict[str, list[str]] = {}
    python, cpp = tree.python(path), tree.cpp(path)
    for name, facts in python.facts.items() if python else ():
        if facts[-1].kind == "class" and (fields := fields_of(python, name)):
            found[name] = fields
    for name, facts in cpp.facts.items() if cpp else ():
        owner, _, field_name = name.rpartition("::")
        if (
            owner
            and facts[0].kind == "value"
            and cpp
            and cpp.nodes[name][0].type in ("field_declaration", "enumerator")
        ):
            found.setdefault(owner, []).append(field_name)
    return found
