"""Definitions whose effect differs between two versions of a file, with the words on the differing lines."""

from __future__ import annotations

import ast
import difflib
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from patchq.drift._cpp import facts as cpp_facts
from patchq.drift._cpp.facts import CppFile
from patchq.drift._python.facts import PythonFile, fields_of
from patchq.drift._python.relevance import is_in_helpers, with_helpers
from patchq.drift._python.shape import FunctionNode, body_of, dump_of, without_arguments
from patchq.drift._versions.vocabulary import is_reworded
from patchq.drift.bodies import Fact, lines_of, stem

#: Words of a program. Shorter ones are too common to count.
WORDS = re.compile(r"[A-Za-z_]\w{2,}")
_KEYWORDS = {
    *keyword.kwlist,
    *("self", "cls", "int", "str", "bool", "float", "auto", "bool", "char", "const", "constexpr", "define", "double"),
    *("endif", "enum", "extern", "ifdef", "ifndef", "include", "inline", "namespace", "private", "public", "sizeof"),
    *("static", "static_assert", "static_cast", "struct", "switch", "template", "this", "typename", "undef", "using"),
    *("virtual", "void", "volatile", "__device__", "__forceinline__", "__global__", "__host__", "__shared__"),
}
_REMARK = re.compile(r"^\s*#(?!\s*(?:if|ifdef|ifndef|elif|else|endif|define|include|pragma|undef)\b).*|//.*|\s#\s.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedUnit:
    """Changed definition, or changed statements outside of functions.

    :ivar name: qualified name; for an assignment at module level the variable, empty for other statements there.
    :ivar path: file in the new version, or in the old version if the definition is gone.
    :ivar old: file in the old version.
    :ivar line: line of the first difference, in ``path``.
    :ivar first: first line of the definition, in ``path``; ``last``: its last line.
    :ivar words: words on the differing lines and in the definition's name.
    :ivar around: words of the whole definition, in both versions.
    :ivar was: first differing line in the old version; ``now``: in the new version.
    :ivar outside: True for statements at module level.
    :ivar added: True if the old version doesn't have the definition; ``gone``: True if the new version doesn't.
    :ivar reworded: the new version has the same names and values, see :func:`is_reworded`.
    """

    name: str
    path: bytes
    old: bytes
    line: int
    first: int
    last: int
    words: frozenset[str]
    around: frozenset[str]
    was: str = ""
    now: str = ""
    outside: bool = False
    added: bool = False
    gone: bool = False
    reworded: bool = False

    @property
    def simple(self) -> str:
        """Last part of the name."""
        return re.split(r"\.|::", self.name)[-1]


def words_of(lines: Iterable[str]) -> set[str]:
    """Return the words on the given lines, except keywords and words in comments, and the stem of each."""
    found: set[str] = set()
    for line in lines:
        found.update(WORDS.findall(_REMARK.sub("", line)))
    found -= _KEYWORDS
    return found | {stem(word) for word in found} - {""}


class Lines:
    """Decoded lines of both versions of a file."""

    def __init__(self, old: bytes, new: bytes) -> None:
        self.old = [line.decode("utf-8", "replace") for line in lines_of(old)]
        self.new = [line.decode("utf-8", "replace") for line in lines_of(new)]

    def unit(
        self, name: str, paths: tuple[bytes, bytes], was: tuple[int, int] | None, now: tuple[int, int] | None
    ) -> ChangedUnit:
        """Return the changed unit for a definition.

        :param was: first and last line of the definition in the old version, or None; ``now``: in the new version.
        """
        sides = [lines[place[0] - 1 : place[1]] if place else [] for lines, place in ((self.old, was), (self.new, now))]
        gone, come, line = _different(*sides)
        changed = words_of([*gone, *come])
        changed.update(WORDS.findall(name))
        path, place = (paths[1], now) if now else (paths[0], was or (1, 1))
        return ChangedUnit(
            name=name,
            path=path,
            old=paths[0],
            line=place[0] + line,
            first=place[0],
            last=place[1],
            words=frozenset(changed),
            around=frozenset(words_of([*sides[0], *sides[1]])),
            was=_first(gone),
            now=_first(come),
            added=was is None,
            gone=now is None,
        )


def _different(old: Sequence[str], new: Sequence[str]) -> tuple[list[str], list[str], int]:
    """Return the lines only in ``old``, the lines only in ``new``, and the index of the first difference in ``new``."""
    if not old or not new:
        return list(old), list(new), 0
    sides = [line.strip() for line in old], [line.strip() for line in new]
    gone: list[str] = []
    come: list[str] = []
    first = None
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
        if tag != "equal":
            gone += old[i1:i2]
            come += new[j1:j2]
            if first is None:
                first = min(j1, len(new) - 1)
    return gone, come, first or 0


def first_difference(old: str, new: str) -> tuple[str, str]:
    """Return the first line that only the old text has, and the first that only the new one has."""
    gone, come, _ = _different(old.split("\n"), new.split("\n"))
    return _first(gone), _first(come)


def _first(lines: Iterable[str]) -> str:
    """Return the first line that isn't blank."""
    return next((line.strip() for line in lines if line.strip()), "")


def _is_reworded(was: Sequence[tuple[str, object]], now: Sequence[tuple[str, object]]) -> bool:
    """Return whether the texts of definitions or statements are the same in other words."""
    return bool(was and now) and is_reworded(*(" ".join(text for text, _ in side) for side in (was, now)))


# Python


def python_units(
    old: PythonFile | None, new: PythonFile | None, lines: Lines, paths: tuple[bytes, bytes]
) -> list[ChangedUnit]:
    """Return the functions, classes and statements whose effect differs between two versions of a Python file."""
    if (old and old.tree is None) or (new and new.tree is None):
        return []
    found = []
    sides = [_functions(file) for file in (old, new)]
    for name in {**sides[0], **sides[1]}:
        was, now = sides[0].get(name), sides[1].get(name)
        if was and now and old and new:
            if _text(lines.old, was) == _text(lines.new, now) or _same_function(old, new, name):
                continue
        elif old and new and _is_helper(old, new, name):
            continue
        reworded = bool(was and now and old and new and is_reworded(*_bodies(old, new, name)))
        found.append(replace(lines.unit(name, paths, was, now), reworded=reworded))
    found += _outside(old, new, lines, paths)
    return found


def _text(lines: Sequence[str], place: tuple[int, int]) -> list[str]:
    return [line.strip() for line in lines[place[0] - 1 : place[1]]]


def _functions(file: PythonFile | None) -> dict[str, tuple[int, int]]:
    """Return the first and last line of each function that isn't nested in another function."""
    found: dict[str, tuple[int, int]] = {}
    for name, node in file.nodes.items() if file else ():
        outer = name.rpartition(".")[0]
        if isinstance(node, FunctionNode) and not isinstance(file.nodes.get(outer) if file else None, FunctionNode):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found[name] = first, node.end_lineno or first
    return found


def _same_function(old: PythonFile, new: PythonFile, name: str) -> bool:
    """Return whether two versions of a function do the same for every call that the old version accepts."""
    facts = old.fact(name), new.fact(name)
    if facts[0] is None or facts[1] is None:
        return facts[0] is facts[1]
    if facts[0].traits != facts[1].traits or facts[0].guards != facts[1].guards:
        return False
    known = facts[0].parameters or ()
    there = facts[1].parameters or ()
    if there[: len(known)] != known or any(p.default is None for p in there[len(known) :]):
        return False
    if old.body(name) == new.body(name):
        return True
    with_them = _bodies(old, new, name)
    if with_them[0] == with_them[1]:
        return True
    if is_in_helpers(old, name, new, name):
        return True
    added = {p.name for p in there[len(known) :]}
    return bool(added) and body_of(without_arguments(new.nodes[name], added)) == old.body(name)


def _bodies(old: PythonFile, new: PythonFile, name: str) -> tuple[str, str]:
    """Return the normalized statements of both versions of a function, with the helpers that only one version has."""
    return body_of(with_helpers(old, name, new)), body_of(with_helpers(new, name, old))


def _is_helper(old: PythonFile, new: PythonFile, name: str) -> bool:
    """Return whether one version lacks a function only because it was split off, inlined or renamed."""
    file, other = (new, old) if isinstance(new.nodes.get(name), FunctionNode) else (old, new)
    simple = name.rpartition(".")[2]
    for caller in dict.fromkeys(file.function_at(call.lineno) for call in file.calls(simple)):
        if caller in (None, name) or caller not in other.nodes:
            continue
        if ast.dump(file.nodes[caller]) != ast.dump(other.nodes[caller]):
            return _same_function(old, new, caller)
    body = file.body(name)
    gone = [n for n, node in other.nodes.items() if n not in file.nodes and isinstance(node, FunctionNode)]
    return any(other.body(n) == body for n in gone)


def _outside(
    old: PythonFile | None, new: PythonFile | None, lines: Lines, paths: tuple[bytes, bytes]
) -> Iterator[ChangedUnit]:
    """Yield the changed statements outside of functions.

    There is one unit for each class, one for each variable of the module, and one for its other statements.
    """
    sides = [_statements(file) for file in (old, new)]
    for scope in {**sides[0], **sides[1]}:
        was, now = sides[0].get(scope, []), sides[1].get(scope, [])
        counts = Counter(text for text, _ in was), Counter(text for text, _ in now)
        gone = [place for text, place in was if text in counts[0] - counts[1]]
        come = [place for text, place in now if text in counts[1] - counts[0]]
        if not gone and not come and old and new and scope:
            fields = fields_of(old, scope), fields_of(new, scope)
            if fields[0] != fields[1]:
                gone, come = [place for _, place in was[:1]], [place for _, place in now[:1]]
        if gone or come:
            is_class = any(isinstance(file.nodes.get(scope), ast.ClassDef) for file in (old, new) if file)
            reworded = not is_class and _is_reworded(was, now)
            yield replace(_joined(scope, paths, lines, gone, come), outside=not is_class, reworded=reworded)


def _joined(
    scope: str,
    paths: tuple[bytes, bytes],
    lines: Lines,
    gone: Sequence[tuple[int, int]],
    come: Sequence[tuple[int, int]],
) -> ChangedUnit:
    """Return a single unit for all changed statements, or definitions, with the same ``scope``."""
    sides = [
        [line for first, last in places for line in side[first - 1 : last]]
        for side, places in ((lines.old, gone), (lines.new, come))
    ]
    less, more, _ = _different(*sides)
    words = words_of([*less, *more])
    words.update(WORDS.findall(scope))
    path, places = (paths[1], come) if come else (paths[0], gone)
    return ChangedUnit(
        name=scope,
        path=path,
        old=paths[0],
        line=places[0][0],
        first=min(first for first, _ in places),
        last=max(last for _, last in places),
        words=frozenset(words),
        around=frozenset(words_of([*sides[0], *sides[1]])),
        was=_first(less),
        now=_first(more),
    )


def _statements(file: PythonFile | None) -> dict[str, list[tuple[str, tuple[int, int]]]]:
    """Return the normalized statements outside of functions, each with its lines.

    The keys are classes, variables of the module, and "" for its other statements.
    """
    found: dict[str, list[tuple[str, tuple[int, int]]]] = {}
    waiting: list[tuple[str, str, ast.stmt]] = (
        [("", "", node) for node in reversed(file.tree.body)] if file and file.tree else []
    )
    while waiting:
        scope, guard, node = waiting.pop()
        place = node.lineno, node.end_lineno or node.lineno
        if isinstance(node, FunctionNode | ast.Import | ast.ImportFrom | ast.Pass):
            continue
        if isinstance(node, ast.ClassDef):
            name = f"{scope}.{node.name}" if scope else node.name
            head = " ".join([*(dump_of(d) for d in node.decorator_list), *(dump_of(b) for b in node.bases)])
            mine = found.setdefault(name, [])
            mine.append((f"class {head}", (place[0], max(place[0], node.body[0].lineno - 1))))
            waiting += [(name, guard, each) for each in reversed(node.body)]
        elif isinstance(node, ast.If):
            test = dump_of(node.test)
            if "TYPE_CHECKING" in test:
                continue
            waiting += [(scope, f"{guard} not {test}", each) for each in reversed(node.orelse)]
            waiting += [(scope, f"{guard} {test}", each) for each in reversed(node.body)]
        elif isinstance(node, ast.Try):
            for block in (node.finalbody, node.orelse, *(h.body for h in node.handlers), node.body):
                waiting += [(scope, f"{guard} try", each) for each in reversed(block)]
        elif text := _shown(node):
            found.setdefault(scope or _assigned(node), []).append((guard + text, place))
    return found


def _assigned(node: ast.stmt) -> str:
    """Return the variable that a statement assigns; empty for other statements."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else ""


def _shown(node: ast.stmt) -> str:
    """Return the normalized text of a statement; empty for statements without an effect, such as docstrings."""
    if isinstance(node, ast.AnnAssign):
        if node.value is None:
            return ""
        node = ast.Assign([node.target], node.value, lineno=node.lineno)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return ""
    if (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("__all__", "logger")
    ):
        return ""
    return dump_of(node)


# C++ and CUDA


def cpp_units(old: CppFile | None, new: CppFile | None, lines: Lines, paths: tuple[bytes, bytes]) -> list[ChangedUnit]:
    """Return the functions, macros, fields and constants whose effect differs between two versions of a C++ file.

    The changed assertions outside of functions are one more unit, without a name.
    """
    found = []
    for name in {**(old.facts if old else {}), **(new.facts if new else {})}:
        if old and new and _source(old, name) == _source(new, name):
            continue
        was, now = _definitions(old, name), _definitions(new, name)
        if [text for text, _ in was] == [text for text, _ in now]:
            continue
        if was and now and old and new and _moved_inside(old, new, name):
            continue
        texts = [{text for text, _ in side} for side in (was, now)]
        gone = [place for text, place in was if text not in texts[1]]
        come = [place for text, place in now if text not in texts[0]]
        if old and new and (not was or not now) and _is_part(old, new, name):
            continue
        if gone or come:
            # The type of a field is one of its facts; in a function, it may be a way to write the same.
            is_function = all(
                file.facts[name][0].kind == "function" for file in (old, new) if file and name in file.facts
            )
            reworded = is_function and _is_reworded(was, now)
            unit = _joined(name, paths, lines, gone, come)
            found.append(replace(unit, added=not was, gone=not now, reworded=reworded))
    asserts = [file.asserts if file else {} for file in (old, new)]
    gone, come = ([asserts[side][text] for text in asserts[side].keys() - asserts[1 - side].keys()] for side in (0, 1))
    if gone or come:
        found.append(replace(_joined("", paths, lines, sorted(gone), sorted(come)), outside=True))
    return found


def _source(file: CppFile, name: str) -> list[tuple[Fact, str]]:
    """Return the facts and the source of each definition of a name."""
    pairs = zip(file.facts.get(name, ()), file.nodes.get(name, ()), strict=True)
    return [(replace(fact, line=0), file.text(node)) for fact, node in pairs]


def _definitions(file: CppFile | None, name: str) -> list[tuple[str, tuple[int, int]]]:
    """Return the normalized text, and the first and last line, of each definition of a name."""
    found = []
    for node, fact in zip(file.nodes.get(name, ()), file.facts.get(name, ()), strict=True) if file else ():
        assert file is not None
        above = node.parent if node.parent is not None and node.parent.type == "template_declaration" else node
        place = above.start_point[0] + 1, node.end_point[0] + 1
        parts = [fact.kind, fact.value, *(p.kind for p in fact.parameters or ()), *fact.traits, *fact.guards]
        parts += [*fact.bases, *(p.default or "" for p in fact.parameters or ())]
        if fact.kind == "class":
            place = place[0], node.start_point[0] + 1
        elif fact.kind != "value":
            parts.append(cpp_facts.statements_of(file, node))
        found.append((" ".join(parts), place))
    return found


def _moved_inside(old: CppFile, new: CppFile, name: str) -> bool:
    """Return whether the code that a function lost is in new functions that it calls."""
    if len(old.nodes[name]) != 1 or len(new.nodes[name]) != 1 or old.facts[name][0].kind != "function":
        return False
    return cpp_facts.has_moved(
        old, new, cpp_facts.body_of(old, old.nodes[name][0]), cpp_facts.body_of(new, new.nodes[name][0])
    )


def _is_part(old: CppFile, new: CppFile, name: str) -> bool:
    """Return whether one version lacks a definition only because it was split off, inlined or renamed."""
    file, other = (new, old) if name in new.nodes else (old, new)
    simple = name.rpartition("::")[2]
    for caller, _ in cpp_facts.calls_of(file, simple) if file.facts[name][0].kind == "function" else ():
        if caller in other.nodes and _moved_inside(other, file, caller):
            return True
    mine = {cpp_facts.body_of(file, node).partition("{")[2] for node in file.nodes[name]} - {""}
    for its_name, nodes in other.nodes.items():
        if its_name not in file.nodes and mine & {cpp_facts.body_of(other, n).partition("{")[2] for n in nodes}:
            return True
    return False
