"""Comparison of the Python definitions that a patch's added lines use, between two versions."""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from patchq.drift._api.calls import LIKENESS, judge_call, likeness
from patchq.drift._api.signatures import Signature, SignatureChange
from patchq.drift._python.counterparts import Counterparts, fits, shown_fact, shown_signature
from patchq.drift._python.facts import PythonFile, names_of, names_on
from patchq.drift._python.overrides import Overrides
from patchq.drift._python.relevance import is_in_helpers, python_steps, with_helpers
from patchq.drift._python.shape import (
    FunctionNode,
    body_of,
    clone,
    dump_of,
    reports,
    shaped_body,
    walk,
    without_arguments,
)
from patchq.drift._versions.comparison import (
    MOST_DEFINERS,
    Comparison,
    Reporter,
    Touch,
    Use,
    place_of,
)
from patchq.drift._versions.tree import Found, Tree
from patchq.drift.alarms import Kind, Unseen
from patchq.drift.bodies import Fact
from patchq.names import show_path

#: Members of built-in classes. The object of a member with such a name need not be upstream's.
_BUILT_IN = {name for kind in (dict, list, set, str, bytes, int, tuple) for name in dir(kind)}
_BUILT_INS = frozenset(dir(builtins))
#: Most levels of calls to follow from a called function.
_MOST_CALLS = 2
#: Minimum number of keyword arguments to recognize a method if the class of its object is unknown.
_LEAST_KEYWORDS = 2
#: Minimum number of equal parameters to recognize two functions as peers.
_LEAST_PARAMETERS = 3
#: String that may be a key or a registered name.
_KEY = re.compile(r"[A-Za-z_]\w{3,}")


class PythonUses:
    """Comparison of the Python definitions that added lines use."""

    def __init__(self, whole: Comparison, counterparts: Counterparts) -> None:
        self.whole, self.old, self.new = whole, whole.old, whole.new
        self.counterparts = counterparts
        #: Uses of ``x.name`` with an ``x`` of unknown class, by ``name``.
        self.open: dict[str, list[tuple[Touch, Use]]] = {}
        self._followed: set[tuple[str, Found, Found]] = set()
        self.overrides = Overrides(whole, counterparts)
        self._seen: set[tuple[str, bytes, str, str]] = set()

    def compare(
        self, touch: Touch, after: PythonFile, base: PythonFile | None, target: bytes | None, new: PythonFile | None
    ) -> None:
        old_view = self.old.over(touch.path, after)
        if new is None or target is None or (target == touch.path and target not in self.whole.changed):
            new_view, path = self.new.over(touch.path, after), touch.path
            new_file = after
        else:
            own = {n: i for n, i in after.imports.items() if base is None or n not in base.imports}
            new_file = replace(new, imports={**new.imports, **own})
            new_view, path = self.new.over(target, new_file), target
        if touch.uses is None:
            resolved = [(u, old_view.infer(u.node, touch.path, u.scope)) for u in _uses_of(after, touch.lines)]
            entries = {id(u.node.value) for u, known in resolved if known and isinstance(u.node, ast.Subscript)}
            touch.uses = [pair for pair in resolved if id(pair[0].node) not in entries]
        for use, found in touch.uses:
            self._use(touch, use, found, new_view, path)
        if base is not None:
            self._bindings(touch, after, base, new_file)
            self._unbound(touch, after, base, new_file)
        self._peers(touch, after)
        if touch.keys is None:
            touch.keys = list(_keys_on(after, touch.lines))
        for node in touch.keys:
            self._key(touch, node, after.function_at(node.lineno))

    def _key(self, touch: Touch, node: ast.Constant, scope: str) -> None:
        """Add an alarm if a string, such as a registered name, is in the old version but not in the new version."""
        word = str(node.value)
        quoted = [f"{quote}{word}{quote}".encode() for quote in ("'", '"')]
        files = self.whole.files_with(word.encode(), "python")
        if not any(each in self.old.content(path) for path in files for each in quoted):
            return
        python = [path for path in self.new.entries if path.endswith(b".py")]
        for path in (*files, *python):
            if any(each in self.new.content(path) for each in quoted):
                return
        self.whole.alarm(touch, Kind.REMOVED, node.lineno, scope, callee=repr(node.value), was=repr(node.value))

    def _bindings(self, touch: Touch, after: PythonFile, base: PythonFile, new: PythonFile) -> None:
        """Add alarms for names on added lines that the new version of the file no longer defines or imports."""
        if new is after or new.stars:
            return
        known = set(base.imports) | {n for n in base.facts if "." not in n}
        there = set(new.imports) | {n for n in new.facts if "." not in n} | set(touch.added)
        for node, scope in names_of(after, touch.lines):
            local = after.bound(scope)
            if node.id in known and node.id not in there and node.id not in local:
                self.whole.alarm(touch, Kind.REMOVED, node.lineno, scope, callee=node.id, was=node.id)

    def _unbound(self, touch: Touch, after: PythonFile, base: PythonFile, new: PythonFile) -> None:
        """Add an alarm for each name that the patch removes from a module if the new version has more uses of it."""
        if new is after or touch.python is None:
            return
        before = touch.python[0]
        removed = {n for n in (*before.imports, *before.facts) if "." not in n} - {*after.imports, *after.facts}
        counts = [Counter(node.id for node in _loads(file)) for file in (base, new)]
        for name in sorted(removed):
            if counts[1][name] > counts[0][name]:
                line = min(touch.removed, default=0)
                self.whole.alarm(touch, Kind.MENTION, line, "", callee=name, was=str(counts[0][name]), now=name)

    def _peers(self, touch: Touch, after: PythonFile) -> None:
        """Compare functions that have the same parameters as an added function, in all files that the patch changes."""
        for name in touch.added:
            fact = after.fact(name)
            names = [p.name for p in fact.parameters or ()] if fact else []
            if fact is None or len(names) < _LEAST_PARAMETERS:
                continue
            for other in self.whole.touches:
                target = self.whole.new_path(other.path)
                base = self.old.python(other.path) if other.patch == touch.patch else None
                new = self.new.python(target) if base and target else None
                if base and new and target and other.path in self.whole.changed:
                    self._compare_peers(touch, fact, names, other, (base, new), target)

    def _compare_peers(
        self,
        touch: Touch,
        fact: Fact,
        names: list[str],
        other: Touch,
        files: tuple[PythonFile, PythonFile],
        target: bytes,
    ) -> None:
        base, new = files
        for peer, facts in base.facts.items():
            there = new.fact(peer)
            if [p.name for p in facts[-1].parameters or ()] != names or peer in other.functions or there is None:
                continue
            say = Reporter(self.whole, touch, fact.line, fact.name, peer, place_of(target, there.line))
            if facts[-1].parameters != there.parameters:
                say(Kind.PEER, shown_fact(facts[-1]), shown_fact(there))
            elif base.body(peer) != new.body(peer) and not self._refactored(base, peer, new, peer):
                say(Kind.PEER, *_different_lines(base.nodes[peer], new.nodes[peer]))

    def _use(self, touch: Touch, use: Use, found: Found | None, new_view: Tree, path: bytes) -> None:
        if found is None:
            if isinstance(use.node, ast.Attribute) and use.node.attr not in _BUILT_IN:
                self.open.setdefault(use.node.attr, []).append((touch, use))
            return
        found = replace(found, instance=False)
        if not found.path or (use.call is None and not found.name):
            return
        fact = self.old.fact(found)
        if fact is None or ("attribute" in fact.traits and use.call is not None):
            self._module_gone(touch, use, found)
            return
        there = new_view.infer(use.node, path, use.scope)
        # A name that a patch imports must be in its module; a member is found through its object.
        member = isinstance(use.node, ast.Attribute) and "." in found.name
        counterpart = self.counterparts.followed(found) if member else self.counterparts.counterpart(found)
        if there is None or not there.path or self.new.fact(replace(there, instance=False)) is None:
            there = counterpart
        else:
            there = replace(there, instance=False)
        self._compare_use(touch, use, found, fact, there, counterpart)

    def _module_gone(self, touch: Touch, use: Use, found: Found) -> None:
        if not found.name and found.path in self.old.entries and self.whole.new_path(found.path) is None:
            self.whole.alarm(
                touch, Kind.REMOVED, use.node.lineno, use.scope, callee=ast.unparse(use.node), was=show_path(found.path)
            )

    def _compare_use(
        self, touch: Touch, use: Use, found: Found, fact: Fact, there: Found | None, counterpart: Found | None
    ) -> None:
        line, scope, shown = use.node.lineno, use.scope, fact.name
        new_fact = self.new.fact(there) if there else None
        if there is None or new_fact is None:
            now = self.counterparts.elsewhere(fact)
            was = place_of(found.path, fact.line)
            self.whole.alarm(touch, Kind.REMOVED, line, scope, callee=shown, was=was, now=now)
            return
        key = (touch.patch, found.path, found.name, ast.unparse(use.call or use.node))
        if key in self._seen:
            return
        self._seen.add(key)
        new_file = self.new.python(there.path)
        assert new_file is not None
        at = place_of(there.path, new_file.facts[there.name][-1].line)
        say = Reporter(self.whole, touch, line, scope, shown, at)
        if use.call is not None and fact.kind in ("function", "class"):
            self._compare_call(say, touch, use, found, there)
        if use.call is not None and fact.kind == "function":
            self._compare_callees(touch, use, found)
        self._new_overrides(say, found)
        if use.call is not None and fact.kind == "class":
            self._compare_constructor(say, found, there)
        if self.old.blob(found.path) != self.new.blob(there.path) or found.name != there.name:
            self._compare_definition(say, found, fact, there, new_fact, counterpart)

    def _compare_definition(
        self, say: Reporter, found: Found, fact: Fact, there: Found, new_fact: Fact, counterpart: Found | None
    ) -> None:
        """Compare a definition that the patch uses with the definition that its name refers to in the new version."""
        old_file, new_file = self.old.python(found.path), self.new.python(there.path)
        assert old_file is not None
        assert new_file is not None
        if counterpart and there != counterpart and not _alike(old_file, found.name, new_file, there.name):
            say(Kind.BINDING, place_of(found.path, fact.line), say.at)
        if _sort_of(fact) != _sort_of(new_fact):
            say(Kind.BINDING, _sort_of(fact), _sort_of(new_fact))
        elif fact.kind == "function" and new_fact.kind == "function":
            self._compare_function(say, found, fact, there, new_fact, old_file, new_file)
        elif fact.kind == "value" and new_fact.kind == "value":
            self._compare_value(say, found, there, old_file, new_file)
        elif fact.kind == "class":
            self._compare_class(say, found, there)
        if fact.guards != new_fact.guards:
            say(Kind.GUARD, " and ".join(fact.guards), " and ".join(new_fact.guards))
        if len(new_file.facts[there.name]) > len(old_file.facts[found.name]) and fact.kind != "value":
            say(Kind.DUPLICATE, fact.name, new_fact.name)

    def _new_overrides(self, say: Reporter, found: Found) -> None:
        """Add alarms for new and changed overrides of a method that the patch calls or a constant that it reads."""
        fact = self.old.fact(found)
        if fact and "attribute" not in fact.traits and "." in found.name:
            for path, name, line in self.overrides.new(found.path, found.name, super_counts=True):
                say(Kind.OVERRIDE, "", f"{name} ({place_of(path, line)})")
            for old, there in self.overrides.changed(found.path, found.name):
                self._compare_override(say, old, there)

    def _compare_override(self, say: Reporter, found: Found, there: Found) -> None:
        """Compare the old and new version of a subclass method that a call may reach."""
        facts = self.old.fact(found), self.new.fact(there)
        files = self.old.python(found.path), self.new.python(there.path)
        if facts[0] and facts[1] and files[0] and files[1] and facts[0].kind == facts[1].kind == "function":
            here = replace(say, callee=found.name, at=place_of(there.path, facts[1].line))
            self._compare_function(here, found, facts[0], there, facts[1], files[0], files[1])

    def _compare_constructor(self, say: Reporter, found: Found, there: Found) -> None:
        """Compare the constructors of a class that the patch instantiates."""
        sides = self.old.member(found, "__init__"), self.new.member(there, "__init__")
        if sides[0] is None or sides[1] is None or self.old.blob(sides[0].path) == self.new.blob(sides[1].path):
            return
        facts = self.old.fact(sides[0]), self.new.fact(sides[1])
        files = self.old.python(sides[0].path), self.new.python(sides[1].path)
        if facts[0] and facts[1] and files[0] and files[1]:
            self._compare_function(say, sides[0], facts[0], sides[1], facts[1], files[0], files[1])

    def _compare_class(self, say: Reporter, found: Found, there: Found) -> None:
        """Add alarms if the decorators of a class changed, or if it lost a base class."""
        was, now = self.old.fact(found), self.new.fact(there)
        if was is None or now is None:
            return
        if was.traits != now.traits:
            say(Kind.TRAITS, ", ".join(was.traits), ", ".join(now.traits))
        kept = {_simple(base) for base in now.bases}
        for ancestor in self.new.ancestors(there):
            fact = self.new.fact(ancestor)
            kept |= {_simple(ancestor.name), *(_simple(base) for base in (fact.bases if fact else ()))}
        if not {_simple(base) for base in was.bases} <= kept | {"object"}:
            say(Kind.BASES, ", ".join(was.bases), ", ".join(now.bases))

    def _compare_value(
        self, say: Reporter, found: Found, there: Found, old_file: PythonFile, new_file: PythonFile
    ) -> None:
        """Compare a constant, a table entry or an attribute; for an enum member, compare its class as well."""
        was, now = old_file.value(found.name), new_file.value(there.name)
        entries = self._entry_values(found, there)
        if was != now and (was or now) and not _keeps_entries(was, now):
            say(Kind.CONSTANT, was, now)
        elif entries[0] != entries[1]:
            say(Kind.CONSTANT, *entries)
        elif (pair := _assigned(old_file, found.name, new_file, there.name)) is not None:
            say(Kind.CONSTANT, *pair)
        owners = [replace(one, name=one.name.rpartition(".")[0]) for one in (found, there)]
        owner = self.old.fact(owners[0])
        if owner and any(base.endswith(("Enum", "Flag")) for base in owner.bases):
            self._compare_class(say, *owners)

    def _compare_function(
        self,
        say: Reporter,
        found: Found,
        fact: Fact,
        there: Found,
        new_fact: Fact,
        old_file: PythonFile,
        new_file: PythonFile,
    ) -> None:
        if fact.traits != new_fact.traits:
            say(Kind.TRAITS, ", ".join(fact.traits), ", ".join(new_fact.traits))
        if (fact.returns != new_fact.returns and max(fact.returns + new_fact.returns) > 1) or (
            fact.returns + new_fact.returns and (0 in fact.returns) != (0 in new_fact.returns)
        ):
            was, now = (", ".join(map(str, r)) for r in (fact.returns, new_fact.returns))
            say(Kind.RESULT, was, now)
        self._compare_raised(say, found, there, old_file, new_file)
        bodies = old_file.body(found.name), new_file.body(there.name)
        if bodies[0] != bodies[1]:
            nodes = old_file.nodes[found.name], new_file.nodes[there.name]
            known = {p.name for p in fact.parameters or ()}
            added = {p.name for p in new_fact.parameters or () if p.default is not None} - known
            if body_of(without_arguments(nodes[1], added)) == bodies[0]:
                return
            masked = [body_of(node, masked=True) for node in nodes]
            single = all(body.startswith("Return(") and ";" not in body for body in bodies)
            if masked[0] == masked[1] or single:
                say(Kind.CONSTANT, *_different_lines(*nodes))
            elif not self._refactored(old_file, found.name, new_file, there.name) and not _only_for(*nodes, added):
                say(Kind.BEHAVIOUR, *_different_lines(*nodes))

    def _refactored(self, old_file: PythonFile, name: str, new_file: PythonFile, new_name: str) -> bool:
        """Return whether two versions of a function are equal after inlining helpers that only one version has."""
        sides = with_helpers(old_file, name, new_file), with_helpers(new_file, new_name, old_file)
        return body_of(sides[0]) == body_of(sides[1]) or is_in_helpers(old_file, name, new_file, new_name)

    def _compare_callees(self, touch: Touch, use: Use, found: Found, steps: int = _MOST_CALLS) -> None:
        """Compare the functions that a called function calls, directly or indirectly (up to ``steps`` levels)."""
        file = self.old.python(found.path)
        node = file.nodes.get(found.name) if file else None
        for child in walk(node) if isinstance(node, FunctionNode) else ():
            if not isinstance(child, ast.Call) or reports(child.func):
                continue
            called = self.old.infer(child.func, found.path, found.name)
            fact = self.old.fact(replace(called, instance=False)) if called and called.path else None
            if called is None or fact is None or fact.kind != "function" or called.name == found.name:
                continue
            called = replace(called, instance=False)
            if steps > 1 and (touch.patch, found, called) not in self._followed:
                self._followed.add((touch.patch, found, called))
                self._compare_callees(touch, use, called, steps - 1)
            there = self.counterparts.followed(called)
            if there is None or self.old.blob(called.path) == self.new.blob(there.path):
                continue
            key = (touch.patch, called.path, called.name, "")
            old_file, new_file = self.old.python(called.path), self.new.python(there.path)
            new_fact = self.new.fact(there)
            if key in self._seen or not old_file or not new_file or not new_fact or new_fact.kind != "function":
                continue
            self._seen.add(key)
            at = place_of(there.path, new_fact.line)
            say = Reporter(self.whole, touch, use.node.lineno, use.scope, f"{found.name} > {called.name}", at)
            self._compare_function(say, called, fact, there, new_fact, old_file, new_file)

    def _compare_raised(
        self, say: Reporter, found: Found, there: Found, old_file: PythonFile, new_file: PythonFile
    ) -> None:
        """Compare the exceptions that a function raises.

        An exception that the function no longer raises counts only if the patch's added lines name the exception.
        """
        facts = self.old.fact(found), self.new.fact(there)
        names = [{p.name for p in (fact.parameters if fact else None) or ()} for fact in facts]
        was = old_file.raises(found.name, new_file.facts)
        now = new_file.raises(there.name, old_file.facts, names[1] - names[0])
        assert say.touch.python is not None
        named = names_on(say.touch.python[1], say.touch.lines)
        if now - was or (was - now) & named:
            sides = [f"raises {', '.join(sorted(each)) or 'nothing'}" for each in (was, now)]
            say(Kind.RESULT, *sides)

    def _compare_call(self, say: Reporter, touch: Touch, use: Use, found: Found, there: Found) -> None:
        assert use.call is not None
        sides = self.counterparts.signature(self.old, found), self.counterparts.signature(self.new, there)
        if sides[0] is None or sides[1] is None or sides[0].parameters == sides[1].parameters:
            return
        old, new = sides
        assert old is not None
        assert new is not None
        call = use.call
        was, now = shown_signature(old), shown_signature(new)
        starred = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
        if starred:
            if not _extends(old, new):
                say(Kind.SIGNATURE, was, now, ast.unparse(call))
            else:
                self.whole.not_compared(touch, Unseen.DYNAMIC, call.lineno, ast.unparse(call.func))
            return
        kinds = {kind for kind, _ in judge_call(_as_before(call, old), SignatureChange(old, new))}
        if "changed default" in kinds:
            say(Kind.DEFAULT, was, now, ast.unparse(call))
            kinds.discard("changed default")
        if kinds:
            say(Kind.SIGNATURE, was, now, ast.unparse(call))

    def _entry_values(self, found: Found, there: Found) -> tuple[str, str]:
        """Return the old and new value of the dict entry with the used name as key; empty if there is no entry."""
        values = []
        for tree, one in ((self.old, found), (self.new, there)):
            file = tree.python(one.path)
            entry = tree._entry(one.path, one.name) if file and "." not in one.name else None
            values.append(file.value(entry.name) if file and entry else "")
        return values[0], values[1]

    # Members of unknown receivers

    def finish(self) -> None:
        """Compare the uses of ``x.name`` with an ``x`` of unknown class, by looking for members called ``name``."""
        python = [p for p in self.whole.changed if p.endswith(b".py")]
        if not self.open or not python:
            return
        defined: set[bytes] = set()
        for path in python:
            blob = self.old.blob(path)
            defined |= self.old.files.defined(blob) if blob else frozenset()
        for name in sorted(name for name in self.open if name.encode() in defined):
            candidates = self._candidates(name, self.old.definers(name))
            for touch, use in self.open[name]:
                if candidates is not None:
                    self._unknown(touch, use, candidates)
                elif use.call is not None:
                    self.whole.not_compared(touch, Unseen.DYNAMIC, use.node.lineno, ast.unparse(use.node))
            if not self._is_anywhere(name):
                for touch, use in self.open[name]:
                    self.whole.alarm(
                        touch, Kind.REMOVED, use.node.lineno, use.scope, callee=ast.unparse(use.node), was=name
                    )

    def _candidates(self, name: str, paths: Sequence[bytes]) -> list[Found] | None:
        """Return the members called ``name`` in the given files; None if there are too many files."""
        if len(paths) > MOST_DEFINERS:
            return None
        found = []
        for path in paths:
            file = self.old.python(path)
            found += [Found(path, n) for n in (file.facts if file else ()) if n.endswith(f".{name}")]
        return found

    def _is_anywhere(self, name: str) -> bool:
        if self.new.definers(name):
            return True
        word = name.encode()
        paths = [p for p in self.new.entries if p.endswith(b".py")]
        self.new.files.bring(blob for p in paths if (blob := self.new.blob(p)))
        return any(word in self.new.content(p) for p in paths)

    def _unknown(self, touch: Touch, use: Use, candidates: Sequence[Found]) -> None:
        chosen = None
        if use.call is None:
            chosen = candidates[0] if len(candidates) == 1 else None
        else:
            chosen = self._called(use.call, candidates)
            if chosen is None and candidates:
                self._any_refuses(touch, use, candidates)
                self.whole.not_compared(touch, Unseen.DYNAMIC, use.node.lineno, ast.unparse(use.node))
        fact = self.old.fact(chosen) if chosen else None
        if chosen and fact:
            there = self.counterparts.followed(chosen)
            self._compare_use(touch, use, chosen, fact, there, there)

    def _any_refuses(self, touch: Touch, use: Use, candidates: Sequence[Found]) -> None:
        """Add alarms for candidates that no longer accept the keywords of a call whose method is uncertain."""
        assert use.call is not None
        given = {k.arg for k in use.call.keywords if k.arg}
        for candidate in candidates:
            old = self.counterparts.signature(self.old, candidate)
            there = self.counterparts.counterpart(candidate)
            new = self.counterparts.signature(self.new, there) if there else None
            if not old or not new or not there or not fits(use.call, old) or fits(use.call, new):
                continue
            if len(given & {p.name for p in old.parameters}) >= _LEAST_KEYWORDS:
                at = place_of(there.path, self.new.fact(there).line)  # type: ignore[union-attr]
                say = Reporter(self.whole, touch, use.node.lineno, use.scope, candidate.name, at)
                say(Kind.SIGNATURE, shown_signature(old), shown_signature(new), ast.unparse(use.call))

    def _called(self, call: ast.Call, candidates: Sequence[Found]) -> Found | None:
        """Return the method that ``x.method()`` calls, for an ``x`` of unknown class; None if that is uncertain.

        The method's signature must accept the call, either as upstream defines it or as a patch changes it.
        """
        fitting = []
        for candidate in candidates:
            signature = self.counterparts.signature(self.old, candidate)
            if signature and any(fits(call, s) for s in (signature, *self._patched(candidate))):
                fitting.append((likeness(call, signature), candidate))
        if not fitting:
            return None
        best = max(fitting, key=lambda pair: pair[0])
        if len(candidates) == 1 or best[0] >= LIKENESS:
            return best[1]
        return self._root(candidates)

    def _root(self, candidates: Sequence[Found]) -> Found | None:
        """Return the candidate that all other candidates override; None if there is none."""
        owners = {c: Found(c.path, c.name.rpartition(".")[0]) for c in candidates}
        for candidate, owner in owners.items():
            if all(other == owner or owner in self.old.ancestors(other) for other in owners.values()):
                return candidate
        return None

    def _patched(self, found: Found) -> Iterator[Signature]:
        """Yield the signatures of a function in the patched files of the stack."""
        for touch in self.whole.touches:
            fact = touch.python[1].fact(found.name) if touch.path == found.path and touch.python else None
            if fact and fact.parameters is not None:
                yield Signature(f".{fact.name}", fact.parameters)


def _as_before(call: ast.Call, old: Signature) -> ast.Call:
    """Return a call without arguments for parameters that only the stack adds."""
    if old.accepts(len(call.args), {k.arg for k in call.keywords if k.arg}):
        return call
    known = [k for k in call.keywords if k.arg and old.find(k.arg)]
    return ast.copy_location(ast.Call(call.func, call.args[: len(old.positional)], known), call)


def _only_for(old: ast.stmt, new: ast.stmt, added: set[str]) -> bool:
    """Return whether the only change of a function is new statements that read its new optional parameters."""
    kept = []
    for step in python_steps(new):
        if not step.reads & added and added.isdisjoint(re.findall(r"\w+", " ".join(step.around))):
            kept.append(step.text)
    return bool(added) and kept == [step.text for step in python_steps(old)]


def _loads(file: PythonFile) -> Iterator[ast.Name]:
    for node in file.walked():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node


def _sort_of(fact: Fact) -> str:
    """Return ``function``, ``class`` or ``value``. A property counts as a value."""
    if fact.kind == "value" or any("property" in trait for trait in fact.traits):
        return "value"
    return "class" if fact.kind == "class" else "function"


def _simple(name: str) -> str:
    return name.partition("[")[0].rpartition(".")[2]


def _keeps_entries(was: str, now: str) -> bool:
    """Return whether a dict with constant keys kept all entries. New entries and another order are allowed."""
    sides = []
    for text in (was, now):
        try:
            node = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError):
            return False
        if not isinstance(node, ast.Dict) or not all(isinstance(key, ast.Constant) for key in node.keys):
            return False
        sides.append({(ast.unparse(k), ast.unparse(v)) for k, v in zip(node.keys, node.values, strict=True) if k})
    return sides[0] <= sides[1]


def _assigned(old: PythonFile, old_name: str, new: PythonFile, new_name: str) -> tuple[str, str] | None:
    """Return the old and new value of an attribute that is assigned once.

    Return None if the values differ only in the names of local variables.
    """
    was, now = old.assigned.get(old_name, []), new.assigned.get(new_name, [])
    if len(was) != 1 or len(now) != 1 or dump_of(was[0]) == dump_of(now[0]):
        return None
    sides = [_without_locals(value, file) for value, file in ((was[0], old), (now[0], new))]
    return (ast.unparse(was[0]), ast.unparse(now[0])) if sides[0] != sides[1] else None


def _without_locals(node: ast.expr, file: PythonFile) -> str:
    """Return the normalized text of an expression, with ``%`` for each name that its file doesn't define or import."""
    found = clone(node)
    for child in walk(found):
        if isinstance(child, ast.Name) and child.id not in file.facts and child.id not in file.imports:
            child.id = child.id if child.id in _BUILT_INS else "%"
    return dump_of(found)


def _alike(old: PythonFile, old_name: str, new: PythonFile, new_name: str) -> bool:
    one, other = old.nodes.get(old_name), new.nodes.get(new_name)
    if one is None or other is None or not isinstance(one, FunctionNode | ast.ClassDef):
        return True
    return isinstance(other, FunctionNode | ast.ClassDef) and old.body(old_name) == new.body(new_name)


def _extends(old: Signature, new: Signature) -> bool:
    """Return whether the only change of a signature is that it gained optional parameters at its end."""
    kept = new.parameters[: len(old.parameters)]
    rest = new.parameters[len(old.parameters) :]
    return kept == old.parameters and all(p.default is not None or p.kind.startswith("variadic") for p in rest)


def _different_lines(one: ast.stmt, other: ast.stmt) -> tuple[str, str]:
    """Return the first differing line of each of two definitions."""
    sides = ["\n".join(map(ast.unparse, shaped_body(node))).split("\n") for node in (one, other)]
    for before, after in zip(*sides, strict=False):
        if before != after:
            return before.strip(), after.strip()
    return "", ""


def _uses_of(file: PythonFile, lines: set[int]) -> Iterator[Use]:
    """Yield the calls, names and attributes on added lines."""
    called: set[int] = set()
    for node in file.walked():
        if isinstance(node, ast.Call) and not lines.isdisjoint(range(node.lineno, (node.end_lineno or 0) + 1)):
            if not _own_lines(node, lines):
                continue
            called.add(id(node.func))
            yield Use(node.func, file.function_at(node.lineno), node)
    for node in file.walked():
        if not isinstance(node, ast.Attribute | ast.Name | ast.Subscript) or not isinstance(node.ctx, ast.Load):
            continue
        if isinstance(node, ast.Name) and node.id in ("self", "cls"):
            continue
        if node.end_lineno in lines and id(node) not in called:
            yield Use(node, file.function_at(node.lineno))


def _keys_on(file: PythonFile, lines: set[int]) -> Iterator[ast.Constant]:
    """Yield strings on added lines that may be names: arguments, compared values and subscripts."""
    for node in file.walked():
        given: list[ast.expr] = []
        if isinstance(node, ast.Call) and not reports(node.func):
            given = [*node.args, *(k.value for k in node.keywords)]
        elif isinstance(node, ast.Compare):
            given = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            given = [node.slice]
        for each in given:
            text = each.value if isinstance(each, ast.Constant) and each.lineno in lines else None
            if isinstance(each, ast.Constant) and isinstance(text, str) and _KEY.fullmatch(text):
                yield each


def _own_lines(node: ast.Call, lines: set[int]) -> bool:
    """Return whether a line of the call, outside of lambdas in its arguments, was added."""
    mine = {node.func.end_lineno or node.lineno}
    for argument in [*node.args, *(k.value for k in node.keywords)]:
        if not isinstance(argument, ast.Lambda):
            mine.update(range(argument.lineno, (argument.end_lineno or 0) + 1))
    return not mine.isdisjoint(lines)
