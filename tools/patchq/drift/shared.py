"""Two patches on one definition: which of them a reader, or the interpreter, ends up with.

Each may be right by itself, and its proof pass; together the one may undo what the other does. Definitions are compared
by their tokens, so that a comment is no change.
"""

from __future__ import annotations

import ast
import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from patchq.drift import bodies
from patchq.errors import PatchqError
from patchq.git.repository import Git
from patchq.names import BlobId, show_path
from patchq.project.project import Project
from patchq.stacks.apply import Carried, bases_of, carried_stacks

#: How much of two definitions of one name must be the same for the one to be a copy of the other.
_ALIKE = 0.8


@dataclass(frozen=True, slots=True)
class Shared:
    """A definition that a patch changes after another one did.

    :ivar patch: the later one, or the one that wins; ``other``: the other, both as ``upstream/name``.
    :ivar wins: the patch whose change stands; empty where both do, in different lines or in two copies.
    """

    upstream: str
    ref: str
    path: str
    definition: str
    patch: str
    other: str
    wins: str
    said: str


@dataclass(slots=True)
class _Change:
    """What one patch does to one definition: lines that it adds and takes away, and its tokens before."""

    upstream: str
    patch: str
    path: bytes
    name: str
    added: Counter[str]
    removed: Counter[str]
    gone: bool
    before: tuple[str, ...]


@dataclass(slots=True)
class _Files:
    """Files with their definitions, each read and parsed once."""

    store: Git
    contents: dict[BlobId, bytes] = field(default_factory=dict)
    parsed: dict[tuple[bytes, BlobId], dict[str, bodies.Definition]] = field(default_factory=dict)

    def definitions(self, path: bytes, blob: BlobId) -> dict[str, bodies.Definition]:
        if (path, blob) not in self.parsed:
            self.parsed[path, blob] = bodies.definitions(path, self.text(blob))
        return self.parsed[path, blob]

    def text(self, blob: BlobId) -> bytes:
        if blob not in self.contents:
            self.contents.update(self.store.read_blobs([blob]))
        return self.contents[blob]

    def lines(self, blob: BlobId, definition: bodies.Definition | None) -> Counter[str]:
        if definition is None:
            return Counter()
        lines = self.text(blob).decode("utf-8", "replace").splitlines()[definition.start - 1 : definition.end]
        return Counter(line.strip() for line in lines if line.strip())


def shared_in_sets(project: Project, names: Sequence[str] = (), *, offline: bool = False) -> list[Shared]:
    """What is shared in all sets of the lock, each stack looked at once.

    A stack that doesn't apply is passed over: ``check`` says that of it.

    :param names: upstreams, all by default.
    """
    found: dict[Shared, None] = {}
    with project.locked("check"):
        seen: dict[tuple[str, str], Carried | None] = {}
        files = _Files(project.store)
        for set_name in project.lock.sets:
            there = []
            for stack in project.stacks(set_name):
                key = (stack.pin.upstream, stack.pin.ref)
                if key not in seen:
                    seen[key] = None
                    if stack.names:
                        with suppress(PatchqError):
                            bases_of(project, [stack], {stack.pin.upstream: None}, offline)
                            (seen[key],) = carried_stacks(project, [stack], set_name)
                if carried := seen[key]:
                    there.append(carried)
            packages = {u.build.package: u.name for u in project.lock.upstreams.values() if u.build}
            found.update(dict.fromkeys(shared_definitions(project.store, there, packages, files)))
    return [s for s in found if not names or s.upstream in names]


def shared_definitions(
    store: Git, stacks: Sequence[Carried], packages: Mapping[str, str] | None = None, files: _Files | None = None
) -> list[Shared]:
    """Where two patches of a stack, or of stacks that are built together, change one definition.

    A later patch that says ``Requires:`` of the earlier one knows it, and isn't told.

    :param packages: of import names of Python packages the upstream; for what is replaced at run time.
    """
    files = files or _Files(store)
    found: list[Shared] = []
    by_stack = {}
    for carried in stacks:
        changes = list(_changes(files, carried, every=len(stacks) > 1))
        by_stack[carried.stack.pin.upstream] = changes
        found += _within(carried, changes)
    for number, carried in enumerate(stacks):
        for other in stacks[number + 1 :]:
            pair = [by_stack[c.stack.pin.upstream] for c in (carried, other)]
            found += _copies(carried, other, *pair)
        found += _replaced(files, carried, by_stack, packages or {})
    return found


def _changes(files: _Files, carried: Carried, *, every: bool) -> Iterator[_Change]:
    """What each patch does to each definition, in order; of files that only one patch touches only with ``every``."""
    upstream, names = carried.stack.pin.upstream, [name for name, _ in carried.commits]
    changed = files.store.changes_of([info.commit for _, info in carried.commits])
    count = Counter(c.path for changes in changed for c in changes)
    for patch, changes in zip(names, changed, strict=True):
        for change in changes:
            path = change.path
            if not bodies.language_of(path) or change.old is None or (count[path] < 2 and not every):
                continue
            before = files.definitions(path, change.old.blob)
            after = files.definitions(path, change.new.blob) if change.new else {}
            differ = [
                n for n in {**before, **after}
                if (before[n].tokens if n in before else None) != (after[n].tokens if n in after else None)
            ]  # fmt: skip
            for name in differ:
                if any(other.startswith(name + ".") for other in differ):
                    continue  # it only holds the one that changes
                old = files.lines(change.old.blob, before.get(name))
                new = files.lines(change.new.blob, after.get(name)) if change.new else Counter()
                tokens = before[name].tokens if name in before else ()
                yield _Change(upstream, patch, path, name, new - old, old - new, name not in after, tokens)


def _within(carried: Carried, changes: Sequence[_Change]) -> Iterator[Shared]:
    pin = carried.stack.pin
    knows = _known(carried)
    earlier: dict[tuple[bytes, str], list[_Change]] = {}
    for change in changes:
        before = earlier.setdefault((change.path, change.name), [])
        for other in before:
            if other.patch in knows.get(change.patch, ()):
                continue
            undone = sum((other.added & change.removed).values())
            again = sum((other.removed & change.added).values())
            wins = f"{pin.upstream}/{change.patch}" if undone or again or change.gone else ""
            if change.gone:
                said = "the later one takes it away"
            elif undone or again:
                of = sum(other.added.values())
                said = f"the later one wins: it changes {undone} of the {of} lines that the earlier one adds there"
                said += f", and brings back {again} that it removes" if again else ""
            else:
                said = "both stand, in different lines of it"
            yield Shared(
                pin.upstream, pin.ref, show_path(change.path), change.name, f"{pin.upstream}/{change.patch}",
                f"{pin.upstream}/{other.patch}", wins, said,
            )  # fmt: skip
        before.append(change)


def _known(carried: Carried) -> dict[str, set[str]]:
    """By patch, those of its stack that it says it requires, and those that they do."""
    upstream = carried.stack.pin.upstream
    found: dict[str, set[str]] = {}
    for name, header in carried.stack.headers():
        direct = {r.partition("/")[2] for r in header.values("Requires") if r.startswith(f"{upstream}/")}
        found[name] = direct | {far for near in direct for far in found.get(near, ())}
    return found


def _copies(one: Carried, other: Carried, mine: Sequence[_Change], theirs: Sequence[_Change]) -> Iterator[Shared]:
    """A definition that two upstreams have copies of, and a patch of each changes."""
    by_name: dict[tuple[bytes, str], list[_Change]] = {}
    for change in mine:
        by_name.setdefault((change.path.rpartition(b"/")[2], change.name), []).append(change)
    for change in theirs:
        for twin in by_name.get((change.path.rpartition(b"/")[2], change.name), ()):
            if not change.before or not twin.before:
                continue
            if difflib.SequenceMatcher(None, change.before, twin.before, autojunk=False).ratio() < _ALIKE:
                continue
            yield Shared(
                one.stack.pin.upstream, one.stack.pin.ref, show_path(twin.path), twin.name,
                f"{twin.upstream}/{twin.patch}", f"{change.upstream}/{change.patch}", "",
                f"{other.stack.pin.upstream} has a copy of it in {show_path(change.path)}: each is built from its own",
            )  # fmt: skip


def _replaced(
    files: _Files, carried: Carried, by_stack: Mapping[str, Sequence[_Change]], packages: Mapping[str, str]
) -> Iterator[Shared]:
    """A definition of a sibling's package that a patch assigns anew at run time, and a patch of the sibling changes."""
    pin = carried.stack.pin
    foreign = {package: name for package, name in packages.items() if name != pin.upstream and name in by_stack}
    if not foreign:
        return
    changed = files.store.changes_of([info.commit for _, info in carried.commits])
    for (patch, _), changes in zip(carried.commits, changed, strict=True):
        for change in changes:
            if not change.path.endswith(b".py") or change.new is None:
                continue
            text = files.text(change.new.blob)
            if not any(package.encode() in text for package in foreign):
                continue
            already = set(_assigned(files.text(change.old.blob))) if change.old else set()
            for target in dict.fromkeys(_assigned(text)):
                upstream = foreign.get(target.partition(".")[0])
                if target in already or not upstream:
                    continue
                for theirs in by_stack[upstream]:
                    if target.endswith("." + theirs.name) and _module(theirs.path) in target:
                        yield Shared(
                            upstream, "", show_path(theirs.path), theirs.name, f"{pin.upstream}/{patch}",
                            f"{upstream}/{theirs.patch}", f"{pin.upstream}/{patch}",
                            f"{pin.upstream}/{patch} wins: {show_path(change.path)} assigns it anew at run time",
                        )  # fmt: skip


def _module(path: bytes) -> str:
    return path.decode("utf-8", "replace").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _assigned(source: bytes) -> Iterator[str]:
    """The dotted names that a Python file assigns to, imports written out: ``flashinfer.decode.plan``."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update((a.asname or a.name.partition(".")[0], a.name if a.asname else a.name.partition(".")[0])
                         for a in node.names)  # fmt: skip
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update((a.asname or a.name, f"{node.module}.{a.name}") for a in node.names)
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Attribute) and (dotted := _dotted(target)):
                first, _, rest = dotted.partition(".")
                yield f"{names.get(first, first)}.{rest}"


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return node.id if isinstance(node, ast.Name) else ""
