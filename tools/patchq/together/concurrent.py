"""``check --with``: merge several branches of the project, and find clashes between their patches."""

from __future__ import annotations

import difflib
import itertools
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from patchq.drift.between import (
    MILD,
    MergeDrift,
    Place,
    Trees,
    Twice,
    UseChange,
    added_lines,
    find_drift,
    find_twice,
)
from patchq.errors import PatchqError, UserError
from patchq.formats.diff import paths_of
from patchq.formats.series import SUFFIX, parse
from patchq.git import person
from patchq.git.diffs import PathChange
from patchq.git.objects import TreeEntry
from patchq.git.repository import Git
from patchq.names import BlobId, CommitId, TreeId, show_path
from patchq.project.project import Project
from patchq.project.scaffold import ATTRIBUTES
from patchq.stacks.apply import ApplyPlan
from patchq.system.paths import LOCK_NAME, folder_to_ref
from patchq.together._versions import (
    At,
    MergeStep,
    ProjectVersion,
    changed_names,
    merge_versions,
    patch_text,
    patches_of,
)

#: Stands for the upstream in the place of a project's own proof.
_PROOFS = ""


class ClashKind(str, Enum):
    """Kind of clash between two branches. Its value is the name of the ``check`` rule that reports the clash."""

    MERGE = "merge"
    SERIES = "series"
    SAME_PATCH = "same-patch"
    SAME_DEFINITION = "same-definition"
    DRIFT = "drift-between"
    SHARED_PROOF = "shared-proof"
    LEFT_BEHIND = "left-behind"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clash:
    """Clash between two branches.

    :ivar mild: True if the merged result may be correct, so that the check doesn't fail.
    :ivar path: path of a file in the project or in the upstream.
    :ivar name: name of a definition or a patch.
    :ivar change: for drift, how the definition changed.
    :ivar ours: patches of the first branch in ``branches``, as ``upstream/name``.
    :ivar theirs: patches of the second branch in ``branches``.
    :ivar branches: labels of both sides of the merge.
    """

    kind: ClashKind
    branches: tuple[str, str]
    mild: bool = False
    upstream: str = ""
    ref: str = ""
    path: str = ""
    line: int = 0
    name: str = ""
    change: UseChange | None = None
    detail: str = ""
    ours: tuple[str, ...] = ()
    theirs: tuple[str, ...] = ()


@dataclass(kw_only=True)
class MergedProject:
    """Result of merging branches of a project, in a temporary folder.

    :ivar project: merged project; None if its lock or a series can't be read.
    :ivar clashes: clashes found in git's merge of the project's files.
    :ivar broken: paths in the project that git could not merge.
    """

    project: Project | None
    clashes: list[Clash]
    broken: set[str]
    steps: list[MergeStep]
    proofs: set[str] = field(default_factory=set)

    @property
    def shared_stacks(self) -> set[At]:
        """Stacks that both sides of a merge change."""
        found: set[At] = set()
        for step in self.steps:
            before = step.base.stacks
            for at in step.ours.stacks.keys() & step.theirs.stacks.keys():
                if before.get(at, {}) not in (step.ours.stacks[at], step.theirs.stacks[at]):
                    found.add(at)
        return found

    def compare(self, plans: Mapping[At, ApplyPlan], *, offline: bool = False) -> list[Clash]:
        """Return the clashes between definitions that the branches change. Add patches to prove again to ``proofs``.

        :param plans: apply results of the merged project that are already known.
        """
        found: list[Clash] = []
        for number, step in enumerate(self.steps):
            is_last = number == len(self.steps) - 1
            comparison = _BranchComparison(step, plans if is_last else {}, offline)
            found += comparison.clashes()
            self.proofs |= comparison.proofs
        return found


@contextmanager
def merged(project: Project, revisions: Sequence[str]) -> Iterator[MergedProject]:
    """Merge branches of the project's repository into its last commit, without using the work tree.

    :param revisions: branches, tags or commits.
    :raises UserError: if a revision doesn't exist, or contains no project.
    """
    root = project.layout.root
    with (
        project.locked("check"),
        person.borrowed(root, revisions, ATTRIBUTES) as own,
        tempfile.TemporaryDirectory(prefix="patchq-") as text,
    ):
        numbers = itertools.count()

        def make(commit: CommitId, label: str) -> ProjectVersion:
            folder = Path(text) / str(next(numbers))
            folder.mkdir()
            return ProjectVersion(project, own.git, own.prefix, commit=commit, label=label, folder=folder)

        ours = make(own.head, own.branch or "HEAD")
        steps: list[MergeStep] = []
        for revision, commit in zip(revisions, own.commits, strict=True):
            theirs = make(commit, revision)
            if LOCK_NAME not in theirs.files:
                raise UserError(
                    f"{revision} holds no patchq project: it has no {LOCK_NAME}", hint="name a later revision"
                )
            steps.append(merge_versions(make, own.git, own.prefix, ours, theirs))
            ours = steps[-1].merged
        yield _read_merge(project, steps)


def _read_merge(project: Project, steps: Sequence[MergeStep]) -> MergedProject:
    clashes: list[Clash] = []
    broken: set[str] = set()
    for step in steps:
        broken.update(step.conflicts)
        for path in step.conflicts:
            clashes.append(_file_clash(step, ClashKind.MERGE, path))
        clashes += _same_patches(step)
        clashes += _series(step)
        clashes += _proofs(step)
    last = steps[-1].merged
    kinds = {clash.kind for clash in clashes}
    is_readable = LOCK_NAME not in broken and ClashKind.SERIES not in kinds
    if is_readable:
        last.write_all()
        for name in ("state", "check"):
            known = project.layout.private / name
            if known.is_dir():
                shutil.copytree(known, last.project.layout.private / name)
    return MergedProject(
        project=last.project if is_readable else None, clashes=clashes, broken=broken, steps=list(steps)
    )


def _at_of(path: str) -> tuple[str, str, str]:
    """Return the upstream, ref and patch name of a patch file's path; empty strings for any other path."""
    parts = path.split("/")
    if len(parts) == 4 and parts[0] == "patches" and parts[3].endswith(SUFFIX):
        return parts[1], folder_to_ref(parts[2]), parts[3].removesuffix(SUFFIX)
    return "", "", ""


def _file_clash(step: MergeStep, kind: ClashKind, path: str) -> Clash:
    """Return the clash about a file in the project. If it is a patch file, the clash names the patch."""
    upstream, ref, patch = _at_of(path)
    named: tuple[str, ...] = ()
    if patch:
        named = (f"{upstream}/{patch}",)
    return Clash(
        kind=kind,
        branches=step.labels,
        upstream=upstream,
        ref=ref,
        path=path,
        name=patch,
        ours=named,
        theirs=named,
    )


def _same_patches(step: MergeStep) -> Iterator[Clash]:
    """Yield a clash for each patch whose diff both branches change.

    git merges patch files as plain text, so the merged diff may be wrong even without a conflict.
    """
    base, ours, theirs = step.base.files, step.ours.files, step.theirs.files
    for path in sorted(base.keys() & ours.keys() & theirs.keys()):
        if not _at_of(path)[2] or path in step.conflicts or len({base[path], ours[path], theirs[path]}) < 3:
            continue
        texts = [patch_text(version.read(path)) for version in (step.base, step.ours, step.theirs)]
        if len(set(texts)) == 3:
            yield _file_clash(step, ClashKind.SAME_PATCH, path)


def _series(step: MergeStep) -> Iterator[Clash]:
    """Yield a clash for each merged series that can't be read, or that names a patch whose file is missing."""
    for (upstream, ref), files in step.merged.stacks.items():
        if "series" not in files:
            continue
        folder = step.merged.project.layout.stack(upstream, ref)
        path = folder.relative_to(step.merged.project.layout.root).as_posix() + "/series"
        try:
            series = parse(step.merged.read(path), path)
            detail = ", ".join(name for name in series.names if name + SUFFIX not in files)
            if not detail:
                continue
        except PatchqError as error:
            detail = error.message
        yield Clash(kind=ClashKind.SERIES, branches=step.labels, upstream=upstream, ref=ref, path=path, detail=detail)


def _proofs(step: MergeStep) -> Iterator[Clash]:
    """Yield a clash for each proof that both branches change and git merges without a conflict."""
    base, ours, theirs = step.base.proofs, step.ours.proofs, step.theirs.proofs
    for path in sorted(changed_names(base, ours) & changed_names(base, theirs)):
        if path not in step.conflicts and ours.get(path) != theirs.get(path):
            yield Clash(kind=ClashKind.SHARED_PROOF, branches=step.labels, mild=True, path=path)


class _StackFiles:
    """Files of one applied stack, or of the project's proofs."""

    def __init__(self, git: Git, tree: str, blobs: Mapping[bytes, BlobId] | None = None) -> None:
        self.git, self.tree = git, tree
        self._blobs: dict[bytes, BlobId] | None = None
        if blobs is not None:
            self._blobs = dict(blobs)
        self._contents: dict[bytes, bytes | None] = {}
        self._entries: dict[bytes, BlobId | None] = {}

    @property
    def blobs(self) -> dict[bytes, BlobId]:
        if self._blobs is None:
            self._blobs = {path: entry.blob for path, entry in self.git.list_tree(self.tree).items()}
        return self._blobs

    def know(self, path: bytes, entry: TreeEntry | None) -> None:
        """Record a file of the tree. If ``entry`` is None, record that the tree has no such file."""
        if entry:
            self._entries[path] = entry.blob
        else:
            self._entries[path] = None

    def knows(self, path: bytes) -> bool:
        return path in self._entries

    def load(self, paths: Collection[bytes]) -> None:
        """Read files in one call."""
        blobs = {}
        for path in paths:
            self._contents[path] = None
            if blob := self._blob(path):
                blobs[path] = blob
        contents = self.git.read_blobs(blobs.values())
        for path, blob in blobs.items():
            self._contents[path] = contents[blob]

    def _blob(self, path: bytes) -> BlobId | None:
        if path in self._entries:
            return self._entries[path]
        return self.blobs.get(path)

    def read(self, path: bytes) -> bytes | None:
        if path not in self._contents:
            self.load([path])
        return self._contents[path]

    def count(self, name: str) -> int:
        """Return the number of Python functions and methods with this name."""
        pattern = rf"^\s*(async )?def {name}\b"
        argv = ("grep", "-h", "-I", "-E", pattern, self.tree, "--", "*.py")
        return self.git.run(*argv, ok_codes=(0, 1)).count(b"\n")


class _BranchComparison:
    """Comparison of two branches by the trees that their stacks produce."""

    def __init__(self, step: MergeStep, plans: Mapping[At, ApplyPlan], offline: bool) -> None:
        self.step, self.offline = step, offline
        self.store = step.merged.project.store
        self.versions = (step.base, step.ours, step.theirs, step.merged)
        self._tips: dict[tuple[At, frozenset[tuple[str, BlobId]]], TreeId | None] = {}
        for at, plan in plans.items():
            self._tips[self._key(step.merged, at)] = plan.after.tree
        self.sides = (self._changed(step.ours), self._changed(step.theirs))
        self.ats = sorted({*self.sides[0], *self.sides[1]})
        self.proofs: set[str] = set()
        self._changes: dict[tuple[str, str], list[PathChange]] = {}

    def _key(self, version: ProjectVersion, at: At) -> tuple[At, frozenset[tuple[str, BlobId]]]:
        return at, frozenset(version.stacks.get(at, {}).items())

    def _changed(self, version: ProjectVersion) -> dict[At, set[str]]:
        """Return the patches that a branch adds, changes or removes, keyed by stack."""
        found = {}
        for at in sorted(self.step.base.stacks.keys() | version.stacks.keys()):
            names = changed_names(self.step.base.stacks.get(at, {}), version.stacks.get(at, {}))
            if names:
                found[at] = patches_of(names)
        return found

    def _tip(self, version: ProjectVersion, at: At) -> TreeId | None:
        key = self._key(version, at)
        if key not in self._tips:
            plan = version.plan(at, self.offline)
            if plan:
                self._tips[key] = plan.after.tree
            else:
                self._tips[key] = None
        return self._tips[key]

    def clashes(self) -> list[Clash]:
        """Return the clashes, and collect the proofs to run again."""
        found: dict[Clash, None] = {}
        has_both = all(self.sides) or self._proofs_changed()
        if not has_both:
            return []
        for group in self._groups():
            found.update(dict.fromkeys(self._of_group(group)))
        found.update(dict.fromkeys(self._left_behind()))
        return list(found)

    def _proofs_changed(self) -> bool:
        before = self.step.base.proofs
        ours = self.sides[0] or changed_names(before, self.step.ours.proofs)
        theirs = self.sides[1] or changed_names(before, self.step.theirs.proofs)
        return bool(ours and theirs)

    def _groups(self) -> list[tuple[At, ...]]:
        """Return groups of changed stacks that are used together.

        The changed stacks of each set form a group. A changed stack that is in no set is a group of its own.
        """
        if LOCK_NAME in self.step.conflicts:
            with_lock = self.step.theirs
        else:
            with_lock = self.step.merged
        with_lock.write([LOCK_NAME])
        groups: dict[tuple[At, ...], None] = {}
        left = list(self.ats)
        for refs in with_lock.project.lock.sets.values():
            group = []
            for at in self.ats:
                if refs.get(at[0]) == at[1]:
                    group.append(at)
                    if at in left:
                        left.remove(at)
            groups[tuple(group)] = None
        for at in left:
            groups[at,] = None
        if len(groups) > 1:
            groups.pop((), None)
        return list(groups)

    def _of_group(self, group: Sequence[At]) -> Iterator[Clash]:
        trees: list[dict[str, _StackFiles]] = [{}, {}, {}, {}]
        refs: dict[str, At] = {}
        for at in group:
            tips = [self._tip(version, at) for version in self.versions]
            if None in tips:
                continue
            refs[at[0]] = at
            for side, tip in zip(trees, tips, strict=True):
                side[at[0]] = _StackFiles(self.store, str(tip))
        for side, version in zip(trees, self.versions, strict=True):
            blobs = {path.encode(): blob for path, blob in version.proofs.items()}
            side[_PROOFS] = _StackFiles(version.git, version.commit, blobs)
        base, ours, theirs, merge = trees
        self._read_changes(trees)
        added = [self._added(base, side) for side in (ours, theirs)]
        places = sorted({*added[0], *added[1]})
        for side in trees:
            _load(side, places)
        sides = [_as_trees(side) for side in trees]
        found = find_twice(sides[0].read, sides[1], sides[2], sides[3].read, places)
        for twice in found:
            yield self._twice(twice, refs)
        # Compare each branch's added lines in its own tree with the same lines in the merged tree.
        for number, side in ((1, ours), (2, theirs)):
            changed = self._differing(side, merge)
            _load(side, changed)
            _load(merge, changed)
            drifts = find_drift(sides[number], sides[3], added[number - 1], changed)
            for drift in drifts:
                yield self._drift(drift, refs, of_theirs=number == 2)
        self._collect_proofs(refs, added)

    def _read_changes(self, trees: Sequence[Mapping[str, _StackFiles]]) -> None:
        """Read the differences between the trees with one git process, and record the changed files."""
        base, ours, theirs, merge = trees
        sides = [(base, ours), (base, theirs), (ours, merge), (theirs, merge)]
        pairs = []
        for old, new in sides:
            for name in base:
                if name != _PROOFS:
                    pairs.append((old[name], new[name]))
        ids = [(TreeId(before.tree), TreeId(after.tree)) for before, after in pairs]
        for (before, after), changes in zip(pairs, self.store.changes_between(ids), strict=True):
            self._changes[before.tree, after.tree] = changes
            for change in changes:
                before.know(change.path, change.old)
                after.know(change.path, change.new)
        # If only one branch changes a file, the other branch has the base's version of it. The merged tree has the
        # version of the branch that changes the file, unless the merge was recorded with another version above.
        for side, other in ((ours, theirs), (theirs, ours)):
            for name in base.keys() - {_PROOFS}:
                for change in self._changes[base[name].tree, side[name].tree]:
                    if not other[name].knows(change.path):
                        other[name].know(change.path, change.old)
                    if not merge[name].knows(change.path):
                        merge[name].know(change.path, change.new)

    def _added(self, base: Mapping[str, _StackFiles], side: Mapping[str, _StackFiles]) -> dict[Place, set[int]]:
        """Return the numbers of the lines that a branch adds, keyed by file.

        If the branch only removes lines from a file, the set is empty.
        """
        found: dict[Place, set[int]] = {}
        for upstream, before in base.items():
            after = side[upstream]
            if upstream == _PROOFS:
                for path in sorted(changed_names(before.blobs, after.blobs)):
                    found[upstream, path] = _added_by(before.read(path) or b"", after.read(path) or b"")
            elif before.tree != after.tree:
                for change in self._changes[before.tree, after.tree]:
                    found[upstream, change.path] = set()
                for path, numbers in added_lines(self.store.diff_as_merged(before.tree, after.tree)).items():
                    found[upstream, path] = numbers
        return found

    def _differing(self, side: Mapping[str, _StackFiles], merge: Mapping[str, _StackFiles]) -> list[Place]:
        found: list[Place] = []
        for upstream, before in side.items():
            after = merge[upstream]
            paths: list[bytes] = []
            if upstream == _PROOFS:
                paths = sorted(changed_names(before.blobs, after.blobs))
            elif before.tree != after.tree:
                paths = [change.path for change in self._changes[before.tree, after.tree]]
            for path in paths:
                found.append((upstream, path))
        return found

    def _twice(self, found: Twice, refs: Mapping[str, At]) -> Clash:
        (upstream, path), (other, other_path) = found.places
        shown = show_path(path)
        detail = ""
        if other_path != path:
            detail = show_path(other_path)
        return Clash(
            kind=ClashKind.SAME_DEFINITION,
            branches=self.step.labels,
            upstream=upstream,
            ref=refs[upstream][1] if upstream in refs else "",
            path=shown,
            line=found.line,
            name=found.name,
            detail=detail,
            ours=self._patches(0, refs.get(upstream), path),
            theirs=self._patches(1, refs.get(other), other_path),
        )

    def _drift(self, found: MergeDrift, refs: Mapping[str, At], *, of_theirs: bool) -> Clash:
        upstream, path = found.place
        users = self._patches(of_theirs, refs.get(upstream), path)
        changers = self._patches(not of_theirs, refs.get(found.defined[0]), found.defined[1])
        branches = self.step.labels
        if not of_theirs:  # the user of the definition comes last
            branches = branches[::-1]
        self.proofs.update((*users, *changers))
        return Clash(
            kind=ClashKind.DRIFT,
            branches=branches,
            mild=found.change in MILD,
            upstream=upstream,
            ref=refs[upstream][1] if upstream in refs else "",
            path=show_path(path),
            line=found.line,
            name=found.name,
            change=found.change,
            detail=found.detail,
            ours=changers,
            theirs=users,
        )

    def _patches(self, side: int, at: At | None, path: bytes) -> tuple[str, ...]:
        """Return the patches that a branch changed and that touch a file."""
        if at is None:
            return ()
        version = (self.step.ours, self.step.theirs)[side]
        found = []
        for patch in sorted(self.sides[side].get(at, ())):
            if path in _touched(version, at, patch) | _touched(self.step.base, at, patch):
                found.append(f"{at[0]}/{patch}")
        return tuple(found)

    def _collect_proofs(self, refs: Mapping[str, At], added: Sequence[Mapping[Place, set[int]]]) -> None:
        """If both branches change a file, add the patches that change it to the proofs to run again."""
        both = added[0].keys() & added[1].keys()
        for upstream, path in both:
            for side in (0, 1):
                self.proofs.update(self._patches(side, refs.get(upstream), path))

    def _left_behind(self) -> Iterator[Clash]:
        """Yield a clash for each patch that one branch changes in a stack which the other carries to a new ref.

        If the branch removes the patch, the clash names the patch in ``ours``, because only the carried stack has it.
        """
        base = self.step.base.stacks
        labels, versions = self.step.labels, (self.step.ours, self.step.theirs)
        for side in (0, 1):
            other = 1 - side
            fresh = []
            for at in versions[side].stacks:
                if at not in base and at not in versions[other].stacks:
                    fresh.append(at)
            for upstream, ref in fresh:
                carried = versions[side].stacks[upstream, ref]
                for at, patches in self.sides[other].items():
                    if at[0] != upstream or at not in base:
                        continue
                    # A stack on another ref has most patches of the stack from which it was carried.
                    if len(carried.keys() & base[at].keys()) < 2:
                        continue
                    current = versions[other].stacks.get(at, {})
                    for patch in sorted(patches):
                        is_removed = patch + SUFFIX not in current
                        if is_removed and patch + SUFFIX not in carried:
                            continue
                        named = (f"{upstream}/{patch}",)
                        yield Clash(
                            kind=ClashKind.LEFT_BEHIND,
                            branches=(labels[side], labels[other]),
                            mild=not self._becomes_default(versions[side], upstream, ref),
                            upstream=upstream,
                            ref=at[1],
                            name=patch,
                            detail=ref,
                            ours=named if is_removed else (),
                            theirs=() if is_removed else named,
                        )

    def _becomes_default(self, version: ProjectVersion, upstream: str, ref: str) -> bool:
        version.write([LOCK_NAME])
        lock = version.project.lock
        return lock.sets.get(lock.default_set, {}).get(upstream) == ref


def _load(side: Mapping[str, _StackFiles], places: Collection[Place]) -> None:
    for upstream, tree in side.items():
        paths = [path for name, path in places if name == upstream]
        if paths:
            tree.load(paths)


def _as_trees(side: Mapping[str, _StackFiles]) -> Trees:
    def read(place: Place) -> bytes | None:
        if place[0] in side:
            return side[place[0]].read(place[1])
        return None

    def paths(upstream: str) -> Collection[bytes]:
        if upstream in side:
            return side[upstream].blobs
        return ()

    def count(name: str) -> int:
        return sum(tree.count(name) for upstream, tree in side.items() if upstream != _PROOFS)

    return Trees(read=read, paths=paths, count=count)


def _added_by(before: bytes, after: bytes) -> set[int]:
    """Return the numbers (from 1) of the lines that are added to a file."""
    found: set[int] = set()
    matcher = difflib.SequenceMatcher(None, before.split(b"\n"), after.split(b"\n"), autojunk=False)
    for kind, _, _, first, last in matcher.get_opcodes():
        if kind in ("insert", "replace"):
            found.update(range(first + 1, last + 1))
    return found


def _touched(version: ProjectVersion, at: At, patch: str) -> set[bytes]:
    """Return the paths in the diff of a patch."""
    layout = version.project.layout
    path = (layout.stack(*at) / (patch + SUFFIX)).relative_to(layout.root).as_posix()
    return paths_of(patch_text(version.read(path)))
