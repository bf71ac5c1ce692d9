"""``deps``: which patches really need which, found by carrying them without each other.

A patch needs another one if it can't be carried onto the base without it: the three-way merge conflicts.
What a patch says of itself (``Requires:``) is shown beside that; it may mean more than lines do.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass

from patchq.errors import UserError
from patchq.git.merges import merge_trees
from patchq.git.repository import Git
from patchq.names import TreeId
from patchq.project.project import Project
from patchq.stacks.apply import Carried, carried_stacks
from patchq.stacks.reorder import touched


@dataclass(frozen=True, slots=True)
class Needs:
    """Of one patch, as ``upstream/name``: all it needs, those that nothing between them needs, and what it says."""

    patch: str
    needs: tuple[str, ...]
    direct: tuple[str, ...]
    requires: tuple[str, ...]


def dependencies(project: Project, names: Sequence[str] = (), set_name: str = "") -> list[Needs]:
    """What each patch of a set's stacks needs, in the order of the series.

    :param names: upstreams, all by default.
    :raises UserError: if one isn't in the set.
    """
    set_name = project.choose_set(set_name)
    with project.locked("deps"):
        stacks = project.stacks(set_name)
        project.check_names([s.pin for s in stacks], names, set_name)
        found = []
        for carried in carried_stacks(project, stacks, set_name):
            if not names or carried.stack.pin.upstream in names:
                found += _of_stack(project.store, carried)
    return found


def _of_stack(store: Git, carried: Carried) -> list[Needs]:
    graph, upstream = _Graph(store, carried), carried.stack.pin.upstream
    names = [name for name, _ in carried.commits]
    all_needs = dict(zip(names, graph.all_needs([[number] for number in range(len(names))]), strict=True))
    requires = {name: header.values("Requires") for name, header in carried.stack.headers()}
    found = []
    for name in names:
        needs = all_needs[name]
        indirect = {far for near in needs for far in all_needs[near]}
        found.append(
            Needs(
                f"{upstream}/{name}",
                tuple(f"{upstream}/{n}" for n in needs),
                tuple(f"{upstream}/{n}" for n in needs if n not in indirect),
                tuple(requires[name]),
            )
        )
    return found


def commuting(found: Sequence[Needs]) -> dict[str, list[str]]:
    """For each patch the others of its stack that neither need it nor are needed by it; as many as their square."""
    stacks: dict[str, list[Needs]] = {}
    for needs in found:
        stacks.setdefault(needs.patch.split("/")[0], []).append(needs)
    return {
        one.patch: [o.patch for o in stack if o is not one and o.patch not in one.needs and one.patch not in o.needs]
        for stack in stacks.values()
        for one in stack
    }


def closure(store: Git, carried: Carried, chosen: Collection[str]) -> list[str]:
    """The fewest patches of a stack that hold these and can be carried without the others, in their order.

    Besides what they can't be carried without, that is what they and those say in ``Requires:`` of this stack.

    :raises UserError: if one requires what the stack hasn't.
    """
    upstream = carried.stack.pin.upstream
    graph, names = _Graph(store, carried), [name for name, _ in carried.commits]
    said = {
        name: {r.partition("/")[2] for r in header.values("Requires") if r.startswith(f"{upstream}/")}
        for name, header in carried.stack.headers()
    }
    for name, others in said.items():
        if gone := sorted(others - said.keys()):
            raise UserError(
                f"{upstream}/{name} requires {upstream}/{gone[0]}, which the stack hasn't",
                hint="`patchq check` names all such; mend its Requires:",
            )
    found = set(chosen)
    while True:
        more = {other for name in found for other in said[name]} | set(graph.needs([names.index(n) for n in found]))
        if more <= found:
            return [name for name in names if name in found]
        found |= more


def dependents(store: Git, carried: Carried, name: str) -> list[str]:
    """The later patches of a stack that can't be carried without one."""
    graph, names = _Graph(store, carried), [n for n, _ in carried.commits]
    number = names.index(name)
    reached, found = set(graph.touched[number]), []
    for later in range(number + 1, len(names)):
        if reached.isdisjoint(graph.touched[later]):
            continue
        reached |= graph.touched[later]  # by way of this one, too
        if name in graph.needs([later]):
            found.append(names[later])
    return found


#: A patch by its number, and the tree that it is carried onto.
_Key = tuple[int, TreeId]
_Search = Generator[_Key, TreeId | None, list[str]]


class _Graph:
    """The dependencies of one stack, each merge made once."""

    def __init__(self, store: Git, carried: Carried) -> None:
        self.store = store
        self.commits = carried.commits
        self.trees = [store.tree_of([carried.base])[0], *(info.tree for _, info in carried.commits)]
        self.touched = [touched(c) for c in store.changes_of([info.commit for _, info in carried.commits])]
        self.by_path: dict[bytes, list[int]] = {}
        for number, paths in enumerate(self.touched):
            for path in paths:
                self.by_path.setdefault(path, []).append(number)
        self.merged: dict[_Key, TreeId | None] = {}

    def needs(self, numbers: Sequence[int]) -> list[str]:
        """What these patches can't be carried without, in the order of the series."""
        return self.all_needs([numbers])[0]

    def all_needs(self, groups: Sequence[Sequence[int]]) -> list[list[str]]:
        """Of each group what its patches can't be carried without.

        The searches go on side by side, so that what all of them want merged next is merged by one process.
        """
        found: list[list[str]] = [[] for _ in groups]
        searches: list[tuple[int, _Search, TreeId | None]]
        searches = [(n, self._search(numbers), None) for n, numbers in enumerate(groups)]
        while searches:
            asked: list[tuple[int, _Search, _Key]] = []
            for n, search, answer in searches:
                try:
                    key = search.send(answer)
                    while key in self.merged:
                        key = search.send(self.merged[key])
                except StopIteration as end:
                    found[n] = end.value
                else:
                    asked.append((n, search, key))
            self._merge(list(dict.fromkeys(key for *_, key in asked)))
            searches = [(n, search, self.merged[key]) for n, search, key in asked]
        return found

    def _search(self, numbers: Sequence[int]) -> _Search:
        """What a group needs; asks for a patch carried onto a tree, and is sent the tree, or None for a conflict.

        Each earlier patch, from the last to the first, is left out, and what is kept so far carried over
        the gap: where that conflicts, the patch is needed. So is what it needs in turn.
        """
        kept = sorted(numbers)
        # Only what shares a path with one that is kept and comes after it can be in its way.
        waiting = {other for k in kept for other in self._sharing(k)}
        while waiting:
            other = max(waiting)
            waiting.remove(other)
            if other in kept:
                continue
            block = [k for k in kept if k > other]
            onto: TreeId | None = self.trees[other]
            for member in block:
                onto = (yield member, onto) if onto is not None else None
            if onto is None:
                insort(kept, other)
                waiting |= self._sharing(other)
        return [self.commits[k][0] for k in kept if k not in numbers]

    def _sharing(self, number: int) -> set[int]:
        """The earlier patches that touch a path that this one touches, or one above or below it."""
        return {other for path in self.touched[number] for other in self.by_path[path] if other < number}

    def _merge(self, keys: Sequence[_Key]) -> None:
        """Carry patches onto trees."""
        # Onto the very tree that it was made on, a patch gives its own.
        self.merged |= {(n, onto): self.commits[n][1].tree for n, onto in keys if self.trees[n] == onto}
        rest = [key for key in keys if key not in self.merged]
        triples = [(self.trees[n], onto, self.commits[n][1].tree) for n, onto in rest]
        for key, merge in zip(rest, merge_trees(self.store, triples), strict=True):
            self.merged[key] = None if merge.stages or merge.failed else merge.tree


def as_dot(found: Sequence[Needs]) -> str:
    """The graph for Graphviz: an arrow from a patch to what it needs; dashed, what it only says it requires."""
    lines = ["digraph patches {", "  rankdir=RL;", "  node [shape=box, fontname=monospace];"]
    by_upstream: dict[str, list[Needs]] = {}
    for needs in found:
        by_upstream.setdefault(needs.patch.split("/")[0], []).append(needs)
    for upstream, members in by_upstream.items():
        lines.append(f'  subgraph "cluster_{upstream}" {{ label="{upstream}";')
        lines += [f'    "{n.patch}";' for n in members]
        lines.append("  }")
    for needs in found:
        lines += [f'  "{needs.patch}" -> "{other}";' for other in needs.direct]
        only_said = [r for r in needs.requires if r not in needs.needs]
        lines += [f'  "{needs.patch}" -> "{other}" [style=dashed];' for other in only_said]
    return "\n".join([*lines, "}"]) + "\n"
