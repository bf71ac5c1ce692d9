"""Comparison of the C++ and CUDA definitions that a patch's added lines use, between two versions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from patchq.drift._api.signatures import Parameter
from patchq.drift._cpp import facts as cpp_facts
from patchq.drift._cpp.facts import CppFile, CppUse
from patchq.drift._versions.comparison import (
    LEAST_ALONE,
    MOST_DEFINERS,
    Comparison,
    Reporter,
    Touch,
    place_of,
)
from patchq.drift.alarms import Kind
from patchq.drift.bodies import Fact, folded, lines_of

#: Most levels of nested constants to replace by their values.
_EXPANSIONS = 4
#: Number of tokens of a changed function to show.
_SHOWN = 12


class CppUses:
    """Comparison of the C++ definitions that added lines use."""

    def __init__(self, whole: Comparison) -> None:
        self.whole, self.old, self.new = whole, whole.old, whole.new
        self._seen: set[tuple[str, bytes, str, int]] = set()
        self._reach: dict[bytes, set[bytes]] = {}

    def compare(self, touch: Touch, use: CppUse, after: CppFile, new: CppFile | None) -> None:
        simple = use.name.rpartition("::")[2]
        if len(simple) < 3 or not re.fullmatch(r"\w+", simple):
            return
        function, number = after.function_at(use.line)
        if function and not use.member and "::" not in use.name:
            local = cpp_facts.local_names(after, after.nodes[function][number])
            if simple in local:
                self._local(touch, use, function, simple, after, new)
                return
        if any(n.rpartition("::")[2] == simple for n in touch.added):
            return
        for path, names in self._definitions(touch, use, simple):
            for name in names:
                self._compare_use(touch, use, function, path, name)

    def _local(
        self, touch: Touch, use: CppUse, function: str, simple: str, after: CppFile, new: CppFile | None
    ) -> None:
        """Add an alarm if an added line uses a local variable that the new version of the function lacks."""
        base = self.old.cpp(touch.path)
        if base is None or new is None or function not in base.nodes or function not in new.nodes:
            return
        was, now = _local_names(base, function), _local_names(new, function)
        key = (touch.patch, touch.path, f"{function} {simple}", 0)
        if simple in was and simple not in now and key not in self._seen:
            self._seen.add(key)
            self.whole.alarm(touch, Kind.REMOVED, use.line, function, callee=simple, was=simple)

    def _definitions(self, touch: Touch, use: CppUse, simple: str) -> list[tuple[bytes, list[str]]]:
        """Return the old definitions in changed files to which a name may refer, as pairs of file and names."""
        if touch.path not in self._reach:
            self._reach[touch.path] = self.old.includes(touch.path, touch.after)
        paths = self.whole.files_with(simple.encode(), "c++")
        reached = [p for p in paths if p in self._reach[touch.path]]
        near = self._named(touch.path, use, simple) if touch.path in paths else []
        if near:
            return [(touch.path, near)]
        found = [(p, names) for p in reached if (names := self._named(p, use, simple))]
        if found or len(simple) < LEAST_ALONE or len(paths) > MOST_DEFINERS:
            return found
        others = [(p, names) for p in paths if (names := self._named(p, use, simple))]
        return others if len(others) == 1 and len(others[0][1]) == 1 else []

    def _named(self, path: bytes, use: CppUse, simple: str) -> list[str]:
        """Return the names of the old definitions in a file to which a use may refer."""
        file = self.old.cpp(path)
        names = [n for n in (file.facts if file else ()) if n.rpartition("::")[2] == simple]
        if "::" in use.name:
            return [n for n in names if _is_spelled(use.name, n) or _is_spelled(use.name, _without_enum(n))]
        return [n for n in names if "::" in n] if use.member else names

    def _compare_use(self, touch: Touch, use: CppUse, function: str, path: bytes, name: str) -> None:
        key = (touch.patch, path, name, use.arguments)
        if key in self._seen:
            return
        self._seen.add(key)
        old = self.old.cpp(path)
        assert old is not None
        was = old.facts[name]
        place, now = self._new_facts(path, name)
        if not now:
            if "#" in name:
                return
            now_at = self._elsewhere(name)
            self.whole.alarm(
                touch, Kind.REMOVED, use.line, function, callee=name, was=place_of(path, was[0].line), now=now_at
            )
            return
        say = Reporter(self.whole, touch, use.line, function, name, place_of(place, now[-1].line))
        self._compare_places(say, touch, name, path, place)
        called = [f for f in was if f.parameters is not None and f.kind in ("function", "macro")]
        if called and (use.arguments >= 0 or was[0].kind == "macro"):
            self._compare_calls(say, use, called, [f for f in now if f.parameters is not None])
        self._compare_templates(say, was, now)
        values = (
            [_expanded(old, f.value) for f in was if f.kind in ("value", "macro")],
            [_expanded(self.new.cpp(place), f.value) for f in now if f.kind in ("value", "macro")],
        )
        if values[0] != values[1]:
            say(Kind.CONSTANT, " | ".join(values[0]), " | ".join(values[1]))
        guards = [f.guards for f in was], [f.guards for f in now]
        if len(guards[0]) == len(guards[1]) and guards[0] != guards[1]:
            say(Kind.GUARD, _shown_guards(was), _shown_guards(now))
        if was[0].kind == "class":
            self._compare_fields(say, name, path, place)
        if {f.kind for f in was} == {"value"} and {f.kind for f in now} == {"class"}:
            say(Kind.BINDING, was[0].value, f"class {name}")
        if called and use.arguments >= 0:
            self._compare_asserts(say, name, path, place)
            self._compare_bodies(say, old, name, place, was, now)
            before, after = _defined_types(was), _defined_types(now)
            if any(after.count(types) > before.count(types) > 0 for types in before):
                say(Kind.DUPLICATE, name, name)

    def includes(self, touch: Touch, used: Iterable[CppUse]) -> None:
        """Add alarms for used names whose header the file no longer includes in the new version."""
        target = self.whole.new_path(touch.path)
        if target is None or self.whole.includes_added(touch):
            return
        there = self.new.includes(target)
        lost = [p for p in self.old.includes(touch.path) - there if self.whole.new_path(p) not in there]
        if not lost:
            return
        names: list[set[str]] = []
        for tree, paths in ((self.old, lost), (self.new, sorted(there))):
            names.append(_simple_names(tree.cpp(path) for path in paths))
        for use in used:
            simple = use.name.rpartition("::")[2]
            if simple in names[0] - names[1]:
                function = touch.cpp[1].function_at(use.line)[0] if touch.cpp else ""
                self.whole.alarm(touch, Kind.REMOVED, use.line, function, callee=simple, was=simple)

    def asserts(self, touch: Touch, names: set[str]) -> None:
        """Add alarms for each new ``static_assert`` outside of functions that contains a name the patch uses."""
        for path in sorted(self._reach.get(touch.path, set()) & self.whole.changed):
            target = self.whole.new_path(path)
            old, new = self.old.cpp(path), self.new.cpp(target) if target else None
            for text, (line, _) in new.asserts.items() if new else ():
                about = names & set(text.split())
                if target and about and (old is None or text not in old.asserts):
                    at = place_of(target, line)
                    self.whole.alarm(touch, Kind.GUARD, 0, "", callee=min(about), now=text, at=at)

    def _compare_places(self, say: Reporter, touch: Touch, name: str, path: bytes, place: bytes) -> None:
        """Add an alarm if a definition moved to another namespace.

        There is no alarm if the patched file is in the new namespace or has a ``using namespace`` for it.
        """
        old, new = self.old.cpp(path), self.new.cpp(place)
        if old is None or new is None:
            return
        was = {cpp_facts.namespace_of(old, node) for node in old.nodes[name]}
        now = {cpp_facts.namespace_of(new, node) for node in new.nodes[name]}
        target = self.whole.new_path(touch.path)
        file = self.new.cpp(target) if target else None
        if was & now or file is None or target is None:
            return
        text = self.new.content(target)
        used = any(f"using namespace {space}".encode() in text for space in now)
        if not used and not _is_within(file, touch.functions, now):
            say(Kind.BINDING, ", ".join(sorted(was)), ", ".join(sorted(now)))

    def _compare_fields(self, say: Reporter, name: str, path: bytes, place: bytes) -> None:
        """Compare the order of a struct's fields if an added line may set them by position, as in ``S{1, 2}``."""
        simple = re.escape(name.rpartition("::")[2])
        added = [line for number, line in enumerate(lines_of(say.touch.after), 1) if number in say.touch.lines]
        if not re.search(rf"\b{simple}\b[^;()]*\{{".encode(), b"\n".join(added)):
            return
        sides = []
        for tree, at in ((self.old, path), (self.new, place)):
            file = tree.cpp(at)
            fields = [n for n, facts in file.facts.items() if facts[0].kind == "value"] if file else []
            sides.append([n for n in fields if n.rpartition("::")[0] == name])
        if sides[1][: len(sides[0])] != sides[0]:
            say(Kind.SIGNATURE, *(", ".join(n.rpartition("::")[2] for n in side) for side in sides))

    def _compare_asserts(self, say: Reporter, name: str, path: bytes, place: bytes) -> None:
        """Add an alarm for each new ``static_assert`` in a called function."""
        old, new = self.old.cpp(path), self.new.cpp(place)
        if old is None or new is None:
            return
        was, now = _asserts(old, name), _asserts(new, name)
        if now - was:
            say(Kind.GUARD, " && ".join(sorted(was - now)), " && ".join(sorted(now - was)))

    def _compare_templates(self, say: Reporter, was: Sequence[Fact], now: Sequence[Fact]) -> None:
        """Compare template parameters, and the types of fields and constants."""
        there = [kinds_of(f) for f in now]
        for fact in was:
            kinds = kinds_of(fact)
            if any(new[: len(kinds)] == kinds and all("=" in rest for rest in new[len(kinds) :]) for new in there):
                continue
            say(Kind.SIGNATURE, f"<{', '.join(kinds)}>", " | ".join(f"<{', '.join(new)}>" for new in there))
            return

    def _compare_bodies(
        self, say: Reporter, old: CppFile, name: str, path: bytes, was: Sequence[Fact], now: Sequence[Fact]
    ) -> None:
        """Compare the bodies of a called function. A change of only constants or operators is an alarm of its own."""
        new = self.new.cpp(path)
        if new is None or len(was) != len(now):
            return
        for one, other in zip(old.nodes[name], new.nodes[name], strict=False):
            bodies = cpp_facts.body_of(old, one), cpp_facts.body_of(new, other)
            if bodies[0] != bodies[1] and one.type == "function_definition":
                masked = cpp_facts.body_of(old, one, masked=True), cpp_facts.body_of(new, other, masked=True)
                if masked[0] == masked[1]:
                    tokens = [b.split() for b in bodies]
                    pair = next((p for p in zip(*tokens, strict=True) if p[0] != p[1]), ("", ""))
                    say(Kind.CONSTANT, *pair)
                    continue
                statements = _statements(bodies[0]), _statements(bodies[1])
                if statements[0] != statements[1] and not cpp_facts.has_moved(old, new, *bodies):
                    say(Kind.BEHAVIOUR, *_first_difference(*statements))

    def _new_facts(self, path: bytes, name: str) -> tuple[bytes, list[Fact]]:
        """Return the file and the facts of a name in the new version; the facts are empty if it has no definition."""
        target = self.whole.new_path(path)
        file = self.new.cpp(target) if target else None
        if file and target and name in file.facts:
            return target, file.facts[name]
        simple = re.split("::", name)[-1]
        for other in self.whole.files_with(simple.encode(), "c++"):
            file, was = self.new.cpp(other), self.old.cpp(other)
            if file and name in file.facts and (was is None or name not in was.facts):
                return other, file.facts[name]
        return path, []

    def _elsewhere(self, name: str) -> str:
        simple = re.split("::", name)[-1]
        for other in self.whole.files_with(simple.encode(), "c++"):
            file = self.new.cpp(other)
            for its_name, facts in file.facts.items() if file else ():
                if re.split("::", its_name)[-1] == simple:
                    return place_of(other, facts[0].line)
        return ""

    def _compare_calls(self, say: Reporter, use: CppUse, was: Sequence[Fact], now: Sequence[Fact]) -> None:
        count = use.arguments
        fitting = [f for f in was if count < 0 or _accepts(f, count)] or list(was)
        for fact in fitting:
            same = [f for f in now if types_of(f) == types_of(fact)]
            same.sort(key=lambda f: ("declared" in f.traits) != ("declared" in fact.traits))
            best = next((f for f in same if _order_kept(fact, f)), None)
            if best is None and count >= 0:
                best = next((f for f in now if _accepts(f, count) and _begins_alike(fact, f, count)), None)
            if best is None:
                say(Kind.SIGNATURE, signature_of(fact), " | ".join(map(signature_of, now)), use.call)
                continue
            for one, other in list(zip(fact.parameters or (), best.parameters or (), strict=False))[max(count, 0) :]:
                if one.default is not None and other.default is not None and one.default != other.default:
                    say(Kind.DEFAULT, f"{one.name}={one.default}", f"{other.name}={other.default}", use.call)
            if fact.value != best.value and fact.kind == "function" and "auto" not in (fact.value, best.value):
                say(Kind.RESULT, fact.value, best.value)


def distinct(uses: Iterable[CppUse]) -> Iterator[CppUse]:
    """Yield the uses without repetition, and without plain mentions of names that are also called."""
    found: dict[tuple[str, int], CppUse] = {}
    for use in uses:
        found.setdefault((use.name, use.arguments), use)
    called = {name for name, arguments in found if arguments >= 0}
    for (name, arguments), use in found.items():
        if arguments >= 0 or name not in called:
            yield use


def _accepts(fact: Fact, count: int) -> bool:
    parameters: tuple[Parameter, ...] = fact.parameters or ()
    if any("..." in p.kind or "..." in p.name for p in parameters):
        return True
    return sum(p.default is None for p in parameters) <= count <= len(parameters) or (
        fact.kind == "function" and "declared" not in fact.traits and count <= len(parameters)
    )


def _order_kept(one: Fact, other: Fact) -> bool:
    """Return whether the parameters that both signatures have are at the same positions."""
    names = [p.name for p in one.parameters or ()], [p.name for p in other.parameters or ()]
    if names[0] == names[1]:
        return True
    return all(a == b or a not in names[1] or b not in names[0] for a, b in zip(*names, strict=False))


def _begins_alike(one: Fact, other: Fact, count: int) -> bool:
    mine, its = types_of(one)[:count], types_of(other)[:count]
    rest = (other.parameters or ())[count:]
    known = {p.name for p in one.parameters or ()}
    return mine == its and _order_kept(one, other) and all(p.default is not None or p.name in known for p in rest)


def types_of(fact: Fact) -> list[str]:
    return [p.kind for p in fact.parameters or ()]


def kinds_of(fact: Fact) -> tuple[str, ...]:
    return tuple(trait for trait in fact.traits if trait != "declared")


def signature_of(fact: Fact) -> str:
    shown = [f"{p.kind} {p.name}".strip() + (f" = {p.default}" if p.default else "") for p in fact.parameters or ()]
    return f"({', '.join(shown)})"


def _is_spelled(name: str, whole: str) -> bool:
    return whole.endswith(name) or name.endswith(whole)


def _without_enum(name: str) -> str:
    """Return ``A::x`` for ``A::E::x``: a member ``x`` of an unscoped ``enum E`` can be named without ``E``."""
    owner, _, simple = name.rpartition("::")
    above = owner.rpartition("::")[0]
    return f"{above}::{simple}" if above else name


def _expanded(file: CppFile | None, value: str, steps: int = 0) -> str:
    """Return a constant's value, with the names of other constants in the file replaced by their values."""
    if file is None or steps > _EXPANSIONS:
        return value

    def replaced(match: re.Match[str]) -> str:
        facts = file.facts.get(match[0], [])
        known = len(facts) == 1 and facts[0].kind in ("value", "macro") and facts[0].parameters is None
        return f"({_expanded(file, facts[0].value, steps + 1)})" if known and facts[0].value else match[0]

    return folded(re.sub(r"[A-Za-z_]\w*", replaced, value))


def _local_names(file: CppFile, function: str) -> set[str]:
    """Return the local variables in all definitions of a function."""
    found: set[str] = set()
    for node in file.nodes[function]:
        found |= cpp_facts.local_names(file, node)
    return found


def _simple_names(files: Iterable[CppFile | None]) -> set[str]:
    """Return the simple names of all definitions in some files."""
    found: set[str] = set()
    for file in files:
        if file:
            found.update(name.rpartition("::")[2] for name in file.facts)
    return found


def _asserts(file: CppFile, function: str) -> set[str]:
    """Return the text of each ``static_assert`` in all definitions of a function."""
    found: set[str] = set()
    for node in file.nodes[function]:
        found.update(cpp_facts.asserts_of(file, node))
    return found


def _is_within(file: CppFile, functions: Iterable[str], spaces: Iterable[str]) -> bool:
    """Return whether any of the functions is defined in any of the namespaces ``spaces``."""
    prefixes = tuple(f"{space}::" for space in spaces)
    for name in functions:
        for node in file.nodes.get(name, ()):
            if f"{cpp_facts.namespace_of(file, node)}::".startswith(prefixes):
                return True
    return False


def _shown_guards(facts: Sequence[Fact]) -> str:
    """Return the preprocessor conditions of all definitions on one line."""
    return " | ".join(" && ".join(fact.guards) for fact in facts)


def _defined_types(facts: Sequence[Fact]) -> list[list[str]]:
    """Return the parameter types of each definition, ignoring mere declarations."""
    return [types_of(fact) for fact in facts if "declared" not in fact.traits]


def _statements(body: str) -> str:
    """Return the tokens of a function's body, with local variables numbered from the start of the body."""
    numbers: dict[str, str] = {}
    found = []
    for token in body.partition("{")[2].split():
        if re.fullmatch(r"%\d+", token):
            token = numbers.setdefault(token, f"%{len(numbers)}")
        found.append(token)
    return " ".join(found)


def _first_difference(before: str, after: str) -> tuple[str, str]:
    """Return the tokens of each body at the first difference."""
    sides = before.split(), after.split()
    start = 0
    while start < min(map(len, sides)) and sides[0][start] == sides[1][start]:
        start += 1
    return " ".join(sides[0][start : start + _SHOWN]), " ".join(sides[1][start : start + _SHOWN])
