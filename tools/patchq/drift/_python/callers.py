"""Callers of the Python functions that a patch changes, and other places that mention these functions."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from patchq.drift._api.signatures import Signature
from patchq.drift._python.counterparts import Counterparts, fits
from patchq.drift._python.relevance import changed_before, python_steps, with_helpers
from patchq.drift._python.shape import FunctionNode, body_of, conditions_of, dump_of
from patchq.drift._versions.comparison import MOST_CALLING, SHORTEST_NAME, Comparison, Touch, place_of
from patchq.drift._versions.tree import Found, Tree
from patchq.drift.alarms import Kind, Unseen

#: File and function that contain a call.
_Scope = tuple[bytes, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """Call of a function, or an expression that names it.

    :ivar conditions: source of each test that must hold for the call to be reached, by its normalized text.
    :ivar given: argument that the call passes for each parameter.
    :ivar bound: parameters and local variables of the calling function.
    """

    line: int
    conditions: Mapping[str, str]
    given: Mapping[str, ast.expr]
    bound: frozenset[str] = frozenset()


class PythonCallers:
    """Comparison of the calls of functions that patches change."""

    def __init__(self, whole: Comparison, counterparts: Counterparts) -> None:
        self.whole, self.old, self.new = whole, whole.old, whole.new
        self.counterparts = counterparts

    def compare(self, touch: Touch, line: int, name: str, new: Found) -> None:
        """Add alarms for calls of a function that the new version adds, removes or makes under other conditions.

        :param new: definition in the new version that corresponds to the function.
        """
        parts = name.split(".")
        called = parts[-2] if parts[-1] == "__init__" and len(parts) > 1 else parts[-1]
        if called.startswith("__"):
            return
        files = [p for p in self.whole.files_with(called.encode(), "python") if self.whole.counted(p)]
        if len(files) > MOST_CALLING:
            self.whole.not_compared(touch, Unseen.CALLERS, line, name)
            return
        old_found = Found(touch.path, name)
        old = self._sites(self.old, files, called, old_found)
        there = self._sites(self.new, files, called, new)
        counts = [sum(map(len, sites.values())) for sites in (old, there)]
        if counts[1] > counts[0]:
            more = _only(there, old, (new.path, new.name))
            self.whole.callers(touch, line, name, [(scope, place_of(path, at)) for path, scope, at in more])
        elif counts[1] < counts[0]:
            for path, scope, at in _only(old, there, (touch.path, name)):
                target = self.whole.new_path(path)
                caller = scope.partition("[")[0]
                if target and (caller in ("", "<module>") or self.new.fact(Found(target, caller))):
                    self.whole.alarm(touch, Kind.CALL, line, name, callee=scope, was=place_of(path, at))
                    break
        for key in old.keys() & there.keys():
            if len(old[key]) == len(there[key]):
                for was, now in zip(old[key], there[key], strict=True):
                    self._compare_site(touch, line, name, key, was, now)

    def _compare_site(self, touch: Touch, line: int, name: str, key: _Scope, old: _Site, new: _Site) -> None:
        at = f"{place_of(key[0], new.line)} {key[1]}"
        if old.conditions.keys() != new.conditions.keys():
            was, now = (" and ".join(site.conditions.values()) for site in (old, new))
            self.whole.alarm(touch, Kind.CALL, line, name, callee=key[1], was=was, now=now, at=at)
            return
        for parameter in sorted(old.given.keys() | new.given.keys()):
            sides = old.given.get(parameter), new.given.get(parameter)
            if _differ(*sides) or _others(*sides, old.bound & new.bound):
                was, now = (f"{parameter}={ast.unparse(side)}" if side else "" for side in sides)
                self.whole.alarm(touch, Kind.CALL, line, name, callee=key[1], was=was, now=now, at=at)
                return
        self._compare_caller(touch, line, name, key, at)

    def _compare_caller(self, touch: Touch, line: int, name: str, key: _Scope, at: str) -> None:
        """Compare the statements in a caller on which its call of the function depends."""
        old, new = self.old.python(key[0]), self.new.python(key[0])
        sides = (old.nodes.get(key[1]), new.nodes.get(key[1])) if old and new else (None, None)
        if key == (touch.path, name) or key[1] in touch.functions or not old or not new:
            return
        if not isinstance(sides[0], FunctionNode) or not isinstance(sides[1], FunctionNode):
            return
        facts = old.fact(key[1]), new.fact(key[1])
        if facts[0] and facts[1] and facts[0].traits != facts[1].traits:
            was, now = (", ".join(fact.traits) for fact in (facts[0], facts[1]))
            self.whole.alarm(touch, Kind.CALL, line, name, callee=key[1], was=was, now=now, at=at)
            return
        expanded = with_helpers(old, key[1], new), with_helpers(new, key[1], old)
        if body_of(expanded[0]) == body_of(expanded[1]):
            return
        steps = python_steps(expanded[0]), python_steps(expanded[1])
        pair = changed_before(*steps, name.rpartition(".")[2])
        if pair is not None:
            self.whole.alarm(touch, Kind.CALL, line, name, callee=key[1], was=pair[0], now=pair[1], at=at)

    def _sites(self, tree: Tree, files: Sequence[bytes], called: str, wanted: Found) -> Mapping[_Scope, list[_Site]]:
        found: dict[_Scope, list[_Site]] = defaultdict(list)
        signature = self.counterparts.signature(tree, wanted)
        for path in files:
            for scope, site in self._in_file(tree, path, called, wanted, signature):
                found[path, scope].append(site)
        return found

    def _in_file(
        self, tree: Tree, path: bytes, called: str, wanted: Found, signature: Signature | None
    ) -> Iterator[tuple[str, _Site]]:
        """Yield each call or mention of ``wanted`` in a file, with the name of the function that contains it."""
        file = tree.python(path)
        if file is None or file.tree is None or called.encode() not in tree.content(path):
            return
        for call in file.calls(called):
            scope = file.function_at(call.lineno)
            method = isinstance(call.func, ast.Attribute)
            if is_super(call.func) or (method and signature and not fits(call, signature)):
                continue
            if self._meant(tree, path, scope, call.func, called, wanted):
                node = file.nodes.get(scope)
                conditions = conditions_of(node, call) if isinstance(node, FunctionNode) else {}
                yield (
                    scope,
                    _Site(
                        line=call.lineno, conditions=conditions, given=_given(call, signature), bound=file.bound(scope)
                    ),
                )
        for key, named in file.mentions(called):
            scope = file.function_at(named.lineno)
            if self._meant(tree, path, scope, named, called, wanted):
                yield f"{scope}[{key}]" if key else scope, _Site(line=named.lineno, conditions={}, given={})

    def _meant(self, tree: Tree, path: bytes, scope: str, node: ast.expr, called: str, wanted: Found) -> bool:
        found = tree.infer(node, path, scope)
        if found is None:
            return isinstance(node, ast.Attribute) and self._only_definition(tree, called, wanted)
        if found.path != wanted.path:
            return False
        # A constructor is called by its class.
        return wanted.name in (found.name, f"{found.name}.__init__")

    def _only_definition(self, tree: Tree, name: str, wanted: Found) -> bool:
        if len(name) < SHORTEST_NAME:
            return False
        files = tree.definers(name)
        if len(files) != 1:
            return False
        file = tree.python(files[0])
        named = [n for n in file.facts if n.rpartition(".")[2] == name] if file else []
        return named == [wanted.name] and files[0] == wanted.path


def _only(
    one: Mapping[_Scope, list[_Site]], other: Mapping[_Scope, list[_Site]], itself: _Scope
) -> list[tuple[bytes, str, int]]:
    """Return the functions with more calls in ``one`` than in ``other``, except the called function ``itself``."""
    found = []
    for key, sites in sorted(one.items()):
        if len(sites) > len(other.get(key, ())) and key != itself:
            found.append((key[0], key[1] or "<module>", sites[0].line))
    return found


def is_super(function: ast.expr) -> bool:
    """Return whether a called function is ``super().method``."""
    inner = function.value if isinstance(function, ast.Attribute) else None
    return isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "super"


def _given(call: ast.Call, signature: Signature | None) -> dict[str, ast.expr]:
    """Return the argument that a call passes for each parameter; empty without a signature, or with ``*args``."""
    if signature is None or any(isinstance(a, ast.Starred) for a in call.args):
        return {}
    found = {p.name: argument for p, argument in zip(signature.positional, call.args, strict=False)}
    found.update((k.arg, k.value) for k in call.keywords if k.arg)
    return found


def _differ(old: ast.expr | None, new: ast.expr | None) -> bool:
    """Return whether an argument changed and is a constant in at least one of the versions."""
    constants = [isinstance(side, ast.Constant) for side in (old, new)]
    if old is None or new is None or not any(constants):
        return False
    return dump_of(old) != dump_of(new)


def _others(old: ast.expr | None, new: ast.expr | None, known: frozenset[str]) -> bool:
    """Return whether an argument changed from one variable to another, and both versions have both variables."""
    if not isinstance(old, ast.Name) or not isinstance(new, ast.Name):
        return False
    return old.id != new.id and {old.id, new.id} <= known
