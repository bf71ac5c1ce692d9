"""``forecast``: what carrying a stack onto other refs would come to, patch by ref, in memory.

Nothing is written but objects in the store: no worktree, no ref, no stack moves.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from patchq import diff, index, runner
from patchq.apply import Carried, carried_stacks
from patchq.errors import ConflictError, SourceError, UserError
from patchq.git import Git
from patchq.lock import Pin
from patchq.project import Project
from patchq.replay import pick
from patchq.sources import Base, Fetcher, is_local_archive, pin_git
from patchq.types import TreeId, show_path

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
        bases = [fetcher.fetch([_pin_at(project, carried.stack.pin, ref)])[0] for ref in wanted]
    patches = [diff.parse(carried.stack.load(name)[1], name) for name, _ in carried.commits]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        columns = list(pool.map(lambda ref, base: _column(project.store, carried, patches, ref, base), wanted, bases))
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


def _column(store: Git, carried: Carried, patches: Sequence[list[diff.FilePatch]], ref: str, base: Base) -> list[Cell]:
    upstream = carried.stack.pin.upstream
    before, onto = (store.tree_of([commit])[0] for commit in (carried.base, base.commit))
    found = []
    for (name, info), files in zip(carried.commits, patches, strict=True):
        parent, before = before, info.tree
        patch = f"{upstream}/{name}"
        try:
            merged = pick(store, upstream, name, parent, info.tree, onto)
        except ConflictError as error:
            exact = _apply_exactly(store, carried.stack.read(name), onto)
            if exact is None:
                gone = _gone(store, files, onto)
                paths = gone or tuple(c.path for c in error.conflicts)
                found.append(Cell(patch, ref, OBSOLETE if gone else CONFLICT, paths))
                continue
            merged = exact
        if merged == onto and parent != info.tree:
            found.append(Cell(patch, ref, ABSORBED))
            continue
        found.append(Cell(patch, ref, _how(store, files, parent, onto)))
        onto = merged
    return found


def _how(store: Git, files: Sequence[diff.FilePatch], parent: TreeId, onto: TreeId) -> str:
    """Whether a patch that can be carried applies as it is, with lines moved, or by a merge alone."""
    mine, theirs = store.list_tree(parent), store.list_tree(onto)
    paths = [f.old_path for f in files if f.old_path is not None]
    new = [f.new_path for f in files if f.old_path is None and f.new_path is not None]
    if all(mine.get(p) == theirs.get(p) for p in paths) and not any(p in theirs for p in new):
        return CLEAN
    if any(p not in theirs for p in paths) or any(p in theirs for p in new):
        return MERGED
    blobs = store.read_blobs({theirs[p].blob for p in paths})
    try:
        for file in files:
            if file.old_path is not None:
                diff.apply_hunks(file.hunks, blobs[theirs[file.old_path].blob])
    except diff.Mismatch:
        return MERGED
    return OFFSET


def _apply_exactly(store: Git, patch: bytes, onto: TreeId) -> TreeId | None:
    """The tree with a patch applied without fuzz, or None: a merge conflicts where a block has moved."""
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        at = Path(text) / "index"
        store.run("read-tree", onto, env={"GIT_INDEX_FILE": str(at)})
        try:
            store.apply_to_index(patch, at)
        except runner.CommandError:
            return None
        return TreeId(store.run("write-tree", env={"GIT_INDEX_FILE": str(at)}).decode().strip())


def _gone(store: Git, files: Sequence[diff.FilePatch], onto: TreeId) -> tuple[str, ...]:
    """The files that a patch changes, if none of them is there."""
    old = [f.old_path for f in files if f.old_path is not None]
    there = store.list_tree(onto)
    return tuple(show_path(p) for p in old) if old and not any(p in there for p in old) else ()
