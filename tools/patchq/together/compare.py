"""Command ``compare``: compare the patches of two forks, and find a stack that contains the patches of both."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from pathlib import Path

from patchq.drift import bodies
from patchq.drift.shared import is_source
from patchq.errors import UserError
from patchq.formats.lock import Pin
from patchq.formats.outcomes import CellState, Grade, Outcome
from patchq.git.diffs import PathChange
from patchq.git.repository import Git
from patchq.merge.patches import STOPS, Landing, Patch, read_patches
from patchq.merge.target import Column
from patchq.merge.threeway import carry, look_at
from patchq.names import BlobId, CommitId, show_path
from patchq.project.project import Project
from patchq.project.stack import load_stack
from patchq.stacks.apply import Carried, carried_stacks
from patchq.stacks.rangediff import at_revision
from patchq.store.bundle import bundled_project
from patchq.system import project_files
from patchq.system.paths import LOCK_NAME, Layout
from patchq.upstream.match import matches

#: Fewest characters of a line that two patches must share to count as related.
_TELLING = 8
#: Fewest characters of a context line that counts as shared.
_SHORT = 4


class Relation(str, Enum):
    """Relation of a patch to the other fork's stack.

    ``same``: the other stack already makes all changes of the patch. ``overlap``: the patch and the other stack change
    the same definition, or make parts of the same change. ``conflict``: the patch doesn't apply on top of the other
    stack. ``needs``: the patch doesn't apply on top of the other stack, but only because it needs earlier patches of
    its own fork, which conflict. ``apart``: none of these.
    """

    SAME = "same"
    OVERLAP = "overlap"
    CONFLICT = "conflict"
    NEEDS = "needs"
    APART = "apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPatch:
    """Patch of one fork, compared with the other fork's stack.

    :ivar is_ours: True for a patch of this project.
    :ivar partners: related patches of the other fork; for ``needs``, patches of its own fork. Empty if the patch
        conflicts only with upstream's changes between the refs of the forks.
    :ivar grade: for ``same``, ``identical`` (the same patch id or file) or ``contained``.
    :ivar paths: conflicting files, or files that both the patch and its partners change.
    :ivar definitions: definitions that both the patch and its partners change, as ``path: name``.
    """

    name: str
    is_ours: bool
    relation: Relation
    partners: tuple[str, ...] = ()
    grade: Grade = Grade.NONE
    paths: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionPatch:
    """Patch of the combined stack of both forks.

    :ivar outcome: outcome of carrying the patch to the other fork's stack; empty for patches of the first fork.
    """

    name: str
    is_ours: bool
    outcome: Outcome | CellState


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedUpstream:
    """Comparison of one upstream's stacks.

    :ivar ref, other_ref: refs that this project and the other project pin.
    :ivar same_base: True if both stacks are on the same commit.
    :ivar patches: patches of this project, then patches of the other project, each in the order of their series.
    :ivar union: order of a combined stack: the patches of one fork, then the patches of the other fork that the first
        fork lacks and that apply. The first fork is chosen so that fewer patches are left out.
    :ivar left_out: patches that don't apply in the combined stack.
    """

    upstream: str
    ref: str
    other_ref: str
    same_base: bool
    patches: tuple[ComparedPatch, ...]
    union: tuple[UnionPatch, ...]
    left_out: tuple[UnionPatch, ...]

    def of(self, *, ours: bool, relation: Relation | None = None) -> list[ComparedPatch]:
        """Return the patches of a fork; if ``relation`` is set, only patches with this relation."""
        found = []
        for patch in self.patches:
            if patch.is_ours == ours and relation in (None, patch.relation):
                found.append(patch)
        return found


def compare_forks(project: Project, other: str, *, set_name: str = "", other_set: str = "") -> list[ComparedUpstream]:
    """Compare the stacks of a set with the stacks of another project.

    :param other: the other project: its folder, a bundle, or a git revision of this project.
    :param other_set: set of the other project.
    :raises UserError: if the other project doesn't exist, or the sets have no upstream in common.
    :raises ConflictError: if a stack doesn't apply.
    """
    with project.locked("compare"), _opened(project, other) as theirs:
        ours_set, theirs_set = project.choose_set(set_name), theirs.choose_set(other_set)
        pairs = list(_pairs(project, ours_set, theirs, theirs_set))
        if not pairs:
            raise UserError(f"this project and {other} have no upstream in common", hint="compare other sets")
        found = []
        for pin, other_pin in pairs:
            (mine,) = carried_stacks(project, [load_stack(project.layout, pin)], ours_set)
            (yours,) = carried_stacks(theirs, [load_stack(theirs.layout, other_pin)], theirs_set)
            found.append(_compare(project.store, mine, yours))
        return found


@contextmanager
def _opened(project: Project, other: str) -> Iterator[Project]:
    """Yield the other project, which uses this project's store."""
    path = Path(other)
    if path.is_file():
        with bundled_project(path, project) as theirs:
            yield theirs
    elif (path / LOCK_NAME).is_file():
        with _copied(project, path.resolve()) as theirs:
            yield theirs
    elif path.is_dir():
        raise UserError(f"{other} holds no patchq project: it has no {LOCK_NAME}", hint="name a project's folder")
    else:
        with at_revision(project, other) as theirs:
            yield theirs


@contextmanager
def _copied(project: Project, root: Path) -> Iterator[Project]:
    """Yield a copy of a project that contains its lock and stacks. No private state is copied."""
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        folder = Path(text).resolve()
        for path in (root / LOCK_NAME, *project_files.list_files(root, root / "patches")):
            target = folder / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(project_files.read(root, path) or b"")
        yield Project(layout=Layout(folder, project.layout.store), say=project.say, progress=project.progress)


def _pairs(project: Project, set_name: str, theirs: Project, other_set: str) -> Iterator[tuple[Pin, Pin]]:
    """Yield the pins of the upstreams that both sets contain. Upstreams are matched by name or by URL."""
    others = {pin.upstream: pin for pin in theirs.lock.pins_of(other_set)}
    by_url = {}
    for pin in others.values():
        if url := theirs.lock.upstreams[pin.upstream].url:
            by_url[url] = pin
    for pin in project.lock.pins_of(set_name):
        found = others.get(pin.upstream) or by_url.get(project.lock.upstreams[pin.upstream].url)
        if found:
            yield pin, found


class _CarriedStack:
    """Stack of one fork, carried onto the stack of the other fork."""

    def __init__(self, store: Git, carried: Carried, other: Carried) -> None:
        self.store, self.carried = store, carried
        if carried.commits:
            self.patches = read_patches(store, carried.commits)
        else:
            self.patches = []
        self.other_tip: CommitId = other.commits[-1][1].commit if other.commits else other.base
        self.landings: dict[int, Landing] = {}
        self.grades: dict[int, Grade] = {}
        #: Paths of the patches that are the same on the other stack's tip as on this stack's base.
        self.untouched: set[str] = set()
        self.ids: list[str] = store.patch_ids_of([info.commit for _, info in carried.commits])
        if not self.patches:
            return
        (column,) = carry(store, self.patches, [self.other_tip], carried.base)
        self.landings = column.landings
        (tree,) = store.tree_of([carried.base])
        base = Column(store, tree, self.patches)
        (bare,) = look_at(store, self.patches, [self.other_tip], carried.base)
        for path in set().union(*(patch.paths for patch in self.patches)):
            if base.bare.get(path) == bare.bare.get(path):
                self.untouched.add(show_path(path))
        for number, patch in enumerate(self.patches):
            self.grades[number] = matches(patch, base, [("other", bare)], [0])[0].grade


def _compare(store: Git, mine: Carried, yours: Carried) -> ComparedUpstream:
    ours, theirs = _CarriedStack(store, mine, yours), _CarriedStack(store, yours, mine)
    contents = _FileVersions(store)
    patches: list[ComparedPatch] = []
    for side, other in ((ours, theirs), (theirs, ours)):
        for number, patch in enumerate(side.patches):
            patches.append(_compared(side, other, number, patch, contents, is_ours=side is ours))
    same = {(p.is_ours, p.name) for p in patches if p.relation is Relation.SAME}
    unions = [
        _union(store, ours, theirs, same, first_is_ours=True),
        _union(store, theirs, ours, same, first_is_ours=False),
    ]
    order, left_out = min(unions, key=lambda union: len(union[1]))
    pin, other_pin = mine.stack.pin, yours.stack.pin
    return ComparedUpstream(
        upstream=pin.upstream,
        ref=pin.ref,
        other_ref=other_pin.ref,
        same_base=mine.base == yours.base,
        patches=tuple(patches),
        union=tuple(order),
        left_out=tuple(left_out),
    )


class _FileVersions:
    """Cache of file versions. Each version is read and parsed once."""

    def __init__(self, store: Git) -> None:
        self.store = store
        self._versions: dict[tuple[bytes, BlobId], bodies.SourceVersion] = {}

    def changed_definitions(self, edit: PathChange) -> set[str]:
        """Return the definitions whose lines an edit changes; an empty set for new, deleted and non-source files."""
        if not is_source(edit) or not edit.old or not edit.new:
            return set()
        versions = []
        for entry in (edit.old, edit.new):
            key = (edit.path, entry.blob)
            if key not in self._versions:
                content = self.store.read_blobs([entry.blob])[entry.blob]
                self._versions[key] = bodies.SourceVersion(edit.path, content)
            versions.append(self._versions[key])
        return set(versions[0].unlike(versions[1]))


def _compared(
    side: _CarriedStack, other: _CarriedStack, number: int, patch: Patch, contents: _FileVersions, *, is_ours: bool
) -> ComparedPatch:
    """Compare one patch with the other fork's stack."""
    alike = []
    for o, patch_id in zip(other.patches, other.ids, strict=True):
        if patch_id == side.ids[number]:
            alike.append(o.name)
    if alike and side.ids[number]:
        return _of(patch, is_ours, Relation.SAME, partners=alike, grade=Grade.IDENTICAL)
    related = _related(patch, other.patches)
    landing, grade = side.landings[number], side.grades[number]
    if grade in (Grade.IDENTICAL, Grade.CONTAINED):
        return _of(patch, is_ours, Relation.SAME, partners=related, grade=grade)
    if landing.outcome in STOPS:
        files = tuple(file.path for file in landing.files)
        # A patch that reverts an earlier patch of its own fork changes nothing without that patch.
        is_done = landing.outcome == Outcome.ABSORBED
        if is_done or (files and side.untouched.issuperset(files)):
            earlier = []
            for n in range(number):
                if side.landings[n].outcome in STOPS:
                    earlier.append(side.patches[n])
            files = files or tuple(sorted(map(show_path, patch.paths)))
            return _of(patch, is_ours, Relation.NEEDS, partners=_touching(earlier, files), paths=files)
        partners = _near(patch, other.patches, files) or _touching(other.patches, files)
        return _of(patch, is_ours, Relation.CONFLICT, partners=partners, paths=files)
    shared = _shared_definitions(patch, other.patches, contents)
    if shared or related:
        names = dict.fromkeys(chain(related, *shared.values()))
        paths = sorted(set().union(*related.values()))
        return _of(
            patch, is_ours, Relation.OVERLAP, partners=list(names), paths=tuple(paths), definitions=tuple(shared)
        )
    return _of(patch, is_ours, Relation.APART)


def _of(
    patch: Patch,
    is_ours: bool,
    relation: Relation,
    *,
    partners: Sequence[str] | Mapping[str, set[str]] = (),
    grade: Grade = Grade.NONE,
    paths: tuple[str, ...] = (),
    definitions: tuple[str, ...] = (),
) -> ComparedPatch:
    return ComparedPatch(
        name=patch.name,
        is_ours=is_ours,
        relation=relation,
        partners=tuple(partners),
        grade=grade,
        paths=paths,
        definitions=definitions,
    )


def _related(patch: Patch, others: Sequence[Patch]) -> dict[str, set[str]]:
    """Return the other patches that make some of the same changes as ``patch``, with the files of these changes."""
    found: dict[str, set[str]] = {}
    for other in others:
        for path in patch.paths & other.paths:
            mine, theirs = _telling_lines(patch, path), _telling_lines(other, path)
            same_blocks = not set(patch.blocks(path)).isdisjoint(other.blocks(path))
            if same_blocks or mine & theirs or _same_new_file(patch, other, path):
                found.setdefault(other.name, set()).add(show_path(path))
    return found


def _telling_lines(patch: Patch, path: bytes) -> Counter[tuple[bool, bytes]]:
    """Return the added and removed lines of a patch in a file that are long enough to identify its changes."""
    found: Counter[tuple[bool, bytes]] = Counter()
    for block in patch.blocks(path):
        for is_added, lines in ((False, block.removed), (True, block.added)):
            for line in lines:
                if len(line) >= _TELLING:
                    found[is_added, line] += 1
    return found


def _same_new_file(patch: Patch, other: Patch, path: bytes) -> bool:
    """Return whether both patches add the file."""
    return all(edit.old is None for edit in (*patch.edits, *other.edits) if edit.path == path)


def _near(patch: Patch, others: Sequence[Patch], files: Sequence[str]) -> list[str]:
    """Return other patches whose hunks share a line with the patch's hunks in conflicting files."""
    found: list[str] = []
    paths = set(filter(lambda path: show_path(path) in files, patch.paths))
    for other in others:
        for path in paths & other.paths:
            if other.name not in found and not _lines(patch, path).isdisjoint(_lines(other, path)):
                found.append(other.name)
    return found


def _lines(patch: Patch, path: bytes) -> set[bytes]:
    """Return the removed lines and the context lines of a patch's hunks in a file."""
    found: set[bytes] = set()
    for hunk in patch.hunks.get(path, ()):
        for line in map(bytes.strip, hunk.old):
            if len(line) >= _SHORT:
                found.add(line)
    return found


def _touching(others: Sequence[Patch], files: Sequence[str]) -> list[str]:
    found: list[str] = []
    for other in others:
        if any(show_path(path) in files for path in other.paths):
            found.append(other.name)
    return found


def _shared_definitions(patch: Patch, others: Sequence[Patch], contents: _FileVersions) -> dict[str, list[str]]:
    """Return the definitions that both a patch and other patches change, with the names of these patches."""
    found: dict[str, list[str]] = {}
    for edit in patch.edits:
        mine: set[str] | None = None
        for other in others:
            for twin in other.edits:
                if twin.path != edit.path:
                    continue
                if mine is None:
                    mine = contents.changed_definitions(edit)
                for name in sorted(mine & contents.changed_definitions(twin)):
                    found.setdefault(f"{show_path(edit.path)}: {name}", []).append(other.name)
    return found


def _union(
    store: Git, first: _CarriedStack, last: _CarriedStack, same: set[tuple[bool, str]], *, first_is_ours: bool
) -> tuple[list[UnionPatch], list[UnionPatch]]:
    """Return the order of a combined stack of both forks, and the patches that don't fit into it.

    A patch may need another patch that was left out. So the remaining patches are carried again until all of them
    apply.
    """
    order = [UnionPatch(name=patch.name, is_ours=first_is_ours, outcome=CellState.UNKNOWN) for patch in first.patches]
    last_is_ours = not first_is_ours
    rest = []
    for name, info in last.carried.commits:
        if (last_is_ours, name) not in same:
            rest.append((name, info))
    left_out: list[UnionPatch] = []
    while rest:
        patches = read_patches(store, rest)
        (column,) = carry(store, patches, [last.other_tip], last.carried.base)
        carried, stopped = [], []
        applied = []
        for number, commit in enumerate(rest):
            outcome = column.landings[number].outcome
            one = UnionPatch(name=commit[0], is_ours=last_is_ours, outcome=outcome)
            if outcome in STOPS:
                stopped.append(one)
            else:
                carried.append(one)
                applied.append(commit)
        if not stopped:
            return order + carried, left_out
        left_out += stopped
        rest = applied
    return order, left_out
