"""Import a branch again: update the stack's patches from the branch's commits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchq.adopt.fit import Item, drop_commands, merge_conflict
from patchq.adopt.found import FoundPatch, ItemOutcome
from patchq.adopt.gather import AdoptRequest, of_commits
from patchq.editing.update import Revision, Update, Updated, origin_id, pair, update
from patchq.errors import Conflict, ConflictError, PatchqError
from patchq.formats.lock import Pin
from patchq.git.borrow import borrow
from patchq.git.objects import CommitInfo
from patchq.git.repository import Foreign
from patchq.names import CommitId, counted, sh
from patchq.project.project import Project
from patchq.project.refs import version_of
from patchq.stacks.edit import Loaded
from patchq.stacks.export import PatchNames, slug
from patchq.stacks.reconcile import ReconciledEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Stack after a repeated import of a branch.

    :ivar items: outcomes of the commits, then of the patches in ``gone``. Patches in ``lost`` are not included.
    :ivar lost: patches of the stack that conflict with the branch's commits. They are not in ``entries``.
    :ivar gone: names of all patches that the branch no longer has.
    """

    entries: list[ReconciledEntry]
    items: tuple[Item, ...]
    lost: tuple[Item, ...] = ()
    gone: tuple[str, ...] = ()


def import_again(
    project: Project,
    loaded: Loaded,
    found: Sequence[FoundPatch],
    request: AdoptRequest,
    commit_of: Callable[[FoundPatch], CommitInfo],
) -> Again | None:
    """Update the stack's patches from the commits of a range.

    Return None if no commit of the range belongs to a patch of the stack.

    :param commit_of: function that returns the author and message with which a patch would be added to the stack.
    :raises ConflictError: if a patch whose commit is unchanged conflicts with the other commits.
    """
    (path,) = request.paths
    folder, store = path.resolve(), project.store
    names = PatchNames(loaded.names)
    revisions = [_revision(one, commit_of(one)) for one in found]
    pairs = pair(store, loaded.entries, revisions, folder.name)
    if not pairs:
        return None
    for index in range(len(revisions)):
        if index not in pairs:
            revisions[index] = replace(revisions[index], name=names.take(revisions[index].name))

    def original(entry: ReconciledEntry) -> Revision | None:
        commit = origin_id(entry.commit.message, folder.name)
        try:
            commits = borrow(store, folder, f"{commit}^", commit) if commit else []
        except PatchqError:
            return None  # git has deleted the old commit since the rebase
        if len(commits) != 1 or len(commits[0].info.parents) != 1:
            return None
        (old,) = of_commits(project, commits, str(folder), folder.name)
        return _revision(old, commit_of(old))

    gone = _gone(folder, request.git_range, loaded.entries, pairs.values())
    upstream, base = loaded.stack.pin.upstream, store.tree_of([loaded.state.base])[0]
    kept, lost = list(loaded.entries), []
    while True:
        try:
            entries, updates = update(store, upstream, base, kept, revisions, pairs, original)
            break
        except ConflictError as error:
            item = _lost(upstream, error)
            if item.name in pairs.values():
                message = f"{item.where}: {item.detail}; nothing was changed"
                raise _conflict(message, error.conflicts, upstream, gone) from None
            lost.append(item)
            kept = [entry for entry in kept if entry.name != item.name]
    items = [_item(upstream, one, result) for one, result in zip(found, updates, strict=True)]
    named = {item.name for item in lost}
    for name in gone:
        if name in named:
            continue
        detail = (
            f"the branch no longer contains the patch's commit; to drop the patch: `patchq drop {upstream}/{sh(name)}`"
        )
        items.append(Item(name=name, where=f"{upstream}/{name}", outcome=ItemOutcome.GONE, detail=detail))
    return Again(entries=entries, items=tuple(items), lost=tuple(lost), gone=tuple(gone))


def _lost(upstream: str, error: ConflictError) -> Item:
    """Return the outcome of a patch of the stack that conflicts with the branch's commits."""
    name = error.conflicts[0].patch
    paths = ", ".join(conflict.path for conflict in error.conflicts)
    detail = f"the patch conflicts with the branch's new commits in {paths}"
    return Item(
        name=name,
        where=f"{upstream}/{name}",
        outcome=ItemOutcome.CONFLICT,
        detail=detail,
        conflicts=tuple(error.conflicts),
    )


def refuse_conflicts(upstream: str, again: Again, *, partial: bool) -> None:
    """Raise an error if the repeated import of a branch has conflicts.

    :param partial: accept conflicting commits, and leave their patches unchanged. Conflicting patches of the stack are
        still an error.
    :raises ConflictError: if a commit of the branch or a patch of the stack conflicts.
    """
    lines = []
    conflicts: list[Conflict] = []
    for item in (*again.items, *again.lost):
        if item.outcome == ItemOutcome.CONFLICT:
            lines.append(f"{item.where}: {item.detail}")
            conflicts += item.conflicts
    if not lines or (partial and not again.lost):
        return
    lost = [item.name for item in again.lost]
    raise _conflict("\n".join(lines) + "\nnothing was changed", conflicts, upstream, again.gone, lost)


def _conflict(
    message: str, conflicts: Sequence[Conflict], upstream: str, gone: Sequence[str], lost: Sequence[str] = ()
) -> ConflictError:
    """Return the error for conflicts, with a hint.

    :param gone: patches whose commits the branch no longer contains.
    :param lost: patches of the stack that conflict.
    """
    if gone:
        hint = f"the branch no longer has {', '.join(gone)}: `{drop_commands(upstream, gone)}`, then import again"
    elif lost:
        hint = (
            f"`{drop_commands(upstream, lost)}`, import again, make the change of {', '.join(lost)} in the worktree, "
            f"then `patchq new {upstream} {sh(lost[0])}`"
        )
    else:
        name = next((c.patch for c in conflicts if c.patch), "")
        hint = (
            f"`patchq apply {upstream} --fix {sh(name)}`, make the change in the worktree, then "
            f"`patchq export {upstream} --amend {sh(name)}`; --partial updates the others"
        )
    return ConflictError(message, conflicts, hint=hint)


def _revision(found: FoundPatch, info: CommitInfo) -> Revision:
    assert found.trees
    commit = CommitId(found.origin.rpartition("@")[2])
    return Revision(name=found.name, before=found.trees[0], info=replace(info, commit=commit, tree=found.trees[1]))


def _gone(folder: Path, git_range: str, entries: Sequence[ReconciledEntry], carried: Collection[str]) -> list[str]:
    """Return the names of the patches whose commit is no longer in any branch of the repository."""
    source, last = Foreign(folder), git_range.partition("..")[2].lstrip(".") or "HEAD"
    names = []
    for entry in entries:
        commit = origin_id(entry.commit.message, folder.name)
        if not commit or entry.name in carried:
            continue
        if source.ask("merge-base", "--is-ancestor", commit, last).returncode == 0:
            continue
        branches = source.ask("for-each-ref", "--count=1", f"--contains={commit}", "refs/heads")
        if branches.returncode or not branches.stdout.strip():
            names.append(entry.name)
    return names


def _item(upstream: str, found: FoundPatch, result: Updated) -> Item:
    detail = ""
    if result.unchecked:
        detail = (
            "the commit of the last import no longer exists, so patchq can't find the edits that the patch got since "
            "then, and replaces them; `patchq undo` restores them"
        )
    conflicts: tuple[Conflict, ...] = ()
    if result.update is Update.THERE:
        outcome, detail = ItemOutcome.LEFT_OUT, "the tree already has the commit's change"
    elif result.update is Update.DIVERGED:
        outcome = ItemOutcome.CONFLICT
        detail = f"since the last import, the diff was changed both in the branch and in {upstream}/{result.name}"
        conflicts = (Conflict(upstream=upstream, patch=result.name, path="", reason="both changed it"),)
    else:
        outcome = ItemOutcome(result.update.value)
    if result.error:
        detail = merge_conflict(result.error)
        conflicts = tuple(result.error.conflicts)
    return Item(
        name=result.name, where=found.where, outcome=outcome, detail=detail, notes=found.notes, conflicts=conflicts
    )


def range_start(project: Project, loaded: Loaded, request: AdoptRequest, set_name: str) -> tuple[str, str]:
    """Return the place where a range starts, such as ``2 commits after v1.2``, and a command to import it there.

    Both are empty if the range starts at the pinned release.
    """
    pin, (path,) = loaded.stack.pin, request.paths
    upstream, folder = pin.upstream, path.resolve()
    source = Foreign(folder)
    first, _, last = request.git_range.partition("..")
    last = last.lstrip(".") or "HEAD"
    base = _line(source, "merge-base", first, last)
    tag = _line(source, "describe", "--tags", "--abbrev=0", base) if base else ""
    above = int(_line(source, "rev-list", "--count", f"{tag}..{base}") or 0) if tag else 0
    is_pinned = bool(tag) and (source.ref_or_none(f"{tag}^{{commit}}") == pin.commit or _is_version(tag, pin.ref))
    if not base or base == pin.commit or (is_pinned and not above):
        return "", ""
    start = f"at the commit {base[:12]}"
    if tag:
        start = f"{counted(above, 'commit')} after {tag}" if above else f"at {tag}"
    set_option = project.set_option(set_name)
    if is_pinned:
        return start, f"patchq import {upstream} {sh(folder)} --range {sh(f'{tag}..{last}')}{set_option}"
    if loaded.entries:
        set_option = f" --set {sh(f'{set_name}-{upstream}-{slug(tag or base[:12])}')}"
    importing = f"patchq import {upstream} {sh(folder)} --range {sh(request.git_range)}"
    return start, f"{_pin_command(pin, folder, tag, base)}{set_option} && {importing}{set_option}"


def _is_version(tag: str, ref: str) -> bool:
    version = version_of(tag)
    return version is not None and version == version_of(ref)


def _pin_command(pin: Pin, folder: Path, tag: str, base: str) -> str:
    """Return the command that pins an upstream at a tag; without a tag, at a commit."""
    upstream, version = pin.upstream, version_of(tag)
    if tag and not pin.url and version and "==" in pin.archive:
        archive = f"{pin.archive.partition('==')[0]}=={version}"
        return f"patchq pin {upstream} --archive {sh(archive)} --ref {sh(version)}"
    options = ["--ref", tag] if tag else ["--ref", base, "--commit", base]
    if not pin.url:
        options = ["--url", str(folder), *options]
    return f"patchq pin {upstream} {' '.join(map(sh, options))}"


def _line(source: Foreign, *argv: str) -> str:
    """Return the output of a git command; empty if it fails."""
    done = source.ask(*argv)
    return "" if done.returncode else done.stdout.decode("utf-8", "surrogateescape").strip()
