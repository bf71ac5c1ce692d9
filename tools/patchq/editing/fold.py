"""The command ``fold``: move edits of a worktree into the patches that own the edited lines.

A patch owns the lines that it wrote, and the places where it removed lines. An edit belongs to a patch if that patch
alone owns the edited lines (for an insertion: the adjacent lines). The edit is repeated in the file's versions after
that patch and after each patch above it, without merging. So each patch still applies, and the stack's tree becomes the
edited tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from patchq.editing._owners import LineEdits, ReplacedLines, Version, regions
from patchq.editing._trees import NewFile, write_trees
from patchq.errors import Conflict, ConflictError, EditedTreeError, UserError
from patchq.formats.diff import split_lines
from patchq.git.diffs import PathChange
from patchq.git.objects import TreeEntry
from patchq.git.repository import Git
from patchq.git.worktree import Worktree
from patchq.names import BlobId, CommitId, TreeId, sh, show_path
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.project.stack import Stack, State
from patchq.stacks.apply import current
from patchq.stacks.export import Exported, PatchNames, slug, write_stack
from patchq.stacks.reconcile import ReconciledEntry, entries_of, reconcile

_TEXT = (b"100644", b"100755")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedEdit:
    """Edit of consecutive lines, or of a whole file.

    :ivar line: first line in the edited file; 0 for a whole file.
    :ivar removed: number of removed lines.
    :ivar added: number of added lines.
    :ivar owners: patches that own the edited lines, lowest first. An edit with exactly one owner can be
        folded.
    """

    path: str
    line: int
    removed: int
    added: int
    owners: tuple[str, ...]

    @property
    def place(self) -> str:
        if self.line:
            return f"{self.path}:{self.line}"
        return self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Result of ``fold``.

    :ivar edits: edits that were moved into their patches.
    :ivar left: edits that stay in the worktree.
    :ivar empty: patches that change nothing now.
    """

    exported: Exported
    edits: tuple[OwnedEdit, ...]
    left: tuple[OwnedEdit, ...]
    empty: tuple[str, ...]


class UnownedEditsError(UserError):
    """Error for edits whose lines belong to no patch or to several patches. Nothing was changed.

    :ivar edits: edits that have no owner, or several owners.
    :ivar others: number of edits that have exactly one owner.
    """

    def __init__(self, stack: Stack, edits: Sequence[OwnedEdit], others: int) -> None:
        self.edits, self.others = tuple(edits), others
        upstream = stack.pin.upstream
        lines = [f"{upstream}: the lines of these edits belong to no patch or to several patches; nothing was changed"]
        for edit in edits[:20]:
            lines.append(f"    {edit.place}: {_owned_by(edit)}")
        hint = _next(stack, edits)
        if others:
            hint = f"`patchq fold {upstream} --partial` folds the other edits ({others}); then {hint}"
        super().__init__("\n".join(lines), hint=hint)


def _owned_by(edit: OwnedEdit) -> str:
    if edit.owners:
        return f"lines of {' and '.join(edit.owners)}"
    return "lines of no patch"


def _next(stack: Stack, edits: Sequence[OwnedEdit]) -> str:
    """Return the commands that handle edits with no owner or several owners."""
    upstream = stack.pin.upstream
    name = PatchNames(stack.names).take(slug(PurePosixPath(edits[0].path).stem))
    found = [f"`patchq new {upstream} {sh(name)}` makes a patch of these edits"]
    owners: dict[str, None] = {}
    for edit in edits:
        owners.update(dict.fromkeys(edit.owners))
    if owners:
        last = [*owners][-1]
        found.append(f"`patchq export {upstream} --amend {sh(last)}` puts these edits into {last}")
    return ", ".join(found)


@dataclass(slots=True)
class _Edited:
    """Edited file with its version after each patch.

    :ivar paths: path of the file before all patches and after each patch; None where the file doesn't exist.
    :ivar entries: tree entries of the file at the same points.
    :ivar versions: lines of the file at the same points; empty for a file that isn't text.
    :ivar touching: numbers of the patches that change the file.
    """

    change: PathChange
    paths: list[bytes | None]
    entries: list[TreeEntry | None]
    versions: list[Version] = field(default_factory=list)
    touching: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Placed:
    """Edits of a file that belong to the patch ``owner``.

    The edits are made in the versions after this patch and after each patch above it.
    """

    owner: int
    file: _Edited
    regions: list[ReplacedLines] = field(default_factory=list)


def fold(project: Project, upstream: str, *, partial: bool = False) -> Folded:
    """Move the edits of a worktree into the patches that own the edited lines.

    :param partial: True to leave edits with no owner or several owners in the worktree, instead of raising an error.
    :raises UnownedEditsError: if edits have no owner or several owners.
    :raises UserError: if there are no edits, or if the stack's patch files changed after the stack was applied.
    :raises EditedTreeError: if a git operation is under way in the worktree.
    """
    with project.locked("fold"):
        stack, state = current(project, upstream)
        worktree = project.worktree(upstream)
        head = _check_head(stack, state, worktree)
        edited = worktree.snapshot(leave=worktree.files_of_patch())
        if edited == state.tree:
            raise UserError(f"{upstream}: nothing was edited", hint=f"edit files in {worktree.path} first")
        entries = entries_of(project.store, state)
        found = reconcile(project, stack, state, entries, edits=True)
        if found.merged:
            tree = f"git -C {sh(worktree.path)}"
            raise UserError(
                f"{upstream}: the stack's patch files changed after the stack was applied",
                hint=f"`{tree} stash -u && patchq apply {upstream} && {tree} stash pop`, then `patchq fold {upstream}`",
            )
        names = [entry.name for entry in entries]
        placed: list[_Placed] = []
        edits: list[OwnedEdit] = []
        left: list[OwnedEdit] = []
        for file in _edited_files(project.store, state, entries, edited):
            for owners, edit, place in _owned(project.store, file):
                edit = replace(edit, owners=tuple(names[n - 1] for n in sorted(owners)))
                if place is None:
                    left.append(edit)
                else:
                    edits.append(edit)
                    placed.append(place)
        if left and not (partial and edits):
            raise UnownedEditsError(stack, left, len(edits))
        made = _with_edits(project.store, entries, placed)
        if not left and made[-1].commit.tree != edited:
            raise ConflictError(
                f"{upstream}: folding the edits would not give the edited tree; nothing was changed",
                [Conflict(upstream=upstream, patch=names[-1], path="", reason="folded tree differs")],
                hint=_next(stack, edits),
            )
        targets = ", ".join(dict.fromkeys(edit.owners[0] for edit in edits))
        change = Change(verb="fold", summary=f"fold edits of {upstream} into {targets}")
        exported = write_stack(project, change, stack, state, made, head, rest=found.rest, adopt=True)
        project.journal.perform(change)
        if left:  # `undo` also leaves them in the files
            project.journal.note_restored([upstream])
        empty = []
        (before,) = project.store.tree_of([state.base])
        for entry in made:
            if entry.commit.tree == before:
                empty.append(entry.name)
            before = entry.commit.tree
        return Folded(exported=exported, edits=tuple(edits), left=tuple(left), empty=tuple(empty))


def _check_head(stack: Stack, state: State, worktree: Worktree) -> CommitId:
    upstream = stack.pin.upstream
    status = worktree.status(untracked=False)
    if status.busy:
        raise EditedTreeError(
            f"{upstream}: a git {status.busy} is in progress in {worktree.path}; nothing was changed",
            hint=f"`git -C {sh(worktree.path)} status` shows how to finish or abort it",
        )
    if status.head != state.tip:
        raise UserError(
            f"{upstream}: the worktree has commits that are not in the stack",
            hint=f"run `patchq export {upstream}` first",
        )
    return state.tip


def _edited_files(store: Git, state: State, entries: Sequence[ReconciledEntry], edited: TreeId) -> list[_Edited]:
    """Return each edited file with its versions in the stack. Renames are followed."""
    changes: list[dict[bytes, PathChange]] = []
    for made in store.changes_of([entry.commit.commit for entry in entries]):
        by_path = {}
        for change in made:
            by_path[change.path] = change
        changes.append(by_path)
    found = []
    for change in store.changes(state.tree, edited):
        paths: list[bytes | None] = [change.path]
        touching: list[int] = []
        steps: dict[int, PathChange] = {}
        for number in range(len(entries), 0, -1):
            path = paths[-1]
            own = None
            if path is not None:
                own = changes[number - 1].get(path)
            if own is not None:
                touching.append(number)
                steps[number] = own
                if own.old is None:
                    path = _renamed_from(store, entries[number - 1].commit.commit, changes[number - 1], own.path)
            paths.append(path)
        paths.reverse()
        found.append(_Edited(change, paths, _entries(store, state, paths, steps), touching=touching[::-1]))
    _read_versions(store, found)
    return found


def _renamed_from(store: Git, commit: CommitId, changes: dict[bytes, PathChange], path: bytes) -> bytes | None:
    """Return the old path of a file that a patch renames; None if the patch adds the file."""
    if None not in [change.new for change in changes.values()]:
        return None
    for old, new in store.renames_of(commit).items():
        if new == path:
            return old
    return None


def _entries(
    store: Git, state: State, paths: Sequence[bytes | None], steps: dict[int, PathChange]
) -> list[TreeEntry | None]:
    """Return the tree entry of a file before all patches and after each patch."""
    first = paths[0]
    base = None
    if first is not None:
        base = store.list_tree(state.base, [first]).get(first)
    found = [base]
    for number in range(1, len(paths)):
        found.append(steps[number].new if number in steps else found[-1])
    return found


def _read_versions(store: Git, files: Sequence[_Edited]) -> None:
    """Read the lines of each file after each patch; skip files that aren't text."""
    blobs = []
    for file in files:
        for entry in file.entries:
            if entry and entry.mode in _TEXT:
                blobs.append(entry.blob)
    contents = store.read_blobs(blobs)
    for file in files:
        file.versions = _versions(store, file.entries, contents)


def _versions(store: Git, entries: Sequence[TreeEntry | None], contents: Mapping[BlobId, bytes]) -> list[Version]:
    """Return the lines of a file after each patch; an empty list if one of the versions isn't text."""
    versions: list[Version] = []
    before: TreeEntry | None = None
    for number, entry in enumerate(entries):
        if entry is not None and entry.mode not in _TEXT:
            return []
        if number == 0:
            version = _unowned(entry, contents)
        elif entry == before:
            version = versions[-1]
        elif entry is None or before is None:
            content = b""
            if entry:
                content = contents[entry.blob]
            version = _replaced(versions[-1], content, number)
        else:
            changed = regions(store, before.blob, entry.blob)
            if changed is None:
                return []
            version = versions[-1].patched(changed, contents[entry.blob], number)
        versions.append(version)
        before = entry
    return versions


def _unowned(entry: TreeEntry | None, contents: Mapping[BlobId, bytes]) -> Version:
    """Return the lines of a file before any patch; no patch owns them."""
    version = Version()
    if entry:
        version = _replaced(version, contents[entry.blob], 0)
        for line in version.lines:
            line.owner = None
    return version


def _replaced(version: Version, content: bytes, number: int) -> Version:
    """Return the lines after a patch that adds, removes or rewrites the whole file."""
    whole = ReplacedLines(start=0, end=len(version.lines), new_start=0, new_end=len(split_lines(content)))
    return version.patched([whole], content, number)


def _owned(store: Git, file: _Edited) -> list[tuple[set[int], OwnedEdit, _Placed | None]]:
    """Return each edit of a file with its owners.

    For an edit with exactly one owner, also return the versions to edit.
    """
    old, new = file.change.old, file.change.new
    path = show_path(file.change.path)
    changed = None
    if old and new and old.mode == new.mode and old.mode in _TEXT and file.versions:
        changed = regions(store, old.blob, new.blob)
    if changed is None:
        if old:
            owners = set(file.touching)
        else:
            owners = set()
        # An edit of a whole file belongs to the only patch that changes the file. A deletion belongs to that patch only
        # if it adds the file.
        fits = len(owners) == 1 and (new is not None or file.entries[0] is None)
        edit = OwnedEdit(path=path, line=0, removed=0, added=0, owners=())
        return [(owners, edit, _Placed(min(owners), file) if fits else None)]
    found: list[tuple[set[int], OwnedEdit, _Placed | None]] = []
    for region in changed:
        owners = file.versions[-1].owners(region)
        removed, added = region.end - region.start, region.new_end - region.new_start
        edit = OwnedEdit(path=path, line=region.new_start + 1, removed=removed, added=added, owners=())
        place = None
        if len(owners) == 1:
            place = _Placed(min(owners), file, [region])
        found.append((owners, edit, place))
    return found


def _with_edits(store: Git, entries: Sequence[ReconciledEntry], placed: Sequence[_Placed]) -> list[ReconciledEntry]:
    """Return the entries after applying each edit to its patch and to the patches above it."""
    lowest = min(place.owner for place in placed)
    by_id: dict[int, _Edited] = {}
    blobs = []
    for place in placed:
        by_id[id(place.file)] = place.file
        if place.file.change.new and place.file.versions:
            blobs.append(place.file.change.new.blob)
    files = list(by_id.values())
    edited = store.read_blobs(blobs)
    trees = []
    for number in range(lowest, len(entries) + 1):
        replaced: dict[bytes, NewFile | TreeEntry | None] = {}
        for file in files:
            own = []
            for place in placed:
                if place.file is file and place.owner <= number:
                    own.append(place)
            path, entry = file.paths[number], file.entries[number]
            if not own or path is None:
                continue
            if not own[0].regions:
                replaced[path] = file.change.new
                continue
            assert entry
            assert file.change.new
            new = split_lines(edited[file.change.new.blob])
            edits = LineEdits()
            for place in own:
                for region in place.regions:
                    edits.add(file.versions[-1], region, new, place.owner)
            replaced[path] = NewFile(entry.mode, edits.made(file.versions[number]))
        trees.append((entries[number - 1].commit.tree, replaced))
    made = list(entries[: lowest - 1])
    for above, tree in zip(entries[lowest - 1 :], write_trees(store, trees), strict=True):
        made.append(ReconciledEntry(above.name, replace(above.commit, commit=CommitId(""), tree=tree)))
    return made
