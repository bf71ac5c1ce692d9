"""The command ``split``: move files or hunks of a patch to a new patch next to it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from patchq.editing._trees import NewFile, write_trees
from patchq.errors import UserError, nearest
from patchq.formats import diff
from patchq.formats.diff import FilePatch, Hunk, Unsupported
from patchq.formats.header import clean_message, split_trailers
from patchq.formats.header import parse as parse_mail
from patchq.git.diffs import PathChange
from patchq.git.objects import TreeEntry
from patchq.git.repository import Git
from patchq.names import BlobId, CommitId, TreeId, counted, sh, show_path
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.project.stack import find_patch
from patchq.stacks.edit import load
from patchq.stacks.export import Exported, format_patches, write_stack
from patchq.stacks.reconcile import ReconciledEntry
from patchq.system.paths import check_name

#: Trailers that describe the proof of a patch.
_PROOF = ("proof", "proof-on", "upstream-test", "needs")
_HUNK = re.compile(r"(.+):([0-9]{1,9})")


class ProofKeeper(Enum):
    """Patch that keeps the proof after a split."""

    OLD = "old"
    NEW = "new"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """File or hunk of a patch that ``split`` can move.

    :ivar hunk: number of the hunk in its file, from 1; 0 if the file can only move as a whole.
    :ivar line: line at which the hunk begins in the patched file.
    """

    path: str
    hunk: int
    line: int
    removed: int
    added: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPatch:
    """Result of ``split``.

    :ivar proofs: proofs of the patch before the split.
    :ivar required_by: patches whose ``Requires:`` names the split patch.
    """

    exported: Exported
    patch: str
    new: str
    proofs: tuple[str, ...]
    keeper: ProofKeeper
    required_by: tuple[str, ...]


@dataclass(slots=True)
class _Split:
    """Change of one file by the patch, and the hunks that move to the new patch.

    :ivar hunks: empty for a file that can only move as a whole.
    :ivar chosen: indices of the hunks that move.
    """

    changes: list[PathChange]
    hunks: Sequence[Hunk] = ()
    whole: bool = False
    chosen: set[int] = field(default_factory=set)

    @property
    def names(self) -> set[str]:
        return {show_path(change.path) for change in self.changes}

    @property
    def path(self) -> str:
        """Path of the file after the patch."""
        for change in self.changes:
            if change.new:
                return show_path(change.path)
        return show_path(self.changes[0].path)


def parts(project: Project, patch: str, *, set_name: str = "") -> list[Part]:
    """Return the files and hunks of a patch that ``split`` can move."""
    set_name = project.choose_set(set_name)
    with project.locked("split"):
        stack, name = find_patch(project.stacks(set_name), patch)
        loaded = load(project, stack, set_name)
        entry = loaded.entries[_index(loaded.entries, name)]
        found = []
        for file in _files_of(project.store, entry):
            for number, hunk in enumerate(file.hunks, 1):
                removed, added = len(hunk.old) - hunk.context, len(hunk.new) - hunk.context
                found.append(Part(path=file.path, hunk=number, line=hunk.new_start, removed=removed, added=added))
            if not file.hunks:
                found.append(Part(path=file.path, hunk=0, line=0, removed=0, added=0))
        return found


def split(
    project: Project,
    patch: str,
    new: str,
    *,
    files: Sequence[str] = (),
    hunks: Sequence[str] = (),
    message: str = "",
    before: bool = False,
    keeper: ProofKeeper = ProofKeeper.OLD,
    set_name: str = "",
) -> SplitPatch:
    """Move files and hunks of a patch to a new patch directly after it.

    The tree of the stack stays the same. Both patches have the author and the trailers of the original patch.

    :param files: paths to move.
    :param hunks: hunks to move, each as ``PATH:NUMBER``.
    :param message: message of the new patch.
    :param before: True to put the new patch directly before the original patch.
    :param keeper: patch that keeps the ``Proof:`` trailers, or both.
    :raises UserError: if the name is taken, or if one of the two patches would be empty.
    """
    check_name(new, "a patch")
    set_name = project.choose_set(set_name)
    with project.locked("split"):
        stacks = project.stacks(set_name)
        stack, name = find_patch(stacks, patch)
        upstream = stack.pin.upstream
        if new in stack.names:
            raise UserError(
                f"{upstream} has a patch {new} already", hint=f"choose a name other than {', '.join(stack.names[:8])}"
            )
        loaded = load(project, stack, set_name)
        at = _index(loaded.entries, name)
        entry = loaded.entries[at]
        found = _files_of(project.store, entry)
        _choose(found, f"{upstream}/{name}", files, hunks)
        halves = _halves(project.store, entry, found, new, before=before)
        proofs = _proofs(entry.commit.message)
        texts = {
            name: _without_proof(entry.commit.message) if keeper is ProofKeeper.NEW else entry.commit.message,
            new: _new_message(entry.commit.message, new, message, keeper),
        }
        pair = []
        for half, tree in halves:
            commit = replace(entry.commit, commit=CommitId(""), tree=tree, message=texts[half])
            pair.append(ReconciledEntry(half, commit))
        entries = [*loaded.entries[:at], *pair, *loaded.entries[at + 1 :]]
        change = Change(verb="split", summary=f"split {upstream}/{name} into {name} and {new}")
        same = [e.name for e in loaded.entries if e.name != name]
        exported = write_stack(
            project, change, stack, loaded.state, entries, loaded.head, move=loaded.follows, made=same
        )
        project.journal.perform(change)
        full = f"{upstream}/{name}"
        required_by = []
        for other in stacks:
            for its_name, header in other.headers():
                if full in header.values("Requires"):
                    required_by.append(f"{other.pin.upstream}/{its_name}")
        return SplitPatch(
            exported=exported,
            patch=name,
            new=new,
            proofs=proofs,
            keeper=keeper,
            required_by=tuple(required_by),
        )


def _index(entries: Sequence[ReconciledEntry], name: str) -> int:
    """Return the index of a patch in its stack."""
    return [entry.name for entry in entries].index(name)


def _files_of(store: Git, entry: ReconciledEntry) -> list[_Split]:
    """Return the files that a patch changes. A renamed file counts as one file."""
    commit, parent = entry.commit, entry.commit.parents[0]
    changes = {}
    for change in store.changes(parent, commit.commit):
        changes[change.path] = change
    _, text = parse_mail(format_patches(store, parent, commit.commit, 1)[0], entry.name)
    parsed: Sequence[FilePatch]
    try:
        parsed = diff.parse(text, entry.name)
    except Unsupported as error:
        parsed = error.files or ()
    found = []
    for file in parsed:
        own = []
        for path in sorted(file.paths):
            if path in changes:
                own.append(changes.pop(path))
        if own:
            edits = file.old_path is not None and file.new_path is not None and not file.binary
            found.append(_Split(own, tuple(file.hunks) if edits else ()))
    for change in changes.values():
        found.append(_Split([change]))
    return found


def _choose(found: Sequence[_Split], patch: str, files: Sequence[str], hunks: Sequence[str]) -> None:
    """Mark the named files and hunks as moved.

    :raises UserError: if a name is not in the patch, or if everything or nothing is named.
    """
    for name in files:
        _find(found, patch, name).whole = True
    for name in hunks:
        match = _HUNK.fullmatch(name)
        if not match:
            raise UserError(f"{name!r} names no hunk", hint=f"`patchq split {patch}` lists the hunks, such as a.py:1")
        file = _find(found, patch, match[1])
        number = int(match[2])
        if not file.hunks:
            raise UserError(f"{match[1]} can only move as a whole", hint=f"`--file {sh(match[1])}`")
        if not 1 <= number <= len(file.hunks):
            count = len(file.hunks)
            raise UserError(
                f"{patch} has {counted(count, 'hunk')} in {match[1]}, not {number}",
                hint=f"`patchq split {patch}` lists the hunks",
            )
        file.chosen.add(number - 1)
    for file in found:
        # If all hunks of a text edit are named, the file moves as a whole.
        only_text = len(file.changes) == 1 and _same_mode(file.changes[0])
        if file.hunks and only_text and len(file.chosen) == len(file.hunks):
            file.whole = True
    if not files and not hunks:
        raise UserError("no file or hunk is named", hint=f"`patchq split {patch}` lists the files and hunks")
    if all(file.whole for file in found):
        raise UserError(
            f"all files and hunks of {patch} are named, so nothing would be left in the patch",
            hint=f"`patchq split {patch}` lists the files and hunks",
        )


def _find(found: Sequence[_Split], patch: str, name: str) -> _Split:
    for file in found:
        if name in file.names:
            return file
    known = sorted(set().union(*(file.names for file in found)))
    raise UserError(f"{patch} doesn't change {name}", hint=nearest(name, known, f"it changes {', '.join(known[:8])}"))


def _same_mode(change: PathChange) -> bool:
    return change.old is not None and change.new is not None and change.old.mode == change.new.mode


def _halves(
    store: Git, entry: ReconciledEntry, found: Sequence[_Split], new: str, *, before: bool
) -> list[tuple[str, TreeId]]:
    """Return the names and trees of the two patches, lower patch first."""
    parent = store.tree_of([entry.commit.parents[0]])[0]
    blobs = []
    for file in found:
        for c in file.changes:
            if c.old and file.hunks:
                blobs.append(c.old.blob)
    contents = store.read_blobs(blobs)
    replaced: dict[bytes, NewFile | TreeEntry | None] = {}
    for file in found:
        if not file.whole and file.chosen:
            if before:
                kept = file.chosen
            else:
                kept = set(range(len(file.hunks))) - file.chosen
            _keep_hunks(file, kept, contents, replaced, moved=not before)
        elif file.whole == before:
            for change in file.changes:
                replaced[change.path] = change.new
    [middle] = write_trees(store, [(parent, replaced)])
    if before:
        names = (new, entry.name)
    else:
        names = (entry.name, new)
    return [(names[0], middle), (names[1], entry.commit.tree)]


def _keep_hunks(
    file: _Split,
    kept: Collection[int],
    contents: dict[BlobId, bytes],
    replaced: dict[bytes, NewFile | TreeEntry | None],
    *,
    moved: bool,
) -> None:
    """Add a file to ``replaced``, with only the hunks in ``kept`` applied.

    :param moved: True to apply the file's rename and new mode, too.
    """
    old = next(change for change in file.changes if change.old)
    assert old.old
    hunks = list(map(file.hunks.__getitem__, sorted(kept)))
    content = _patched(contents[old.old.blob], hunks)
    if not moved:
        replaced[old.path] = NewFile(old.old.mode, content)
        return
    for change in file.changes:
        if change.new:
            replaced[change.path] = NewFile(change.new.mode, content)
        else:
            replaced[change.path] = None


def _patched(content: bytes, hunks: Sequence[Hunk]) -> bytes:
    """Apply some hunks of a file's diff to the file, at the line numbers in their headers."""
    lines = diff.split_lines(content)
    made: list[bytes] = []
    at = 0
    for hunk in hunks:
        if hunk.old:
            start = hunk.old_start - 1
        else:
            start = hunk.old_start
        made += lines[at:start]
        made += hunk.new
        at = start + len(hunk.old)
    return b"".join([*made, *lines[at:]])


def _key(line: str) -> str:
    return line.partition(":")[0].strip().lower()


def _proofs(message: str) -> tuple[str, ...]:
    lines = split_trailers(message)[1]
    proofs: list[str] = []
    for line in lines:
        if _key(line) in ("proof", "proof-on"):
            proofs.append(line.partition(":")[2].strip())
    return tuple(proofs)


def _without_proof(message: str) -> str:
    text, block = split_trailers(clean_message(message))
    return clean_message("\n".join([text, *_without(block, _PROOF)]))


def _without(block: Sequence[str], keys: Collection[str]) -> list[str]:
    """Return the trailers except those whose keys, in lower case, are in ``keys``."""
    return [line for line in block if _key(line) not in keys]


def _new_message(old: str, name: str, message: str, keeper: ProofKeeper) -> str:
    """Return the message of the new patch, with the trailers of the original patch."""
    text, block = split_trailers(clean_message(old))
    if keeper is ProofKeeper.OLD:
        block = _without(block, _PROOF)
    own, given = split_trailers(clean_message(message))
    if not own.strip():
        own = f"{name.replace('-', ' ').capitalize()}\n\nSplit from {text.splitlines()[0]!r}."
    block = [*given, *_without(block, set(map(_key, given)))]
    return clean_message("\n".join([own.rstrip(), "", *block]))
