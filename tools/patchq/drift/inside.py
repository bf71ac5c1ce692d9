"""Changes of what a patch's lines call, read, override or are called by, inside their own upstream.

The facts about definitions (``_python``, ``_cpp``) of two versions of the upstream are compared. Only
files that matter are parsed: a patch's own, the files that its names lead to, and changed files that
contain a touched function's name.
"""

from __future__ import annotations

import ast
import difflib
import fnmatch
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from patchq.drift import _cpp, _python
from patchq.drift._calls import LIKENESS, judge_call, likeness
from patchq.drift._cpp import CppFile, CppUse
from patchq.drift._python import PythonFile
from patchq.drift._signatures import Parameter, Signature, SignatureChange
from patchq.drift._tree import Files, Found, Read, Tree, changed_lines, marks_of
from patchq.drift.alarms import Alarm, Kind, NotCompared, Unseen
from patchq.drift.bodies import Fact, language_of, lines_of, reads_cpp
from patchq.formats.diff import GITLINK
from patchq.git.diffs import PathChange
from patchq.git.objects import TreeEntry
from patchq.names import BlobId, show_path

#: Name and changes of a patch, in the order of the series.
PatchChanges = tuple[str, Sequence[PathChange]]
#: Greatest number of files with a member's name in which the definition of a call on an unknown
#: receiver is searched.
_MOST_DEFINERS = 12
#: Greatest number of changed files with a function's name in which its callers are counted.
_MOST_CALLING = 100
#: Least share of a touched function's lines that a copy has.
_COPIED = 0.6
#: Least similarity of a copy to a touched function, by tokens.
_ALIKE = 0.75
#: Least number of lines of a function whose copies are searched by content.
_LEAST_LINES = 4
#: Least length of a C++ name that is taken for its only definition where no include leads to it.
_LEAST_ALONE = 6
#: Methods that many classes define: their callers can't be told apart without the receiver's class.
_SHORTEST_NAME = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """Result: the alarms of all patches, and what was not compared."""

    alarms: tuple[Alarm, ...]
    unseen: tuple[NotCompared, ...]


@dataclass(slots=True, kw_only=True)
class _Touch:
    """File of a patch.

    :ivar lines: added lines of the patched file.
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
    uses: list[tuple[_Use, Found | None]] | None = None


@dataclass(frozen=True, slots=True)
class _Use:
    """Expression on an added line, and its call if it is called."""

    node: ast.expr
    scope: str
    call: ast.Call | None = None


class PatchFacts:
    """Changes, additions and references of a stack's patches, read once for any number of new versions.

    :param patches: changes of each patch of the old version's stack.
    :param old: files of the old version, without the stack.
    :param read: function that reads blobs in one call.
    """

    def __init__(
        self, upstream: str, patches: Sequence[PatchChanges], old: Mapping[bytes, TreeEntry], read: Read
    ) -> None:
        self.upstream, self.old = upstream, Tree(old, Files(read))
        self.unseen: list[NotCompared] = []
        self.touches: list[_Touch] = []
        changes = [change for _, each in patches for change in each]
        links = {id(c) for c in changes if any(e and e.mode in (GITLINK, b"120000") for e in (c.old, c.new))}
        sources = [c for c in changes if id(c) not in links and language_of(c.path)]
        self.old.files.bring(e.blob for c in sources for e in (c.old, c.new) if e)
        for patch, each in patches:
            for change in each:
                if id(change) not in links:
                    self._add(patch, change)

    def _add(self, patch: str, change: PathChange) -> None:
        language = language_of(change.path)
        if not language or (language == "c++" and not reads_cpp()):
            reason = Unseen.PARSER if language else Unseen.LANGUAGE
            self.unseen.append(NotCompared(patch=patch, path=show_path(change.path), reason=reason.value))
            return
        files = self.old.files
        before = files.content(change.old.blob) if change.old else b""
        after = files.content(change.new.blob) if change.new else b""
        touch = _Touch(patch=patch, path=change.path, before=before, after=after)
        touch.removed, touch.lines = changed_lines(lines_of(before), lines_of(after))
        self.touches.append(touch)

    def compare(
        self,
        new: Mapping[bytes, TreeEntry],
        *,
        moved: Callable[[bytes], bytes | None] = lambda path: None,
        ignored: Sequence[str] = (),
    ) -> Inside:
        """Compare with a new version.

        :param new: files of the new version.
        :param moved: function that returns the new path of a file that was renamed.
        :param ignored: patterns of paths whose callers don't count, such as tests.
        """
        comparison = _Comparison(self, Tree(new, self.old.files), moved, ignored)
        comparison.run()
        alarms, unseen = dict.fromkeys(comparison.alarms), dict.fromkeys([*self.unseen, *comparison.unseen])
        return Inside(alarms=tuple(alarms), unseen=tuple(unseen))


class _Comparison:
    """Comparison of two trees for all patches of a stack."""

    def __init__(
        self, facts: PatchFacts, new: Tree, moved: Callable[[bytes], bytes | None], ignored: Sequence[str]
    ) -> None:
        self.upstream, self.old, self.new = facts.upstream, facts.old, new
        self.touches, self.ignored = facts.touches, ignored
        self.alarms: list[Alarm] = []
        self.unseen: list[NotCompared] = []
        self._moved, self._moves = moved, dict[bytes, bytes | None]()
        self._by_language: dict[str, list[tuple[bytes, BlobId]]] = {}
        self._with_word: dict[str, dict[bytes, list[bytes]]] = {}
        old = self.old
        paths = {**dict.fromkeys(old.entries), **dict.fromkeys(new.entries)}
        self.changed = {p for p in paths if old.blob(p) != new.blob(p)}

    def run(self) -> None:
        """Compare everything."""
        if not self.changed:
            return
        python = _PythonComparison(self)
        cpp = _CppComparison(self)
        for touch in self.touches:
            (python if touch.path.endswith(b".py") else cpp).compare(touch)
        python.finish()

    def new_path(self, path: bytes) -> bytes | None:
        """Return the path of an old file in the new version; None if it is gone."""
        if path in self.new.entries:
            return path
        if path not in self._moves:
            self._moves[path] = self._moved(path)
        return self._moves[path]

    def not_compared(self, touch: _Touch, reason: Unseen, line: int = 0, text: str = "") -> None:
        self.unseen.append(
            NotCompared(patch=touch.patch, path=show_path(touch.path), reason=reason.value, line=line, text=text)
        )

    def alarm(
        self,
        touch: _Touch,
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

    def callers(self, touch: _Touch, line: int, name: str, places: Sequence[tuple[str, str]]) -> None:
        """Add an alarm for the new callers of a function, with the place of the first."""
        if places:
            now = ", ".join(dict.fromkeys(scope for scope, _ in places))
            self.alarm(touch, Kind.CALLER, line, name, now=now, at=f"{places[0][1]} {places[0][0]}")

    def counted(self, path: bytes) -> bool:
        """Return whether callers in a file count."""
        text = path.decode("utf-8", "replace")
        return not any(fnmatch.fnmatchcase(text, pattern) for pattern in self.ignored)

    def files_like(self, marks: set[bytes], language: str) -> Iterator[bytes]:
        """Yield the changed files of the new version that have most of some lines."""
        if language not in self._by_language:
            paths = [p for p in sorted(self.changed) if language_of(p) == language and self.counted(p)]
            there = [(p, blob) for p in paths if (blob := self.new.blob(p))]
            self.old.files.bring(blob for _, blob in there)
            self._by_language[language] = there
        for path, blob in self._by_language[language]:
            if len(self.old.files.marks(blob) & marks) >= len(marks) * _COPIED:
                yield path

    def files_with(self, word: bytes, language: str) -> list[bytes]:
        """Return the changed files, in either version, that contain a word."""
        if language not in self._with_word:
            found: dict[bytes, list[bytes]] = {}
            paths = [p for p in sorted(self.changed) if language_of(p) == language]
            blobs = [[b for b in (self.old.blob(p), self.new.blob(p)) if b] for p in paths]
            self.old.files.bring(blob for pair in blobs for blob in pair)
            for path, pair in zip(paths, blobs, strict=True):
                there: set[bytes] = set()
                for blob in pair:
                    there |= self.old.files.words(blob)
                for one in there:
                    found.setdefault(one, []).append(path)
            self._with_word[language] = found
        return self._with_word[language].get(word, [])


def state_of(path: bytes, content: bytes, name: str, *, body: bool) -> str:
    """Return the facts about a definition as text that changes only if they do; empty without the definition.

    :param body: include its statements.
    """
    if path.endswith(b".py"):
        python = _python.read_python("", content)
        facts = python.facts.get(name, [])
        bodies = [python.body(name)] if body and isinstance(python.nodes.get(name), _python.FunctionNode) else []
    elif language_of(path) == "c++" and reads_cpp():
        cpp = _cpp.read_cpp(content)
        facts = cpp.facts.get(name, [])
        bodies = [_cpp.body_of(cpp, node) for node in cpp.nodes.get(name, ())] if body else []
    else:
        return ""
    return repr(([replace(fact, line=0) for fact in facts], bodies)) if facts else ""


def _place(path: bytes, line: int) -> str:
    return f"{show_path(path)}:{line}"


class _PythonComparison:
    """Comparison of Python files."""

    def __init__(self, whole: _Comparison) -> None:
        self.whole, self.old, self.new = whole, whole.old, whole.new
        #: Uses whose receiver is unknown, by the name of the member.
        self.open: dict[str, list[tuple[_Touch, _Use]]] = {}
        self._seen: set[tuple[str, bytes, str, str]] = set()
        self._descendants: dict[str, dict[bytes, set[str]]] = {}

    def compare(self, touch: _Touch) -> None:
        """Compare everything that a patch's change of a file concerns."""
        if touch.python is None:
            module = self.old.module_of(touch.path)
            package = touch.path.endswith(b"__init__.py")
            sides = [_python.read_python(module, text, package=package) for text in (touch.before, touch.after)]
            touch.python = sides[0], sides[1]
        before, after = touch.python
        base = self.old.python(touch.path)
        target = self.whole.new_path(touch.path)
        new = self.new.python(target) if target else None
        for file in (after, new):
            if file is not None and file.tree is None:
                self.whole.not_compared(touch, Unseen.UNPARSABLE)
                return
        if base is not None and base.tree is None:
            self.whole.not_compared(touch, Unseen.UNPARSABLE)
            return
        changed = {before.function_at(n) for n in touch.removed} | {after.function_at(n) for n in touch.lines}
        touch.functions = [n for n in sorted(changed) if n and base and n in base.nodes]
        touch.added = [n for n in after.facts if n not in before.facts]
        if base is not None:
            for name in touch.functions:
                self._touched(touch, name, base, after, target, new)
            self._class_bases(touch, base, target, new)
            self._added(touch, base, after, target, new)
        self._overridden(touch, after)
        if base is not None or touch.path not in self.new.entries:
            self._uses(touch, after, base, target, new)

    # Touched functions

    def _touched(
        self,
        touch: _Touch,
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
            moved = self._moved_definition(touch.path, name)
            if moved is None:
                self.whole.alarm(touch, Kind.GONE, line, name, was=_place(touch.path, fact.line))
                return
            path, new = moved[0], self.new.python(moved[0])
            there = new.fact(moved[1]) if new else None
        assert new is not None
        assert there is not None
        assert path is not None
        at = _place(path, there.line)
        if len(new.facts[there.name]) > len(base.facts[name]):
            self.whole.alarm(touch, Kind.DUPLICATE, line, name, at=at, was=name, now=there.name)
        if touch.path in self.whole.changed or path != touch.path:
            self._bodies(touch, line, fact, there, base, new, after, at)
            self._traits(touch, line, fact, there, at)
            if fact.guards != there.guards:
                was, now = " and ".join(fact.guards), " and ".join(there.guards)
                self.whole.alarm(touch, Kind.GUARD, line, name, at=at, was=was, now=now)
        self._copies(touch, line, name, base, there.name, path)
        self._callers(touch, line, name, there.name, path)
        self._overrides(touch, line, name)

    def _bodies(
        self,
        touch: _Touch,
        line: int,
        fact: Fact,
        there: Fact,
        base: PythonFile,
        new: PythonFile,
        after: PythonFile,
        at: str,
    ) -> None:
        name = fact.name
        old_node, new_node = base.nodes[name], new.nodes[there.name]
        used = _names_on(after, touch.lines)
        lost = (base.bound(name) & used) - new.bound(there.name)
        own = after.bound(name) - base.bound(name)
        stored = _stored_on(after, touch.lines)
        for local in sorted(lost - own - stored):
            self.whole.alarm(touch, Kind.REMOVED, line, name, callee=local, was=local, at=at)
        keep = frozenset(used)
        if _python.body_of(old_node, keep) != _python.body_of(new_node, keep):
            renames = self._renames(base, new)
            if _renamed(_python.body_of(old_node, keep), renames) != _python.body_of(new_node, keep):
                self.whole.alarm(touch, Kind.BODY, line, name, at=at)
        was, now = _defaults(fact, base), _defaults(there, new)
        for parameter in was.keys() & now.keys():
            if was[parameter] != now[parameter] and now[parameter] is not None:
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
        """Return the definitions of a file that got another name, old name to new name."""
        gone = {n: f for n, f in base.nodes.items() if n not in new.nodes and base.fact(n).kind == "function"}  # type: ignore[union-attr]
        come = {n: f for n, f in new.nodes.items() if n not in base.nodes and new.fact(n).kind == "function"}  # type: ignore[union-attr]
        bodies = {new.body(name): name for name in come} if gone else {}
        found = {}
        for name in gone:
            other = bodies.get(base.body(name))
            if other:
                found[name.rpartition(".")[2]] = other.rpartition(".")[2]
        return found

    def _traits(self, touch: _Touch, line: int, fact: Fact, there: Fact, at: str) -> None:
        if fact.traits != there.traits:
            was, now = ", ".join(fact.traits), ", ".join(there.traits)
            self.whole.alarm(touch, Kind.TRAITS, line, fact.name, was=was, now=now, at=at)

    def _class_bases(self, touch: _Touch, base: PythonFile, target: bytes | None, new: PythonFile | None) -> None:
        """Compare the bases of the classes that have touched methods."""
        if new is None or target is None:
            return
        owners = {name.rpartition(".")[0] for name in [*touch.functions, *touch.added]}
        for owner in sorted(owners):
            fact, there = base.fact(owner), new.fact(owner)
            if fact is None or there is None or fact.kind != "class":
                continue
            was = [b.rpartition(".")[2] for b in fact.bases]
            now = [b.rpartition(".")[2] for b in there.bases]
            if was != now:
                self.whole.alarm(
                    touch,
                    Kind.BASES,
                    there.line,
                    owner,
                    was=", ".join(was),
                    now=", ".join(now),
                    at=_place(target, there.line),
                )

    def _added(
        self, touch: _Touch, base: PythonFile, after: PythonFile, target: bytes | None, new: PythonFile | None
    ) -> None:
        """Find definitions that the patch adds and that the new version has, too."""
        for name in touch.added if new and target else ():
            assert new is not None
            assert target is not None
            there = new.fact(name)
            mine = after.fact(name)
            assert mine is not None
            if there and mine.kind != "value" and name not in base.facts:
                self.whole.alarm(
                    touch, Kind.DUPLICATE, mine.line, name, was=name, now=name, at=_place(target, there.line)
                )

    # Copies, callers, overrides

    def _copies(self, touch: _Touch, line: int, name: str, base: PythonFile, new_name: str, path: bytes) -> None:
        """Find functions of the new version that are copies of a touched one."""
        node = base.nodes[name]
        source = lines_of(self.old.content(touch.path))
        mine = marks_of(source[node.lineno : node.end_lineno])
        if len(mine) < _LEAST_LINES:
            return
        for other in self.whole.files_like(mine, "python"):
            file, was = self.new.python(other), self.old.python(other)
            if file is None:
                continue
            lines = lines_of(self.new.content(other))
            for its_name, its_node in file.nodes.items():
                known = was is not None and its_name in was.facts
                same = other == path and its_name == new_name
                if known or same or not isinstance(its_node, _python.FunctionNode):
                    continue
                if not _has_most(mine, lines[its_node.lineno : its_node.end_lineno]):
                    continue
                named_alike = name.rpartition(".")[2] == its_name.rpartition(".")[2]
                copied = self._is_copy(base.body(name), file.body(its_name), named_alike)
                if copied and not self._came_from(its_name, other):
                    at = _place(other, its_node.lineno)
                    self.whole.alarm(touch, Kind.DUPLICATE, line, name, was=name, now=its_name, at=at)

    def _is_copy(self, body: str, other: str, named_alike: bool) -> bool:
        if body == other:
            return named_alike or len(body) > 200
        if len(body) < 200:
            return False
        sides = re.findall(r"\w+|\W", body), re.findall(r"\w+|\W", other)
        matcher = difflib.SequenceMatcher(None, *sides, autojunk=False)
        least = _ALIKE if named_alike else 0.85
        return matcher.real_quick_ratio() >= least and matcher.quick_ratio() >= least and matcher.ratio() >= least

    def _came_from(self, name: str, path: bytes) -> bool:
        """Return whether a definition of the new version is an old one in another place."""
        simple = name.rpartition(".")[2]
        for other in self.whole.changed:
            old = self.old.python(other) if f"def {simple}(".encode() in self.old.content(other) else None
            new = self.new.python(other)
            for known in old.facts if old else ():
                gone = new is None or known not in new.facts
                if known.rpartition(".")[2] == simple and gone and (other, known) != (path, name):
                    return True
        return False

    def _callers(self, touch: _Touch, line: int, name: str, new_name: str, path: bytes) -> None:
        """Find functions of the new version that call a touched function and didn't before."""
        parts = name.split(".")
        called = parts[-2] if parts[-1] == "__init__" and len(parts) > 1 else parts[-1]
        if called.startswith("__"):
            return
        counts: list[Counter[tuple[bytes, str]]] = []
        word = called.encode()
        lines: dict[tuple[bytes, str], int] = {}
        files = [p for p in self.whole.files_with(word, "python") if self.whole.counted(p)]
        if len(files) > _MOST_CALLING:
            self.whole.not_compared(touch, Unseen.CALLERS, line, name)
            return
        for tree, at, its_name in ((self.old, touch.path, name), (self.new, path, new_name)):
            there: Counter[tuple[bytes, str]] = Counter()
            wanted = Found(at, its_name)
            for file in files:
                for scope, number in self._calls(tree, file, called, wanted):
                    there[file, scope] += 1
                    if tree is self.new:
                        lines.setdefault((file, scope), number)
            counts.append(there)
        old, new = counts
        if new.total() <= old.total():
            return
        places = []
        for (file, scope), count in sorted(new.items()):
            if count > old[file, scope] and (file, scope) != (path, new_name):
                places.append((scope or "<module>", _place(file, lines[file, scope])))
        self.whole.callers(touch, line, name, places)

    def _calls(self, tree: Tree, path: bytes, called: str, wanted: Found) -> Iterator[tuple[str, int]]:
        """Yield the function and line of each call in a file that means the wanted definition."""
        file = tree.python(path)
        if file is None or file.tree is None or called.encode() not in tree.content(path):
            return
        for node in file.calls(called):
            function = node.func
            scope = file.function_at(node.lineno)
            found = tree.infer(function, path, scope)
            meant = self._means(tree, found, wanted)
            if meant is None:
                meant = self._only_definition(tree, called, wanted) and isinstance(function, ast.Attribute)
            if meant:
                yield scope, node.lineno

    def _means(self, tree: Tree, found: Found | None, wanted: Found) -> bool | None:
        """Return whether a resolved name is the wanted definition; None if it is unknown."""
        if found is None:
            return None
        if (found.path, found.name) == (wanted.path, wanted.name):
            return True
        # A constructor, or a method that a subclass inherits.
        return (found.path, f"{found.name}.__init__") == (wanted.path, wanted.name)

    def _only_definition(self, tree: Tree, name: str, wanted: Found) -> bool:
        if len(name) < _SHORTEST_NAME:
            return False
        files = self._definers(tree, name)
        if len(files) != 1:
            return False
        file = tree.python(files[0])
        named = [n for n in file.facts if n.rpartition(".")[2] == name] if file else []
        return named == [wanted.name] and files[0] == wanted.path

    def _definers(self, tree: Tree, name: str) -> list[bytes]:
        key = (id(tree), name)
        known: dict[tuple[int, str], list[bytes]] = self.__dict__.setdefault("_definers_known", {})
        if key not in known:
            known[key] = tree.definers({name})[name]
        return known[key]

    def _overrides(self, touch: _Touch, line: int, name: str) -> None:
        """Find new overrides of a touched method in subclasses."""
        owner, _, method = name.rpartition(".")
        fact = self.old.fact(Found(touch.path, owner)) if owner else None
        if fact is None or fact.kind != "class" or (method.startswith("__") and method != "__init__"):
            return
        target = self.whole.new_path(touch.path)
        simple = owner.rpartition(".")[2]
        if simple not in self._descendants:
            self._descendants[simple] = self.new.descendants(simple)
        for path, classes in sorted(self._descendants[simple].items()):
            if path not in self.whole.changed or not self.whole.counted(path):
                continue
            file = self.new.python(path) if f" {method}".encode() in self.new.content(path) else None
            before = self.old.python(path)
            for its_name, its_fact in file.facts.items() if file else ():
                its_owner, _, its_method = its_name.rpartition(".")
                if its_method != method or its_owner.rpartition(".")[2] not in classes:
                    continue
                if before and its_name in before.facts:
                    continue
                if target and Found(target, owner) in self.new.ancestors(Found(path, its_owner)):
                    at = _place(path, its_fact[-1].line)
                    self.whole.alarm(touch, Kind.OVERRIDE, line, name, now=its_name, at=at)

    def _overridden(self, touch: _Touch, after: PythonFile) -> None:
        """Compare the methods and constants of base classes that a patch's own ones override."""
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

    def _compare_overridden(self, touch: _Touch, mine: Fact, inherited: Found, fact: Fact) -> None:
        counterpart = self._counterpart(inherited)
        there = self.new.fact(counterpart) if counterpart else None
        shown = f"{inherited.name}"
        if there is None or counterpart is None:
            self.whole.alarm(
                touch, Kind.OVERRIDDEN, mine.line, mine.name, callee=shown, was=_place(inherited.path, fact.line)
            )
            return
        at = _place(counterpart.path, there.line)
        was, now = _shown_signature(fact), _shown_signature(there)
        if fact.kind == "function" and (was != now or fact.traits != there.traits):
            self.whole.alarm(touch, Kind.OVERRIDDEN, mine.line, mine.name, callee=shown, was=was, now=now, at=at)
        elif fact.kind == "value" and fact.value != there.value:
            self.whole.alarm(
                touch, Kind.OVERRIDDEN, mine.line, mine.name, callee=shown, was=fact.value, now=there.value, at=at
            )

    def _newly_inherited(self, touch: _Touch, mine: Fact, owner: str, method: str, view: Tree) -> None:
        """Find base classes that now define what a patch adds to a subclass."""
        for ancestor in view.ancestors(Found(touch.path, owner)):
            counterpart = self._counterpart(ancestor)
            if counterpart is None:
                continue
            there = self.new.fact(Found(counterpart.path, f"{counterpart.name}.{method}"))
            if there and "attribute" not in there.traits and mine.name in touch.added:
                at = _place(counterpart.path, there.line)
                self.whole.alarm(touch, Kind.OVERRIDDEN, mine.line, mine.name, callee=there.name, now=there.name, at=at)

    # Names on added lines

    def _uses(
        self, touch: _Touch, after: PythonFile, base: PythonFile | None, target: bytes | None, new: PythonFile | None
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
            touch.uses = [(u, old_view.infer(u.node, touch.path, u.scope)) for u in _uses_of(after, touch.lines)]
        for use, found in touch.uses:
            self._use(touch, use, found, new_view, path)
        if base is not None:
            self._bindings(touch, after, base, new_file)

    def _bindings(self, touch: _Touch, after: PythonFile, base: PythonFile, new: PythonFile) -> None:
        """Find names on added lines that the new version of the file no longer defines or imports."""
        if new is after or new.stars:
            return
        known = set(base.imports) | {n for n in base.facts if "." not in n}
        there = set(new.imports) | {n for n in new.facts if "." not in n} | set(touch.added)
        for node, scope in _names_of(after, touch.lines):
            local = after.bound(scope)
            if node.id in known and node.id not in there and node.id not in local:
                self.whole.alarm(touch, Kind.REMOVED, node.lineno, scope, callee=node.id, was=node.id)

    def _use(self, touch: _Touch, use: _Use, found: Found | None, new_view: Tree, path: bytes) -> None:
        if found is None:
            if isinstance(use.node, ast.Attribute):
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
        counterpart = self._counterpart(found)
        if there is None or not there.path or self.new.fact(replace(there, instance=False)) is None:
            there = counterpart
        else:
            there = replace(there, instance=False)
        self._compare_use(touch, use, found, fact, there, counterpart)

    def _module_gone(self, touch: _Touch, use: _Use, found: Found) -> None:
        if not found.name and found.path in self.old.entries and self.whole.new_path(found.path) is None:
            self.whole.alarm(
                touch, Kind.REMOVED, use.node.lineno, use.scope, callee=ast.unparse(use.node), was=show_path(found.path)
            )

    def _compare_use(
        self, touch: _Touch, use: _Use, found: Found, fact: Fact, there: Found | None, counterpart: Found | None
    ) -> None:
        line, scope, shown = use.node.lineno, use.scope, fact.name
        new_fact = self.new.fact(there) if there else None
        if there is None or new_fact is None:
            now = self._elsewhere(fact)
            was = _place(found.path, fact.line)
            self.whole.alarm(touch, Kind.REMOVED, line, scope, callee=shown, was=was, now=now)
            return
        key = (touch.patch, found.path, found.name, ast.unparse(use.call or use.node))
        if key in self._seen:
            return
        self._seen.add(key)
        old_file, new_file = self.old.python(found.path), self.new.python(there.path)
        assert old_file is not None
        assert new_file is not None
        at = _place(there.path, new_file.facts[there.name][-1].line)
        say = _Alarms(self.whole, touch, line, scope, shown, at)
        if use.call is not None and fact.kind in ("function", "class"):
            self._compare_call(say, touch, use, found, there)
        if self.old.blob(found.path) == self.new.blob(there.path) and found.name == there.name:
            return
        if counterpart and there != counterpart and not _alike(old_file, found.name, new_file, there.name):
            say(Kind.BINDING, _place(found.path, fact.line), at)
        if fact.kind == "function":
            self._compare_function(say, found, fact, there, new_fact, old_file, new_file)
        elif fact.kind == "value":
            was, now = old_file.value(found.name), new_file.value(there.name)
            entries = self._entry_values(found, there)
            if was != now and (was or now):
                say(Kind.CONSTANT, was, now)
            elif entries[0] != entries[1]:
                say(Kind.CONSTANT, *entries)
        if fact.guards != new_fact.guards:
            say(Kind.GUARD, " and ".join(fact.guards), " and ".join(new_fact.guards))
        if len(new_file.facts[there.name]) > len(old_file.facts[found.name]) and fact.kind != "value":
            say(Kind.DUPLICATE, fact.name, new_fact.name)

    def _compare_function(
        self,
        say: _Alarms,
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
        nodes = old_file.nodes[found.name], new_file.nodes[there.name]
        bodies = old_file.body(found.name), new_file.body(there.name)
        if bodies[0] != bodies[1]:
            nodes = old_file.nodes[found.name], new_file.nodes[there.name]
            masked = [_python.body_of(node, masked=True) for node in nodes]
            single = all(body.startswith("Return(") and ";" not in body for body in bodies)
            if masked[0] == masked[1] or single:
                say(Kind.CONSTANT, *_different_lines(*nodes))

    def _compare_call(self, say: _Alarms, touch: _Touch, use: _Use, found: Found, there: Found) -> None:
        assert use.call is not None
        sides = self._signature(self.old, found), self._signature(self.new, there)
        if sides[0] is None or sides[1] is None or sides[0].parameters == sides[1].parameters:
            return
        old, new = sides
        assert old is not None
        assert new is not None
        call = use.call
        was, now = _shown(old), _shown(new)
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

    def _signature(self, tree: Tree, found: Found) -> Signature | None:
        """Return the signature of a function or constructor, with constants as defaults replaced."""
        fact, file = tree.fact(found), tree.python(found.path)
        if fact is None or file is None:
            return None
        if fact.kind == "class":
            if generated := _python.constructor_of(file, found.name):
                return generated
            own = tree.member(found, "__init__")
            return self._signature(tree, own) if own else None
        if fact.parameters is None:
            return None
        parameters = []
        for p in fact.parameters:
            named = p.default is not None and p.default.isidentifier()
            target = tree.lookup(found.path, p.default) if named and p.default else None
            home = tree.python(target.path) if target and target.path and target.name else None
            value = home.value(target.name) if home and target else ""
            parameters.append(replace(p, default=value) if value else p)
        return Signature(fact.name if "." in fact.name else f".{fact.name}", tuple(parameters))

    def _entry_values(self, found: Found, there: Found) -> tuple[str, str]:
        """Return the values of a module's table that has the name as a key, such as of settings."""
        values = []
        for tree, one in ((self.old, found), (self.new, there)):
            file = tree.python(one.path)
            entry = tree._entry(one.path, one.name) if file and "." not in one.name else None
            values.append(file.value(entry.name) if file and entry else "")
        return values[0], values[1]

    def _counterpart(self, found: Found) -> Found | None:
        """Return the definition of the new version that an old one became."""
        # A module may have become a package that imports the name.
        path = self.whole.new_path(found.path) or self.new.path_of(self.old.module_of(found.path))
        if path:
            file = self.new.python(path)
            if file and found.name in file.facts:
                return Found(path, found.name)
            owner, _, name = found.name.rpartition(".")
            if not owner:
                return self.new.lookup(path, name)
            new_owner = self._counterpart(Found(found.path, owner))
            if new_owner:
                return self.new.member(new_owner, name)
        return None

    def _moved_definition(self, path: bytes, name: str) -> tuple[bytes, str] | None:
        """Return the place of a definition that was moved or renamed with an equal body."""
        through = self._counterpart(Found(path, name))
        if through:
            return through.path, through.name
        base = self.old.python(path)
        assert base is not None
        simple = name.rpartition(".")[2]
        body = base.body(name)
        node = base.nodes[name]
        mine = marks_of(lines_of(self.old.content(path))[node.lineno : node.end_lineno])
        few = len(mine) < _LEAST_LINES
        for other in self.whole.files_with(simple.encode(), "python"):
            blob = self.new.blob(other)
            if few or blob is None or len(self.old.files.marks(blob) & mine) < len(mine) * _COPIED:
                continue
            file = self.new.python(other)
            for its_name in file.nodes if file else ():
                if file and its_name.rpartition(".")[2] == simple and file.body(its_name) == body:
                    return other, its_name
        return None

    def _elsewhere(self, fact: Fact) -> str:
        """Return the place of a removed definition's name in other changed files; empty if unknown."""
        pattern = re.compile(rf"^\s*(?:async def|def|class) {re.escape(fact.simple)}\b".encode(), re.MULTILINE)
        for path in sorted(self.whole.changed):
            if path.endswith(b".py") and self.whole.counted(path):
                found = pattern.search(self.new.content(path))
                if found:
                    return _place(path, self.new.content(path).count(b"\n", 0, found.end()) + 1)
        return ""

    # Members of unknown receivers

    def finish(self) -> None:
        """Compare the uses whose receiver's class is unknown, by the names of the members."""
        python = [p for p in self.whole.changed if p.endswith(b".py")]
        if not self.open or not python:
            return
        there = self.old.definers(set(self.open), python)
        names = {name for name, paths in there.items() if paths}
        definers = self.old.definers(names) if names else {}
        for name in sorted(names):
            candidates = self._candidates(name, definers[name])
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
        """Return the members of a name; None if too many files may define it."""
        if len(paths) > _MOST_DEFINERS:
            return None
        found = []
        for path in paths:
            file = self.old.python(path)
            found += [Found(path, n) for n in (file.facts if file else ()) if n.endswith(f".{name}")]
        return found

    def _is_anywhere(self, name: str) -> bool:
        if self.new.definers({name})[name]:
            return True
        word = name.encode()
        paths = [p for p in self.new.entries if p.endswith(b".py")]
        self.new.files.bring(blob for p in paths if (blob := self.new.blob(p)))
        return any(word in self.new.content(p) for p in paths)

    def _unknown(self, touch: _Touch, use: _Use, candidates: Sequence[Found]) -> None:
        chosen = None
        if use.call is None:
            chosen = candidates[0] if len(candidates) == 1 else None
        else:
            signatures = [(s, c) for c in candidates if (s := self._signature(self.old, c))]
            best = max(signatures, key=lambda pair: likeness(use.call, pair[0]), default=None)  # type: ignore[arg-type]
            if best and (len(candidates) == 1 or likeness(use.call, best[0]) >= LIKENESS):
                chosen = best[1]
            elif best:
                self.whole.not_compared(touch, Unseen.DYNAMIC, use.node.lineno, ast.unparse(use.node))
        fact = self.old.fact(chosen) if chosen else None
        if chosen and fact:
            there = self._counterpart(chosen)
            self._compare_use(touch, use, chosen, fact, there, there)


@dataclass(frozen=True, slots=True)
class _Alarms:
    """Reporter of the changes of one definition."""

    whole: _Comparison
    touch: _Touch
    line: int
    scope: str
    callee: str
    at: str

    def __call__(self, kind: Kind, was: str, now: str, call: str = "") -> None:
        self.whole.alarm(
            self.touch, kind, self.line, self.scope, callee=self.callee, was=was, now=now, at=self.at, call=call
        )


def _as_before(call: ast.Call, old: Signature) -> ast.Call:
    """Return a call without the arguments for parameters that the stack itself adds."""
    if old.accepts(len(call.args), {k.arg for k in call.keywords if k.arg}):
        return call
    known = [k for k in call.keywords if k.arg and old.find(k.arg)]
    return ast.copy_location(ast.Call(call.func, call.args[: len(old.positional)], known), call)


def _alike(old: PythonFile, old_name: str, new: PythonFile, new_name: str) -> bool:
    one, other = old.nodes.get(old_name), new.nodes.get(new_name)
    if one is None or other is None or not isinstance(one, _python.FunctionNode | ast.ClassDef):
        return True
    return isinstance(other, _python.FunctionNode | ast.ClassDef) and old.body(old_name) == new.body(new_name)


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


def _shown(signature: Signature) -> str:
    return (
        "(" + ", ".join(p.name + (f"={p.default}" if p.default is not None else "") for p in signature.parameters) + ")"
    )


def _shown_signature(fact: Fact) -> str:
    return _shown(Signature(fact.name, fact.parameters or ()))


def _extends(old: Signature, new: Signature) -> bool:
    """Return whether a signature only gained optional parameters at its end."""
    kept = new.parameters[: len(old.parameters)]
    rest = new.parameters[len(old.parameters) :]
    return kept == old.parameters and all(p.default is not None or p.kind.startswith("variadic") for p in rest)


def _different_lines(one: ast.stmt, other: ast.stmt) -> tuple[str, str]:
    """Return the first lines of two definitions that differ."""
    for before, after in zip(ast.unparse(one).split("\n"), ast.unparse(other).split("\n"), strict=False):
        if before != after:
            return before.strip(), after.strip()
    return "", ""


def _has_most(marks: set[bytes], lines: Iterable[bytes]) -> bool:
    return len(marks & {line.strip() for line in lines}) >= len(marks) * _COPIED


def _uses_of(file: PythonFile, lines: set[int]) -> Iterator[_Use]:
    """Yield the calls, names and attributes on added lines."""
    called: set[int] = set()
    assert file.tree is not None
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call) and not lines.isdisjoint(range(node.lineno, (node.end_lineno or 0) + 1)):
            if not _own_lines(node, lines):
                continue
            called.add(id(node.func))
            yield _Use(node.func, file.function_at(node.lineno), node)
    for node in ast.walk(file.tree):
        if not isinstance(node, ast.Attribute | ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        if node.end_lineno in lines and id(node) not in called:
            yield _Use(node, file.function_at(node.lineno))


def _own_lines(node: ast.Call, lines: set[int]) -> bool:
    """Return whether a line of the call itself, not of a function inside it, was added."""
    mine = {node.func.end_lineno or node.lineno}
    for argument in [*node.args, *(k.value for k in node.keywords)]:
        if not isinstance(argument, ast.Lambda):
            mine.update(range(argument.lineno, (argument.end_lineno or 0) + 1))
    return not mine.isdisjoint(lines)


def _names_of(file: PythonFile, lines: set[int]) -> Iterator[tuple[ast.Name, str]]:
    assert file.tree is not None
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Name) and node.lineno in lines and isinstance(node.ctx, ast.Load):
            yield node, file.function_at(node.lineno)


def _names_on(file: PythonFile, lines: set[int]) -> set[str]:
    return {node.id for node, _ in _names_of(file, lines)}


def _stored_on(file: PythonFile, lines: set[int]) -> set[str]:
    assert file.tree is not None
    found = set()
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Name) and node.lineno in lines and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg) and node.lineno in lines:
            found.add(node.arg)
    return found


class _CppComparison:
    """Comparison of C++ and CUDA files."""

    def __init__(self, whole: _Comparison) -> None:
        self.whole, self.old, self.new = whole, whole.old, whole.new
        self._seen: set[tuple[str, bytes, str, int]] = set()
        self._reach: dict[bytes, set[bytes]] = {}

    def compare(self, touch: _Touch) -> None:
        """Compare everything that a patch's change of a file concerns."""
        base = self.old.cpp(touch.path)
        target = self.whole.new_path(touch.path)
        new = self.new.cpp(target) if target else None
        if touch.cpp is None:
            touch.cpp = _cpp.read_cpp(touch.before), _cpp.read_cpp(touch.after)
        before, after = touch.cpp
        touch.added = [n for n in after.facts if n not in before.facts]
        changed = {before.function_at(n) for n in touch.removed} | {after.function_at(n) for n in touch.lines}
        names = sorted({name for name, _ in changed if name})
        touch.functions = [n for n in names if base and n in base.facts]
        if base is not None:
            for name in touch.functions:
                numbers = sorted({number for n, number in changed if n == name})
                self._touched(touch, name, numbers, base, after, target, new)
            self._added(touch, base, after, target, new)
            self._around(touch, base, before, after, target, new)
        self._overridden(touch, after)
        for use in _distinct(after.uses(touch.lines)):
            self._use(touch, use, after, new)

    def _touched(
        self,
        touch: _Touch,
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
                    self.whole.alarm(touch, Kind.GONE, line, name, was=_place(touch.path, fact.line))
                    continue
                path, there = moved
                file = self.new.cpp(path)
            assert path is not None
            assert file is not None
            self._compare_touched(touch, line, name, number, base, after, path, file, there)
        self._copies(touch, line, name, base, path or touch.path)
        self._callers(touch, line, name, base)
        self._overrides(touch, line, name, base)

    def _compare_touched(
        self,
        touch: _Touch,
        line: int,
        name: str,
        number: int,
        base: CppFile,
        after: CppFile,
        path: bytes,
        file: CppFile,
        there: int,
    ) -> None:
        fact, new_fact = base.facts[name][number], file.facts[name][there]
        at = _place(path, new_fact.line)
        keep = frozenset(use.name for use in after.uses(touch.lines))
        bodies = [_cpp.body_of(base, base.nodes[name][number], keep), _cpp.body_of(file, file.nodes[name][there], keep)]
        if bodies[0] != bodies[1]:
            self.whole.alarm(touch, Kind.BODY, line, name, at=at)
        if _kinds(fact) != _kinds(new_fact):
            was, now = (", ".join(_kinds(f)) for f in (fact, new_fact))
            self.whole.alarm(touch, Kind.SIGNATURE, line, name, callee=name, was=f"<{was}>", now=f"<{now}>", at=at)
        if fact.guards != new_fact.guards:
            was, now = " && ".join(fact.guards), " && ".join(new_fact.guards)
            self.whole.alarm(touch, Kind.GUARD, line, name, was=was, now=now, at=at)

    def _moved_definition(self, path: bytes, base: CppFile, name: str, number: int) -> tuple[bytes, int] | None:
        body = _cpp.body_of(base, base.nodes[name][number])
        simple = base.facts[name][number].simple
        for other in self.whole.files_with(simple.encode(), "c++"):
            file = self.new.cpp(other)
            for place, node in enumerate(file.nodes.get(name, ())) if file else ():
                assert file is not None
                if _cpp.body_of(file, node) == body:
                    return other, place
        return None

    def _added(self, touch: _Touch, base: CppFile, after: CppFile, target: bytes | None, new: CppFile | None) -> None:
        if new is None or target is None:
            return
        for name in touch.added:
            mine = after.facts[name][-1]
            there = new.facts.get(name)
            if there and name not in base.facts and mine.kind != "value":
                at = _place(target, there[-1].line)
                self.whole.alarm(touch, Kind.DUPLICATE, mine.line, name, was=name, now=name, at=at)

    def _around(
        self, touch: _Touch, base: CppFile, before: CppFile, after: CppFile, target: bytes | None, new: CppFile | None
    ) -> None:
        """Compare the conditions around added lines outside of functions, by the line before them."""
        if new is None or target is None:
            return
        old_lines, new_lines = lines_of(self.old.content(touch.path)), lines_of(self.new.content(target))
        after_lines = lines_of(touch.after)
        for line in sorted(touch.lines):
            if line - 1 in touch.lines or after.function_at(line)[0]:
                continue
            for near in (line - 1, _end_of(line, touch.lines)):
                text = after_lines[near - 1] if 0 < near <= len(after_lines) else b""
                if len(text.strip()) < _SHORTEST_NAME or old_lines.count(text) != 1 or new_lines.count(text) != 1:
                    continue
                was = base.guards_at(old_lines.index(text) + 1)
                now = new.guards_at(new_lines.index(text) + 1)
                if was != now:
                    at = _place(target, new_lines.index(text) + 1)
                    self.whole.alarm(touch, Kind.GUARD, line, "", was=" && ".join(was), now=" && ".join(now), at=at)
                    break

    def _copies(self, touch: _Touch, line: int, name: str, base: CppFile, path: bytes) -> None:
        node = base.nodes[name][0]
        source = lines_of(self.old.content(touch.path))
        mine = marks_of(source[node.start_point[0] : node.end_point[0] + 1])
        if len(mine) < _LEAST_LINES:
            return
        body = re.findall(r"\S+", _cpp.body_of(base, node))
        for other in self.whole.files_like(mine, "c++"):
            lines = lines_of(self.new.content(other))
            file, was = self.new.cpp(other), self.old.cpp(other)
            assert file is not None
            for its_name, nodes in file.nodes.items():
                known = len(was.nodes.get(its_name, ())) if was else 0
                for its_node, its_fact in zip(nodes[known:], file.facts[its_name][known:], strict=True):
                    if its_fact.kind not in ("function", "macro"):
                        continue
                    if not _has_most(mine, lines[its_node.start_point[0] : its_node.end_point[0] + 1]):
                        continue
                    if self._was_elsewhere(its_name, other):
                        continue
                    tokens = re.findall(r"\S+", _cpp.body_of(file, its_node))
                    matcher = difflib.SequenceMatcher(None, body, tokens, autojunk=False)
                    if matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE:
                        at = _place(other, its_fact.line)
                        self.whole.alarm(touch, Kind.DUPLICATE, line, name, was=name, now=its_name, at=at)

    def _was_elsewhere(self, name: str, path: bytes) -> bool:
        """Return whether a definition was moved here from a file that no longer has it."""
        simple = name.rpartition("::")[2].encode()
        for other in self.whole.changed:
            if other == path or language_of(other) != "c++" or simple not in self.old.content(other):
                continue
            old, new = self.old.cpp(other), self.new.cpp(other)
            if old and name in old.facts and (new is None or name not in new.facts):
                return True
        return False

    def _callers(self, touch: _Touch, line: int, name: str, base: CppFile) -> None:
        simple = base.facts[name][0].simple
        if len(simple) < _SHORTEST_NAME or simple.startswith("operator"):
            return
        counts: list[Counter[tuple[bytes, str]]] = [Counter(), Counter()]
        lines: dict[tuple[bytes, str], int] = {}
        files = [p for p in self.whole.files_with(simple.encode(), "c++") if self.whole.counted(p)]
        if len(files) > _MOST_CALLING:
            self.whole.not_compared(touch, Unseen.CALLERS, line, name)
            return
        for path in files:
            for tree, count in zip((self.old, self.new), counts, strict=True):
                file = tree.cpp(path)
                if file is None or (name not in file.facts and not self._reaches(tree, path, touch.path)):
                    continue
                for scope, number in _cpp.calls_of(file, simple):
                    count[path, scope] += 1
                    lines.setdefault((path, scope), number)
                    if tree is self.new:
                        lines[path, scope] = number
        old, new = counts
        if new.total() <= old.total():
            return
        places = []
        for (path, scope), number in sorted(new.items()):
            if number > old[path, scope] and scope != name:
                places.append((scope or "<module>", _place(path, lines[path, scope])))
        self.whole.callers(touch, line, name, places)

    def _reaches(self, tree: Tree, path: bytes, target: bytes) -> bool:
        if tree is self.old:
            if path not in self._reach:
                self._reach[path] = tree.includes(path)
            return target in self._reach[path]
        return target in tree.includes(path)

    def _overrides(self, touch: _Touch, line: int, name: str, base: CppFile) -> None:
        """Find new specializations, overloads of templates, and overrides in derived classes."""
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
                bases = [b for f in file.facts.get(its_owner, ()) for b in f.bases]
                derived = bool(owner) and its_method == method and owner.rpartition("::")[2] in bases
                if again or special or derived:
                    if "declared" in fresh[-1].traits and not derived:
                        continue
                    at = _place(path, fresh[-1].line)
                    kind = Kind.DUPLICATE if again and _same_parameters(fresh[-1], facts[:-1]) else Kind.OVERRIDE
                    self.whole.alarm(touch, kind, line, name, now=its_name, at=at)

    def _overridden(self, touch: _Touch, after: CppFile) -> None:
        """Compare the methods of base classes that a patch's own methods override."""
        for name in [*touch.functions, *touch.added]:
            owner, _, method = name.rpartition("::")
            fact = after.facts[name][-1] if name in after.facts else None
            if not owner or fact is None or fact.kind != "function":
                continue
            for base in [b for f in after.facts.get(owner, ()) for b in f.bases]:
                self._compare_base(touch, fact, f"{base}::{method}")

    def _compare_base(self, touch: _Touch, mine: Fact, inherited: str) -> None:
        for path in self.whole.files_with(inherited.rpartition("::")[2].encode(), "c++"):
            old, new = self.old.cpp(path), self.new.cpp(path)
            was = old.facts.get(inherited, []) if old else []
            now = new.facts.get(inherited, []) if new else []
            if not was:
                continue
            shown = [_cpp_signature(f) for f in was], [_cpp_signature(f) for f in now]
            if [_types(f) for f in was] != [_types(f) for f in now]:
                at = _place(path, now[-1].line) if now else ""
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

    # Names on added lines

    def _use(self, touch: _Touch, use: CppUse, after: CppFile, new: CppFile | None) -> None:
        simple = use.name.rpartition("::")[2]
        if len(simple) < 3 or not re.fullmatch(r"\w+", simple):
            return
        function, number = after.function_at(use.line)
        if function and not use.member and "::" not in use.name:
            local = _cpp._local_names(after, after.nodes[function][number])
            if simple in local:
                self._local(touch, use, function, simple, after, new)
                return
        if any(n.rpartition("::")[2] == simple for n in touch.added):
            return
        for path, names in self._definitions(touch, use, simple):
            for name in names:
                self._compare_use(touch, use, function, path, name)

    def _local(
        self, touch: _Touch, use: CppUse, function: str, simple: str, after: CppFile, new: CppFile | None
    ) -> None:
        """Find local variables that an added line reads and the new version doesn't have."""
        base = self.old.cpp(touch.path)
        if base is None or new is None or function not in base.nodes or function not in new.nodes:
            return
        was = {n for node in base.nodes[function] for n in _cpp._local_names(base, node)}
        now = {n for node in new.nodes[function] for n in _cpp._local_names(new, node)}
        key = (touch.patch, touch.path, f"{function} {simple}", 0)
        if simple in was and simple not in now and key not in self._seen:
            self._seen.add(key)
            self.whole.alarm(touch, Kind.REMOVED, use.line, function, callee=simple, was=simple)

    def _definitions(self, touch: _Touch, use: CppUse, simple: str) -> list[tuple[bytes, list[str]]]:
        """Return the old definitions in changed files that a name may mean, by file."""
        if touch.path not in self._reach:
            self._reach[touch.path] = self.old.includes(touch.path, touch.after)
        paths = self.whole.files_with(simple.encode(), "c++")
        reached = [p for p in paths if p in self._reach[touch.path]]
        near = self._named(touch.path, use, simple) if touch.path in paths else []
        if near:
            return [(touch.path, near)]
        found = [(p, names) for p in reached if (names := self._named(p, use, simple))]
        if found or len(simple) < _LEAST_ALONE or len(paths) > _MOST_DEFINERS:
            return found
        others = [(p, names) for p in paths if (names := self._named(p, use, simple))]
        return others if len(others) == 1 and len(others[0][1]) == 1 else []

    def _named(self, path: bytes, use: CppUse, simple: str) -> list[str]:
        """Return the old definitions of a file that a name may mean."""
        file = self.old.cpp(path)
        names = [n for n in (file.facts if file else ()) if n.rpartition("::")[2] == simple]
        if "::" in use.name:
            return [n for n in names if n.endswith(use.name) or use.name.endswith(n)]
        return [n for n in names if "::" in n] if use.member else names

    def _compare_use(self, touch: _Touch, use: CppUse, function: str, path: bytes, name: str) -> None:
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
                touch, Kind.REMOVED, use.line, function, callee=name, was=_place(path, was[0].line), now=now_at
            )
            return
        say = _Alarms(self.whole, touch, use.line, function, name, _place(place, now[-1].line))
        called = [f for f in was if f.parameters is not None and f.kind in ("function", "macro")]
        if called and (use.arguments >= 0 or was[0].kind == "macro"):
            self._compare_calls(say, use, called, [f for f in now if f.parameters is not None])
        self._compare_templates(say, was, now)
        values = (
            [f.value for f in was if f.kind in ("value", "macro")],
            [f.value for f in now if f.kind in ("value", "macro")],
        )
        if values[0] != values[1]:
            say(Kind.CONSTANT, " | ".join(values[0]), " | ".join(values[1]))
        guards = [f.guards for f in was], [f.guards for f in now]
        if len(guards[0]) == len(guards[1]) and guards[0] != guards[1]:
            shown = (" | ".join(" && ".join(g) for g in side) for side in guards)
            say(Kind.GUARD, next(shown), next(shown))
        if called and use.arguments >= 0:
            self._compare_bodies(say, old, name, place, was, now)
            bodies = [[_types(f) for f in side if "declared" not in f.traits] for side in (was, now)]
            if any(bodies[1].count(types) > bodies[0].count(types) > 0 for types in bodies[0]):
                say(Kind.DUPLICATE, name, name)

    def _compare_templates(self, say: _Alarms, was: Sequence[Fact], now: Sequence[Fact]) -> None:
        """Compare template parameters, and the types of fields and constants."""
        there = [_kinds(f) for f in now]
        for fact in was:
            kinds = _kinds(fact)
            if any(new[: len(kinds)] == kinds and all("=" in rest for rest in new[len(kinds) :]) for new in there):
                continue
            say(Kind.SIGNATURE, f"<{', '.join(kinds)}>", " | ".join(f"<{', '.join(new)}>" for new in there))
            return

    def _compare_bodies(
        self, say: _Alarms, old: CppFile, name: str, path: bytes, was: Sequence[Fact], now: Sequence[Fact]
    ) -> None:
        """Compare the constants and operators in a called function, if nothing else in it changed."""
        new = self.new.cpp(path)
        if new is None or len(was) != len(now):
            return
        for one, other in zip(old.nodes[name], new.nodes[name], strict=False):
            bodies = _cpp.body_of(old, one), _cpp.body_of(new, other)
            if bodies[0] != bodies[1] and one.type == "function_definition":
                masked = _cpp.body_of(old, one, masked=True), _cpp.body_of(new, other, masked=True)
                if masked[0] == masked[1]:
                    tokens = [b.split() for b in bodies]
                    pair = next((p for p in zip(*tokens, strict=True) if p[0] != p[1]), ("", ""))
                    say(Kind.CONSTANT, *pair)

    def _new_facts(self, path: bytes, name: str) -> tuple[bytes, list[Fact]]:
        """Return the file and the definitions that a name has in the new version."""
        target = self.whole.new_path(path)
        file = self.new.cpp(target) if target else None
        if file and target and name in file.facts:
            return target, file.facts[name]
        simple = re.split("::", name)[-1]
        for other in self.whole.files_with(simple.encode(), "c++"):
            file = self.new.cpp(other)
            if file and name in file.facts and (self.old.cpp(other) is None or name not in self.old.cpp(other).facts):  # type: ignore[union-attr]
                return other, file.facts[name]
        return path, []

    def _elsewhere(self, name: str) -> str:
        simple = re.split("::", name)[-1]
        for other in self.whole.files_with(simple.encode(), "c++"):
            file = self.new.cpp(other)
            for its_name, facts in file.facts.items() if file else ():
                if re.split("::", its_name)[-1] == simple:
                    return _place(other, facts[0].line)
        return ""

    def _compare_calls(self, say: _Alarms, use: CppUse, was: Sequence[Fact], now: Sequence[Fact]) -> None:
        count = use.arguments
        fitting = [f for f in was if count < 0 or _accepts(f, count)] or list(was)
        for fact in fitting:
            same = [f for f in now if _types(f) == _types(fact)]
            best = next((f for f in same if _order_kept(fact, f)), None)
            if best is None and count >= 0:
                best = next((f for f in now if _accepts(f, count) and _begins_alike(fact, f, count)), None)
            if best is None:
                say(Kind.SIGNATURE, _cpp_signature(fact), " | ".join(map(_cpp_signature, now)), use.call)
                continue
            for one, other in list(zip(fact.parameters or (), best.parameters or (), strict=False))[max(count, 0) :]:
                if one.default is not None and other.default is not None and one.default != other.default:
                    say(Kind.DEFAULT, f"{one.name}={one.default}", f"{other.name}={other.default}", use.call)
            if fact.value != best.value and fact.kind == "function" and "auto" not in (fact.value, best.value):
                say(Kind.RESULT, fact.value, best.value)


def _distinct(uses: Iterable[CppUse]) -> Iterator[CppUse]:
    """Yield each name once, as a call if it is called."""
    found: dict[tuple[str, int], CppUse] = {}
    for use in uses:
        found.setdefault((use.name, use.arguments), use)
    called = {name for name, arguments in found if arguments >= 0}
    for (name, arguments), use in found.items():
        if arguments >= 0 or name not in called:
            yield use


def _end_of(line: int, lines: set[int]) -> int:
    while line in lines:
        line += 1
    return line


def _types(fact: Fact) -> list[str]:
    return [p.kind for p in fact.parameters or ()]


def _kinds(fact: Fact) -> tuple[str, ...]:
    return tuple(trait for trait in fact.traits if trait != "declared")


def _cpp_signature(fact: Fact) -> str:
    shown = [f"{p.kind} {p.name}".strip() + (f" = {p.default}" if p.default else "") for p in fact.parameters or ()]
    return f"({', '.join(shown)})"


def _accepts(fact: Fact, count: int) -> bool:
    parameters: tuple[Parameter, ...] = fact.parameters or ()
    if any("..." in p.kind or "..." in p.name for p in parameters):
        return True
    return sum(p.default is None for p in parameters) <= count <= len(parameters) or (
        fact.kind == "function" and "declared" not in fact.traits and count <= len(parameters)
    )


def _order_kept(one: Fact, other: Fact) -> bool:
    """Return whether no two parameters changed places."""
    names = [p.name for p in one.parameters or ()], [p.name for p in other.parameters or ()]
    if names[0] == names[1]:
        return True
    return all(a == b or a not in names[1] or b not in names[0] for a, b in zip(*names, strict=False))


def _begins_alike(one: Fact, other: Fact, count: int) -> bool:
    mine, its = _types(one)[:count], _types(other)[:count]
    rest = (other.parameters or ())[count:]
    known = {p.name for p in one.parameters or ()}
    return mine == its and _order_kept(one, other) and all(p.default is not None or p.name in known for p in rest)


def _same_overload(fact: Fact, number: int, facts: Sequence[Fact]) -> int | None:
    """Return the number of the definition that a definition became."""
    for place, other in enumerate(facts):
        if _types(other) == _types(fact) and other.traits == fact.traits and other.guards == fact.guards:
            return place
    for place, other in enumerate(facts):
        if _types(other) == _types(fact) and ("declared" in other.traits) == ("declared" in fact.traits):
            return place
    return number if number < len(facts) else len(facts) - 1


def _same_parameters(fact: Fact, others: Iterable[Fact]) -> bool:
    return any(_types(other) == _types(fact) and other.guards == fact.guards for other in others)
