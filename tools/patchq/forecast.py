"""``forecast``: what carrying a stack onto other refs would come to, patch by ref, in memory.

No worktree, branch or stack moves; the store gains objects, and the bases that it lacked, as by `fetch`.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from patchq import diff, index
from patchq.apply import Carried, carried_stacks
from patchq.errors import ConflictError, SourceError, UserError
from patchq.git import CommitInfo, Git, PathChange, TreeEntry
from patchq.lock import Pin
from patchq.project import Project
from patchq.replay import pick
from patchq.sources import Base, Fetcher, is_local_archive, pin_git
from patchq.types import BlobId, CommitId, TreeId, show_path

#: Of a patch on a ref, from the cheapest. ``absorbed``: its effect is there already, byte for byte.
CLEAN, OFFSET, MERGED, ABSORBED, OBSOLETE, CONFLICT = "clean", "offset", "merged", "absorbed", "obsolete", "conflict"
#: Those that stop for a person.
STOPS = (ABSORBED, OBSOLETE, CONFLICT)


@dataclass(frozen=True, slots=True)
class Cell:
    """A patch on a ref. ``paths`` are the files that conflict, or are gone."""

    patch: str
    ref: str
    outcome: str
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forecast:
    """The matrix of one upstream's stack, refs as they were asked for, patches in the order of the series."""

    upstream: str
    from_ref: str
    refs: tuple[str, ...]
    cells: tuple[Cell, ...]

    def of(self, ref: str) -> list[Cell]:
        """A ref's cells."""
        return [c for c in self.cells if c.ref == ref]

    def stops(self, ref: str) -> int:
        """How many patches stop for a person there."""
        return sum(c.outcome in STOPS for c in self.of(ref))

    @property
    def cheapest(self) -> str:
        """The ref with the fewest stops; of several, the last one asked for."""
        return min(reversed(self.refs), key=self.stops)

    def breaks(self) -> dict[str, str]:
        """The first ref, in the order asked for, at which each patch stops that does anywhere."""
        found: dict[str, str] = {}
        for ref in self.refs:
            for cell in self.of(ref):
                if cell.outcome in STOPS:
                    found.setdefault(cell.patch, ref)
        return found


def forecast(
    project: Project, upstream: str, refs: Sequence[str], *, releases: str = "", set_name: str = ""
) -> Forecast:
    """Carry a set's stack of an upstream onto each ref.

    A patch that conflicts is left out, and those after it are carried without it.

    :param refs: pinned refs, refs of the git host where it can be reached, or releases of the pin's
        archive: ``v0.14.0`` or ``0.14.0``.
    :param releases: a specifier such as ``>=0.14``: all such releases that have a source archive.
    :raises UserError: if there is no ref, or one can't be found.
    """
    set_name = project.choose_set(set_name)
    with project.locked("forecast"):
        stacks = project.stacks(set_name, [upstream])
        (carried,) = carried_stacks(project, stacks, set_name)
        wanted = [*refs, *(_releases(carried.stack.pin, releases) if releases else ())]
        wanted = list(dict.fromkeys(wanted))
        if not wanted:
            raise UserError("no ref to forecast", hint="`--onto REF`, or `--releases '>=1.2'`")
        fetcher = Fetcher(project.layout, project.lock, say=project.say, progress=project.progress)
        bases = fetcher.fetch([_pin_at(project, carried.stack.pin, ref) for ref in wanted])
    patches = _read(project.store, carried)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        columns = list(pool.map(lambda ref, base: _column(project.store, patches, upstream, ref, base), wanted, bases))
    cells = tuple(cell for row in zip(*columns, strict=True) for cell in row)
    return Forecast(upstream, carried.stack.pin.ref, tuple(wanted), cells)


def _releases(pin: Pin, specifier: str) -> list[str]:
    """The releases of a pin's archive, oldest first, as refs spelt like the pin's."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
    from packaging.version import Version

    name = _archive_project(pin)
    try:
        allowed = SpecifierSet(specifier)
    except InvalidSpecifier:
        raise UserError(f"{specifier!r} is no version specifier", hint="--releases '>=0.14', for one") from None
    versions: set[Version] = set()

    def wanted(file: str) -> bool:
        try:
            project, version = parse_sdist_filename(file)
        except InvalidSdistFilename:
            return False
        if project != canonicalize_name(name):
            return False
        if version in allowed:
            versions.add(version)
        return True

    index.find_files(name, wanted)
    prefix = "v" if pin.ref.startswith("v") else ""
    return [f"{prefix}{version}" for version in sorted(versions)]


def _archive_project(pin: Pin) -> str:
    if not pin.archive or is_local_archive(pin.archive):
        raise UserError(
            f"{pin.upstream} {pin.ref} has no archive on the package index",
            hint="pin the refs, and name them with --onto",
        )
    return pin.archive.partition("==")[0]


def _pin_at(project: Project, pin: Pin, ref: str) -> Pin:
    """A pin for a ref: the lock's, else from the git host, else the release of that version."""
    from packaging.version import InvalidVersion, Version

    pins = project.lock.upstreams[pin.upstream].pins
    if ref in pins:
        return pins[ref]
    trouble = f"{pin.upstream} has no pin {ref}"
    if pin.url:
        draft = Pin(pin.upstream, ref, pin.url)
        try:
            commit = pin_git(project.layout, project.store, draft, skip=project.lock.nested_in(pin.upstream))
            return Pin(pin.upstream, ref, pin.url, commit)
        except SourceError as error:
            trouble += f"; {error.message}"
    if pin.archive and not is_local_archive(pin.archive):
        try:
            version = Version(ref)
            sdist = index.find_sdist(_archive_project(pin), str(version))
            archive = f"{_archive_project(pin)}=={version}"
            return Pin(pin.upstream, ref, archive=archive, sha256=sdist.sha256, subdir=pin.subdir)
        except (InvalidVersion, SourceError) as error:
            trouble += f"; {error}"
    raise UserError(trouble, hint=f"`patchq pin {pin.upstream} --ref {ref} …` names its sources")


@dataclass(frozen=True, slots=True)
class _Patch:
    """A patch as paths that change, and as hunks by the path they are for."""

    name: str
    commit: CommitInfo
    parent: TreeId
    edits: tuple[PathChange, ...]
    hunks: Mapping[bytes, Sequence[diff.Hunk]]


def _read(store: Git, carried: Carried) -> list[_Patch]:
    before, found = store.tree_of([carried.base])[0], []
    for name, info in carried.commits:
        try:
            files = diff.parse(carried.stack.load(name)[1], name)
        except diff.Unsupported:
            files = []
        hunks = {f.old_path: f.hunks for f in files if f.old_path and f.old_path == f.new_path and not f.binary}
        found.append(_Patch(name, info, before, tuple(store.changes(before, info.tree)), hunks))
        before = info.tree
    return found


class _State:
    """The tree of a ref with patches on it: entries in memory, written to the store only when git has to merge."""

    def __init__(self, store: Git, base: CommitId) -> None:
        self.store = store
        self.tree: TreeId | None = store.tree_of([base])[0]
        self.written = self.tree
        self.entries = store.list_tree(self.tree)
        self.changed: set[bytes] = set()
        self.contents: dict[BlobId, bytes] = {}

    def put(self, path: bytes, entry: TreeEntry | None) -> None:
        """Set a path's entry, or remove it."""
        if entry is None:
            self.entries.pop(path, None)
        else:
            self.entries[path] = entry
        self.changed.add(path)
        self.tree = None

    def content(self, blob: BlobId) -> bytes:
        """A blob's bytes, from memory or the store."""
        if blob not in self.contents:
            self.contents[blob] = self.store.read_blobs([blob])[blob]
        return self.contents[blob]

    def add(self, content: bytes) -> BlobId:
        """The id of a blob with these bytes; it is in the store when the tree is."""
        blob = BlobId(hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())
        self.contents[blob] = content
        return blob

    def as_tree(self) -> TreeId:
        """The tree, in the store."""
        if self.tree is None:
            with tempfile.TemporaryDirectory(prefix="patchq-") as text:
                env = {"GIT_INDEX_FILE": str(Path(text) / "index")}
                self.store.run("read-tree", self.written, env=env)
                lines = []
                for path in sorted(self.changed):
                    entry = self.entries.get(path)
                    if entry is not None and entry.blob in self.contents:
                        self.store.run("hash-object", "-w", "--stdin", data=self.contents[entry.blob])
                    mode, blob = (entry.mode, entry.blob) if entry else (b"0", BlobId("0" * 40))
                    lines.append(b"%s %s\t%s\0" % (mode, blob.encode(), path))
                self.store.run("update-index", "-z", "--index-info", data=b"".join(lines), env=env)
                self.tree = self.written = TreeId(self.store.run("write-tree", env=env).decode().strip())
            self.changed.clear()
        return self.tree

    def become(self, tree: TreeId) -> None:
        """Take a merged tree's place."""
        self.tree = self.written = tree
        self.entries = self.store.list_tree(tree)
        self.changed.clear()


def _column(store: Git, patches: Sequence[_Patch], upstream: str, ref: str, base: Base) -> list[Cell]:
    state = _State(store, base.commit)
    return [_carry(state, upstream, patch, ref) for patch in patches]


def _carry(state: _State, upstream: str, patch: _Patch, ref: str) -> Cell:
    full = f"{upstream}/{patch.name}"
    outcome = _without_git(state, patch)
    if outcome:
        return Cell(full, ref, outcome)
    onto = state.as_tree()
    try:
        merged = pick(state.store, upstream, patch.name, patch.parent, patch.commit.tree, onto)
    except ConflictError as error:
        old = [e.path for e in patch.edits if e.old is not None]
        if old and not any(path in state.entries for path in old):
            return Cell(full, ref, OBSOLETE, tuple(show_path(path) for path in old))
        return Cell(full, ref, CONFLICT, tuple(c.path for c in error.conflicts))
    if merged == onto:
        return Cell(full, ref, ABSORBED)
    state.become(merged)
    return Cell(full, ref, MERGED)


def _without_git(state: _State, patch: _Patch) -> str:
    """Carry a patch whose every path is as it was, or takes its hunks without fuzz; empty if git must merge."""
    entries = state.entries
    new: list[tuple[bytes, TreeEntry | None]] = []
    moved = already = 0
    for edit in patch.edits:
        there = entries.get(edit.path)
        if there == edit.old:
            new.append((edit.path, edit.new))
        elif there == edit.new:
            already += 1
        elif (
            there is None
            or edit.old is None
            or edit.new is None
            or edit.path not in patch.hunks
            or there.mode != edit.old.mode
        ):
            return ""
        else:
            try:
                content, _ = diff.apply_hunks(patch.hunks[edit.path], state.content(there.blob))
            except diff.Mismatch:
                return ""
            new.append((edit.path, TreeEntry(edit.new.mode, state.add(content))))
            moved += bool(patch.hunks[edit.path])
    if patch.edits and already == len(patch.edits):
        return ABSORBED
    if already or any(entry and _in_the_way(entries, path) for path, entry in new if path not in entries):
        return ""
    for path, entry in new:
        state.put(path, entry)
    return OFFSET if moved else CLEAN


def _in_the_way(entries: Mapping[bytes, TreeEntry], path: bytes) -> bool:
    """Whether a file is where a new path has a folder, or a folder where it is a file."""
    parts = path.split(b"/")
    if any(b"/".join(parts[:n]) in entries for n in range(1, len(parts))):
        return True
    return any(other.startswith(path + b"/") for other in entries)
