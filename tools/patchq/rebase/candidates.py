"""What a stopped patch might become: by files that somebody gives, by what was recorded, another ref, a merger."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

from patchq.errors import FormatError, PatchqError, SourceError, UserError
from patchq.formats.diff import REGULAR
from patchq.formats.header import Header
from patchq.formats.header import parse as parse_mail
from patchq.git.diffs import PathChange
from patchq.git.objects import TreeEntry, blob_id
from patchq.merge import rerere
from patchq.merge.patches import STOPS, read_patches, write_commits
from patchq.merge.threeway import carry
from patchq.names import CommitId, TreeId, show_path
from patchq.project.project import Project
from patchq.project.stack import load_stack
from patchq.rebase import stops
from patchq.rebase.state import Progress, Stop, stop_worktree
from patchq.stacks.apply import carried_stacks
from patchq.stacks.engine import Engine, Incoming
from patchq.system import fsio, runner
from patchq.system.paths import check_inside

#: Bytes of a file that is given as a resolution, and seconds that a merger may take for one.
MOST_BYTES, SECONDS = 64 << 20, 60


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tree that may be the stopped patch's, and where it is from, as the ledger will have it.

    :ivar undecided: the conflicting paths that it says nothing of.
    """

    tree: TreeId
    how: str
    undecided: frozenset[bytes] = frozenset()


def from_files(project: Project, progress: Progress, stop: Stop, given: Sequence[str]) -> Candidate:
    """Files in the place of those that conflict; or a patch file alone, onto what has landed.

    :param given: each a file whose name and folders end as one of the conflicting paths does; ``PATH=FILE`` for any
        path, ``PATH=`` to remove it; or one ``.patch`` or ``.diff``.
    :raises UserError: for a file that isn't there, or whose path can't be told.
    :raises ConflictError: for a patch that doesn't apply exactly.
    """
    paths = sorted({os.fsdecode(path) for path, *_ in stop.stages})
    if len(given) == 1 and "=" not in given[0] and given[0].endswith((".patch", ".diff")) and given[0] not in paths:
        return _from_patch(project, progress, stop, Path(given[0]))
    files: dict[bytes, bytes | None] = {}
    for text in given:
        path, equals, name = text.partition("=")
        if not equals:
            path, name = _path_of(text, paths), text
        inside = os.fsencode(str(check_inside(path, "a resolution")))
        files[inside] = _read(Path(name)) if name else None
    how = "from " + ", ".join(given)
    undecided = frozenset(os.fsencode(path) for path in paths) - files.keys()
    return Candidate(_tree(project, progress, stop, files), how, undecided)


def _path_of(given: str, paths: Sequence[str]) -> str:
    """The conflicting path that a file is for: the one that ends most as it does."""
    parts = PurePath(given).parts

    def alike(path: str) -> int:
        both = zip(reversed(parts), reversed(PurePath(path).parts), strict=False)
        return next((n for n, (a, b) in enumerate(both) if a != b), min(len(parts), len(PurePath(path).parts)))

    found = sorted(((alike(p), p) for p in paths), reverse=True)
    if not found or not found[0][0] or (len(found) > 1 and found[0][0] == found[1][0]):
        raise UserError(
            f"{given} is for none of the files that conflict, or for more than one: {', '.join(paths)}",
            hint="PATH=FILE says for which",
        )
    return found[0][1]


def _read(path: Path) -> bytes:
    data = fsio.read_limited(path, MOST_BYTES)
    if data is None:
        raise UserError(f"{path} is not there", hint="a file with the resolution")
    return data


def _from_patch(project: Project, progress: Progress, stop: Stop, path: Path) -> Candidate:
    data = _read(path)
    try:
        _, text = parse_mail(data, str(path))
    except FormatError:
        text = data
    (info,) = project.store.log(f"{progress.commits[stop.patch]}^!")
    engine = Engine(project.store, progress.upstream, project.lock.nested_in(progress.upstream))
    incoming = Incoming(stop.patch, Header(info.author, info.message), text, str(path))
    (applied,) = engine.apply(progress.tip, [incoming])
    return Candidate(project.store.tree_of([applied.commit])[0], f"from {path}")


def recorded(project: Project, progress: Progress, stop: Stop) -> dict[bytes, bytes]:
    """The conflicting files that what is recorded in the project resolves."""
    parked = stops.conflicting(project, stop, stop.parked)
    return rerere.replay(project.store, stops.stop_stages(stop), parked, project.layout, progress.upstream)


def from_recorded(project: Project, progress: Progress, stop: Stop) -> Candidate:
    """What is recorded.

    :raises UserError: if nothing is, or it changes lines that only a person can tell the place of.
    """
    files = recorded(project, progress, stop)
    parked = stops.conflicting(project, stop, stop.parked)
    if away := [show_path(path) for path, content in sorted(files.items()) if rerere.is_away(parked[path], content)]:
        raise UserError(
            f"what is recorded changes lines of {', '.join(away)} away from the conflict, maybe not where it did",
            hint=f"look at it in {stop_worktree(project, progress).path}; `patchq resolve` judges what is there",
        )
    if not files:
        raise UserError(f"nothing is recorded for {progress.upstream}/{stop.patch}", hint="`patchq conflict` shows it")
    names = ", ".join(show_path(p) for p in sorted(files))
    left = frozenset(os.fsencode(path) for path, *_ in stop.stages) - files.keys()
    return Candidate(_tree(project, progress, stop, files), f"by the recorded resolution of {names}", left)


def at_refs(project: Project, progress: Progress, stop: Stop, only: str = "") -> Iterator[tuple[str, TreeId]]:
    """The other refs at which the patch is in the stack in a form that lands here, and what it comes to."""
    for ref, pin in project.lock.upstreams[progress.upstream].pins.items():
        stack = load_stack(project.layout, pin)
        if stop.patch not in stack.names or ref == progress.from_ref or (only and ref != only):
            continue
        with suppress(PatchqError):  # what can't be had, or doesn't apply, says nothing here
            stops.base_of(project, pin, offline=True)
            (carried,) = carried_stacks(project, [stack], progress.set_name)
            (patch,) = read_patches(project.store, [c for c in carried.commits if c[0] == stop.patch])
            (column,) = carry(project.store, [patch], [progress.tip], carried.base)
            landing = column.landings[0]
            if landing.outcome not in STOPS:
                commits = write_commits(
                    project.store, progress.tip, [(patch.commit, landing.changes)], column.contents
                )  # fmt: skip
                yield ref, project.store.tree_of(commits)[0]


def from_ref(project: Project, progress: Progress, stop: Stop, ref: str) -> Candidate:
    """The patch as another ref's stack has it.

    :raises UserError: if it isn't there, or doesn't land here either.
    """
    found = dict(at_refs(project, progress, stop, ref))
    if ref not in found:
        raise UserError(
            f"{stop.patch} as {progress.upstream} {ref} has it doesn't land here, or {ref} hasn't got it",
            hint="`patchq conflict` names the refs whose patch does",
        )
    return Candidate(found[ref], f"as at {ref}")


def from_merger(project: Project, progress: Progress, stop: Stop, name: str) -> Candidate:
    """What a structural merger makes of the three sides of each file; called as mergiraf is.

    :raises UserError: if the lock names no such merger.
    :raises SourceError: if the program isn't there, or leaves a conflict.
    """
    mergers = project.lock.mergers
    if name not in mergers:
        hint = f'[mergers.{name}] program = "{name}"'
        raise UserError(f"no merger {name!r} in upstream.lock", hint=f"known: {', '.join(mergers) or 'none'}; {hint}")
    sides: dict[bytes, dict[int, bytes]] = {}
    stages = [s for s in stops.stop_stages(stop) if s.entry.mode in (REGULAR, b"100755")]
    contents = project.store.read_blobs(s.entry.blob for s in stages)
    for stage in stages:
        sides.setdefault(stage.path, {})[stage.number] = contents[stage.entry.blob]
    whole = {path: found for path, found in sides.items() if found.keys() == {1, 2, 3}}
    left = sorted({os.fsencode(path) for path, *_ in stop.stages} - whole.keys())
    if left:
        raise UserError(
            f"{show_path(left[0])} has no three sides to merge", hint="PATH=FILE, or PATH= to remove it, after --from"
        )
    files = {path: _merged(mergers[name], path, found) for path, found in whole.items()}
    return Candidate(_tree(project, progress, stop, files), f"by the merger {name}")


def _merged(program: str, path: bytes, sides: Mapping[int, bytes]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        folder, end = Path(text), PurePath(os.fsdecode(path)).suffix
        names = [f"{side}{end}" for side in ("base", "ours", "theirs")]
        for number, name in enumerate(names, 1):
            (folder / name).write_bytes(sides[number])
        argv = [program, "merge", *names, "--output", f"merged{end}"]
        try:
            runner.run(argv, cwd=folder, timeout=SECONDS)
        except runner.CommandError as error:
            why = "is not installed" if error.code == 127 else f"leaves {show_path(path)}: {error.said or error.code}"
            raise SourceError(f"the merger {program} {why}", hint="resolve it by hand") from None
        data = fsio.read_or_none(folder / f"merged{end}")
    if data is None:
        raise SourceError(f"the merger {program} wrote nothing for {show_path(path)}", hint="resolve it by hand")
    return data


def _tree(project: Project, progress: Progress, stop: Stop, files: Mapping[bytes, bytes | None]) -> TreeId:
    """What is parked, with these files."""
    (info,) = project.store.log(f"{progress.commits[stop.patch]}^!")
    known = project.store.list_tree(stop.parked, sorted(files))
    modes = {s.path: s.entry.mode for s in stops.stop_stages(stop)}
    changes, contents = [], {}
    for path, data in sorted(files.items()):
        if data is None:
            changes.append(PathChange(path, known.get(path), None))
            continue
        blob = blob_id(data)
        contents[blob] = data
        mode = known[path].mode if path in known else modes.get(path, REGULAR)
        changes.append(PathChange(path, known.get(path), TreeEntry(mode, blob)))
    (commit,) = write_commits(project.store, CommitId(stop.parked), [(info, changes)], contents)
    return project.store.tree_of([commit])[0]
