"""The command ``apply``: commit all stacks of a set in their worktrees. If one stack fails, change no worktree."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from patchq.errors import UserError
from patchq.formats.header import parse as parse_mail
from patchq.git.objects import CommitInfo
from patchq.git.worktree import branch_of
from patchq.names import AppliedPatch, CommitId, StackResult, TreeId
from patchq.project.journal import Change, TreeMove
from patchq.project.project import Project
from patchq.project.stack import Remembered, Stack, State, find_patch, load_stack, load_state, pin_key
from patchq.records import dataclass
from patchq.sources.bases import Base
from patchq.system import fsio, runner


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPlan:
    """Planned result of applying one stack. No worktree has been changed yet.

    :ivar reused: number of patches whose existing commits are kept.
    """

    stack: Stack
    before: State | None
    after: State
    reused: int
    total: int

    @property
    def result(self) -> StackResult:
        """Result of the plan, as reported to the user."""
        a = self.after
        changed = self.before is None or self.before.tip != a.tip or self.before.set_name != a.set_name
        return StackResult(
            upstream=self.stack.pin.upstream,
            ref=a.ref,
            base=a.base,
            tip=a.tip,
            tree=a.tree,
            source=a.source,
            patches=tuple(p.applied for p in a.patches),
            total=self.total,
            changed=changed,
        )


def apply(
    project: Project,
    names: Sequence[str] = (),
    *,
    set_name: str = "",
    to: str = "",
    before: str = "",
    offline: bool = False,
) -> list[StackResult]:
    """Apply all stacks of a set, or the named ones.

    :param to: last patch to apply in its stack.
    :param before: first patch not to apply in its stack.
    :raises ConflictError: if a patch doesn't apply. All worktrees stay unchanged.
    :raises EditedTreeError: if a worktree contains changes that aren't in its stack.
    """
    with project.locked("apply"):
        set_name = project.choose_set(set_name)
        stacks = project.stacks(set_name, names)
        stop = _find_stop(stacks, to, before)
        if names and (missing := _missing_parents(project, stacks, names)):
            stacks = project.stacks(set_name, [*names, *missing])
        states = _load_states(project, stacks)
        trees = {}
        for name, state in states.items():
            trees[name] = (project.worktree(name), state.tip if state else None)
        # git status takes most of the time if nothing changed, so all worktrees run it in parallel.
        heads = runner.in_threads(lambda item: item[0].refuse_edits(item[1]).head, trees.values())
        heads_by_name = dict(zip(trees, heads, strict=True))
        bases = bases_of(project, stacks, states, offline)
        plans = []
        for stack, base in zip(stacks, bases, strict=True):
            plans.append(
                plan(project, stack, base, states[stack.pin.upstream], set_name, count=stop.get(stack.pin.upstream))
            )
        _perform(project, plans, heads_by_name)
    return [p.result for p in plans]


def _missing_parents(project: Project, stacks: Sequence[Stack], names: Sequence[str]) -> set[str]:
    """Return the parents of nested upstreams that aren't in ``names`` and have no worktree yet."""
    found = set()
    for stack in stacks:
        into = project.lock.upstreams[stack.pin.upstream].into
        if into and into[0] not in names and not project.worktree(into[0]).exists:
            found.add(into[0])
    return found


def _load_states(project: Project, stacks: Sequence[Stack]) -> dict[str, State | None]:
    """Return the saved state of each stack's upstream, by upstream."""
    return {s.pin.upstream: load_state(project.layout, s.pin.upstream) for s in stacks}


def _find_stop(stacks: Sequence[Stack], to: str, before: str) -> dict[str, int]:
    """Return ``{upstream: number of patches to apply}`` for the stack that contains the patch ``to`` or ``before``.

    Return an empty dictionary if ``to`` and ``before`` are empty.
    """
    if not to and not before:
        return {}
    stack, name = find_patch(list(stacks), to or before)
    return {stack.pin.upstream: stack.names.index(name) + bool(to)}


def bases_of(project: Project, stacks: Sequence[Stack], states: dict[str, State | None], offline: bool) -> list[Base]:
    """Return the base of each stack. Read the base from the saved state if this state is valid, else fetch it."""
    known: dict[str, Base] = {}
    for stack in stacks:
        state = states[stack.pin.upstream]
        # With a keyring, the fetcher checks that this keyring verified the pin.
        signed = project.lock.upstreams[stack.pin.upstream].keyring
        if state and state.ref == stack.pin.ref and state.pin_key == pin_key(stack.pin) and not signed:
            known[stack.pin.upstream] = Base(stack.pin, state.base, state.source)
    rest = []
    for stack in stacks:
        if stack.pin.upstream not in known:
            rest.append(stack.pin)
    if rest:
        from patchq.sources.pins import Fetcher

        fetcher = Fetcher(project.layout, project.lock, say=project.say, offline=offline, progress=project.progress)
        for base in fetcher.fetch(rest):
            known[base.pin.upstream] = base
    return [known[s.pin.upstream] for s in stacks]


def plan(
    project: Project, stack: Stack, base: Base, before: State | None, set_name: str, *, count: int | None = None
) -> ApplyPlan:
    """Commit a stack in the store, and reuse unchanged commits of the state ``before``. Change no worktree.

    :param count: number of patches to apply; None for all.
    :raises ConflictError: for the first patch that doesn't apply.
    """
    names = stack.names[:count]
    reused = _reuse(stack, names, base, before)
    fresh: list[Remembered] = []
    if reused:
        tip = reused[-1].applied.commit
    else:
        tip = base.commit
    if len(reused) < len(names):
        fresh = _commit(project, stack, names[len(reused) :], tip)
        tip = fresh[-1].applied.commit
    if before and before.tip == tip:
        tree = before.tree
    else:
        tree = TreeId(project.store.tree_of([tip])[0])
    after = State(
        set_name=set_name,
        ref=stack.pin.ref,
        pin_key=pin_key(stack.pin),
        base=base.commit,
        source=base.source,
        tip=tip,
        tree=tree,
        patches=(*reused, *fresh),
    )
    return ApplyPlan(stack=stack, before=before, after=after, reused=len(reused), total=len(stack.names))


def _commit(project: Project, stack: Stack, names: Sequence[str], tip: CommitId) -> list[Remembered]:
    """Commit patches on top of ``tip``.

    :raises ConflictError: for the first patch that doesn't apply.
    """
    # Imported here, because most runs of `apply` have nothing to commit.
    from patchq.stacks.engine import Engine, Incoming

    fresh: list[Remembered] = []
    incoming: list[Incoming] = []
    for name in names:
        path = stack.path(name)
        data = stack.read(name)
        header, text = parse_mail(data, str(path))
        incoming.append(Incoming(name=name, header=header, diff=text, where=str(path)))
        placeholder = AppliedPatch(name=name, commit=CommitId(""), empty=not text.strip())
        fresh.append(Remembered(placeholder, fsio.stat_key(path), hashlib.sha256(data).hexdigest()))
    engine = Engine(project.store, stack.pin.upstream, project.lock.nested_in(stack.pin.upstream))
    for number, applied in enumerate(engine.apply(tip, incoming)):
        patch = fresh[number]
        fresh[number] = replace(patch, applied=replace(applied, empty=patch.applied.empty))
    return fresh


def _reuse(stack: Stack, names: Sequence[str], base: Base, before: State | None) -> list[Remembered]:
    """Return the longest unchanged prefix of the applied patches.

    A file whose stat data changed is compared by content.
    """
    if before is None or before.base != base.commit:
        return []
    found: list[Remembered] = []
    for name, old in zip(names, before.patches, strict=False):
        if name != old.applied.name:
            break
        try:
            key = fsio.stat_key(stack.path(name))
        except FileNotFoundError:
            break
        if key != old.key:
            if hashlib.sha256(stack.read(name)).hexdigest() != old.sha256:
                break
            old = Remembered(old.applied, key, old.sha256)
        found.append(old)
    return found


@dataclass(frozen=True, slots=True)
class Carried:
    """Stack whose patches are committed in the store. It need not be applied in the worktree."""

    stack: Stack
    base: CommitId
    commits: tuple[tuple[str, CommitInfo], ...]

    @property
    def names(self) -> list[str]:
        """Return the names of the patches, in the order in which they apply."""
        return [name for name, _ in self.commits]


def carried_stacks(project: Project, stacks: Sequence[Stack], set_name: str) -> list[Carried]:
    """Commit whole stacks in the store, without changing worktrees.

    :raises ConflictError: for the first patch that doesn't apply.
    """
    states = _load_states(project, stacks)
    found = []
    for stack, base in zip(stacks, bases_of(project, stacks, states, False), strict=True):
        after = plan(project, stack, base, states[stack.pin.upstream], set_name).after
        infos = []
        if after.patches:
            infos = project.store.log(f"{base.commit}..{after.tip}")
        found.append(Carried(stack, base.commit, tuple(zip(after.names, infos, strict=True))))
    return found


def _perform(project: Project, plans: Sequence[ApplyPlan], heads: dict[str, CommitId | None]) -> None:
    change = Change(verb="apply", summary="apply " + " ".join(p.stack.pin.upstream for p in plans))
    for item in plans:
        add_move(project, change, item.stack.pin.upstream, heads[item.stack.pin.upstream], item.before, item.after)
    project.journal.perform(change)
    if any(p.reused < len(p.after.patches) for p in plans):
        project.store.join_packs()


def add_move(
    project: Project, change: Change, upstream: str, head: CommitId | None, before: State | None, after: State
) -> None:
    """Add the moves of a worktree, its branch and its state to the operation ``change``."""
    branch = branch_of(upstream)
    if head != after.tip:
        change.trees.append(TreeMove(upstream, head, after.tip))
    old_branch = head
    if old_branch is None:
        old_branch = project.store.ref_or_none(branch)
    if old_branch != after.tip:
        change.refs.append((branch, old_branch, after.tip))
    path = project.layout.state(upstream)
    if before is None or not before.says_the_same(after):
        change.files[path.relative_to(project.layout.root).as_posix()] = after.dump()
    elif before != after:
        # Only the stat keys (size and times of files) differ, so there is nothing to undo.
        fsio.write_atomic(path, after.dump())


def current(project: Project, upstream: str) -> tuple[Stack, State]:
    """Return the applied stack of an upstream and its state.

    :raises UserError: if the upstream is not applied.
    """
    state = load_state(project.layout, upstream)
    if upstream not in project.lock.upstreams:
        project.check_names(project.lock.pins_of(project.choose_set("")), [upstream], project.choose_set(""))
    if state is None or not project.worktree(upstream).exists:
        raise UserError(f"{upstream} is not applied", hint=f"`patchq apply {upstream}`")
    pins = project.lock.upstreams[upstream].pins
    if state.ref not in pins:
        raise UserError(f"{upstream} is applied at {state.ref}, which is no longer pinned", hint="`patchq apply`")
    return load_stack(project.layout, pins[state.ref]), state
