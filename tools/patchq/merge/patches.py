"""Data model of patches: changes, the result of applying them to a tree, and conversion from and to commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum

from patchq.formats import diff
from patchq.formats.ledger import FileOffset
from patchq.formats.outcomes import Outcome
from patchq.git.diffs import PathChange
from patchq.git.fastimport import commit_start, import_commits, quote_path
from patchq.git.mergetree import Stage
from patchq.git.objects import CommitInfo, TreeEntry, blob_id
from patchq.git.repository import Git
from patchq.merge.blocks import Block, blocks
from patchq.names import BlobId, CommitId, TreeId, show_path
from patchq.patterns.rules import Rule, rules_of
from patchq.records import dataclass

#: Outcomes that stop a rebase.
STOPS = (Outcome.ABSORBED, Outcome.OBSOLETE, Outcome.CONFLICT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """Changes of one patch: the changed paths, and the hunks by path.

    :ivar left: folders that contain no files after the patch. The patch may have renamed such a folder.
    :ivar rules: rules in the patch's message that make its changes; empty for most patches.
    """

    name: str
    commit: CommitInfo
    parent: TreeId
    edits: tuple[PathChange, ...]
    hunks: Mapping[bytes, Sequence[diff.Hunk]]
    left: frozenset[bytes] = frozenset()
    rules: tuple[Rule, ...] = ()
    _blocks: dict[bytes, list[Block]] = field(default_factory=dict, repr=False, compare=False)

    def blocks(self, path: bytes) -> list[Block]:
        """Return a file's changes without context; see :mod:`patchq.merge.blocks`."""
        if path not in self._blocks:
            self._blocks[path] = blocks(self.hunks.get(path, ()))
        return self._blocks[path]

    @property
    def paths(self) -> set[bytes]:
        """Return the changed paths."""
        return {edit.path for edit in self.edits}


@dataclass(frozen=True, slots=True)
class FileConflict:
    """File whose conflict stops a patch.

    :ivar lines: number (from 1) of each conflict's first line, in the file with conflict markers. Empty if
        the whole file conflicts or is deleted.
    """

    path: str
    lines: tuple[int, ...] = ()


class StopKind(Enum):
    """Message template of a :class:`StopReason`, for reasons that the conflicting files don't show."""

    #: Git or a rule of the patch failed.
    FAILED = "{0.text}"
    RULES_DIFFER = "its rules and its diff give different results"
    RULES_REPEAT = "upstream may have added the patch's lines to {0.path} already"
    #: The proof fails with the result of the patch's rules.
    PROOF = "after its rules were applied, its proof {0.text}"
    DROPS_LINES = "{0.path}: {0.method} drops {0.lines}"
    ADDS_TWICE = "{0.path}: upstream has added these lines already; {0.method} adds them again"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReason:
    """Reason why a patch stops.

    :ivar count: number of upstream's lines that the result lacks. ``text`` is then the first of these lines.
    :ivar text: message of git, of a rule or of a proof.
    :ivar by_rules: True if the patch's rules made the result, False if git's merge made it.
    """

    kind: StopKind
    path: str = ""
    count: int = 0
    text: str = ""
    by_rules: bool = False

    @property
    def method(self) -> str:
        """Return what made the result, in words."""
        if self.by_rules:
            return "applying the patch's rules"
        return "git's merge"

    @property
    def lines(self) -> str:
        """Return the lines that the result lacks, in words."""
        if self.count == 1:
            return f"upstream's line {self.text!r}"
        return f"{self.count} of upstream's lines; the first is {self.text!r}"

    def describe(self) -> str:
        """Return the reason in words."""
        return self.kind.value.format(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """Result of applying a patch to a tree.

    :ivar changes: changes to the tree. If the patch stops, the files in ``stages`` contain conflict markers.
    :ivar labels: commit ids on git's conflict markers, for our side and for the patch.
    :ivar offsets: line offsets of the hunks, from upstream's line map, if the outcome is ``offset``.
    :ivar reasons: reasons for the stop, if the conflicting files don't show them.
    :ivar conflicted: result of git's merge, with conflict markers, if the patch's rules resolved the conflict.
    """

    patch: str
    outcome: Outcome
    files: tuple[FileConflict, ...] = ()
    changes: tuple[PathChange, ...] = ()
    stages: tuple[Stage, ...] = ()
    labels: tuple[str, str] = ("", "")
    offsets: tuple[FileOffset, ...] = ()
    reasons: tuple[StopReason, ...] = ()
    conflicted: tuple[PathChange, ...] = ()

    @property
    def message(self) -> str:
        """Return the reasons for the stop in words."""
        return "; ".join(map(StopReason.describe, self.reasons))


def stage_paths(stages: Iterable[Stage]) -> list[bytes]:
    """Return the sorted paths of index stages."""
    return sorted({stage.path for stage in stages})


def whole_files(stages: Iterable[Stage]) -> tuple[FileConflict, ...]:
    """Return the conflicting files of index stages. Each file counts as a conflict of the whole file."""
    return tuple(map(FileConflict, map(show_path, stage_paths(stages))))


def read_patches(store: Git, commits: Sequence[tuple[str, CommitInfo]]) -> list[Patch]:
    """Return the patches of the named commits, with the same hunks as in git's merges.

    :raises FormatError: if a rule of a patch isn't valid.
    """
    ids, parent_ids = [], []
    for _, info in commits:
        ids.append(info.commit)
        parent_ids.append(info.parents[0])
    parents = store.tree_of(parent_ids)
    found = []
    for (name, info), parent, edits, text in zip(
        commits, parents, store.changes_of(ids), store.diffs_of(ids, as_merged=True), strict=True
    ):
        try:
            files = diff.parse(text, name)
        except diff.Unsupported:
            files = []
        hunks = {}
        for file in files:
            if file.old_path and file.old_path == file.new_path and not file.binary:
                hunks[file.old_path] = file.hunks
        found.append(
            Patch(
                name=name,
                commit=info,
                parent=parent,
                edits=tuple(edits),
                hunks=hunks,
                left=_left(store, info.commit, edits),
                rules=rules_of(info.message, name),
            )
        )
    return found


def _left(store: Git, commit: CommitId, edits: Sequence[PathChange]) -> frozenset[bytes]:
    """Return the folders that contain no files after a commit. Return none if the commit can't contain renames."""
    folders = set()
    for edit in edits:
        if edit.new is None and b"/" in edit.path:
            folders.add(edit.path.rpartition(b"/")[0] + b"/")
    if not folders or all(edit.old for edit in edits):
        return frozenset()
    there = tuple(store.list_tree(commit, sorted(folders)))
    left = set()
    for folder in folders:
        if not any(path.startswith(folder) for path in there):
            left.add(folder.removesuffix(b"/"))
    return frozenset(left)


def write_commits(
    store: Git,
    onto: CommitId,
    commits: Sequence[tuple[CommitInfo, Sequence[PathChange]]],
    contents: Mapping[BlobId, bytes],
) -> list[CommitId]:
    """Write a chain of commits, each with its author and message, with one ``git fast-import``."""
    if not commits:
        return []
    ref = b"refs/patchq/scratch/carry"
    with import_commits(store, ref) as (out, ids):
        parent = onto.encode()
        for number, (info, changes) in enumerate(commits, 1):
            out.write(commit_start(ref, number, info.author, info.message, parent))
            for change in changes:
                path, new = quote_path(change.path), change.new
                if new is None:
                    out.write(b"D %s\n" % path)
                elif new.blob in contents:
                    out.write(b"M %s inline %s\ndata %d\n" % (new.mode, path, len(contents[new.blob])))
                    out.write(contents[new.blob] + b"\n")
                else:
                    out.write(b"M %s %s %s\n" % (new.mode, new.blob.encode(), path))
            parent = b":%d" % number
    return [ids[number] for number in range(1, len(commits) + 1)]


def replace_files(
    store: Git,
    onto: CommitId,
    info: CommitInfo,
    files: Mapping[bytes, bytes | None],
    modes: Mapping[bytes, bytes],
) -> TreeId:
    """Return the tree of ``onto`` with the given files replaced. Remove a file whose content is None.

    :param info: author and message of the commit that is written for the tree.
    :param modes: modes of files that ``onto`` doesn't contain.
    """
    known = {}
    if files:
        known = store.list_tree(onto, sorted(files))
    changes, contents = [], {}
    for path, data in sorted(files.items()):
        if data is None:
            changes.append(PathChange(path, known.get(path), None))
            continue
        blob = blob_id(data)
        contents[blob] = data
        if path in known:
            mode = known[path].mode
        else:
            mode = modes.get(path, diff.REGULAR)
        changes.append(PathChange(path, known.get(path), TreeEntry(mode, blob)))
    (commit,) = write_commits(store, onto, [(info, changes)], contents)
    return store.tree_of([commit])[0]
