"""Statements of upstream that mention a distinctive name of a patch's changed lines, and changed."""

from __future__ import annotations

#: Greatest number of files of the old version that have a distinctive name.
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from patchq.drift._comparison import Comparison, Touch, place_of
from patchq.drift._statements import Statement, cpp_statements, is_distinctive, on_lines, python_statements
from patchq.drift._tree import Tree
from patchq.drift.alarms import Kind
from patchq.names import show_path

MOST_FILES = 4
#: Greatest number of statements with a distinctive name.
MOST_STATEMENTS = 12
#: Least length of a statement whose copies are searched.
SHORTEST_COPY = 24
#: Least number of fields on changed lines by which a record is recognized.
LEAST_FIELDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """Distinctive name on a changed line of a patch.

    :ivar changes: the patch assigns, defines or removes it, so that its other readers matter, too.
    """

    line: int
    scope: str
    changes: bool
    words: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Interests:
    """What a patch's changed lines of a file mention.

    :ivar words: distinctive names.
    :ivar copies: statements that the patch replaces, by their text.
    :ivar names: all names.
    """

    words: dict[str, Interest]
    copies: dict[str, Interest]
    names: frozenset[str]


def _changed_statements(touch: Touch) -> Iterator[tuple[bool, list[Statement]]]:
    """Yield the statements on the removed lines and on the added lines; True for the removed ones."""
    if touch.python:
        yield True, on_lines(python_statements(touch.python[0]), touch.removed)
        yield False, on_lines(python_statements(touch.python[1]), touch.lines)
    elif touch.cpp:
        yield True, on_lines(cpp_statements(touch.cpp[0]), touch.removed)
        yield False, on_lines(cpp_statements(touch.cpp[1]), touch.lines)


class Mentions:
    """Comparison of the statements that mention what a patch's changed lines mention."""

    def __init__(self, whole: Comparison) -> None:
        self.whole, self.old, self.new = whole, whole.old, whole.new
        self._seen: set[tuple[str, bytes, int]] = set()

    def compare(self, touch: Touch) -> None:
        """Report the changed statements that mention a distinctive name of a patch's changed lines."""
        if touch.mentions is None:
            touch.mentions = self._interests(touch)
        for word in sorted(touch.mentions.words, key=lambda word: (-len(word), word)):
            self._compare_word(touch, word, touch.mentions.words[word])
        for text, interest in sorted(touch.mentions.copies.items()):
            self._copies(touch, text, interest)
        self._fields(touch, touch.mentions.names)

    def _interests(self, touch: Touch) -> Interests:
        """Return the distinctive names on the changed lines, and the statements that the patch replaces."""
        found: dict[str, Interest] = {}
        copies: dict[str, Interest] = {}
        kept: set[str] = set()
        words: set[str] = set()
        for removed, statements in _changed_statements(touch):
            for statement in statements:
                owner = statement.scope.rpartition(".")[2]
                for word in (*statement.words, *([owner] if is_distinctive(owner) else ())):
                    changes = removed or word in statement.sets or " " in word
                    changes = changes or (word in found and found[word].changes)
                    found[word] = Interest(line=statement.line, scope=statement.scope, changes=changes)
                words |= statement.words
                if removed and statement.words and len(statement.text) >= SHORTEST_COPY:
                    copies[statement.text] = Interest(
                        line=statement.line, scope=statement.scope, changes=True, words=statement.words
                    )
                elif not removed:
                    kept.add(statement.text)
        rare = {word: interest for word, interest in found.items() if self._is_rare(word)}
        return Interests(
            words=rare, copies={text: each for text, each in copies.items() if text not in kept}, names=frozenset(words)
        )

    def _is_rare(self, word: str) -> bool:
        """Return whether few files of the old version have a name."""
        if " " in word:
            return True
        known = self.old.word_files()
        parts = word.split(".")
        if any(known.get(part.encode(), 0) <= MOST_FILES for part in parts):
            return True
        return len(parts) > 1 and self.old.count_files(word.encode()) <= MOST_FILES

    def _copies(self, touch: Touch, text: str, interest: Interest) -> None:
        """Report new statements that are equal to one that the patch replaces."""
        known = self.old.word_files()
        rarest = min(interest.words, key=lambda word: known.get(word.partition(" ")[0].encode(), 0))
        files = self._files(rarest)
        sides = []
        for tree in (self.old, self.new):
            sides.append([pair for pair in self._statements(tree, files, rarest) if pair[1].text == text])
        if len(sides[1]) <= len(sides[0]):
            return
        before = {(path, statement.scope) for path, statement in sides[0]}
        for path, statement in sides[1]:
            if (path, statement.scope) not in before:
                self._report(touch, rarest, interest, path, statement, None)
                return

    def _report(
        self,
        touch: Touch,
        word: str,
        interest: Interest,
        path: bytes,
        statement: Statement,
        before: Statement | None,
    ) -> None:
        key = (touch.patch, path, statement.line)
        if key in self._seen:
            return
        self._seen.add(key)
        self.whole.alarm(
            touch,
            Kind.MENTION,
            interest.line,
            interest.scope,
            callee=word,
            was=before.text if before else "",
            now=statement.text,
            at=f"{place_of(path, statement.line)} {statement.scope}",
        )

    def _fields(self, touch: Touch, names: frozenset[str]) -> None:
        """Report new and lost fields of records and enums that the changed lines list."""
        for path in sorted(self.whole.changed):
            target = self.whole.new_path(path)
            if not target or not self.whole.counted(path) or path not in self.old.entries:
                continue
            for name, was, now in self.whole.changed_fields(path, target):
                shared = names & set(was)
                simple = name.rpartition(".")[2]
                key = (touch.patch, path, -1)
                if key in self._seen or (simple not in names and len(shared) < LEAST_FIELDS):
                    continue
                self._seen.add(key)
                lost = ", ".join(field for field in was if field not in now)
                come = ", ".join(field for field in now if field not in was)
                self.whole.alarm(
                    touch,
                    Kind.FIELDS,
                    min(touch.lines, default=0),
                    "",
                    callee=name,
                    was=lost or ("" if come else ", ".join(was)),
                    now=come or ("" if lost else ", ".join(now)),
                    at=show_path(target),
                )

    def _compare_word(self, touch: Touch, word: str, interest: Interest) -> None:
        files = self._files(word)
        if not files:
            return
        old, new = self._statements(self.old, files, word), self._statements(self.new, files, word)
        if max(len(old), len(new)) > MOST_STATEMENTS:
            return
        sides = [Counter(statement.text for _, statement in side) for side in (old, new)]
        come, gone = sides[1] - sides[0], sides[0] - sides[1]
        for path, statement in new:
            if statement.text not in come:
                continue
            before = next((s for _, s in old if s.text in gone and s.scope == statement.scope), None)
            if not interest.changes and word not in statement.sets and before is None:
                continue
            self._report(touch, word, interest, path, statement, before)
            return

    def _files(self, word: str) -> list[bytes]:
        first = re.split(r"[ .]", word)[-1 if "." in word and " " not in word else 0]
        found = []
        for language in ("python", "c++"):
            found += [p for p in self.whole.files_with(first.encode(), language) if self.whole.counted(p)]
        return found

    def _statements(self, tree: Tree, files: Iterable[bytes], word: str) -> list[tuple[bytes, Statement]]:
        found = []
        for path in files:
            for statement in self.whole.statements(tree, path):
                if word in statement.words:
                    found.append((path, statement))
        return found
