"""Changed upstream statements that mention a distinctive name from a patch's changed lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from patchq.drift._versions.comparison import Comparison, Interest, Interests, Touch, place_of
from patchq.drift._versions.statements import (
    Statement,
    cpp_statements,
    is_distinctive,
    names_in,
    on_lines,
    python_statements,
)
from patchq.drift._versions.tree import Tree
from patchq.drift.alarms import Kind
from patchq.drift.bodies import language_of
from patchq.names import show_path

#: Most files of the old version that contain a name for it to count as rare.
MOST_FILES = 4
#: Most files of the old version that contain a name for changed assignments to it to be reported.
MOST_SETTING = 40
#: Most changed files that contain a name for its statements to be compared. A new version may use it in many more.
MOST_NOW = 100
#: Most statements with a name to compare.
MOST_STATEMENTS = 12
#: Minimum length of a statement to search for copies of it.
SHORTEST_COPY = 24
#: Number of statements on each side of a changed place to search for in new functions.
NEIGHBOURS = 5
#: Minimum number of these statements in a new function, and minimum length of each statement.
LEAST_NEIGHBOURS = 3
SHORTEST_NEIGHBOUR = 20
#: Minimum number of a record's fields on a patch's changed lines for the record to be compared.
LEAST_FIELDS = 2
#: Minimum share of a record's fields on a patch's changed lines for the record to be compared.
LEAST_SHARE = 0.2


def _defines_types(content: bytes) -> bool:
    """Return whether a file may define a record or an enum."""
    return any(word in content for word in (b"dataclass", b"NamedTuple", b"Enum", b"Flag", b"struct ", b"enum "))


def _locals_of(statements: Iterable[Statement], scope: str) -> set[str]:
    """Return the local variables that the statements of a function mention."""
    found: set[str] = set()
    for statement in statements:
        if statement.scope == scope:
            found |= statement.local
    return found


def _places(touch: Touch) -> Iterator[list[Statement]]:
    """Yield, for each changed place, the unchanged statements around it in the same function."""
    statements: list[Statement] = []
    if touch.python:
        statements = python_statements(touch.python[1])
    elif touch.cpp:
        statements = sorted(cpp_statements(touch.cpp[1]), key=lambda statement: statement.line)
    lines = [(any(n in touch.lines for n in range(s.line, s.last + 1)), s) for s in statements]
    for number, (changed, statement) in enumerate(lines):
        if changed and (number == 0 or not lines[number - 1][0]):
            near = lines[max(0, number - NEIGHBOURS) : number + NEIGHBOURS + 1]
            yield [s for is_mine, s in near if not is_mine and s.scope == statement.scope]


def _changed_statements(touch: Touch) -> Iterator[tuple[int, Statement]]:
    """Yield ``(0, statement)`` for each statement on a removed line, ``(1, statement)`` for each on an added line."""
    for number, lines in enumerate((touch.removed, touch.lines)):
        statements: list[Statement] = []
        if touch.python:
            statements = python_statements(touch.python[number])
        elif touch.cpp:
            statements = cpp_statements(touch.cpp[number])
        for statement in on_lines(statements, lines):
            yield number, statement


class Mentions:
    """Finder of changed upstream statements that mention a name on a patch's changed lines."""

    def __init__(self, whole: Comparison) -> None:
        self.whole, self.old, self.new = whole, whole.old, whole.new
        self._seen: set[tuple[str, bytes, int]] = set()
        self._changed_bodies = {(a.patch, a.path, a.function) for a in whole.alarms if a.kind == Kind.BODY.value}

    def compare(self, touch: Touch) -> None:
        """Add alarms for upstream changes that share distinctive names or equal statements with a patch's changes."""
        if touch.mentions is None:
            touch.mentions = self._interests(touch)
        for word in sorted(touch.mentions.words, key=lambda word: (-len(word), word)):
            self._compare_word(touch, word, touch.mentions.words[word])
        for text, interest in sorted(touch.mentions.copies.items()):
            self._copies(touch, text, interest)
        for around in touch.mentions.around:
            self._neighbours(touch, around)
        self._fields(touch, touch.mentions.names)

    def _interests(self, touch: Touch) -> Interests:
        """Return the distinctive names on the changed lines, and the statements that the patch replaces."""
        found: dict[str, Interest] = {}
        copies: dict[str, Interest] = {}
        texts: list[set[str]] = [set(), set()]
        words: list[set[str]] = [set(), set()]
        set_words: set[str] = set()
        for number, statement in _changed_statements(touch):
            owner = statement.scope.rpartition(".")[2]
            mine = statement.words | ({owner} if is_distinctive(owner) else set())
            texts[number].add(statement.text)
            words[number] |= mine
            set_words |= statement.sets | {word for word in mine - statement.words if word[0].isupper()}
            for word in mine:
                found[word] = Interest(line=statement.line, scope=statement.scope)
            if number == 0 and statement.words and len(statement.text) >= SHORTEST_COPY:
                copies[statement.text] = Interest(line=statement.line, scope=statement.scope, words=statement.words)
        changed = set_words | (words[0] - words[1])
        interests = {}
        for word, interest in found.items():
            if self._is_rare(word, MOST_FILES):
                interests[word] = replace(interest, changes=word in changed or " " in word)
            elif "." not in word and self._is_rare(word, MOST_SETTING):
                interests[word] = replace(interest, only_set=True)
        return Interests(
            words=interests,
            copies={text: copies[text] for text in copies.keys() - texts[1]},
            names=frozenset(words[0] | words[1]),
            around=tuple(_places(touch)),
        )

    def _is_rare(self, word: str, most: int) -> bool:
        """Return whether at most ``most`` files of the old version contain a name."""
        if " " in word:
            return True
        known = self.old.word_files()
        parts = word.split(".")
        if any(known.get(part.encode(), 0) <= most for part in parts):
            return True
        return len(parts) > 1 and self.old.count_files(word.encode()) <= most

    def _copies(self, touch: Touch, text: str, interest: Interest) -> None:
        """Add an alarm if upstream has a new statement that is equal to a statement the patch replaces."""
        known = self.old.word_files()
        rarest = min(interest.words, key=lambda word: known.get(word.partition(" ")[0].encode(), 0))
        files = self._files(rarest)
        if len(files) > MOST_NOW:
            return
        sides: list[list[tuple[bytes, Statement]]] = [[], []]
        for number, tree in enumerate((self.old, self.new)):
            for pair in self._statements(tree, files, rarest):
                if pair[1].text == text:
                    sides[number].append(pair)
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
        place = (touch.patch, show_path(path), statement.scope)
        if key in self._seen or place in self._changed_bodies:
            return
        self._seen.add(key)
        self.whole.alarm(
            touch,
            Kind.MENTION,
            interest.line,
            interest.scope,
            callee=word,
            was=before.shown if before else "",
            now=statement.shown,
            at=f"{place_of(path, statement.line)} {statement.scope}",
        )

    def _fields(self, touch: Touch, names: frozenset[str]) -> None:
        """Add alarms for records and enums with new or lost fields, if the patch's changed lines name their fields."""
        counts: Counter[bytes] = Counter()
        for word in names:
            if word.isidentifier():
                counts.update(self._files(word))
        for path in sorted(path for path, count in counts.items() if count >= LEAST_FIELDS):
            target = self.whole.new_path(path)
            if not target or path not in self.old.entries or not _defines_types(self.old.content(path)):
                continue
            for name, was, now in self.whole.changed_fields(path, target):
                shared = names & set(was)
                key = (touch.patch, path, -1)
                if key in self._seen or len(shared) < max(LEAST_FIELDS, len(was) * LEAST_SHARE):
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
        # It takes long to parse the statements of a file, and in most files those with the word are the same.
        everywhere = self._files(word)
        if len(everywhere) > MOST_NOW and " " not in word:
            return
        files = list(filter(partial(self._differs, word), everywhere))
        if not files:
            return
        old, new = self._statements(self.old, files, word), self._statements(self.new, files, word)
        if interest.only_set:
            old, new = ([pair for pair in side if word in pair[1].sets] for side in (old, new))
        if max(len(old), len(new)) > MOST_STATEMENTS:
            return
        sides = [Counter(statement.text for _, statement in side) for side in (old, new)]
        come, gone = sides[1] - sides[0], sides[0] - sides[1]
        for path, statement in new:
            if statement.text not in come:
                continue
            before = next((s for _, s in old if s.text in gone and s.scope == statement.scope), None)
            matters = not interest.only_set and (interest.changes or word in statement.sets)
            if not (matters or (before and "." not in word)):
                continue
            if word in statement.sets or not interest.changes:
                there = self._statements(self.old, everywhere, word)
                if len(there) > MOST_STATEMENTS and not interest.only_set:
                    return
                if any(one.text == statement.text for _, one in there):
                    continue
            self._report(touch, word, interest, path, statement, before)
            return
        self._exchanged(touch, word, interest, old, new)

    def _differs(self, word: str, path: bytes) -> bool:
        """Return whether the passages of a file that contain a word differ between the versions."""
        names = list(map(str.encode, names_in(word)))
        sides = []
        for tree in (self.old, self.new):
            blob = tree.blob(path)
            found = tree.files.passages(tree.files.unrestored(blob), language_of(path)) if blob else []
            sides.append(sorted(passage for passage in found if all(name in passage for name in names)))
        return sides[0] != sides[1]

    def _exchanged(
        self,
        touch: Touch,
        word: str,
        interest: Interest,
        old: Sequence[tuple[bytes, Statement]],
        new: Sequence[tuple[bytes, Statement]],
    ) -> None:
        """Add an alarm if a statement now uses a different local variable of the same function."""
        for path, statement in new:
            before = [s for p, s in old if p == path and s.scope == statement.scope]
            was = next((s for s in before if s.text == statement.text), None)
            if was is None or any(s.raw == statement.raw for s in before) or was.local == statement.local:
                continue
            sides = [self.whole.statements(tree, path) for tree in (self.old, self.new)]
            known = [_locals_of(statements, statement.scope) for statements in sides]
            if statement.local | was.local <= known[0] & known[1]:
                self._report(touch, word, interest, path, statement, was)
                return

    def _neighbours(self, touch: Touch, around: Sequence[Statement]) -> None:
        """Add an alarm if a new function contains the statements around a place that the patch changes."""
        texts = {s.text: s for s in around if len(s.text) >= SHORTEST_NEIGHBOUR}
        words = [word for s in texts.values() for word in s.words if " " not in word and "." not in word]
        if len(texts) < LEAST_NEIGHBOURS or not words:
            return
        known = self.old.word_files()
        rarest = min(words, key=lambda word: (known.get(word.encode(), 0), word))
        counts: list[Counter[str]] = [Counter(), Counter()]
        scopes: list[dict[tuple[bytes, str], set[str]]] = [{}, {}]
        lines: dict[tuple[bytes, str], Statement] = {}
        files = self._files(rarest)
        if len(files) > MOST_NOW:
            return
        # A statement contains its words: most files that contain the rarest word lack those of the other statements.
        there = Counter(path for s in texts.values() for path in self._all_files(s.words))
        for path in files:
            if there[path] < LEAST_NEIGHBOURS:
                continue
            for number, tree in enumerate((self.old, self.new)):
                for statement in self.whole.statements(tree, path):
                    if statement.text in texts:
                        counts[number][statement.text] += 1
                        scopes[number].setdefault((path, statement.scope), set()).add(statement.text)
                        lines.setdefault((path, statement.scope), statement)
        more = {text for text in texts if counts[1][text] > counts[0][text]}
        for place, mine in sorted(scopes[1].items()):
            if place not in scopes[0] and len(mine & more) >= LEAST_NEIGHBOURS:
                first = around[0]
                interest = Interest(line=first.line, scope=first.scope)
                self._report(touch, rarest, interest, place[0], lines[place], None)
                return

    def _files(self, word: str) -> list[bytes]:
        """Return the changed files that contain all names in a word, a chain ``a.b`` or a message."""
        found: dict[bytes, None] | None = None
        for name in names_in(word):
            mine: dict[bytes, None] = {}
            for language in ("python", "c++"):
                for spelled in (name, f"D{name}"):  # -DNAME defines a macro
                    mine.update(dict.fromkeys(self.whole.files_with(spelled.encode(), language)))
            found = mine if found is None else dict.fromkeys(filter(mine.__contains__, found))
        return list(filter(self.whole.counted, found or ()))

    def _all_files(self, words: Iterable[str]) -> set[bytes]:
        """Return the changed files that contain all of the words."""
        sides = [set(self._files(word)) for word in words]
        return set.intersection(*sides) if sides else set()

    def _statements(self, tree: Tree, files: Iterable[bytes], word: str) -> list[tuple[bytes, Statement]]:
        found = []
        for path in files:
            for statement in self.whole.with_word(tree, path, word):
                found.append((path, statement))
        return found
