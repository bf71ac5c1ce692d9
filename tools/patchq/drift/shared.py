"""Definitions that two patches change, and the patch whose change takes effect.

Each patch may be correct and pass its proof, but one may undo the other. Definitions are compared by
tokens, so comments don't count.
"""

from __future__ import annotations

import ast
import difflib
import functools
import re
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from patchq.drift import bodies
from patchq.drift.bodies import inner, parse
from patchq.extras import install_command
from patchq.formats.diff import GITLINK
from patchq.formats.header import parse_trailers
from patchq.git.diffs import PathChange
from patchq.git.repository import Git
from patchq.names import BlobId, show_path
from patchq.project.project import Project
from patchq.project.stack import Stack
from patchq.stacks.apply import Carried, carried_stacks

_Read = Callable[[list[BlobId]], Mapping[BlobId, bytes]]
#: Minimum similarity of two definitions with the same name to count as copies.
_ALIKE = 0.8
_ASSIGNMENT = re.compile(rb"[ \t]*(?!self\.|cls\.)\w+(\.\w+)+[ \t]*=[^=]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Definition that two patches change.

    :ivar patch: the later patch, or the one that takes effect, as ``upstream/name``.
    :ivar other: the other patch, as ``upstream/name``.
    :ivar wins: the patch that takes effect; empty if both take effect, on different lines or in two copies.
    """

    upstream: str
    ref: str
    path: str
    definition: str
    patch: str
    other: str
    wins: str
    message: str

    @property
    def needs_decision(self) -> bool:
        """True if one change undoes the other, or if two copies may differ.

        Patches of one stack that change different lines need no decision, because the series orders
        them.
        """
        return bool(self.wins) or self.patch.partition("/")[0] != self.other.partition("/")[0]


@dataclass(slots=True, kw_only=True)
class _DriftChange:
    """Change of a definition by a patch: the added and removed lines, and the tokens before the change."""

    patch: str
    path: bytes
    name: str
    added: Counter[str]
    removed: Counter[str]
    gone: bool
    before: tuple[str, ...]


class _DriftTouch:
    """Change of a file by a patch, with the definitions whose lines differ."""

    def __init__(self, patch: str, path: bytes, before: bodies.SourceVersion, after: bodies.SourceVersion) -> None:
        self.patch, self.path, self.before, self.after = patch, path, before, after
        self.unlike = before.unlike(after)

    def changes(self, wanted: Container[str]) -> Iterator[_DriftChange]:
        for name, old, new in bodies.changed(self.before, self.after, self.unlike, wanted):
            mine, theirs = _lines(self.before, name), _lines(self.after, name)
            yield _DriftChange(
                patch=self.patch,
                path=self.path,
                name=name,
                added=theirs - mine,
                removed=mine - theirs,
                gone=new is None,
                before=old.tokens if old else (),
            )


class Versions:
    """Cache of parsed versions of files."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, BlobId], bodies.SourceVersion] = {}

    def of(self, path: bytes, blob: BlobId, content: bytes) -> bodies.SourceVersion:
        """Return the parsed file, from the cache if the same blob at the same path was parsed before."""
        if (path, blob) not in self._known:
            self._known[path, blob] = bodies.SourceVersion(path, content)
        return self._known[path, blob]


class Stacked:
    """Changes that a stack makes to definitions. Each file is read and parsed once, when needed.

    :param patches: name, message and changes of each patch, in the order of the series.
    :param read: function that reads blobs in one call.
    :param versions: cache shared with other stacks.
    """

    def __init__(
        self,
        upstream: str,
        ref: str,
        patches: Sequence[tuple[str, str, Sequence[PathChange]]],
        read: _Read,
        versions: Versions | None = None,
    ) -> None:
        self.upstream, self.ref, self._read = upstream, ref, read
        self.patches = [(name, list(filter(is_source, changes))) for name, _, changes in patches]
        self.knows = _known(upstream, [(name, message) for name, message, _ in patches])
        self.touched: Counter[bytes] = Counter()
        for _, sources in self.patches:
            self.touched.update(change.path for change in sources)
        self._known: dict[bytes, list[_DriftTouch]] = {}
        if versions is None:
            self._versions = Versions()
        else:
            self._versions = versions
        self.contents: dict[BlobId, bytes] = {}

    def read(self) -> None:
        """Read the old and new versions of all files that the stack changes, in one call."""
        if not self.contents:
            blobs: dict[BlobId, None] = {}
            for _, changes in self.patches:
                for change in changes:
                    for entry in (change.old, change.new):
                        if entry:
                            blobs[entry.blob] = None
            self.contents.update(self._read(list(blobs)))

    def of(self, paths: Iterable[bytes]) -> list[_DriftTouch]:
        """Return the changes of these files in the order of the series."""
        wanted = {p for p in paths if p in self.touched}
        new = wanted - self._known.keys()
        if new:
            self.read()
        for patch, changes in self.patches:
            for change in changes:
                if change.path in new and change.old:
                    self._known.setdefault(change.path, []).append(self._of_file(patch, change, change.old.blob))
        order = {patch: n for n, (patch, _) in enumerate(self.patches)}
        found: list[_DriftTouch] = []
        for path in sorted(wanted):
            found += self._known.get(path, ())
        return sorted(found, key=lambda touch: order[touch.patch])

    def _of_file(self, patch: str, change: PathChange, old: BlobId) -> _DriftTouch:
        before = self._versions.of(change.path, old, self.contents[old])
        new = None
        if change.new:
            new = change.new.blob
        if new:
            after = self._versions.of(change.path, new, self.contents[new])
        else:
            after = bodies.SourceVersion(change.path, b"")
        return _DriftTouch(patch, change.path, before, after)


def _of_carried(store: Git, carried: Carried) -> Stacked:
    changes = store.changes_of([info.commit for _, info in carried.commits])
    patches = [(name, info.message, made) for (name, info), made in zip(carried.commits, changes, strict=True)]
    return Stacked(carried.stack.pin.upstream, carried.stack.pin.ref, patches, store.read_blobs)


def is_source(change: PathChange) -> bool:
    """Return whether a changed path is a source file in a supported language."""
    links = any(entry and entry.mode == GITLINK for entry in (change.old, change.new))
    language = bodies.language_of(change.path)
    return bool(language) and (language != "c++" or bodies.reads_cpp()) and not links


def report_unread(project: Project, stacks: Iterable[Stack]) -> None:
    """Print a note if patches change C++ or CUDA files and their parser is not installed."""
    if bodies.reads_cpp():
        return
    lines = (line for stack in stacks for name in stack.names for line in stack.read(name).splitlines())
    if any(line.startswith(b"+++ ") and bodies.language_of(line.rstrip()) == "c++" for line in lines):
        project.say(f"note: definitions in C++ and CUDA files are not compared without {install_command('drift')}")


def _lines(version: bodies.SourceVersion, name: str) -> Counter[str]:
    return Counter(line.strip() for line in version.lines(name) if line.strip())


def shared_beside(project: Project, stacks: Iterable[Stacked], set_name: str) -> list[Shared]:
    """Return the definitions that several patches change if the set uses one of ``stacks`` for their upstream.

    Two patches of the same stack are compared, and patches of ``stacks`` with the set's patches of other upstreams.
    A later patch that ``Requires:`` the earlier patch is not reported.

    :param stacks: stacks of one upstream on several refs.
    """
    report_unread(project, project.stacks(set_name))
    found: list[Shared] = []
    carried_others: list[Stacked] | None = None
    for stack in stacks:
        if carried_others is None:
            others = []
            for s in project.stacks(set_name):
                if s.names and s.pin.upstream != stack.upstream:
                    others.append(s)
            carried_others = [_of_carried(project.store, c) for c in carried_stacks(project, others, set_name)]
        here = compare([stack, *carried_others], packages_of(project))
        found += dict.fromkeys(s for s in here if stack.upstream in {s.upstream, *_upstreams(s)})
    return found


def _upstreams(shared: Shared) -> set[str]:
    return {name.partition("/")[0] for name in (shared.patch, shared.other)}


def packages_of(project: Project) -> dict[str, str]:
    """Return the name of the upstream for each import name, such as ``{"flashinfer": "flashinfer"}``."""
    return {u.build.package: u.name for u in project.lock.upstreams.values() if u.build}


def grouped(found: Sequence[Shared]) -> list[tuple[Shared, tuple[str, ...]]]:
    """Merge the entries about the same definition. Return each merged entry and the names of its other patches.

    Only entries without a winner whose patches are in the same stack are merged.
    """
    together: dict[tuple[str, ...], tuple[Shared, dict[str, None]]] = {}
    for n, one in enumerate(found):
        alike = not one.wins and one.patch.startswith(one.upstream + "/") and one.other.startswith(one.upstream + "/")
        key: tuple[str, ...] = (str(n),)
        if alike:
            key = (one.upstream, one.ref, one.path, one.definition)
        _, others = together.setdefault(key, (one, {}))
        others |= {one.other: None, **({together[key][0].patch: None} if together[key][0] != one else {})}
        together[key] = (one, others)
    return [(one, tuple(n for n in others if n != one.patch)) for one, others in together.values()]


def compare(stacks: Sequence[Stacked], packages: Mapping[str, str]) -> Iterator[Shared]:
    """Yield the definitions that several patches change, within a stack or across stacks.

    :param packages: see :func:`packages_of`.
    """
    for number, stack in enumerate(stacks):
        yield from _within(stack)
        for other in stacks[number + 1 :]:
            yield from _copies(stack, other)
        yield from _replaced(stack, stacks, packages)


def _within(stack: Stacked) -> Iterator[Shared]:
    earlier: dict[tuple[bytes, str], list[_DriftChange]] = {}
    touches = stack.of(path for path, count in stack.touched.items() if count > 1)
    counts: dict[bytes, Counter[str]] = {}
    for touch in touches:
        counts.setdefault(touch.path, Counter()).update(touch.unlike)
    wanted = {}
    for path, names in counts.items():
        wanted[path] = {name for name, count in names.items() if count > 1}
    for change in (c for touch in touches for c in touch.changes(wanted[touch.path])):
        before = earlier.setdefault((change.path, change.name), [])
        for other in before:
            if other.patch in stack.knows.get(change.patch, ()):
                continue
            undone = sum((other.added & change.removed).values())
            again = sum((other.removed & change.added).values())
            later = f"{stack.upstream}/{change.patch}"
            if change.gone:
                message = "the later patch removes it"
            elif undone or again:
                of = sum(other.added.values())
                message = f"the later patch wins: it changes {undone} of the {of} lines that the earlier patch adds"
                if again:
                    message += f", and restores {again} of the lines that the earlier patch removes"
            else:
                message = "both take effect, on different lines"
            yield Shared(
                upstream=stack.upstream,
                ref=stack.ref,
                path=show_path(change.path),
                definition=change.name,
                patch=later,
                other=f"{stack.upstream}/{other.patch}",
                wins=later if undone or again or change.gone else "",
                message=message,
            )
        before.append(change)


def _known(upstream: str, patches: Sequence[tuple[str, str]]) -> dict[str, set[str]]:
    """Return, for each patch, the patches of the same stack that it requires, directly or indirectly."""
    found: dict[str, set[str]] = {}
    for name, message in patches:
        required = []
        for key, value in parse_trailers(message):
            if key.lower() == "requires":
                required.append(value)
        direct = set()
        for r in required:
            if r.startswith(f"{upstream}/"):
                direct.add(r.partition("/")[2])
        found[name] = set(direct)
        for near in direct:
            found[name] |= found.get(near, set())
    return found


def _unlike(touches: Iterable[_DriftTouch]) -> set[str]:
    names: set[str] = set()
    for touch in touches:
        names.update(touch.unlike)
    return names


def _changes(touches: Iterable[_DriftTouch], names: Container[str]) -> list[_DriftChange]:
    changes: list[_DriftChange] = []
    for touch in touches:
        changes += touch.changes(names)
    return changes


def _copies(one: Stacked, other: Stacked) -> Iterator[Shared]:
    """Yield the definitions that have a copy in both upstreams, if patches of both upstreams change them."""
    names = []
    for stack in (one, other):
        names.append({path.rpartition(b"/")[2] for path in stack.touched})
    both = names[0] & names[1]
    if both:
        touches = []
        for s in (one, other):
            touches.append(s.of(p for p in s.touched if p.rpartition(b"/")[2] in both))
    else:
        touches = [[], []]
    wanted = _unlike(touches[0]) & _unlike(touches[1])
    mine, theirs = _changes(touches[0], wanted), _changes(touches[1], wanted)
    for change in theirs:
        for twin in mine:
            if (twin.name, twin.path.rpartition(b"/")[2]) != (change.name, change.path.rpartition(b"/")[2]):
                continue
            if not change.before or not twin.before:
                continue
            if difflib.SequenceMatcher(None, change.before, twin.before, autojunk=False).ratio() >= _ALIKE:
                yield Shared(
                    upstream=one.upstream,
                    ref=one.ref,
                    path=show_path(twin.path),
                    definition=twin.name,
                    patch=f"{one.upstream}/{twin.patch}",
                    other=f"{other.upstream}/{change.patch}",
                    wins="",
                    message=f"{other.upstream} has its own copy in {show_path(change.path)}, "
                    "which a patch also changes",
                )


def _replaced(stack: Stacked, stacks: Sequence[Stacked], packages: Mapping[str, str]) -> Iterator[Shared]:
    """Yield definitions that a patch of ``stack`` replaces at run time, and that another upstream's patch changes."""
    by_name = {s.upstream: s for s in stacks if s is not stack}
    foreign = {package: by_name[name] for package, name in packages.items() if name in by_name}
    if not foreign:
        return
    python = []
    for p, cs in stack.patches:
        for c in cs:
            if c.path.endswith(b".py") and c.new:
                python.append((p, c))
    stack.read()
    for patch, change in python:
        assert change.new
        new, old = stack.contents[change.new.blob], stack.contents[change.old.blob] if change.old else b""
        known = set(old.splitlines())
        if not any(_ASSIGNMENT.match(line) for line in new.splitlines() if line not in known):
            continue
        for target in dict.fromkeys(_assigned(new)) if any(p.encode() in new for p in foreign) else ():
            theirs = foreign.get(target.partition(".")[0])
            if not theirs or target in _assigned(old):
                continue
            names = {target.split(".", n)[-1] for n in range(1, target.count(".") + 1)}
            touches = theirs.of(p for p in theirs.touched if _module(p) in target)
            for hit in (c for touch in touches for c in touch.changes(names)):
                if target.endswith("." + hit.name):
                    winner = f"{stack.upstream}/{patch}"
                    yield Shared(
                        upstream=theirs.upstream,
                        ref=theirs.ref,
                        path=show_path(hit.path),
                        definition=hit.name,
                        patch=winner,
                        other=f"{theirs.upstream}/{hit.patch}",
                        wins=winner,
                        message=f"{winner} wins: {show_path(change.path)} replaces it at run time",
                    )


def _module(path: bytes) -> str:
    return path.decode("utf-8", "replace").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@functools.lru_cache(maxsize=256)
def _assigned(source: bytes) -> tuple[str, ...]:
    """Return the dotted names that a Python file assigns, with imports resolved.

    With ``from flashinfer import decode``, the assignment ``decode.plan = f`` gives ``flashinfer.decode.plan``.
    """
    tree = parse(source)
    statements: list[ast.AST] = []
    waiting: deque[ast.AST] = deque([tree] if tree else [])
    while waiting:  # like ast.walk, but only statements
        statements.append(waiting.popleft())
        waiting.extend(inner(statements[-1]))
    names: dict[str, str] = {}
    for node in statements:
        if isinstance(node, ast.Import):
            names.update(
                (a.asname or a.name.partition(".")[0], a.name if a.asname else a.name.partition(".")[0])
                for a in node.names
            )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update((a.asname or a.name, f"{node.module}.{a.name}") for a in node.names)
    found = []
    for node in statements:
        for target in node.targets if isinstance(node, ast.Assign) else []:
            if isinstance(target, ast.Attribute) and (dotted := _dotted(target)):
                first, _, rest = dotted.partition(".")
                found.append(f"{names.get(first, first)}.{rest}")
    return tuple(found)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        if inner:
            return f"{inner}.{node.attr}"
        return ""
    if isinstance(node, ast.Name):
        return node.id
    return ""
