"""Select a pull request's patches, the stack to take them from, and the upstream ref to apply them to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchq.errors import UserError
from patchq.formats.header import Header
from patchq.formats.lock import Pin
from patchq.git.objects import CommitInfo
from patchq.git.replay import pick
from patchq.project.project import Project
from patchq.project.refs import newest, older_first, pin_at
from patchq.project.stack import Stack, find_patch, load_stack
from patchq.stacks.apply import Carried, carried_stacks
from patchq.stacks.deps import closure

#: ``Upstream-Status:`` values of patches that can be proposed.
PROPOSABLE = ("Pending", "Submitted")


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPlan:
    """Patches to propose, and their target ref.

    :ivar chosen: patches that the user named.
    :ivar names: chosen patches and their dependencies, in series order.
    :ivar why: reason for the choice of the target ref.
    """

    carried: Carried
    chosen: tuple[str, ...]
    names: tuple[str, ...]
    headers: Mapping[str, Header]
    onto: Pin
    why: str

    @property
    def upstream(self) -> str:
        return self.carried.stack.pin.upstream


def place(project: Project, patches: Sequence[str], topic: str, upstream: str, onto: str, set_name: str) -> BranchPlan:
    """Find the patches, their dependencies, their source stack and the target ref.

    :raises UserError: if no patch is found, if the patches belong to several upstreams, or if no stack
        contains all of them.
    """
    stacks = project.stacks(set_name, [upstream] if upstream else [])
    if topic:
        having = []
        for s in stacks:
            if any(_proposable(h, topic) for _, h in s.headers()):
                having.append(s)
        if not having:
            raise UserError(
                f"no patch of the topic {topic} is Pending or Submitted", hint="`patchq list` shows topics and statuses"
            )
        if len(having) > 1:
            several = [stack.pin.upstream for stack in having]
            raise UserError(
                f"several upstreams have patches of the topic {topic}: {', '.join(several)}",
                hint=f"choose one: --upstream {several[0]}",
            )
        pin = having[0].pin
        chosen = tuple(n for n, h in having[0].headers() if _proposable(h, topic))
    else:
        found: dict[str, None] = {}
        upstreams: dict[str, Pin] = {}
        for each in patches:
            stack, name = _find(project, stacks, each)
            found[name] = None
            upstreams.setdefault(stack.pin.upstream, stack.pin)
        if len(upstreams) != 1:
            raise UserError(
                f"the patches belong to several upstreams: {', '.join(upstreams)}",
                hint="run `patchq pr` for each upstream",
            )
        (pin,) = upstreams.values()
        chosen = tuple(found)
    if onto:
        target, why = (pin_at(project, pin, onto), "as requested")
    else:
        target, why = newest(project, pin)
    carried = _source(project, target, pin, chosen, set_name)
    names = tuple(closure(project.store, carried, chosen))
    headers = dict(carried.stack.headers())
    return BranchPlan(
        carried=carried,
        chosen=tuple(n for n in names if n in chosen),
        names=names,
        headers=headers,
        onto=target,
        why=why,
    )


def _proposable(header: Header, topic: str) -> bool:
    return header.value("Topic") == topic and header.value("Upstream-Status").split(" ")[0] in PROPOSABLE


def _find(project: Project, stacks: Sequence[Stack], name: str) -> tuple[Stack, str]:
    """Find a patch in the set. If the set lacks the patch, search the stacks of the other pins, newest first."""
    try:
        return find_patch(list(stacks), name)
    except UserError:
        short = name.rpartition("/")[2]
        for upstream in project.lock.upstreams.values():
            for pin in reversed(older_first(upstream.pins.values())):
                stack = load_stack(project.layout, pin)
                if short in stack.names and name in (short, f"{upstream.name}/{short}"):
                    return stack, short
        raise


def _source(project: Project, target: Pin, pin: Pin, chosen: Sequence[str], set_name: str) -> Carried:
    """Choose a stack that contains all patches, and commit it.

    Prefer the target's own stack, then the stack of the newest pin older than the target, then the stack of ``pin``.
    """
    pins = older_first([*project.lock.upstreams[pin.upstream].pins.values(), target])
    older = pins[: pins.index(target) + 1]
    for candidate in [target, *reversed(older), pin]:
        stack = load_stack(project.layout, candidate)
        if set(chosen) <= set(stack.names):
            return carried_stacks(project, [stack], set_name)[0]
    raise UserError(
        f"no stack of {pin.upstream} contains all of {', '.join(chosen)}", hint="run `patchq pr` for each patch"
    )


def set_with(project: Project, plan: BranchPlan, set_name: str) -> str:
    """Return a set that contains the target pin, preferably ``set_name``. If no set does, return ``set_name``."""
    having = []
    for n, refs in project.lock.sets.items():
        if refs.get(plan.upstream) == plan.onto.ref:
            having.append(n)
    if set_name in having or not having:
        return set_name
    return having[0]


def alone(project: Project, carried: Carried, names: Sequence[str]) -> list[tuple[str, CommitInfo]]:
    """Commit only the named patches of a stack on the stack's base.

    :raises ConflictError: if a patch conflicts without the patches that were left out.
    """
    store, infos = project.store, dict(carried.commits)
    onto, tip = store.tree_of([carried.base])[0], carried.base
    for name in names:
        info = infos[name]
        (parent,) = store.tree_of([info.parents[0]])
        onto = pick(store, carried.stack.pin.upstream, name, parent, info.tree, onto)
        tip = store.commit_tree(onto, [tip], info.author, info.message)
    return list(zip(names, store.log(f"{carried.base}..{tip}"), strict=True))
