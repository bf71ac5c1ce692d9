"""Edits of a stack: add, drop and move patches, and set their upstream status."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from patchq import __version__
from patchq.errors import ConflictError, UserError
from patchq.formats.header import Ident, mail_safe, with_trailer
from patchq.formats.ledger import Attempt
from patchq.formats.outcomes import Outcome
from patchq.formats.series import SUFFIX
from patchq.git import person
from patchq.git.objects import CommitInfo
from patchq.git.repository import Git
from patchq.names import CommitId, TreeId
from patchq.patterns.regenerate import RuleStop, count
from patchq.patterns.rules import Rule, with_rules
from patchq.patterns.trees import StoredTree, write_tree
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.project.stack import Stack, State, find_patch, ledger_with, load_stack, load_state
from patchq.records import dataclass
from patchq.stacks._reorder import reorder
from patchq.stacks.apply import bases_of, current, plan
from patchq.stacks.export import Exported, Move, files_to_leave, take_edits, write_stack
from patchq.stacks.reconcile import ReconciledEntry, entries_of
from patchq.system import fsio
from patchq.system.paths import check_name


def user_ident(project: Project, author: str = "") -> Ident:
    """Return the given author ``Name <email>``, or git's configured user, with the current time.

    :raises UserError: if the author is malformed, or git has no configured user.
    """
    match = re.fullmatch(r"\s*(.+?)\s*<([^<>]+)>\s*", author)
    if author and not match:
        raise UserError(f"{author!r} is not 'Name <email>'", hint="--author 'Name <email>'")
    found = person.author(project.layout.root, *(match.groups() if match else ()))
    if not found:
        raise UserError(
            "git has no name and email for you",
            hint="git config --global user.name 'Jane Roe' && git config --global user.email jane@example.org, "
            "with your name and address; or --author 'Jane Roe <jane@example.org>'",
        )
    return found


def new(
    project: Project,
    upstream: str,
    name: str,
    *,
    message: str = "",
    topic: str = "",
    proof: str = "",
    author: str = "",
    signoff: bool = False,
    allow_empty: bool = False,
    include: Collection[str] = (),
) -> Exported:
    """Make a patch from the worktree's edits, on top of the applied patches.

    :param allow_empty: make an empty patch if there are no edits.
    :param include: ``*.orig`` and ``*.rej`` files to include in the patch. By default, such files are left
        out.
    :raises UserError: if the name is taken or invalid, or if there are no edits.
    """
    check_name(name, "a patch")
    with project.locked("new"):
        stack, state = current(project, upstream)
        if name in stack.names:
            raise UserError(
                f"{upstream} has a patch {name} already",
                hint=f"`patchq export --amend {name}` adds the edits to that patch",
            )
        worktree = project.worktree(upstream)
        head = worktree.head()
        if head != state.tip:
            raise UserError(
                f"{upstream}: the worktree has commits that are not in the stack",
                hint=f"`patchq export {upstream}` first",
            )
        tree = worktree.snapshot(leave=files_to_leave(project, upstream, include))
        if tree == state.tree and not allow_empty:
            raise UserError(
                f"{upstream}: nothing was edited, so {name} would change nothing",
                hint=f"edit files in {worktree.path} first, or use `--allow-empty`",
            )
        ident = user_ident(project, author)
        text = with_trailers(message or name.replace("-", " ").capitalize(), topic, proof, ident if signoff else None)
        entries = [
            *entries_of(project.store, state),
            ReconciledEntry(name, _info(project.store, tree, state.tip, ident, text)),
        ]
        return take_edits(project, stack, state, head, entries, Change(verb="new", summary=f"new {upstream}/{name}"))


def new_by_rule(
    project: Project,
    upstream: str,
    name: str,
    rule: Rule,
    *,
    counted: bool = True,
    message: str = "",
    topic: str = "",
    proof: str = "",
    author: str = "",
    signoff: bool = False,
    set_name: str = "",
) -> Exported:
    """Apply a rule on top of the stack, and make a patch from the changes. The patch's message contains the rule.

    :param counted: True if the rule states its number of matches. If False, count the matches and add the number to
        the rule.
    :raises UserError: if the name is taken, or if the number of matches differs from the number that the rule states.
    :raises EditedTreeError: if the stack's worktree contains edits or commits of the user.
    """
    check_name(name, "a patch")
    set_name = project.choose_set(set_name)
    with project.locked("new"):
        (stack,) = project.stacks(set_name, [upstream])
        if name in stack.names:
            raise UserError(f"{upstream} has a patch {name} already", hint="choose another name")
        loaded = load(project, stack, set_name)
        tip = loaded.state.tip
        try:
            found = count(rule, StoredTree(project.store, tip))
            if not counted:
                rule = found
            tree = write_tree([rule], project.store, tip)
        except RuleStop as stop:
            raise UserError(
                f"{upstream}: {stop}", hint="correct the pattern, `--files` or `--times`; nothing was changed"
            ) from None
        ident = user_ident(project, author)
        text = with_trailers(message or name.replace("-", " ").capitalize(), topic, proof, ident if signoff else None)
        info = _info(project.store, tree, tip, ident, with_rules(text, [rule]))
        change = Change(verb="new", summary=f"new {upstream}/{name}")
        entries = [*loaded.entries, ReconciledEntry(name, info)]
        result = write_stack(project, change, stack, loaded.state, entries, loaded.head, move=loaded.follows)
        project.journal.perform(change)
        note = f"{name}: {rule.times} matches in {found.changed} files"
        return replace(result, notes=(*result.notes, note))


def with_trailers(message: str, topic: str, proof: str, signer: Ident | None) -> str:
    text = message.rstrip() + "\n"
    for key, value in (("Upstream-Status", "Pending"), ("Topic", topic), ("Proof", proof)):
        if value and not re.search(rf"^{key}:", text, re.MULTILINE):
            text = with_trailer(text, key, value)
    if signer and f"Signed-off-by: {signer.name} <{signer.email}>" not in text:
        text = with_trailer(text, "Signed-off-by", f"{signer.name} <{signer.email}>")
    return text


def _info(store: Git, tree: TreeId, parent: CommitId, author: Ident, message: str) -> CommitInfo:
    commit = store.commit_tree(tree, [parent], author, mail_safe(message))
    return CommitInfo(commit=commit, tree=tree, parents=(parent,), author=author, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Stack whose patches are committed in the store.

    :ivar head: commit that is checked out in the worktree.
    :ivar follows: True if this stack is applied in the worktree. Then the worktree must be updated after each change.
    """

    stack: Stack
    state: State
    entries: list[ReconciledEntry]
    head: CommitId | None
    follows: bool

    @property
    def names(self) -> list[str]:
        """Names of the patches, in order."""
        return [entry.name for entry in self.entries]


def load(project: Project, stack: Stack, set_name: str, *, offline: bool = False) -> Loaded:
    """Commit the whole stack in the store.

    :raises EditedTreeError: if the stack's worktree contains edits or commits of the user.
    """
    upstream = stack.pin.upstream
    before = load_state(project.layout, upstream)
    worktree = project.worktree(upstream)
    same = before is not None and before.ref == stack.pin.ref
    if same:
        head = worktree.refuse_edits(before.tip if before else None).head
    else:
        head = worktree.head()
    base = bases_of(project, [stack], {upstream: before}, offline)[0]
    state = plan(project, stack, base, before, set_name).after
    return Loaded(
        stack=stack, state=state, entries=entries_of(project.store, state), head=head, follows=same and head is not None
    )


def _rewrite(
    project: Project, loaded: Loaded, entries: Sequence[ReconciledEntry], change: Change, moved: str
) -> Exported:
    """Write a stack from which a patch was removed, or in which it has another place.

    :param entries: the stack's patches in their new order.
    :param moved: name of that patch.
    """
    base, upstream = loaded.state.base, loaded.stack.pin.upstream
    carried, same = reorder(project.store, upstream, base, loaded.entries, entries, moved)
    result = write_stack(
        project, change, loaded.stack, loaded.state, carried, loaded.head, move=loaded.follows, made=same
    )
    project.journal.perform(change)
    return result


def drop(project: Project, patch: str, *, why: str = "", set_name: str = "") -> Exported:
    """Remove a patch from its stack and rebase the patches above it.

    If the patch can't be applied, only remove its file and its line in the series.

    :param why: reason to record in the ledger.
    :raises UserError: if ``Requires:`` of another patch names the patch.
    :raises ConflictError: if a patch above needs it.
    """
    set_name = project.choose_set(set_name)
    with project.locked("drop"):
        stacks = project.stacks(set_name)
        stack, name = find_patch(stacks, patch)
        full = f"{stack.pin.upstream}/{name}"
        for other in stacks:
            for its_name in other.names:
                # Parsing is slow, and few patches mention the dropped one.
                if its_name == name or full.encode() not in other.read(its_name):
                    continue
                if full in other.load(its_name)[0].values("Requires"):
                    raise UserError(
                        f"{other.pin.upstream}/{its_name} requires {full}",
                        hint=f"drop {its_name} first, or remove {full} from the `Requires:` of {its_name}",
                    )
        change = Change(verb="drop", summary=f"drop {full}")
        if not stack.path(name).exists():
            return _take_from_series(project, change, stack, name, why, "its file was missing")
        try:
            loaded = load(project, stack, set_name)
        except ConflictError as error:
            broken = []
            for c in error.conflicts:
                if c.patch in stack.names:
                    broken.append(stack.names.index(c.patch))
            if not broken or stack.names.index(name) < min(broken):
                raise
            return _take_from_series(project, change, stack, name, why, "the stack did not apply from this patch on")
        [gone] = [e for e in loaded.entries if e.name == name]
        _note_withdrawn(project, change, stack, name, gone.commit.commit, why)
        return _rewrite(project, loaded, [e for e in loaded.entries if e.name != name], change, name)


def _take_from_series(project: Project, change: Change, stack: Stack, name: str, why: str, message: str) -> Exported:
    """Remove a patch from the series of a stack that can't be applied, and delete its file."""
    rest = [n for n in stack.names if n != name]
    change.files[stack.relative(project.layout, name)] = None
    change.files[stack.series_relative(project.layout)] = stack.series.with_names(rest).dump()
    _note_withdrawn(project, change, stack, name, "", why)
    project.journal.perform(change)
    notes = (f"{message}; the other files are unchanged",)
    return Exported(
        upstream=stack.pin.upstream, written=(), added=(), removed=(name,), unchanged=len(rest), notes=notes
    )


def _note_withdrawn(project: Project, change: Change, stack: Stack, name: str, commit: str, why: str) -> None:
    if not why:
        return
    pid = ""
    if commit:
        pid = project.store.patch_ids_of([CommitId(commit)])[0]
    attempt = Attempt(
        patch=name,
        patch_id=pid or "0" * 40,
        from_ref=stack.pin.ref,
        onto=stack.pin.ref,
        outcome=Outcome.WITHDRAWN,
        tool=f"patchq {__version__}",
        time=fsio.utc_now(),
        how=why,
    )
    change.files.update(ledger_with(project.layout, stack.pin.upstream, [attempt]))


def move(project: Project, patch: str, *, before: str = "", after: str = "", set_name: str = "") -> Exported:
    """Move a patch directly before or after another patch of its stack.

    Without ``before`` and ``after``, make it the first patch.

    :raises ConflictError: if a patch conflicts in the new order.
    """
    set_name = project.choose_set(set_name)
    with project.locked("move"):
        stack, name = find_patch(project.stacks(set_name), patch)
        loaded = load(project, stack, set_name)
        moving = next(e for e in loaded.entries if e.name == name)
        rest = [e for e in loaded.entries if e.name != name]
        at = 0
        if before or after:
            anchor = (before or after).removesuffix(SUFFIX).rpartition("/")[2]
            places = [i for i, e in enumerate(rest) if e.name == anchor]
            if not places:
                raise UserError(
                    f"{anchor} is not another patch of {stack.pin.upstream}", hint="`patchq list` names them"
                )
            at = places[0] + bool(after)
        order = [*rest[:at], moving, *rest[at:]]
        found = _rewrite(project, loaded, order, Change(verb="move", summary=f"move {stack.pin.upstream}/{name}"), name)
        if order == loaded.entries:
            return found
        below = ""
        if at:
            below = order[at - 1].name
        return replace(found, moved=Move(patch=name, after=below, passed=abs(at - loaded.entries.index(moving))))


def set_upstream_status(project: Project, upstream: str, names: Sequence[str], value: str) -> list[str]:
    """Set the ``Upstream-Status:`` of patches in each stack that contains them, on any ref.

    :param value: value of the trailer, such as ``Submitted [https://…]``.
    :returns: the refs of the changed stacks.
    :raises EditedTreeError: if an applied stack's worktree contains changes that aren't in the stack.
    """
    with project.locked("pr"):
        change = Change(verb="pr", summary=f"{upstream}: {value}")
        changed = []
        for pin in project.lock.upstreams[upstream].pins.values():
            stack = load_stack(project.layout, pin)
            if not set(names) & set(stack.names):
                continue
            loaded = load(project, stack, project.choose_set(""))
            entries = []
            for e in loaded.entries:
                if e.name in names:
                    entries.append(_with_status(e, value))
                else:
                    entries.append(e)
            if entries != loaded.entries:
                write_stack(project, change, stack, loaded.state, entries, loaded.head, move=loaded.follows)
                changed.append(pin.ref)
        if changed:
            project.journal.perform(change)
        return changed


def _with_status(entry: ReconciledEntry, value: str) -> ReconciledEntry:
    trailer = f"Upstream-Status: {value}"
    message = re.sub(r"^Upstream-Status:.*$", lambda _: trailer, entry.commit.message, count=1, flags=re.MULTILINE)
    if message == entry.commit.message:
        return entry
    return ReconciledEntry(entry.name, replace(entry.commit, commit=CommitId(""), message=message))
