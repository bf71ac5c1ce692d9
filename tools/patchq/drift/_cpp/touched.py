"""Comparison of the C++ and CUDA definitions that a patch changes or adds, between two versions of a tree.

For a changed definition, its body, signature and preprocessor conditions are compared, and its new copies, callers,
overloads and overrides are reported. For an added definition, an upstream definition of the same name is reported.
For a method, the base class methods that it overrides are compared.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from patchq.drift._cpp import facts as cpp_facts
from patchq.drift._cpp.facts import CppFile
from patchq.drift._cpp.uses import kinds_of, signature_of, types_of
from patchq.drift._python.relevance import Step, changed_before, steps_concern
from patchq.drift._versions.comparison import (
    ALIKE,
    LEAST_LINES,
    MOST_CALLING,
    SHORTEST_NAME,
    Comparison,
    Touch,
    has_most,
    place_of,
)
from patchq.drift._versions.tree import Tree, marks_of
from patchq.drift._versions.units import first_difference
from patchq.drift.alarms import Kind, Unseen
from patchq.drift.bodies import Fact, language_of, lines_of

_EXITS = {"return_statement", "break_statement", "continue_statement", "goto_statement", "throw_statement"}
#: Endings of the types of nodes that contain statements.
_NESTED = ("statement", "else_clause", "preproc_else", "preproc_elif", "declaration")
_BLOCKS = {"compound_statement", "else_clause", "preproc_else", "preproc_elif"}


class TouchedCpp:
    """Comparison of the C++ definitions that patches change."""

    def __init__(self, whole: Comparison) -> None:
        self.whole, self.old, self.new = whole, whole.old, whole.new
        self._reach: dict[bytes, set[bytes]] = {}

    def compare(
        self,
        touch: Touch,
        name: str,
        numbers: Sequence[int],
        base: CppFile,
        after: CppFile,
        target: bytes | None,
        new: CppFile | None,
    ) -> None:
        for number in numbers:
            if number >= len(base.facts[name]):
                continue
            fact = base.facts[name][number]
            shown = after.facts.get(name, base.facts[name])
            line = shown[min(number, len(shown) - 1)].line
            path, there, file = target, None, new
            if new is not None and name in new.facts:
                there = _same_overload(fact, number, new.facts[name])
            if there is None:
                moved = self._moved_definition(touch.path, base, name, number)
                if moved is None:
                    self.whole.alarm(touch, Kind.GONE, line, name, was=place_of(touch.path, fact.line))
                    continue
                path, there = moved
                file = self.new.cpp(path)
            assert path is not None
            assert file is not None
            self._compare_touched(
                touch, line, name, number=number, base=base, after=after, path=path, file=file, there=there
            )
        self._copies(touch, line, name, base, path or touch.path)
        self._callers(touch, line, name, base)
        self._overrides(touch, line, name, base)

    def _compare_touched(
        self,
        touch: Touch,
        line: int,
        name: str,
        *,
        number: int,
        base: CppFile,
        after: CppFile,
        path: bytes,
        file: CppFile,
        there: int,
    ) -> None:
        fact, new_fact = base.facts[name][number], file.facts[name][there]
        at = place_of(path, new_fact.line)
        keep = frozenset(use.name for use in after.uses(touch.lines))
        bodies = [
            cpp_facts.body_of(base, base.nodes[name][number], keep),
            cpp_facts.body_of(file, file.nodes[name][there], keep),
        ]
        mine = after.nodes.get(name, ())
        patched = mine[min(number, len(mine) - 1)] if mine else None
        sides = (base, base.nodes[name][number]), (after, patched), (file, file.nodes[name][there])
        if bodies[0] != bodies[1] and _concern(sides):
            texts = first_difference(base.text(sides[0][1]), file.text(sides[2][1]))
            self.whole.alarm(touch, Kind.BODY, line, name, was=texts[0], now=texts[1], at=at)
        if kinds_of(fact) != kinds_of(new_fact):
            was, now = (", ".join(kinds_of(f)) for f in (fact, new_fact))
            self.whole.alarm(touch, Kind.SIGNATURE, line, name, callee=name, was=f"<{was}>", now=f"<{now}>", at=at)
        if fact.guards != new_fact.guards:
            was, now = " && ".join(fact.guards), " && ".join(new_fact.guards)
            self.whole.alarm(touch, Kind.GUARD, line, name, was=was, now=now, at=at)

    def _moved_definition(self, path: bytes, base: CppFile, name: str, number: int) -> tuple[bytes, int] | None:
        body = cpp_facts.body_of(base, base.nodes[name][number])
        simple = base.facts[name][number].simple
        for other in self.whole.files_with(simple.encode(), "c++"):
            file = self.new.cpp(other)
            for place, node in enumerate(file.nodes.get(name, ())) if file else ():
                assert file is not None
                if cpp_facts.body_of(file, node) == body:
                    return other, place
        return None

    def added(self, touch: Touch, base: CppFile, after: CppFile, target: bytes | None, new: CppFile | None) -> None:
        if new is None or target is None:
            return
        for name in touch.added:
            mine = after.facts[name][-1]
            there = new.facts.get(name)
            if there and name not in base.facts and mine.kind != "value":
                at = place_of(target, there[-1].line)
                self.whole.alarm(touch, Kind.DUPLICATE, mine.line, name, was=name, now=name, at=at)

    def around(
        self, touch: Touch, base: CppFile, before: CppFile, after: CppFile, target: bytes | None, new: CppFile | None
    ) -> None:
        """Compare the preprocessor conditions around added lines outside of functions.

        The unchanged line before or after the added lines shows the same place in both versions.
        """
        if new is None or target is None:
            return
        old_lines, new_lines = lines_of(self.old.content(touch.path)), lines_of(self.new.content(target))
        after_lines = lines_of(touch.after)
        for line in sorted(touch.lines):
            if line - 1 in touch.lines or after.function_at(line)[0]:
                continue
            for near in (line - 1, _end_of(line, touch.lines)):
                text = after_lines[near - 1] if 0 < near <= len(after_lines) else b""
                if len(text.strip()) < SHORTEST_NAME or old_lines.count(text) != 1 or new_lines.count(text) != 1:
                    continue
                was = base.guards_at(old_lines.index(text) + 1)
                now = new.guards_at(new_lines.index(text) + 1)
                if was != now:
                    at = place_of(target, new_lines.index(text) + 1)
                    self.whole.alarm(touch, Kind.GUARD, line, "", was=" && ".join(was), now=" && ".join(now), at=at)
                    break

    def _copies(self, touch: Touch, line: int, name: str, base: CppFile, path: bytes) -> None:
        node = base.nodes[name][0]
        source = lines_of(self.old.content(touch.path))
        mine = marks_of(source[node.start_point[0] : node.end_point[0] + 1])
        if len(mine) < LEAST_LINES:
            return
        body = re.findall(r"\S+", cpp_facts.body_of(base, node))
        for other in self.whole.files_like(mine, "c++"):
            lines = lines_of(self.new.content(other))
            file, was = self.new.cpp(other), self.old.cpp(other)
            assert file is not None
            for its_name, nodes in file.nodes.items():
                known = len(was.nodes.get(its_name, ())) if was else 0
                for its_node, its_fact in zip(nodes[known:], file.facts[its_name][known:], strict=True):
                    if its_fact.kind not in ("function", "macro"):
                        continue
                    if not has_most(mine, lines[its_node.start_point[0] : its_node.end_point[0] + 1]):
                        continue
                    if self._was_elsewhere(its_name, other):
                        continue
                    tokens = re.findall(r"\S+", cpp_facts.body_of(file, its_node))
                    matcher = difflib.SequenceMatcher(None, body, tokens, autojunk=False)
                    if matcher.quick_ratio() >= ALIKE and matcher.ratio() >= ALIKE:
                        at = place_of(other, its_fact.line)
                        self.whole.alarm(touch, Kind.DUPLICATE, line, name, was=name, now=its_name, at=at)

    def _was_elsewhere(self, name: str, path: bytes) -> bool:
        """Return whether a definition was moved here, because another file lost a definition of the same name."""
        simple = name.rpartition("::")[2].encode()
        for other in self.whole.changed:
            if other == path or language_of(other) != "c++" or simple not in self.old.content(other):
                continue
            old = self.old.cpp(other)
            if old is None or name not in old.facts:
                continue
            new = self.new.cpp(other)
            if new is None or name not in new.facts:
                return True
        return False

    def _callers(self, touch: Touch, line: int, name: str, base: CppFile) -> None:
        simple = base.facts[name][0].simple
        if len(simple) < SHORTEST_NAME or simple.startswith("operator"):
            return
        files = [p for p in self.whole.files_with(simple.encode(), "c++") if self.whole.counted(p)]
        if len(files) > MOST_CALLING:
            self.whole.not_compared(touch, Unseen.CALLERS, line, name)
            return
        old, new = (self._calls(tree, files, name, simple, touch.path) for tree in (self.old, self.new))
        for path, scope in old.keys() & new.keys():
            if len(old[path, scope]) == len(new[path, scope]) == 1 and scope != name:
                self._compare_caller(touch, line, name, path, scope, new[path, scope][0])
        if sum(map(len, new.values())) <= sum(map(len, old.values())):
            return
        places = []
        for (path, scope), numbers in sorted(new.items()):
            if len(numbers) > len(old.get((path, scope), ())) and scope != name:
                places.append((scope or "<module>", place_of(path, numbers[-1])))
        self.whole.callers(touch, line, name, places)

    def _calls(
        self, tree: Tree, files: Iterable[bytes], name: str, simple: str, target: bytes
    ) -> dict[tuple[bytes, str], list[int]]:
        """Return the line numbers of the calls of a function, by file and calling function."""
        found: dict[tuple[bytes, str], list[int]] = {}
        for path in files:
            file = tree.cpp(path)
            if file and (name in file.facts or self._reaches(tree, path, target)):
                for scope, number in cpp_facts.calls_of(file, simple):
                    found.setdefault((path, scope), []).append(number)
        return found

    def _compare_caller(self, touch: Touch, line: int, name: str, path: bytes, scope: str, at: int) -> None:
        """Compare the statements in a caller on which its call of the function depends."""
        old, new = self.old.cpp(path), self.new.cpp(path)
        if old is None or new is None or scope in touch.functions:
            return
        nodes = old.nodes.get(scope, []), new.nodes.get(scope, [])
        if (
            len(nodes[0]) != 1
            or len(nodes[1]) != 1
            or cpp_facts.body_of(old, nodes[0][0]) == cpp_facts.body_of(new, nodes[1][0])
        ):
            return
        heads = cpp_facts.head_of(old, nodes[0][0]), cpp_facts.head_of(new, nodes[1][0])
        bodies = [side[0].child_by_field_name("body") for side in nodes]
        if heads[0] != heads[1]:
            was, now = ("(" + ", ".join(head) + ")" for head in heads)
            place = f"{place_of(path, at)} {scope}"
            self.whole.alarm(touch, Kind.CALL, line, name, callee=scope, was=was, now=now, at=place)
            return
        if None in bodies:
            return
        steps = list(_steps(old, bodies[0], ())), list(_steps(new, bodies[1], ()))
        pair = changed_before(*steps, name.rpartition("::")[2])
        if pair is not None:
            place = f"{place_of(path, at)} {scope}"
            self.whole.alarm(touch, Kind.CALL, line, name, callee=scope, was=pair[0], now=pair[1], at=place)

    def _reaches(self, tree: Tree, path: bytes, target: bytes) -> bool:
        if tree is self.old:
            if path not in self._reach:
                self._reach[path] = tree.includes(path)
            return target in self._reach[path]
        return target in tree.includes(path)

    def _overrides(self, touch: Touch, line: int, name: str, base: CppFile) -> None:
        """Add alarms for new specializations and overloads of a definition, and for new overrides of a method."""
        owner, _, method = name.rpartition("::")
        words = {name.rpartition("::")[2], *([owner.rpartition("::")[2]] if owner else [])}
        for path in self.whole.files_with(min(words, key=len).encode(), "c++"):
            file, was = self.new.cpp(path), self.old.cpp(path)
            if file is None or not self.whole.counted(path):
                continue
            for its_name, facts in file.facts.items():
                known = was.facts.get(its_name, []) if was else []
                its_owner, _, its_method = its_name.rpartition("::")
                fresh = [f for f in facts if f.kind != "value"][len(known) :]
                if not fresh or self._was_elsewhere(its_name, path):
                    continue
                again = its_name == name and (path == touch.path or self._reaches(self.new, path, touch.path))
                special = bool(owner) and its_name == owner and fresh[-1].kind == "class"
                bases = _bases(file, its_owner)
                derived = bool(owner) and its_method == method and owner.rpartition("::")[2] in bases
                if again or special or derived:
                    if "declared" in fresh[-1].traits and not derived:
                        continue
                    at = place_of(path, fresh[-1].line)
                    kind = Kind.DUPLICATE if again and _same_parameters(fresh[-1], facts[:-1]) else Kind.OVERRIDE
                    self.whole.alarm(touch, kind, line, name, now=its_name, at=at)

    def overridden(self, touch: Touch, after: CppFile) -> None:
        """Compare the base class methods that are overridden by methods which the patch changes or adds."""
        for name in [*touch.functions, *touch.added]:
            owner, _, method = name.rpartition("::")
            fact = after.facts[name][-1] if name in after.facts else None
            if not owner or fact is None or fact.kind != "function":
                continue
            for base in _bases(after, owner):
                self._compare_base(touch, fact, f"{base}::{method}")

    def _compare_base(self, touch: Touch, mine: Fact, inherited: str) -> None:
        for path in self.whole.files_with(inherited.rpartition("::")[2].encode(), "c++"):
            old, new = self.old.cpp(path), self.new.cpp(path)
            was = old.facts.get(inherited, []) if old else []
            now = new.facts.get(inherited, []) if new else []
            if not was:
                continue
            shown = [signature_of(f) for f in was], [signature_of(f) for f in now]
            if [types_of(f) for f in was] != [types_of(f) for f in now]:
                at = place_of(path, now[-1].line) if now else ""
                sides = (" | ".join(s) for s in shown)
                self.whole.alarm(
                    touch,
                    Kind.OVERRIDDEN,
                    mine.line,
                    mine.name,
                    callee=inherited,
                    was=next(sides),
                    now=next(sides),
                    at=at,
                )


def _end_of(line: int, lines: set[int]) -> int:
    while line in lines:
        line += 1
    return line


def _same_overload(fact: Fact, number: int, facts: Sequence[Fact]) -> int:
    """Return the number of the new overload that corresponds to an old overload."""
    for place, other in enumerate(facts):
        if types_of(other) == types_of(fact) and other.traits == fact.traits and other.guards == fact.guards:
            return place
    for place, other in enumerate(facts):
        if types_of(other) == types_of(fact) and ("declared" in other.traits) == ("declared" in fact.traits):
            return place
    return number if number < len(facts) else len(facts) - 1


def _same_parameters(fact: Fact, others: Iterable[Fact]) -> bool:
    return any(types_of(other) == types_of(fact) and other.guards == fact.guards for other in others)


def _concern(sides: Sequence[tuple[CppFile, Any]]) -> bool:
    """Return whether an upstream change of a function affects a patch of the function; True for a macro.

    :param sides: file and node of the old function, of the old function with the patch, and of the new function.
    """
    bodies = [node.child_by_field_name("body") if node is not None else None for _, node in sides]
    if any(body is None for body in bodies):
        return True
    if cpp_facts.head_of(*sides[0]) != cpp_facts.head_of(*sides[2]):
        return True
    files = [file for file, _ in sides]
    steps = [list(_steps(file, body, ())) for file, body in zip(files, bodies, strict=True)]
    variables: set[str] = set()
    for file, node in sides:
        variables |= cpp_facts.local_names(file, node)
    return steps_concern(*steps, variables=variables)


def _bases(file: CppFile, name: str) -> list[str]:
    """Return the base classes in all definitions of a class."""
    found: list[str] = []
    for fact in file.facts.get(name, ()):
        found.extend(fact.bases)
    return found


def _steps(file: CppFile, body: Any, around: tuple[str, ...]) -> Iterator[Step]:
    for node in body.named_children:
        if node.type == "compound_statement":
            yield from _steps(file, node, around)
        elif node.type != "comment":
            yield from _statement(file, node, around)


def _statement(file: CppFile, node: Any, around: tuple[str, ...]) -> Iterator[Step]:
    inner = [child for child in node.named_children if child.type.endswith(_NESTED)]
    if node.type == "for_statement":
        inner = [child for child in inner if child == node.child_by_field_name("body")]
    if not inner:
        yield _step(file, node, [node], around)
        return
    heads = [child for child in node.named_children if child not in inner and child.type != "comment"]
    header = _step(file, node, heads, around)
    yield header
    for child in inner:
        within = (*around, f"{child.type} {header.text}")
        if child.type in _BLOCKS:
            yield from _steps(file, child, within)
        else:
            yield from _statement(file, child, within)


def _step(file: CppFile, node: Any, parts: Sequence[Any], around: tuple[str, ...]) -> Step:
    reads: set[str] = set()
    writes: set[str] = set()
    waiting = list(parts)
    while waiting:
        child = waiting.pop()
        reads.update([file.text(child)] if child.type == "identifier" else [])
        if child.type in ("assignment_expression", "update_expression"):
            left = child.child_by_field_name("left") or child.child_by_field_name("argument")
            writes.update(_identifiers(file, left)[:1])
        elif child.type in ("init_declarator", "declaration"):
            for declared in child.children_by_field_name("declarator"):
                writes.update(_identifiers(file, declared)[:1])
        waiting.extend(child.named_children)
    text = " ".join(token for part in parts for token in cpp_facts.tokens_of(file, part))
    if node.type == "expression_statement" and any(c.type == "call_expression" for c in node.named_children):
        writes.update(_identifiers(file, node))
    leaves = node.type in _EXITS or "__sync" in text or "asm" in text
    return Step(
        text=f"{node.type} {text}", reads=frozenset(reads), writes=frozenset(writes), leaves=leaves, around=around
    )


def _identifiers(file: CppFile, node: Any) -> list[str]:
    """Return the identifiers in a node, in the order of the source."""
    found = []
    waiting = [node] if node is not None else []
    while waiting:
        child = waiting.pop()
        if child.type == "identifier":
            found.append(file.text(child))
        waiting.extend(reversed(child.named_children))
    return found
