"""Upstream changes that a patch may depend on, found by names that the change and the patch have in common.

Each upstream definition whose effect differs gets a score for each patch. A common name scores higher if fewer files
contain the name. Names on the patch's changed lines score most, names elsewhere in the functions that the patch changes
score less, and names in functions that the changed lines name score least.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import log
from typing import Any

from patchq.drift._cpp.facts import CppFile
from patchq.drift._python.shape import FunctionNode, walk
from patchq.drift._versions.comparison import Comparison, Touch, place_of
from patchq.drift._versions.tree import Found
from patchq.drift._versions.units import WORDS, ChangedUnit, Lines, cpp_units, python_units, words_of
from patchq.drift.alarms import Reached
from patchq.drift.bodies import language_of, lines_of, reads_cpp
from patchq.names import show_path

#: Weights of a patch's words: on changed lines, in the functions around them, and in functions that they name.
_CHANGED, _AROUND, _CALLED = 1.0, 0.45, 0.3
#: Weight of the name of a function that the patch changes, if the changed definition mentions it.
_CALLER = 0.6
#: Weight of a changed definition's own name, if it occurs anywhere in the patch.
_NAMED = 0.4
#: Score of a changed definition in a file of the patch, if a changed line of the patch names the definition.
_NAMED_HERE = 0.5
#: Weight of a name on the unchanged lines of upstream's definition, and minimum of this weight times its rarity.
_UNCHANGED, _LEAST_RARITY = 0.3, 0.05
#: Score of a definition in a file, a class or a function that the patch changes.
_SAME_FILE, _SAME_CLASS, _SAME_FUNCTION = 0.1, 0.3, 1.0
#: Score of a definition that the changed lines use, and of another member of its class.
_USED, _USED_CLASS = 1.0, 0.5
#: Score of a definition that another line of a function that the patch changes uses.
_USED_AROUND = 0.4
#: Score of a definition in a class whose own statements the patch changes.
_SAME_BODY = 0.5
#: Number of lines to include before and after a changed line outside of functions.
_NEIGHBOURS = 6
#: Score of a statement outside of functions, in a file where the patch also changes such a statement.
_SAME_MODULE = 0.35
#: Most characters of a line to show.
_LONGEST = 100
#: Minimum score of a change that may concern a patch.
LEAST = 0.4
#: Minimum score of a definition that upstream adds.
_LEAST_ADDED = 1.0
#: Number of common names to add up, the highest scores first.
_MOST_NAMES = 4
#: Word that may be the name of a definition.
_NAMES = re.compile(r"[A-Za-z_]\w{2,}(?=\s*\()|(?<=class )\w{3,}|(?<=struct )\w{3,}|(?<=define )\w{3,}")
#: Most files that may define a Python name for the definition's words to count.
_MOST_HOMES = 3
#: Most files that contain a C++ name for the definition's words to count.
_MOST_WITH = 8


@dataclass(slots=True)
class _Profile:
    """Names in a patch, to compare with upstream's changes.

    :ivar weights: weight of each word, and the touch in which the word occurs.
    :ivar defined: names of the functions and classes that the patch changes.
    :ivar used: definitions that the changed lines use, if their names can be resolved.
    :ivar used_around: definitions that the changed functions use on any of their lines.
    :ivar bodies: file and name of each class in which the patch changes statements outside of methods.
    :ivar places: names of touched functions and classes by file. The name is empty for statements outside of functions.
    """

    patch: str
    weights: dict[str, tuple[float, Touch]] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)
    used: set[tuple[bytes, str]] = field(default_factory=set)
    used_around: set[tuple[bytes, str]] = field(default_factory=set)
    bodies: set[tuple[bytes, str]] = field(default_factory=set)
    places: dict[bytes, set[str]] = field(default_factory=dict)
    touches: dict[bytes, Touch] = field(default_factory=dict)

    def files(self) -> Iterator[bytes]:
        """Yield the files that the patch changes, or from which it uses a definition."""
        yield from self.places
        for path, _ in self.used | self.used_around | self.bodies:
            yield path

    def add(self, words: Iterable[str], weight: float, touch: Touch) -> None:
        """Add words with a weight. A word that already has a greater weight keeps it."""
        for word in words:
            if word not in self.weights or self.weights[word][0] < weight:
                self.weights[word] = weight, touch


class Reach:
    """Search for upstream changes that have names in common with a stack's patches."""

    def __init__(self, whole: Comparison) -> None:
        self.whole, self.old, self.new = whole, whole.old, whole.new
        self._files = max(2, sum(1 for path in self.old.entries if language_of(path)))
        self._weights: dict[str, float] = {}
        self._included: dict[bytes, list[bytes]] = {}

    def found(self) -> list[Reached]:
        """Return the changes that may concern a patch and have no alarm yet, the nearest first."""
        if not self.whole.kept:
            self.whole.kept.update({p.patch: p for p in self._profiles()})
        profiles: Mapping[str, _Profile] = self.whole.kept
        index: dict[str, list[_Profile]] = {}
        defined: dict[str, list[_Profile]] = {}
        for profile in profiles.values():
            for word in profile.weights:
                index.setdefault(word, []).append(profile)
            for word in profile.defined:
                defined.setdefault(word, []).append(profile)
        near = partial(self._near, index=index, defined=defined, profiles=profiles.values())
        files = {path for profile in profiles.values() for path in profile.files()}
        alarmed = {(alarm.patch, place) for alarm in self.whole.alarms if (place := _place(alarm.at))}
        found = []
        for unit in self._units(files, near):
            path = show_path(unit.path)
            for score, profile, word in near(unit) if not unit.reworded else ():
                if not any((profile.patch, (path, line)) in alarmed for line in range(unit.first, unit.last + 1)):
                    found.append(self._reached(unit, profile, word, score))
        return sorted(found, key=lambda reached: -reached.score)

    def _near(
        self,
        unit: ChangedUnit,
        index: Mapping[str, Sequence[_Profile]],
        defined: Mapping[str, Sequence[_Profile]],
        profiles: Iterable[_Profile],
        lacking: float = 0.0,
    ) -> Iterator[tuple[float, _Profile, str]]:
        """Yield each patch that a change may concern: its score, its profile and the common name that scores most.

        :param lacking: part of the score that isn't known yet.
        """
        scores: dict[str, list[tuple[float, str]]] = {}
        for word in unit.words:
            rarity = self._rarity(word)
            for profile in index.get(word, ()):
                if unit.added and profile.weights[word][0] < _CHANGED:
                    continue
                if word.startswith("~") and not _crosses(unit, profile.weights[word][1]):
                    continue
                scores.setdefault(profile.patch, []).append((profile.weights[word][0] * rarity, word))
        for word in unit.around - unit.words:
            rarity = self._rarity(word) * _UNCHANGED
            for profile in index.get(word, ()) if rarity > _LEAST_RARITY else ():
                if word.startswith("~") and not _crosses(unit, profile.weights[word][1]):
                    continue
                scores.setdefault(profile.patch, []).append((profile.weights[word][0] * rarity, word))
        for word in unit.around:
            for profile in defined.get(word, ()):
                scores.setdefault(profile.patch, []).append((_CALLER * self._rarity(word), word))
        least = _LEAST_ADDED if unit.added else LEAST
        for profile in profiles:
            shared = sorted(scores.get(profile.patch, ()), reverse=True)
            score = self._score(unit, profile, shared)
            if score >= least - lacking:
                yield score, profile, shared[0][1] if shared else unit.name

    def _score(self, unit: ChangedUnit, profile: _Profile, shared: Sequence[tuple[float, str]]) -> float:
        """Return the score of a change for a patch. A higher score means a closer relation.

        :param shared: score and text of each common name, the highest score first.
        """
        best: dict[str, float] = {}
        for score, word in shared:
            best.setdefault(word, score)
        total = sum(list(best.values())[:_MOST_NAMES])
        if unit.added:
            overrides = any(name in profile.places.get(path, ()) for path, name in self._overridden(unit))
            return total + _SAME_FUNCTION * overrides
        total += _place_score(unit, profile)
        if unit.simple in profile.weights:
            total += _NAMED * self._rarity(unit.simple)
            if unit.old in profile.places and profile.weights[unit.simple][0] >= _CHANGED:
                total += _NAMED_HERE
        return total

    def _overridden(self, unit: ChangedUnit) -> Iterator[tuple[bytes, str]]:
        """Yield the file and name of each member of a base class that a new Python method overrides."""
        owner, _, method = unit.name.rpartition(".")
        if not owner or language_of(unit.path) != "python":
            return
        for base in self.new.ancestors(Found(unit.path, owner)):
            yield base.path, f"{base.name}.{method}"

    def _rarity(self, word: str) -> float:
        """Return the weight of a name: 1 if one or two files contain it, close to 0 if many do, 0 if none does."""
        if word not in self._weights:
            count = self.old.word_files().get(word.encode(), 0)
            self._weights[word] = (1 - log(max(1.0, count / 2)) / log(self._files)) ** 3 if count else 0.0
        return self._weights[word]

    def _reached(self, unit: ChangedUnit, profile: _Profile, word: str, score: float) -> Reached:
        touch = profile.weights[word][1] if word in profile.weights else next(iter(profile.touches.values()))
        touch = profile.touches.get(unit.old, touch)
        return Reached(
            patch=profile.patch,
            path=show_path(touch.path),
            definition=unit.name,
            shared=word,
            was=unit.was[:_LONGEST],
            now=unit.now[:_LONGEST],
            at=place_of(unit.path, unit.line),
            score=round(score, 2),
        )

    # Upstream's changes

    def _units(self, files: Collection[bytes], near: Callable[..., Iterator[Any]]) -> Iterator[ChangedUnit]:
        """Yield the changed definitions that may concern a patch, without those that only moved to another file.

        To parse a file and to restore its functions takes long. Most files don't have enough names of patches.

        :param files: files that patches change, or from which they use definitions.
        """
        units: list[ChangedUnit] = []
        for old_path, new_path in self._pairs():
            if old_path in files or any(True for _ in near(self._rough_unit(old_path, new_path), lacking=_NAMED)):
                units += self._units_of(old_path, new_path)
        moved = self._in_new_files([unit for unit in units if unit.gone])
        yield from _without_moved([unit for unit in units if id(unit) not in moved])

    def _in_new_files(self, gone: Sequence[ChangedUnit]) -> set[int]:
        """Return the ids of the definitions of which a new file contains all words."""
        waiting = {}
        for unit in gone:
            words = filter(lambda word: word[:1] != "~", {*unit.around, unit.simple})
            waiting[id(unit)] = set(map(str.encode, words))
        found: set[int] = set()
        for path in sorted(self.whole.changed) if gone else ():
            blob = self.new.blob(path)
            if blob and language_of(path) and not self.old.blob(path):
                there = self.new.files.words(blob)
                for number, mine in waiting.items():
                    if mine <= there:
                        found.add(number)
        return found

    def _rough_unit(self, old_path: bytes, new_path: bytes | None) -> ChangedUnit:
        """Return a whole changed file as if it were one definition. No definition in it has a greater score."""
        sides = []
        for tree, path in ((self.old, old_path), (self.new, new_path)):
            text = tree.real_content(path).decode("utf-8", "replace") if path else ""
            sides.append(Counter(line.strip() for line in text.split("\n")))
        lines = sides[0].keys() | sides[1].keys()
        words = words_of((sides[0] - sides[1]) | (sides[1] - sides[0])).union(*map(_NAMES.findall, lines))
        return ChangedUnit(
            name="",
            path=new_path or old_path,
            old=old_path,
            line=0,
            first=0,
            last=0,
            words=frozenset(words),
            around=frozenset(words | words_of(lines)),
        )

    def _units_of(self, old_path: bytes, new_path: bytes | None) -> Iterable[ChangedUnit]:
        """Return the changed definitions of a file."""
        contents = [tree.content(p) if p else b"" for tree, p in ((self.old, old_path), (self.new, new_path))]
        lines = Lines(contents[0], contents[1])
        paths = old_path, new_path or old_path
        if language_of(old_path) == "python":
            python = [t.python(p) if p else None for t, p in ((self.old, old_path), (self.new, new_path))]
            return python_units(python[0], python[1], lines, paths)
        if reads_cpp():
            cpp = [t.cpp(p) if p else None for t, p in ((self.old, old_path), (self.new, new_path))]
            return cpp_units(cpp[0], cpp[1], lines, paths)
        return ()

    def _pairs(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the old path of each changed file, and the new one or None, except new files and ignored ones.

        Code in a new file concerns a patch if it calls, overrides or repeats what the patch changes: that is an alarm.
        """
        for path in sorted(self.whole.changed):
            if language_of(path) and self.whole.counted(path) and self.old.blob(path):
                yield path, self.whole.new_path(path)

    # Patches

    def _profiles(self) -> Iterator[_Profile]:
        found: dict[str, _Profile] = {}
        for touch in self.whole.touches:
            self._add(found.setdefault(touch.patch, _Profile(touch.patch)), touch)
        yield from found.values()

    def _add(self, profile: _Profile, touch: Touch) -> None:
        """Add the names in a patch's change of one file to the patch's profile."""
        sides = [[line.decode("utf-8", "replace") for line in lines_of(text)] for text in (touch.before, touch.after)]
        changed = words_of(
            [sides[n][number - 1] for n, numbers in enumerate((touch.removed, touch.lines)) for number in numbers]
        )
        profile.touches[touch.path] = touch
        profile.add(changed, _CHANGED, touch)
        names = {*touch.functions, *touch.added}
        classes = {name.rpartition(sep)[0] for name in names for sep in (".", "::")} - {""}
        profile.places.setdefault(touch.path, set()).update(names | classes)
        simple = {WORDS.findall(name)[-1] for name in names | classes if WORDS.findall(name)}
        profile.defined |= {name for name in simple if not name.startswith("__")}
        profile.add(simple, _CHANGED, touch)
        profile.add(self._bodies(profile, touch, names), _AROUND, touch)
        profile.add(self._called(touch, changed), _CALLED, touch)
        profile.used |= {(found.path, found.name) for _, found in touch.uses or () if found and found.path}
        profile.used_around |= self._used_around(touch)
        profile.bodies |= {(touch.path, name) for line in touch.lines if (name := _class_at(touch, line))}

    def _cpp_homes(self, touch: Touch, word: str) -> Iterator[CppFile]:
        """Yield the patched C++ file and, if ``word`` is rare, the included files that contain ``word``."""
        assert touch.cpp is not None
        yield touch.cpp[1]
        if touch.path not in self._included:
            self._included[touch.path] = sorted(self.old.includes(touch.path, touch.after) - {touch.path})
        if 0 < self.old.word_files().get(word.encode(), 0) <= _MOST_WITH:
            for path in self._included[touch.path]:
                file = self.old.cpp(path) if word.encode() in self.old.content(path) else None
                if file:
                    yield file

    def _used_around(self, touch: Touch) -> set[tuple[bytes, str]]:
        """Return the definitions that are used anywhere in the functions that a patch changes."""
        file = touch.python[1] if touch.python else None
        view = self.old.over(touch.path, file) if file else None
        found = set()
        for name in touch.functions if file else ():
            node = file.nodes.get(name) if file else None
            for child in walk(node) if node else ():
                if view and isinstance(child, ast.Name | ast.Attribute) and isinstance(child.ctx, ast.Load):
                    meant = view.infer(child, touch.path, name)
                    if meant and meant.path and meant.name:
                        found.add((meant.path, meant.name))
        return found

    def _bodies(self, profile: _Profile, touch: Touch, names: Iterable[str]) -> set[str]:
        """Return the words in the functions that a patch changes, and in the lines around its other changed lines.

        The names of base classes of changed methods are included.
        """
        lines = [line.decode("utf-8", "replace") for line in lines_of(touch.after)]
        found: set[str] = set()
        inside: set[int] = set()
        for name in names:
            for first, last in _places(touch, name):
                found |= words_of(lines[first - 1 : last])
                inside.update(range(first, last + 1))
        if touch.lines - inside:
            profile.places[touch.path].add("")
        for line in touch.lines - inside:
            found |= words_of(lines[max(0, line - 1 - _NEIGHBOURS) : line + _NEIGHBOURS])
        for name in names:
            fact = touch.python[1].fact(name.rpartition(".")[0]) if touch.python else None
            for base in fact.bases if fact else ():
                found.update(WORDS.findall(base))
        return found

    def _called(self, touch: Touch, changed: Iterable[str]) -> set[str]:
        """Return the words in the definitions of the functions that a patch's changed lines name."""
        found: set[str] = set()
        for word in sorted(changed):
            if touch.cpp:
                for file in self._cpp_homes(touch, word):
                    found |= _words_of_function(file, word)
                continue
            homes = self.old.definers(word)
            for path in homes if len(homes) <= _MOST_HOMES and self._rarity(word) > 0 else ():
                python = self.old.python(path)
                text = [line.decode("utf-8", "replace") for line in lines_of(self.old.content(path))]
                for name, node in python.nodes.items() if python else ():
                    if name.rpartition(".")[2] == word and isinstance(node, FunctionNode):
                        found |= words_of(text[node.lineno - 1 : node.end_lineno])
        return found


def _crosses(unit: ChangedUnit, touch: Touch) -> bool:
    """Return whether a change is in the other language than a patch's change of a file."""
    return language_of(unit.path) != language_of(touch.path)


def _words_of_function(file: CppFile, word: str) -> set[str]:
    """Return the words in all functions and macros called ``word``."""
    found: set[str] = set()
    for name, nodes in file.nodes.items():
        if name.rpartition("::")[2] == word and file.facts[name][0].kind in ("function", "macro"):
            found |= words_of(line for node in nodes for line in file.text(node).split("\n"))
    return found


def _places(touch: Touch, name: str) -> Iterator[tuple[int, int]]:
    """Yield the first and last line of each definition of ``name`` in the patched file."""
    if touch.python and name in touch.python[1].nodes:
        node = touch.python[1].nodes[name]
        yield node.lineno, node.end_lineno or node.lineno
    for each in touch.cpp[1].nodes.get(name, ()) if touch.cpp else ():
        yield each.start_point[0] + 1, each.end_point[0] + 1


def _class_at(touch: Touch, line: int) -> str:
    """Return the innermost class around a line of the patched file; empty if the line is in a function or no class."""
    best, size = "", 0
    file = (touch.python or touch.cpp or (None, None))[1]
    if file is None or (file.function_at(line) if touch.python else file.function_at(line)[0]):
        return ""
    for name, facts in file.facts.items():
        if facts[-1].kind == "class":
            for first, last in _places(touch, name):
                if first <= line <= last and (not best or last - first < size):
                    best, size = name, last - first
    return best


def _place_score(unit: ChangedUnit, profile: _Profile) -> float:
    """Return the part of the score that depends on where the change is, compared to what the patch changes and uses."""
    owner = unit.name.rpartition("::" if "::" in unit.name else ".")[0]
    if (unit.old, unit.name) in profile.used:
        return _USED
    names = profile.places.get(unit.old)
    if names is not None and unit.name in names:
        return _SAME_MODULE if unit.outside else _SAME_FUNCTION
    if names is not None and unit.outside and "" in names:
        return _SAME_MODULE
    if owner and _members(profile, unit.old, owner):
        return _USED_CLASS
    if owner and (unit.old, owner) in profile.bodies:
        return _SAME_BODY
    if (unit.old, unit.name) in profile.used_around:
        return _USED_AROUND
    if names is None:
        return 0.0
    return _SAME_CLASS if owner and owner in names else _SAME_FILE


def _members(profile: _Profile, path: bytes, owner: str) -> bool:
    """Return whether a patch uses a class or one of its members."""
    return any(p == path and (n == owner or n.startswith(f"{owner}.")) for p, n in profile.used)


def _without_moved(units: Sequence[ChangedUnit]) -> Iterator[ChangedUnit]:
    """Yield all units except moved definitions, which one file lost and another file gained with equal words."""
    gone = {(u.name, u.around) for u in units if u.gone}
    moved = {(u.name, u.around) for u in units if u.added} & gone
    for unit in units:
        if (unit.name, unit.around) not in moved or not (unit.added or unit.gone):
            yield unit


def _place(at: str) -> tuple[str, int] | None:
    """Return the file and line of an alarm's place; None if the place has no line."""
    path, _, line = at.partition(" ")[0].rpartition(":")
    return (path, int(line)) if line.isdigit() else None
