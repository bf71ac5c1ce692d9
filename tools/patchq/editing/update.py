"""Update of imported patches to newer versions of the commits from which they were imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from patchq.errors import ConflictError
from patchq.formats.header import OURS, clean_message, mail_safe, parse_trailers, split_trailers, without_trailers
from patchq.git.objects import CommitInfo
from patchq.git.replay import pick
from patchq.git.repository import Git
from patchq.names import CommitId, TreeId
from patchq.patterns.rules import without_rules
from patchq.stacks.reconcile import ReconciledEntry


class Update(str, Enum):
    """Kind of result for a commit of the branch."""

    NEW = "new"
    CHANGED = "changed"
    EQUAL = "equal"
    #: The stack already has the change of a new commit.
    THERE = "there"
    #: The commit conflicts at its place in the stack.
    CONFLICT = "conflict"
    #: The patch and the commit changed since the import, in different ways.
    DIVERGED = "diverged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """Commit of a branch.

    :ivar name: name for the patch if the commit is new.
    :ivar before: tree of the commit's parent.
    :ivar info: author, tree and message, as for a new patch. ``info.commit`` is the commit's id in the branch.
    """

    name: str
    before: TreeId
    info: CommitInfo

    @property
    def trees(self) -> tuple[TreeId, TreeId]:
        return self.before, self.info.tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """Result of the update for one commit.

    :ivar name: name of the patch.
    :ivar error: reason for a conflict.
    :ivar unchecked: True if the commit of the last import no longer exists. Then patchq can't detect edits of the patch
        since that import, and the new diff replaces these edits.
    """

    name: str
    update: Update
    error: ConflictError | None = None
    unchecked: bool = False


def origin_id(message: str, repository: str) -> str:
    """Return the commit id in a patch's ``Origin:``; empty if the patch wasn't imported from this repository.

    >>> origin_id("Fix\\n\\nOrigin: up@abc\\n", "up"), origin_id("Fix\\n\\nOrigin: up@abc\\n", "other")
    ('abc', '')
    """
    for key, value in parse_trailers(message):
        if key.lower() == "origin" and value.startswith(f"{repository}@"):
            return value.removeprefix(f"{repository}@")
    return ""


def pair(
    store: Git, entries: Sequence[ReconciledEntry], revisions: Sequence[Revision], repository: str
) -> dict[int, str]:
    """Match commits with patches.

    Return a dict from the index of a commit to the name of its patch. New commits are left out.

    Commits and patches are compared by the commit id in ``Origin:``, then by ``Change-Id:``, then by author, date and
    subject, then by diff. A patch that was imported from ``repository`` also matches by subject alone, or by an author
    and date that are unique.
    """
    patch_ids = store.patch_ids_of([entry.commit.commit for entry in entries])
    origins, ids, new_ids = {}, {}, {}
    for entry, patch_id in zip(entries, patch_ids, strict=True):
        origins[entry.name] = origin_id(entry.commit.message, repository)
        ids[entry.name] = patch_id
    for revision, patch_id in zip(revisions, _patch_ids(store, revisions), strict=True):
        new_ids[revision.info.commit] = patch_id

    def same_commit(entry: ReconciledEntry, revision: Revision) -> bool:
        return origins[entry.name] == revision.info.commit

    def same_diff(entry: ReconciledEntry, revision: Revision) -> bool:
        return ids[entry.name] != "" and ids[entry.name] == new_ids[revision.info.commit]

    authors = Counter(entry.commit.author for entry in entries)
    new_authors = Counter(revision.info.author for revision in revisions)

    def same_author(entry: ReconciledEntry, revision: Revision) -> bool:
        author = revision.info.author
        # `git rebase --reset-author-date` gives several commits the same second.
        is_unique = authors[author] == new_authors[author] == 1
        return origins[entry.name] != "" and is_unique and entry.commit.author == author

    def same_subject(entry: ReconciledEntry, revision: Revision) -> bool:
        return origins[entry.name] != "" and _subject(entry.commit) == _subject(revision.info)

    found: dict[int, str] = {}
    left = list(entries)
    for same in (same_commit, _same_change_id, _same_author_and_subject, same_diff, same_subject, same_author):
        for index, revision in enumerate(revisions):
            if index in found:
                continue
            match = next(filter(lambda entry: same(entry, revision), left), None)
            if match:
                found[index] = match.name
                left.remove(match)
    return found


def _same_change_id(entry: ReconciledEntry, revision: Revision) -> bool:
    change_id = _change_id(revision.info.message)
    return change_id != "" and change_id == _change_id(entry.commit.message)


def _same_author_and_subject(entry: ReconciledEntry, revision: Revision) -> bool:
    return entry.commit.author == revision.info.author and _subject(entry.commit) == _subject(revision.info)


def update(
    store: Git,
    upstream: str,
    base: TreeId,
    entries: Sequence[ReconciledEntry],
    revisions: Sequence[Revision],
    pairs: Mapping[int, str],
    original: Callable[[ReconciledEntry], Revision | None],
) -> tuple[list[ReconciledEntry], list[Updated]]:
    """Return the stack with updated patches, and the result for each commit.

    Matched patches keep their names, trailers and places. If the commits are in another order now, their patches
    exchange places. The patch of a new commit is placed after the patch of the preceding commit. If a commit conflicts,
    its patch stays unchanged.

    :param pairs: result of :func:`pair`.
    :param original: function that returns the commit from which a patch was imported, if that commit is available.
    :raises ConflictError: if a patch that doesn't come from the branch conflicts with the new versions.
    """
    by_name = {entry.name: entry for entry in entries}
    results: dict[int, Updated] = {}
    chosen: dict[int, Revision | None] = {}
    for index, revision in enumerate(revisions):
        if index not in pairs:
            chosen[index] = revision
            continue
        entry = by_name[pairs[index]]
        before = original(entry)
        update_kind, chosen[index] = _choose(store, entry, revision, before)
        version = chosen[index]
        replaces = version is not None and version.trees == revision.trees
        results[index] = Updated(name=entry.name, update=update_kind, unchecked=replaces and before is None)
    new_stack: list[ReconciledEntry] = []
    onto = base
    for carried, at in _ordered(entries, len(revisions), pairs):
        source = chosen[at] if at is not None else None
        name = carried.name if carried else revisions[at or 0].name
        parent, tree = source.trees if source else _trees(store, base, carried)
        try:
            after = pick(store, upstream, name, parent, tree, onto)
        except ConflictError as error:
            if source is None or at is None:
                raise
            results[at] = Updated(name=name, update=Update.CONFLICT, error=error)
            if carried is None:
                continue
            source, (parent, tree) = None, _trees(store, base, carried)
            after = pick(store, upstream, name, parent, tree, onto)
        if carried is None:
            there = after == onto and parent != tree
            results[at or 0] = Updated(name=name, update=Update.THERE if there else Update.NEW)
            if there:
                continue
        new_stack.append(_entry(name, carried, source, after, moved=parent != onto))
        onto = after
    return new_stack, list(map(results.__getitem__, range(len(revisions))))


def insert(
    store: Git,
    upstream: str,
    base: TreeId,
    entries: Sequence[ReconciledEntry],
    new: Sequence[tuple[int, Revision]],
) -> list[ReconciledEntry]:
    """Return the stack with new patches inserted.

    :param new: pairs of a position and a new patch. The position is the number of entries before the new patch.
    :raises ConflictError: if a new patch conflicts or changes nothing at its position, or if a later patch conflicts
        after the insertion.
    """
    result: list[ReconciledEntry] = []
    onto = base
    for index in range(len(entries) + 1):
        for place, revision in new:
            if place != index:
                continue
            after = pick(store, upstream, revision.name, *revision.trees, onto)
            if after == onto:
                message = f"{revision.name} changes nothing at its place"
                raise ConflictError(message, [], hint="an earlier patch makes the same change: leave this patch out")
            result.append(ReconciledEntry(revision.name, replace(revision.info, tree=after)))
            onto = after
        if index < len(entries):
            entry = entries[index]
            parent, tree = _trees(store, base, entry)
            after = pick(store, upstream, entry.name, parent, tree, onto)
            result.append(_entry(entry.name, entry, None, after, moved=parent != onto))
            onto = after
    return result


def _ordered(
    entries: Sequence[ReconciledEntry], count: int, pairs: Mapping[int, str]
) -> list[tuple[ReconciledEntry | None, int | None]]:
    """Return pairs of a patch and the index of its commit, in the new order.

    The patch is None for a new commit; the index is None for a patch that comes from no commit.
    """
    by_name = {entry.name: entry for entry in entries}
    matched = sorted(pairs)
    slots = iter(matched)
    carried = set(pairs.values())
    order: list[tuple[ReconciledEntry | None, int | None]] = []
    for entry in entries:
        if entry.name not in carried:
            order.append((entry, None))
            continue
        index = next(slots)
        if index == matched[0]:
            for new in range(index):
                order.append((None, new))
        order.append((by_name[pairs[index]], index))
        later = index + 1
        while later < count and later not in pairs:
            order.append((None, later))
            later += 1
    return order


def _choose(
    store: Git,
    entry: ReconciledEntry,
    revision: Revision,
    before: Revision | None,
) -> tuple[Update, Revision | None]:
    """Return the result for a matched commit, and the patch's new version if the patch changes.

    :param before: commit from which the patch was imported; None if this commit no longer exists.
    """
    kept = store.patch_ids_of([entry.commit.commit])[0]
    (new,) = _patch_ids(store, [revision])
    text = _text(revision.info)
    own_text = _text(entry.commit)
    if kept == new and text == own_text:
        return Update.EQUAL, None
    old = _patch_ids(store, [before])[0] if before else None
    old_text = _text(before.info) if before else None
    if old is not None and kept not in (old, new) and new != old:
        return Update.DIVERGED, None
    takes_diff = kept != new and new != old
    takes_text = text not in (own_text, old_text)
    if not takes_diff and not takes_text:
        return Update.EQUAL, None
    message = _message(entry.commit.message, revision.info.message if takes_text else "")
    message = _with_origin(message, revision.info.message)
    info = replace(revision.info, message=without_rules(message) if takes_diff else message)
    if takes_diff:
        return Update.CHANGED, replace(revision, info=info)
    before_tree = store.tree_of([entry.commit.parents[0]])[0]
    return Update.CHANGED, replace(revision, before=before_tree, info=replace(info, tree=entry.commit.tree))


def _message(kept: str, new: str) -> str:
    """Return the text of ``new`` with the trailers of ``kept``, followed by trailers that only ``new`` has.

    If ``new`` is empty, return ``kept``.
    """
    text, trailers = split_trailers(clean_message(kept))
    if not new:
        return clean_message(kept)
    text, added = split_trailers(clean_message(new))
    known = {key.lower() for key, _ in parse_trailers(kept)}.intersection(map(str.lower, OURS))
    for line in added:
        if line not in trailers and line.partition(":")[0].lower() not in known:
            trailers.append(line)
    return "\n".join([text.rstrip("\n"), "", *trailers]) + "\n"


def _with_origin(message: str, new: str) -> str:
    """Return ``message`` with the ``Origin:`` of ``new``."""
    origin = _trailer(new, "origin")
    text, trailers = split_trailers(message)
    if not origin:
        return message
    lines = []
    for line in trailers:
        lines.append(f"Origin: {origin}" if line.lower().startswith("origin:") else line)
    return "\n".join([text.rstrip("\n"), "", *lines]) + "\n"


def _entry(
    name: str, entry: ReconciledEntry | None, source: Revision | None, tree: TreeId, *, moved: bool
) -> ReconciledEntry:
    if source:
        return ReconciledEntry(name, replace(source.info, commit=CommitId(""), parents=(), tree=tree))
    assert entry
    if not moved:
        return entry
    return ReconciledEntry(name, replace(entry.commit, commit=CommitId(""), tree=tree))


def _trees(store: Git, base: TreeId, entry: ReconciledEntry | None) -> tuple[TreeId, TreeId]:
    assert entry
    parents = entry.commit.parents
    return (store.tree_of([parents[0]])[0] if parents else base), entry.commit.tree


def _patch_ids(store: Git, revisions: Sequence[Revision]) -> list[str]:
    commits: list[CommitId] = []
    for revision in revisions:
        author = revision.info.author
        parent = store.commit_tree(revision.before, (), author, "before")
        commits.append(store.commit_tree(revision.info.tree, [parent], author, "after"))
    return store.patch_ids_of(commits)


def _text(commit: CommitInfo) -> str:
    return without_trailers(without_rules(mail_safe(commit.message)))


def _subject(commit: CommitInfo) -> str:
    return mail_safe(commit.message).partition("\n")[0]


def _change_id(message: str) -> str:
    return _trailer(message, "change-id")


def _trailer(message: str, wanted: str) -> str:
    """Return the value of the first trailer whose key, in lower case, is ``wanted``; empty if no trailer matches."""
    for key, value in parse_trailers(message):
        if key.lower() == wanted:
            return value
    return ""
