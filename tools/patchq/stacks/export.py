"""Conversion of commits to patch files.

Patches that did not change keep their names and bytes. Fixup commits are folded.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from patchq.errors import Conflict, ConflictError, EditedTreeError, FormatError, UserError, nearest
from patchq.formats.header import Header, mail_safe
from patchq.formats.header import parse as parse_mail
from patchq.formats.series import SUFFIX
from patchq.git.fastimport import commit_trees
from patchq.git.gitlinks import refuse_repositories
from patchq.git.objects import CommitInfo
from patchq.git.replay import pick
from patchq.git.repository import Git
from patchq.git.worktree import branch_of
from patchq.names import AppliedPatch, CommitId, TreeId, sh, show_path
from patchq.project.journal import Change, TreeMove
from patchq.project.project import Project
from patchq.project.stack import MOST_PATCH, Remembered, Stack, State, remember
from patchq.records import dataclass
from patchq.stacks.apply import add_move, current
from patchq.stacks.reconcile import ReconciledEntry, entries_of, reconcile, split_series
from patchq.system import project_files
from patchq.system.paths import find_twins, fold_name

_FOLD = re.compile(r"(fixup|squash|amend)! (.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """New place of a moved patch in its stack."""

    patch: str
    after: str
    passed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """Changes of a command to one stack, by patch name."""

    upstream: str
    written: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: int
    notes: tuple[str, ...] = ()
    moved: Move | None = None


def slug(text: str) -> str:
    """Return a patch name for a subject or file name, without tags and numbers.

    >>> slug("[Bugfix][Attention] Pass o_data_type to plan()"), slug("0003-foo_bar.patch")
    ('pass-o-data-type-to-plan', 'foo-bar')
    """
    text = re.sub(r"^\s*(\[[^\]]*\]\s*)+", "", text)
    text = re.sub(r"\.(patch|diff|mbox|eml)$", "", text)
    text = re.sub(r"^\d+[-_. ]", "", text)
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-") or "patch"


class PatchNames:
    """Patch names that are in use in a stack, for choosing free names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._folded = {fold_name(name) for name in names}
        #: Lowest number to try as the suffix of a name that is in use.
        self._next: dict[str, int] = {}

    def take(self, name: str) -> str:
        """Take and return ``name``, or the first free name of ``name-2``, ``name-3`` and so on.

        Names that differ only in case count as equal.
        """
        found, folded = name, fold_name(name)
        number = self._next.get(folded, 2)
        while fold_name(found) in self._folded:
            found, number = f"{name}-{number}", number + 1
        self._next[folded] = number
        self._folded.add(fold_name(found))
        return found


def files_to_leave(project: Project, upstream: str, include: Collection[str]) -> list[bytes]:
    """Return the ``*.orig`` and ``*.rej`` files that the program ``patch`` left in a worktree.

    Report each file to the user.

    :param include: ``*.orig`` and ``*.rej`` files to export anyway, as paths relative to the worktree.
    :raises UserError: if a path in ``include`` doesn't exist in the worktree.
    """
    worktree = project.worktree(upstream)
    wanted = set()
    for name in include:
        if not os.path.lexists(worktree.path / name):
            raise UserError(f"{upstream}: {name} is not in {worktree.path}", hint="name a path of the worktree")
        wanted.add(os.fsencode(os.path.normpath(name)))
    left = []
    for path in worktree.files_of_patch():
        if path not in wanted:
            left.append(path)
            shown = show_path(path)
            project.say(
                f"{upstream}: left out, because `patch` writes such files: {shown} (`--include {sh(shown)}` adds it)"
            )
    return left


def export(project: Project, upstream: str, *, amend: str = "", include: Collection[str] = ()) -> Exported:
    """Write the worktree's commits back to the stack.

    If patch files were changed since the stack was applied, merge these changes with the commits. Patches
    after the last applied patch stay unchanged.

    :param amend: patch into which uncommitted edits are folded. If ``amend`` is the first patch that isn't applied,
        the edits replace its diff, and its author and message stay the same.
    :param include: ``*.orig`` and ``*.rej`` files to export together with the edits.
    :raises EditedTreeError: if there are edits and ``amend`` is empty.
    :raises ConflictError: if a fixup or a merge with the files on disk conflicts.
    :raises UserError: if the files on disk and the worktree changed the same patch.
    """
    with project.locked("export"):
        stack, state = current(project, upstream)
        worktree = project.worktree(upstream)
        if not amend:
            status = worktree.refuse_edits(state.tip, allow_commits=True, untracked=True)
        else:
            status = worktree.status()
        head = status.head
        assert head
        if status.untracked and not amend:
            project.say(f"{upstream}: not in any patch: {', '.join(status.untracked[:5])}")
        commits = _commits(project.store, state, head, upstream)
        entries = name_commits(project.store, stack, state, commits)
        if not amend:
            found = reconcile(project, stack, state, entries, edits=False)
            folded = fold(project.store, upstream, state.base, found.entries)
            change = Change(verb="export", summary=f"export {upstream}")
            result = write_stack(project, change, stack, state, folded, head, rest=found.rest)
            project.journal.perform(change)
            return result
        leave = files_to_leave(project, upstream, include)
        entries.append(_amendment(project, stack, state, amend, head, leave))
        return take_edits(project, stack, state, head, entries, Change(verb="export", summary=f"export {upstream}"))


def _amendment(
    project: Project, stack: Stack, state: State, name: str, head: CommitId, leave: Collection[bytes]
) -> ReconciledEntry:
    """Commit the worktree's edits as a fixup of an applied patch, or as the next patch of the series."""
    upstream = stack.pin.upstream
    if name not in stack.names:
        raise UserError(
            f"no patch {name} in {upstream}", hint=nearest(name, stack.names, f"`patchq list {upstream}` names them")
        )
    front, rest = split_series(stack, state)
    if name in rest[1:]:
        raise UserError(
            f"{upstream}: {name} is not applied, and neither is {rest[0]}, which comes before it",
            hint=f"`patchq apply {upstream} --fix {name}` applies the patches before it",
        )
    tree = project.worktree(upstream).snapshot(leave=leave)
    if tree == project.store.tree_of([head])[0]:
        commits = f"the worktree has commits that are not in the stack: `patchq export {upstream}` first"
        hint = "edit the worktree first"
        if head != state.tip:
            hint = commits
        raise UserError(f"{upstream}: there are no edits to put into {name}", hint=hint)
    header = stack.load(name)[0]
    author, message = header.author, header.message
    if name in front:
        message = f"fixup! {header.subject}\n"
    commit = project.store.commit_tree(tree, [head], author, message)
    return ReconciledEntry(
        "" if name in front else name,
        CommitInfo(commit=commit, tree=tree, parents=(head,), author=author, message=message),
    )


def take_edits(
    project: Project, stack: Stack, state: State, head: CommitId, entries: Sequence[ReconciledEntry], change: Change
) -> Exported:
    """Write a stack whose last entry contains the worktree's edits.

    If the patch files on disk have changed, first commit the edits to the worktree's branch, in a separate operation.
    If patchq is killed between the two operations, this commit preserves the edits.
    """
    upstream, edits = stack.pin.upstream, entries[-1].commit
    found = reconcile(project, stack, state, entries, edits=all_applied(state, entries[:-1]))
    folded = fold(project.store, upstream, state.base, found.entries)
    rest = list(found.rest)
    if entries[-1].name in rest:
        rest.remove(entries[-1].name)
    tip_tree = folded[-1].commit.tree
    if not found.merged:
        if tip_tree != edits.tree:
            raise ConflictError(
                f"{upstream}: the edits conflict with patches after the amended patch, so they can't be folded",
                [Conflict(upstream=upstream, patch=entries[-1].name, path="", reason="folded tree differs")],
                hint="put the edits into a patch of their own with `patchq new`",
            )
        result = write_stack(project, change, stack, state, folded, head, rest=rest, adopt=True)
        project.journal.perform(change)
        return result
    result = write_stack(project, change, stack, state, folded, edits.commit, rest=rest)
    project.journal.perform(
        Change(
            verb=change.verb,
            summary=f"commit the edits of {upstream}",
            refs=[(branch_of(upstream), head, edits.commit)],
            trees=[TreeMove(upstream, head, edits.commit, True)],
        )
    )
    project.journal.perform(change)
    return replace(result, notes=(*result.notes, "merged with the stack on disk, which changed since it was applied"))


def all_applied(state: State, entries: Sequence[ReconciledEntry]) -> bool:
    """Return whether the entries are exactly the applied patches, without changes."""
    return [e.commit.commit for e in entries] == [p.applied.commit for p in state.patches]


def _commits(store: Git, state: State, head: CommitId, upstream: str) -> list[CommitInfo]:
    base, known = state.base, {p.applied.commit for p in state.patches}
    if store.line("merge-base", base, head, ok_codes=(0, 1)) != base:
        raise EditedTreeError(
            f"{upstream}: the worktree's branch no longer starts at the pinned commit {base[:12]}",
            hint="`git reflog` in the worktree finds the old branch; `git rebase --onto` puts commits back on the base",
        )
    commits = store.log(f"{base}..{head}")
    for commit in commits:
        if len(commit.parents) > 1:
            raise UserError(
                f"{upstream}: {commit.commit[:12]} is a merge; a stack is linear",
                hint=f"run `git rebase {base[:12]}` in the worktree to make it linear",
            )
        if commit.commit not in known:
            where = f"{upstream}: commit {commit.commit[:12]}"
            refuse_repositories(store, where, commit.parents[0], commit.tree, "in the worktree")
    return commits


def name_commits(store: Git, stack: Stack, state: State, commits: Sequence[CommitInfo]) -> list[ReconciledEntry]:
    """Return the commits, each with the name of its patch.

    The patch is found by commit id, then by author and date, then by subject. (``git commit --amend`` changes the
    commit id, but keeps author and date.) Commits are compared with the applied commits, not with the patch files on
    disk. A patch that isn't applied matches only if author, date and subject are equal. A commit without a patch gets
    a new name, made from its subject. The name of a ``fixup!``, ``squash!`` or ``amend!`` commit without a patch is
    empty.
    """
    named: dict[CommitId, str] = {}
    ids = {c.commit for c in commits}
    for p in state.patches:
        if p.applied.commit in ids:
            named[p.applied.commit] = p.applied.name
    headers: dict[str, Header] = {}
    if len(named) < len(commits):
        for e in entries_of(store, state):
            headers[e.name] = Header(e.commit.author, e.commit.message)
    _match_applied(headers, commits, named)
    if len(named) < len(commits):
        _match_unapplied(stack, split_series(stack, state)[1], commits, named)
    taken = PatchNames([*stack.names, *state.names])
    entries = []
    for commit in commits:
        name = named.get(commit.commit, "")
        if not name and not _FOLD.match(commit.message):
            name = taken.take(slug(commit.message.split("\n", 1)[0]))
        entries.append(ReconciledEntry(name, commit))
    return entries


def _match_applied(headers: Mapping[str, Header], commits: Sequence[CommitInfo], named: dict[CommitId, str]) -> None:
    """Add to ``named`` the commits that match an applied patch by author and date, or by subject."""
    left = [name for name in headers if name not in named.values()]
    for same in (_same_author_and_subject, _same_author, _same_subject):
        for commit in commits:
            if commit.commit in named or _FOLD.match(commit.message):
                continue
            found = next((name for name in left if same(headers[name], commit)), "")
            if found:
                named[commit.commit] = found
                left.remove(found)


def _match_unapplied(
    stack: Stack, names: Iterable[str], commits: Sequence[CommitInfo], named: dict[CommitId, str]
) -> None:
    """Add to ``named`` the commits that match an unapplied patch by author, date and subject."""
    for name in names:
        with suppress(FormatError):
            header = stack.load(name)[0]
            for c in commits:
                if c.commit not in named and _same_author_and_subject(header, c):
                    named[c.commit] = name
                    break


def _same_author(header: Header, commit: CommitInfo) -> bool:
    return header.author == commit.author


def _same_subject(header: Header, commit: CommitInfo) -> bool:
    return header.subject == commit.message.split("\n", 1)[0].strip()


def _same_author_and_subject(header: Header, commit: CommitInfo) -> bool:
    return _same_author(header, commit) and _same_subject(header, commit)


def fold(store: Git, upstream: str, base: CommitId, entries: Sequence[ReconciledEntry]) -> list[ReconciledEntry]:
    """Fold ``fixup!``, ``squash!`` and ``amend!`` commits into the commits that their subjects name.

    :raises ConflictError: if a commit conflicts at its new place.
    :raises UserError: if a commit names no earlier commit of the stack.
    """
    if not any(_FOLD.match(e.commit.message) for e in entries):
        return list(entries)
    order: list[tuple[ReconciledEntry, list[ReconciledEntry]]] = []
    for entry in entries:
        match = _FOLD.match(entry.commit.message)
        if not match:
            order.append((entry, []))
            continue
        subject = entry.commit.message.split("\n", 1)[0]
        while inner := _FOLD.fullmatch(subject):
            subject = inner[2]
        for target, folded in order:
            own = target.commit.message.split("\n", 1)[0]
            if own == subject or (len(subject) >= 7 and target.commit.commit.startswith(subject)):
                folded.append(entry)
                break
        else:
            raise UserError(
                f"{upstream}: {entry.commit.message.splitlines()[0]!r} names no patch below it",
                hint="reword it in the worktree (`git commit --amend`), or move it by `git rebase -i`",
            )
    onto = store.tree_of([base])[0]
    trees = {base: onto, **{entry.commit.commit: entry.commit.tree for entry in entries}}
    result: list[ReconciledEntry] = []
    for target, folded in order:
        message = target.commit.message
        for entry in (target, *folded):
            onto = pick(
                store, upstream, entry.name or target.name, trees[entry.commit.parents[0]], entry.commit.tree, onto
            )
            kind = _FOLD.match(entry.commit.message)
            rest = entry.commit.message.partition("\n")[2].strip()
            if kind and kind[1] == "amend" and rest:
                message = rest + "\n"
            elif kind and kind[1] == "squash" and rest:
                message = message.rstrip() + "\n\n" + rest + "\n"
        if not folded:
            commit = target.commit.commit
        else:
            commit = CommitId("")
        result.append(ReconciledEntry(target.name, replace(target.commit, commit=commit, tree=onto, message=message)))
    return result


def write_stack(
    project: Project,
    change: Change,
    stack: Stack,
    state: State,
    entries: Sequence[ReconciledEntry],
    head: CommitId | None,
    *,
    rest: Sequence[str] = (),
    adopt: bool = False,
    move: bool = True,
    made: Collection[str] = (),
) -> Exported:
    """Add to ``change`` the new patch files, series, state and worktree of a stack made of these commits.

    :param head: current commit of the worktree.
    :param rest: patches that follow the entries in the series. Their files stay unchanged.
    :param adopt: True if the worktree's files already contain the new tip's content, as edits.
    :param move: True to move the worktree to the new tip.
    :param made: names of patches whose commits are final and whose diffs did not change. Their files stay
        unchanged.
    :raises UserError: if a message or author would change when it is written to a patch file and read again.
    """
    layout, store = project.layout, project.store
    done, headers = _commit(store, stack, state, entries, made)
    if done:
        tip = done[-1].commit
    else:
        tip = state.base
    tip_tree, base_tree = store.tree_of([tip, state.base])
    done = _mark_empty(done, entries, base_tree)
    # Export patches that applied with an offset or by rule again, because their diffs change.
    moved = set()
    for p in state.patches:
        if p.applied.offsets or p.applied.by_rule:
            moved.add(p.applied.name)
    same = set(made) - moved
    mails = _mails(store, stack, state, done, same)
    written: list[str] = []
    added: list[str] = []
    unchanged = 0
    remembered: list[Remembered] = []
    for applied, header, mail in zip(done, headers, mails, strict=True):
        if applied.name not in same:
            _check_reads_back(stack, applied, header, mail)
        path = stack.relative(layout, applied.name)
        before = project_files.read(layout.root, layout.root / path)
        if before == mail:
            unchanged += 1
        else:
            change.files[path] = mail
            (written if before is not None else added).append(applied.name)
        remembered.append(remember(stack, applied, mail))
    names = list(dict.fromkeys([*(a.name for a in done), *rest]))
    if twins := find_twins(names):
        raise UserError(
            f"{stack.pin.upstream}: the patches {twins[0]} and {twins[1]} are the same file on macOS and Windows",
            hint="give one of them another name",
        )
    kept = set(names)
    removed = [name for name in stack.names if name not in kept]
    for name in removed:
        change.files[stack.relative(layout, name)] = None
    if list(stack.names) != names:
        change.files[stack.series_relative(layout)] = stack.series.with_names(names).dump()
    after = replace(state, tip=tip, tree=tip_tree, patches=tuple(remembered))
    if move:
        add_move(project, change, stack.pin.upstream, head, state, after)
        if adopt:
            change.trees = [TreeMove(t.upstream, t.old, t.new, True) for t in change.trees]
    return Exported(
        upstream=stack.pin.upstream,
        written=tuple(written),
        added=tuple(added),
        removed=tuple(removed),
        unchanged=unchanged,
    )


def _mark_empty(done: Sequence[AppliedPatch], entries: Sequence[ReconciledEntry], below: TreeId) -> list[AppliedPatch]:
    """Set ``empty`` for each patch that doesn't change the tree, and return all patches.

    :param below: tree of the base.
    """
    found = []
    for applied, entry in zip(done, entries, strict=True):
        found.append(replace(applied, empty=entry.commit.tree == below))
        below = entry.commit.tree
    return found


def _commit(
    store: Git, stack: Stack, state: State, entries: Sequence[ReconciledEntry], made: Collection[str]
) -> tuple[list[AppliedPatch], list[Header]]:
    """Commit the entries on the base in order. Keep the existing commits before the first changed entry."""
    headers: list[Header] = []
    tip = state.base
    known = {p.applied.commit for p in state.patches}
    ids: list[CommitId] = []
    for entry in entries:
        message = mail_safe(entry.commit.message)
        if not message:
            raise UserError(
                f"{stack.pin.upstream}: commit {entry.commit.commit[:12]} has no message",
                hint="reword it in the worktree (`git rebase -i`)",
            )
        there = len(ids) == len(headers) and (entry.commit.commit in known or entry.name in made)
        if there and entry.commit.parents == (tip,) and entry.commit.message == message:
            tip = entry.commit.commit
            ids.append(tip)
        headers.append(Header(entry.commit.author, message))
    rest = []
    for entry, header in zip(entries[len(ids) :], headers[len(ids) :], strict=True):
        rest.append((entry.commit.tree, header.author, header.message))
    ids += commit_trees(store, tip, rest)
    done = []
    for entry, commit in zip(entries, ids, strict=True):
        done.append(AppliedPatch(name=entry.name, commit=commit))
    return done, headers


def _mails(store: Git, stack: Stack, state: State, done: Sequence[AppliedPatch], same: Collection[str]) -> list[bytes]:
    """Return the patch file of each commit. Read the files of unchanged patches from disk."""
    count = sum(a.name not in same for a in done)
    written = []
    # One git process writes all patches. For a few patches, one process for each is faster.
    if count * 20 > len(done):
        written = format_patches(store, state.base, done[-1].commit, len(done))
    mails: list[bytes] = []
    for number, a in enumerate(done):
        if a.name in same:
            mails.append(stack.read(a.name))
        elif written:
            mails.append(written[number])
        else:
            mails += format_patches(store, CommitId(f"{a.commit}^"), a.commit, 1)
    return mails


def format_patches(store: Git, base: CommitId, tip: CommitId, count: int) -> list[bytes]:
    """Return the patch files of ``base..tip``, oldest first, from one ``git format-patch``.

    :raises UserError: if a patch file would exceed the size limit.
    """
    if not count:
        return []
    with tempfile.TemporaryDirectory(prefix="patchq-") as folder:
        store.format_patches(f"{base}..{tip}", Path(folder))
        files = sorted(Path(folder).iterdir(), key=lambda f: int(f.name.split("-")[0]))
        assert len(files) == count, "git wrote a different number of patches than there are commits"
        for file in files:
            if (size := file.stat().st_size) > MOST_PATCH:
                raise UserError(
                    f"{slug(file.stem.partition('-')[2])} would be a patch of {size} bytes; the limit is {MOST_PATCH}",
                    hint="leave large generated files out of the patch, and add the script that generates them instead",
                )
        return [file.read_bytes() for file in files]


def _check_reads_back(stack: Stack, applied: AppliedPatch, header: Header, mail: bytes) -> None:
    found, _ = parse_mail(mail, applied.name + SUFFIX)
    if found != header:
        raise UserError(
            f"{stack.pin.upstream}: the message or author of {applied.name} would change when written to a patch file",
            hint="reword the commit in the worktree; use plain text and a one-line subject",
        )
