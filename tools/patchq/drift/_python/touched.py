"""Comparison of the Python functions and classes that a patch changes or adds, between two versions of a tree.

For a changed function, its body, defaults, decorators and conditions are compared, and its copies, callers and new
overrides are reported. For an added definition, an upstream definition of the same name is reported. For a method,
the bases of its class and the methods that it overrides are compared.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Mapping

from patchq.drift._python.callers import PythonCallers
from patchq.drift._python.counterparts import Counterparts, shown_fact
from patchq.drift._python.facts import PythonFile, names_on, stored_on
from patchq.drift._python.overrides import Overrides
from patchq.drift._python.relevance import concerns, with_helpers
from patchq.drift._python.shape import FunctionNode, body_of
from patchq.drift._versions.comparison import (
    ALIKE,
    LEAST_LINES,
    Comparison,
    Touch,
    has_most,
    place_of,
)
from patchq.drift._versions.tree import Found, Tree, marks_of
from patchq.drift._versions.units import first_difference
from patchq.drift.alarms import Kind
from patchq.drift.bodies import Fact, lines_of

#: Base classes without methods of their own.
_IDLE_BASES = ("ABC", "object", "Protocol")


class TouchedPython:
    """Comparison of the Python definitions that patches change."""

    def __init__(self, whole: Comparison, counterparts: Counterparts) -> None:
        self.whole, self.old, self.new = whole, whole.old, whole.new
        self.counterparts = counterparts
        self.callers = PythonCallers(whole, counterparts)
        self.overrides = Overrides(whole, counterparts)

    # Touched functions

    def compare(
        self,
        touch: Touch,
        name: str,
        base: PythonFile,
        after: PythonFile,
        target: bytes | None,
        new: PythonFile | None,
    ) -> None:
        fact = base.fact(name)
        assert fact is not None
        line = after.fact(name).line if after.fact(name) else fact.line  # type: ignore[union-attr]
        there = new.fact(name) if new else None
        path = target
        if there is None:
            moved = self.counterparts.moved_definition(touch.path, name)
            if moved is None:
                self.whole.alarm(touch, Kind.GONE, line, name, was=place_of(touch.path, fact.line))
                return
            path, new = moved[0], self.new.python(moved[0])
            there = new.fact(moved[1]) if new else None
        assert new is not None
        assert there is not None
        assert path is not None
        at = place_of(path, there.line)
        if len(new.facts[there.name]) > len(base.facts[name]):
            self.whole.alarm(touch, Kind.DUPLICATE, line, name, at=at, was=name, now=there.name)
        if touch.path in self.whole.changed or path != touch.path:
            self._bodies(touch, line, fact, there, base=base, new=new, after=after, at=at)
            self._traits(touch, line, fact, there, at)
            if fact.guards != there.guards:
                was, now = " and ".join(fact.guards), " and ".join(there.guards)
                self.whole.alarm(touch, Kind.GUARD, line, name, at=at, was=was, now=now)
        self._copies(touch, line, name, base, there.name, path)
        self.callers.compare(touch, line, name, Found(path, there.name))
        self._overrides(touch, line, name)

    def _bodies(
        self,
        touch: Touch,
        line: int,
        fact: Fact,
        there: Fact,
        *,
        base: PythonFile,
        new: PythonFile,
        after: PythonFile,
        at: str,
    ) -> None:
        name = fact.name
        old_node = with_helpers(base, name, new)
        new_node = with_helpers(new, there.name, base)
        used = names_on(after, touch.lines)
        lost = (base.bound(name) & used) - new.bound(there.name)
        own = after.bound(name) - base.bound(name)
        stored = stored_on(after, touch.lines)
        for local in sorted(lost - own - stored):
            self.whole.alarm(touch, Kind.REMOVED, line, name, callee=local, was=local, at=at)
        keep = frozenset(used)
        if body_of(old_node, keep) != body_of(new_node, keep):
            renames = self._renames(base, new)
            same = _renamed(body_of(old_node, keep), renames) == body_of(new_node, keep)
            patched = after.nodes.get(name)
            if not same and (patched is None or concerns(base.nodes[name], patched, new_node)):
                texts = first_difference(_statements_text(old_node), _statements_text(new_node))
                self.whole.alarm(touch, Kind.BODY, line, name, was=texts[0], now=texts[1], at=at)
        was, now = _defaults(fact, base), _defaults(there, new)
        for parameter in was.keys() & now.keys():
            if was[parameter] != now[parameter] and None not in (was[parameter], now[parameter]):
                self.whole.alarm(
                    touch,
                    Kind.DEFAULT,
                    line,
                    name,
                    callee=parameter,
                    was=was[parameter] or "",
                    now=now[parameter] or "",
                    at=at,
                )

    def _renames(self, base: PythonFile, new: PythonFile) -> dict[str, str]:
        """Return the functions that were renamed in a file, as ``{old name: new name}``."""
        gone = {n: f for n, f in base.nodes.items() if n not in new.nodes and base.fact(n).kind == "function"}  # type: ignore[union-attr]
        come = {n: f for n, f in new.nodes.items() if n not in base.nodes and new.fact(n).kind == "function"}  # type: ignore[union-attr]
        bodies = {new.body(name): name for name in come} if gone else {}
        found = {}
        for name in gone:
            other = bodies.get(base.body(name))
            if other:
                found[name.rpartition(".")[2]] = other.rpartition(".")[2]
        return found

    def _traits(self, touch: Touch, line: int, fact: Fact, there: Fact, at: str) -> None:
        if fact.traits != there.traits:
            was, now = ", ".join(fact.traits), ", ".join(there.traits)
            self.whole.alarm(touch, Kind.TRAITS, line, fact.name, was=was, now=now, at=at)

    def class_bases(self, touch: Touch, base: PythonFile, target: bytes | None, new: PythonFile | None) -> None:
        """Compare the bases and decorators of the classes whose methods the patch changes or adds."""
        if new is None or target is None:
            return
        owners = {name.rpartition(".")[0] for name in [*touch.functions, *touch.added]}
        for owner in sorted(owners):
            fact, there = base.fact(owner), new.fact(owner)
            if fact is None or there is None or fact.kind != "class":
                continue
            was = [b.rpartition(".")[2] for b in fact.bases if not b.endswith(_IDLE_BASES)]
            now = [b.rpartition(".")[2] for b in there.bases if not b.endswith(_IDLE_BASES)]
            at = place_of(target, there.line)
            if was != now:
                self.whole.alarm(touch, Kind.BASES, there.line, owner, was=", ".join(was), now=", ".join(now), at=at)
            self._traits(touch, there.line, fact, there, at)

    def added(
        self, touch: Touch, base: PythonFile, after: PythonFile, target: bytes | None, new: PythonFile | None
    ) -> None:
        """Add an alarm for each definition that the patch adds and that the new version also has."""
        for name in touch.added if new and target else ():
            assert new is not None
            assert target is not None
            there = new.fact(name)
            mine = after.fact(name)
            assert mine is not None
            if there and mine.kind != "value" and name not in base.facts:
                self.whole.alarm(
                    touch, Kind.DUPLICATE, mine.line, name, was=name, now=name, at=place_of(target, there.line)
                )

    # Copies, callers, overrides

    def _copies(self, touch: Touch, line: int, name: str, base: PythonFile, new_name: str, path: bytes) -> None:
        """Add an alarm for each new function that is a copy of a function that the patch changes."""
        node = base.nodes[name]
        source = lines_of(self.old.content(touch.path))
        mine = marks_of(source[node.lineno : node.end_lineno])
        if len(mine) < LEAST_LINES:
            return
        for other in self.whole.files_like(mine, "python"):
            file, was = self.new.python(other), self.old.python(other)
            if file is None:
                continue
            lines = lines_of(self.new.content(other))
            for its_name, its_node in file.nodes.items():
                known = was is not None and its_name in was.facts
                same = other == path and its_name == new_name
                if known or same or not isinstance(its_node, FunctionNode):
                    continue
                if not has_most(mine, lines[its_node.lineno : its_node.end_lineno]):
                    continue
                named_alike = name.rpartition(".")[2] == its_name.rpartition(".")[2]
                copied = self._is_copy(base.body(name), file.body(its_name), named_alike)
                if copied and not self.counterparts.came_from(its_name, other):
                    at = place_of(other, its_node.lineno)
                    self.whole.alarm(touch, Kind.DUPLICATE, line, name, was=name, now=its_name, at=at)

    def _is_copy(self, body: str, other: str, named_alike: bool) -> bool:
        if body == other:
            return named_alike or len(body) > 200
        if len(body) < 200:
            return False
        sides = re.findall(r"\w+|\W", body), re.findall(r"\w+|\W", other)
        matcher = difflib.SequenceMatcher(None, *sides, autojunk=False)
        least = ALIKE if named_alike else 0.85
        return matcher.real_quick_ratio() >= least and matcher.quick_ratio() >= least and matcher.ratio() >= least

    def _overrides(self, touch: Touch, line: int, name: str) -> None:
        """Report new overrides of a touched method in subclasses."""
        for path, its_name, its_line in self.overrides.new(touch.path, name):
            self.whole.alarm(touch, Kind.OVERRIDE, line, name, now=its_name, at=place_of(path, its_line))

    def overridden(self, touch: Touch, after: PythonFile) -> None:
        """Compare the base class members that are overridden by members which the patch changes or adds."""
        view = self.old.over(touch.path, after)
        for name, facts in after.facts.items():
            owner, _, method = name.rpartition(".")
            last = facts[-1]
            touched = name in touch.functions or (name in touch.added and last.line in touch.lines)
            if not owner or not touched or "attribute" in last.traits:
                continue
            for ancestor in view.ancestors(Found(touch.path, owner)):
                inherited = Found(ancestor.path, f"{ancestor.name}.{method}")
                fact = self.old.fact(inherited)
                if fact is None:
                    continue
                self._compare_overridden(touch, last, inherited, fact)
                break
            else:
                self._newly_inherited(touch, last, owner, method, view)

    def _compare_overridden(self, touch: Touch, mine: Fact, inherited: Found, fact: Fact) -> None:
        counterpart = self.counterparts.followed(inherited)
        there = self.new.fact(counterpart) if counterpart else None
        shown = f"{inherited.name}"
        if there is None or counterpart is None:
            self.whole.alarm(
                touch, Kind.OVERRIDDEN, mine.line, mine.name, callee=shown, was=place_of(inherited.path, fact.line)
            )
            return
        at = place_of(counterpart.path, there.line)
        was, now = shown_fact(fact), shown_fact(there)
        own = self.counterparts.counterpart(Found(touch.path, mine.name))
        own_fact = self.new.fact(own) if own and mine.name in touch.functions else None
        if own_fact and was != now and shown_fact(own_fact) == now:
            return  # Upstream changed the patched method in the same way.
        if fact.kind == "function" and (was != now or fact.traits != there.traits):
            self.whole.alarm(touch, Kind.OVERRIDDEN, mine.line, mine.name, callee=shown, was=was, now=now, at=at)
        elif fact.kind == "value" and fact.value != there.value:
            self.whole.alarm(
                touch, Kind.OVERRIDDEN, mine.line, mine.name, callee=shown, was=fact.value, now=there.value, at=at
            )

    def _newly_inherited(self, touch: Touch, mine: Fact, owner: str, method: str, view: Tree) -> None:
        """Add an alarm for each base class that now defines a member that the patch adds to a subclass."""
        for ancestor in view.ancestors(Found(touch.path, owner)):
            counterpart = self.counterparts.followed(ancestor)
            if counterpart is None:
                continue
            there = self.new.fact(Found(counterpart.path, f"{counterpart.name}.{method}"))
            if there and "attribute" not in there.traits and mine.name in touch.added:
                at = place_of(counterpart.path, there.line)
                self.whole.alarm(touch, Kind.OVERRIDDEN, mine.line, mine.name, callee=there.name, now=there.name, at=at)


def _renamed(body: str, renames: Mapping[str, str]) -> str:
    for old, new in renames.items():
        body = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, body)
    return body


def _defaults(fact: Fact, file: PythonFile) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for p in fact.parameters or ():
        known = p.default is not None and p.default.isidentifier() and file.fact(p.default)
        found[p.name] = file.value(p.default) if known and p.default else p.default
    return found


def _statements_text(node: ast.AST) -> str:
    """Return the source of a definition's statements, without its docstring."""
    docstring = ast.get_docstring(node) if isinstance(node, FunctionNode | ast.ClassDef) else None
    return "\n".join(ast.unparse(each) for each in getattr(node, "body", ())[docstring is not None :])
