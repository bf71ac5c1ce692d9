"""Drift between branches: one branch adds lines that use a definition or file which another branch changes.

The lines were written for their own branch. :func:`find_drift` compares each definition that the lines use in that
branch with the same definition in the merged tree.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from patchq.drift import bodies
from patchq.drift._api.calls import judge_call
from patchq.drift._api.interface import ApiItem, Interface, ItemKind, NameUse, Override, module_of, uses_of
from patchq.drift._api.signatures import SignatureChange
from patchq.names import show_path

#: Upstream and path of a file.
Place = tuple[str, bytes]
Read = Callable[[Place], bytes | None]
#: Minimum length of a name to search for: of a file, or of a method whose class is unknown.
_SHORTEST = 5
#: Most imports and base classes to follow.
_MOST_STEPS = 6
#: Kinds of items that a file should define once.
_SINGLE = (ItemKind.FUNCTION, ItemKind.CLASS, ItemKind.OPTION, ItemKind.ENTRY, ItemKind.KEY, ItemKind.NAME)


class UseChange(str, Enum):
    """Kind of change to a definition that another branch uses."""

    REMOVED = "removed"
    CALL = "call"
    DEFAULT = "default"
    FORM = "form"
    RETURNS = "returns"
    OVERRIDE = "override"
    ABSTRACT = "abstract"
    BODY = "body"
    VALUE = "value"
    FILE = "file"


#: Changes after which the use may still be correct.
MILD = (UseChange.DEFAULT, UseChange.BODY, UseChange.VALUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeDrift:
    """Added line that uses a definition or file which differs, or is missing, in the merged tree.

    :ivar place: file with the use, in the branch that adds the line.
    :ivar name: dotted path or C++ name of the definition; for a removed file, its path.
    :ivar defined: file of the definition.
    :ivar detail: explanation, such as how a call conflicts with the new signature; may be empty.
    """

    change: UseChange
    place: Place
    line: int
    name: str
    defined: Place
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Twice:
    """Definition that two branches add.

    :ivar places: file with the definition in the first branch, and in the second; both can be the same file.
    """

    kind: str
    name: str
    places: tuple[Place, Place]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """Files of a set's upstreams in one version.

    :ivar read: function that returns the content of a file, or None if the file doesn't exist.
    :ivar paths: function that returns all files of an upstream.
    :ivar count: function that counts the functions and methods with a given name in all upstreams.
    """

    read: Read
    paths: Callable[[str], Collection[bytes]]
    count: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class _Changed:
    """Changed definition: its old and its new version. A version is None if the tree lacks the definition."""

    old: ApiItem | None
    new: ApiItem | None
    place: Place


def find_drift(
    old: Trees, new: Trees, added: Mapping[Place, Collection[int]], changed: Sequence[Place]
) -> list[MergeDrift]:
    """Return the uses, in added lines, of definitions that differ between the two trees.

    :param old: tree that the lines were written for.
    :param added: numbers (from 1) of the added lines in each file of the old tree.
    :param changed: files that differ between the trees.
    """
    finder = _DriftFinder(old, new, changed)
    found: dict[tuple[Place, int, str], MergeDrift] = {}
    for place in added:
        for drift in finder.of_file(place, set(added[place])):
            found.setdefault((place, drift.line, drift.name), drift)
    return list(found.values())


class _DriftFinder:
    def __init__(self, old: Trees, new: Trees, changed: Sequence[Place]) -> None:
        self.old, self.new = old, new
        self.changes: dict[str, _Changed] = {}
        self.gone = [place for place in changed if old.read(place) is not None and new.read(place) is None]
        self.cpp: list[tuple[Place, dict[str, bodies.Definition], dict[str, bodies.Definition]]] = []
        for place in changed:
            self._compare(place)
        self.last_names = {path.rpartition(".")[2] for path in self.changes}
        self._known: dict[Place, Interface] = {}

    def _compare(self, place: Place) -> None:
        path, before, after = place[1], self.old.read(place), self.new.read(place)
        language = bodies.language_of(path)
        if before is None or not language:
            return
        if language == "c++":
            if bodies.reads_cpp():
                mine = bodies.definitions(path, before)
                theirs = {}
                if after is not None:
                    theirs = bodies.definitions(path, after)
                self.cpp.append((place, mine, theirs))
            return
        shown = show_path(path)
        was, now = Interface(shown, before), Interface(shown, after or b"")
        if after is not None and now.tree is None:
            return
        if after is None:
            self.changes[was.module] = _Changed(ApiItem(name="", kind=ItemKind.NAME, line=1), None, place)
        for name in was.items:
            first, second = was.first(name), now.first(name)
            if first != second and not _only_moved(first, second):
                self.changes[f"{was.module}.{name}"] = _Changed(first, second, place)
        for name in now.items:
            item = now.first(name)
            if name not in was.items and item and item.abstract:
                self.changes[f"{was.module}.{name}"] = _Changed(None, item, place)

    def of_file(self, place: Place, lines: set[int]) -> Iterator[MergeDrift]:
        source = self.old.read(place)
        if source is None:
            return
        yield from self._paths_in(place, source, lines)
        language = bodies.language_of(place[1])
        if language == "c++":
            yield from self._cpp_in(place, source, lines)
        elif language == "python" and self.changes:
            interface = self._interface(place, source)
            if interface.tree is None:
                return
            for use in uses_of(interface, lines):
                if isinstance(use, Override):
                    yield from self._of_override(place, use)
                else:
                    yield from self._of_use(place, use)

    def _paths_in(self, place: Place, source: bytes, lines: set[int]) -> Iterator[MergeDrift]:
        """Yield each added line that contains the name of a removed file."""
        for gone in self.gone:
            name = gone[1].rpartition(b"/")[2]
            if len(name) < _SHORTEST or name == b"__init__.py":
                continue
            for line, text in _numbered_lines(source, lines):
                if re.search(rb"(?<![\w.-])" + re.escape(name) + rb"(?![\w.-])", text):
                    yield MergeDrift(
                        change=UseChange.FILE, place=place, line=line, name=show_path(gone[1]), defined=gone
                    )

    # Python

    def _interface(self, place: Place, source: bytes) -> Interface:
        if place not in self._known:
            self._known[place] = Interface(show_path(place[1]), source)
        return self._known[place]

    def _of_use(self, place: Place, use: NameUse) -> Iterator[MergeDrift]:
        path = self._resolved(use)
        if not path:
            return
        change = self.changes[path]
        if change.old is None:
            return
        for kind, detail in _judge(change, use):
            yield MergeDrift(change=kind, place=place, line=use.line, name=path, defined=change.place, detail=detail)

    def _resolved(self, use: NameUse) -> str:
        """Return the path of the changed definition that ``use`` refers to; empty if it refers to none."""
        for path in use.paths:
            if found := self.find(path):
                return found
        if use.unknown and use.last in self.last_names:
            return self._of_unknown(use)
        return ""

    def _of_unknown(self, use: NameUse) -> str:
        """Return the path of the changed method that ``x.method()`` calls, for an ``x`` of unknown class.

        Return an empty path if the name doesn't identify exactly one method, or the arguments don't fit it.
        """
        candidates = []
        for p, c in self.changes.items():
            if p.endswith("." + use.last) and _is_method(c.old):
                candidates.append(p)
        if len(candidates) != 1 or len(use.last) < _SHORTEST or use.call is None:
            return ""
        change = self.changes[candidates[0]]
        assert change.old
        signature = change.old.signature
        keywords = {k.arg for k in use.call.keywords if k.arg}
        if signature is None or not signature.accepts(len(use.call.args), keywords):
            return ""
        others = self.new.count(use.last) - (change.new is not None)
        if others:
            return ""
        return candidates[0]

    def find(self, path: str, steps: int = _MOST_STEPS) -> str:
        """Follow a path through imports and base classes to a changed definition; return that definition's path.

        Return an empty path if there is none.
        """
        if path in self.changes:
            return path
        if not steps or path.rpartition(".")[2] not in self.last_names:
            return ""
        located = self._locate(path)
        if located is None:
            return ""
        interface, name = located
        head, _, rest = name.partition(".")
        targets: list[str] = []
        if head in interface.imported:
            targets.append(f"{interface.imported[head]}.{rest}".rstrip("."))
        targets += [f"{star}.{name}" for star in interface.stars]
        owner, _, attribute = name.rpartition(".")
        targets += [f"{base}.{attribute}" for base in interface.bases.get(owner, ())]
        for target in targets:
            if target != path and (found := self.find(target, steps - 1)):
                return found
        return ""

    def _locate(self, path: str) -> tuple[Interface, str] | None:
        """Split a dotted path into its module's interface and the name in the module; None if no module is found."""
        parts = path.split(".")
        for size in range(len(parts) - 1, 0, -1):
            place = self._modules.get(".".join(parts[:size]))
            if place and (source := self.old.read(place)) is not None:
                return self._interface(place, source), ".".join(parts[size:])
        return None

    @functools.cached_property
    def _modules(self) -> dict[str, Place]:
        """Python files of the old tree by module name, for all upstreams with changed definitions."""
        upstreams = dict.fromkeys(change.place[0] for change in self.changes.values())
        found = {}
        for upstream in upstreams:
            for path in self.old.paths(upstream):
                if path.endswith(b".py"):
                    found[module_of(show_path(path))[0]] = (upstream, path)
        return found

    def _of_override(self, place: Place, use: Override) -> Iterator[MergeDrift]:
        """Yield the base class changes that conflict with an added subclass or an added overriding method."""
        for base in use.bases:
            for name, item in use.methods.items():
                path = self.find(f"{base}.{name}")
                change = self.changes.get(path)
                if change and item.line in use.added and _breaks_override(change, item):
                    yield MergeDrift(
                        change=UseChange.OVERRIDE, place=place, line=item.line, name=path, defined=change.place
                    )
            if use.line not in use.added:
                continue
            for path, change in self.changes.items():
                owner, _, name = path.rpartition(".")
                is_new = change.old is None and change.new and change.new.abstract
                if is_new and name not in use.methods and self._is_class(base, owner):
                    yield MergeDrift(
                        change=UseChange.ABSTRACT, place=place, line=use.line, name=path, defined=change.place
                    )

    def _is_class(self, path: str, other: str) -> bool:
        """Return whether a path is the class ``other`` or an import of this class."""
        for _ in range(_MOST_STEPS):
            if path == other:
                return True
            located = self._locate(path)
            if located is None or located[1] not in located[0].imported:
                return False
            path = located[0].imported[located[1]]
        return False

    # C++ and CUDA

    def _cpp_in(self, place: Place, source: bytes, lines: set[int]) -> Iterator[MergeDrift]:
        text = source.decode("utf-8", "replace").split("\n")
        for defined, mine, theirs in self.cpp:
            left = {_short(name) for name in theirs}
            for name, definition in mine.items():
                short = _short(name)
                now = theirs.get(name)
                is_gone = now is None and short not in left
                if not is_gone and (now is None or _parameters(now) == _parameters(definition)):
                    continue
                for line in sorted(lines):
                    if line > len(text) or not re.search(rf"\b{re.escape(short)}\b", text[line - 1]):
                        continue
                    change = UseChange.REMOVED
                    if not is_gone:
                        assert now
                        if _fits("\n".join(text[line - 1 : line + 19]), short, _parameters(now)):
                            continue
                        change = UseChange.CALL
                    yield MergeDrift(change=change, place=place, line=line, name=short, defined=defined)


def _numbered_lines(source: bytes, lines: Collection[int]) -> Iterator[tuple[int, bytes]]:
    text = source.split(b"\n")
    for line in sorted(lines):
        if line <= len(text):
            yield line, text[line - 1]


def _only_moved(first: ApiItem | None, second: ApiItem | None) -> bool:
    if first is None or second is None:
        return False
    same = (first.kind, first.signature, first.form, first.text, first.abstract)
    return same == (second.kind, second.signature, second.form, second.text, second.abstract)


def _is_method(item: ApiItem | None) -> bool:
    return item is not None and item.kind is ItemKind.FUNCTION and "." in item.name


def _judge(change: _Changed, use: NameUse) -> Iterator[tuple[UseChange, str]]:
    """Yield the kind and detail of each problem that a changed definition causes for a use."""
    old, new = change.old, change.new
    assert old
    if new is None:
        yield UseChange.REMOVED, ""
        return
    if old.form != new.form:
        yield UseChange.FORM, ", ".join(new.form) or "plain"
        return
    if use.call is not None and old.signature and new.signature:
        message = list(judge_call(use.call, SignatureChange(old.signature, new.signature)))
        for kind, detail in message:
            yield (UseChange.DEFAULT if kind == "changed default" else UseChange.CALL), detail
        if message:
            return
    if old.returns != new.returns and use.call is not None:
        yield UseChange.RETURNS, ""
    elif old.kind is ItemKind.NAME and old.text != new.text:
        yield UseChange.VALUE, ""
    elif old.kind is ItemKind.FUNCTION and use.call is not None and old.text != new.text:
        yield UseChange.BODY, ""


def _breaks_override(change: _Changed, item: ApiItem) -> bool:
    """Return whether an overriding method fits the old method of the base class, but not the new method."""
    if change.old is None or not _is_method(change.old) or item.name.endswith("__init__"):
        return False
    if change.new is None:
        return True
    mine, old, new = item.signature, change.old.signature, change.new.signature
    if not mine or not old or not new or old == new:
        return False
    keywords = set()
    for p in new.parameters:
        if p.kind == "keyword-only" and p.default is None:
            keywords.add(p.name)
    before = set()
    for p in old.parameters:
        if p.kind == "keyword-only" and p.default is None:
            before.add(p.name)
    if not mine.accepts(len(old.positional), before):
        return False
    return not mine.accepts(len(new.positional), keywords)


def find_twice(base: Read, ours: Trees, theirs: Trees, merged: Read, places: Sequence[Place]) -> list[Twice]:
    """Return the definitions that both branches add, so that the merged tree contains them twice.

    :param places: files that a branch changes. Only Python files are compared.
    """
    found: list[Twice] = []
    entries: list[dict[str, tuple[Place, ApiItem]]] = [{}, {}]
    for place in places:
        if not place[1].endswith(b".py"):
            continue
        was, *sides, now = (
            Interface(show_path(place[1]), read(place) or b"") for read in (base, ours.read, theirs.read, merged)
        )
        added = []
        for interface in sides:
            added.append({name: items for name, items in interface.items.items() if name not in was.items})
        both = added[0].keys() & added[1].keys()
        for name in sorted(both):
            if any(name.startswith(f"{other}.") for other in both):
                continue  # a member of a class that both add
            first, second = added[0][name][0], added[1][name][0]
            items = now.items.get(name, [])
            if first.kind not in _SINGLE or len(items) <= max(len(added[0][name]), len(added[1][name])):
                continue
            if first.kind in (ItemKind.NAME, ItemKind.KEY) and first.text == second.text:
                continue
            if first.kind is ItemKind.OPTION:
                shown = first.text
            else:
                shown = name
            found.append(Twice(kind=first.kind.value, name=shown, places=(place, place), line=items[-1].line))
        for side, items_added in zip(entries, added, strict=True):
            side.update((n, (place, i[0])) for n, i in items_added.items() if i[0].kind is ItemKind.ENTRY)
    for name in sorted(entries[0].keys() & entries[1].keys()):
        (first_place, _), (second_place, item) = entries[0][name], entries[1][name]
        if first_place != second_place:
            places_of = (first_place, second_place)
            found.append(Twice(kind=item.kind.value, name=name, places=places_of, line=item.line))
    return found


# C++ and CUDA: parameters by tokens


def _short(name: str) -> str:
    """Return a C++ name without its scope and overload number: ``f`` for ``ns::f#2``."""
    return name.rpartition("::")[2].partition("#")[0]


def _parameters(definition: bodies.Definition) -> tuple[int, int] | None:
    """Return the minimum and maximum number of arguments; None if unknown, as for a macro value or ``...``."""
    tokens, short = definition.tokens, _short(definition.name)
    for at in range(len(tokens) - 1):
        if tokens[at] == short and tokens[at + 1] == "(":
            parts = _arguments(tokens[at + 1 :])
            if parts is None:
                return None
            if any("..." in part for part in parts):
                return None
            required = sum("=" not in part for part in parts)
            return required, len(parts)
    return None


def _arguments(tokens: Sequence[str]) -> list[list[str]] | None:
    """Split the tokens in the first parentheses at the commas; None if the closing parenthesis is missing."""
    depth, angle = 0, 0
    parts: list[list[str]] = [[]]
    for token in tokens:
        if token in "([{" and token:
            depth += 1
            if depth == 1:
                continue
        elif token in ")]}":
            depth -= 1
            if not depth:
                return [part for part in parts if part]
        angle += (token == "<") - (token == ">")
        if token == "," and depth == 1 and angle <= 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return None


_TOKENS = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\w+|[^\s\w]")


def _fits(text: str, name: str, parameters: tuple[int, int] | None) -> bool:
    """Return whether the first call of ``name`` has a valid number of arguments; True if that is unknown."""
    if parameters is None:
        return True
    tokens = _TOKENS.findall(text)
    if name in tokens:
        at = tokens.index(name) + 1
    else:
        at = len(tokens)
    if at < len(tokens) and tokens[at] == "<":
        while at < len(tokens) and tokens[at] != "(":
            at += 1
    if at >= len(tokens) or tokens[at] != "(":
        return True
    parts = _arguments(tokens[at:])
    return parts is None or parameters[0] <= len(parts) <= parameters[1]


def added_lines(diff: bytes) -> dict[bytes, set[int]]:
    """Return the numbers (from 1) of the lines that a git diff adds to each file."""
    found: dict[bytes, set[int]] = {}
    path, at = b"", 0
    for line in diff.split(b"\n"):
        if line.startswith(b"diff --git "):
            path, at = b"", 0
        elif not at and line.startswith(b"+++ b/"):
            path = line[6:].rstrip(b"\t")
        elif line.startswith(b"@@ ") and path:
            at = int(line.split(b" ")[2].split(b",")[0][1:])
        elif at and line.startswith(b"+"):
            found.setdefault(path, set()).add(at)
            at += 1
        elif at and line.startswith(b" "):
            at += 1
    return found
