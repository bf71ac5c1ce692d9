"""The command ``deps``: find which earlier patches each patch needs.

Patch B needs patch A if merging B without A conflicts. ``deps`` also shows the trailer ``Requires:``, because a patch
can depend on another patch without a conflict.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field
from itertools import product

from patchq.errors import UserError
from patchq.git.diffs import PathChange
from patchq.git.merges import FileSides, changed_lines, merge_contents, merge_trees
from patchq.git.objects import CommitInfo, TreeEntry
from patchq.git.repository import Git, scratch
from patchq.names import BlobId, CommitId, TreeId
from patchq.project.project import Project
from patchq.stacks._reorder import touched
from patchq.stacks.apply import Carried, carried_stacks


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Dependencies of one patch. Patches are named ``upstream/name``.

    :ivar needs: all patches that the patch needs, directly or indirectly.
    :ivar direct: patches in ``needs`` on which no other patch in ``needs`` depends.
    :ivar requires: values of ``Requires:``.
    """

    patch: str
    needs: tuple[str, ...]
    direct: tuple[str, ...]
    requires: tuple[str, ...]


def dependencies(project: Project, names: Sequence[str] = (), set_name: str = "") -> list[Needs]:
    """Return the dependencies of each patch of a set's stacks, in series order.

    :param names: upstreams; all by default.
    :raises UserError: if an upstream is not in the set.
    """
    set_name = project.choose_set(set_name)
    with project.locked("deps"):
        stacks = project.stacks(set_name)
        project.check_names([s.pin for s in stacks], names, set_name)
        found: list[Needs] = []
        for carried in carried_stacks(project, stacks, set_name):
            if not names or carried.stack.pin.upstream in names:
                found += _of_stack(project.store, carried)
    return found


def _of_stack(store: Git, carried: Carried) -> list[Needs]:
    upstream = carried.stack.pin.upstream
    names = carried.names
    with scratch(store) as temporary:
        graph = _Graph(temporary, carried.base, carried.commits)
        all_needs = dict(zip(names, graph.all_needs([[number] for number in range(len(names))]), strict=True))
    headers = dict(carried.stack.headers())
    found = []
    for name in names:
        needs: list[str] = []
        direct: list[str] = []
        indirect = set()
        for needed in all_needs[name]:
            indirect.update(all_needs[needed])
        for needed in all_needs[name]:
            needs.append(f"{upstream}/{needed}")
            if needed not in indirect:
                direct.append(f"{upstream}/{needed}")
        found.append(
            Needs(
                patch=f"{upstream}/{name}",
                needs=tuple(needs),
                direct=tuple(direct),
                requires=tuple(headers[name].values("Requires")),
            )
        )
    return found


def _by_upstream(found: Sequence[Needs]) -> dict[str, list[Needs]]:
    stacks: dict[str, list[Needs]] = {}
    for needs in found:
        stacks.setdefault(needs.patch.split("/")[0], []).append(needs)
    return stacks


def commuting(found: Sequence[Needs]) -> dict[str, list[str]]:
    """For each patch, return the other patches of its stack that are independent of it.

    Two patches are independent if neither needs the other.
    """
    result: dict[str, list[str]] = {}
    for stack in _by_upstream(found).values():
        for one in stack:
            independent = result[one.patch] = []
            for other in stack:
                if other is not one and other.patch not in one.needs and one.patch not in other.needs:
                    independent.append(other.patch)
    return result


def closure(store: Git, carried: Carried, chosen: Collection[str]) -> list[str]:
    """Return the chosen patches with all their dependencies, in series order.

    Patch A is a dependency of patch B if merging B without A conflicts, or if B names A in ``Requires:``.

    :raises UserError: if the ``Requires:`` of a patch names a patch that isn't in the stack.
    """
    names = carried.names
    requires = _requires(carried)
    found = set(chosen)
    with scratch(store) as temporary:
        graph = _Graph(temporary, carried.base, carried.commits)
        while True:
            more = set(graph.needs(list(map(names.index, found))))
            for name in found:
                more |= requires[name]
            if more <= found:
                return [name for name in names if name in found]
            found |= more


def _requires(carried: Carried) -> dict[str, set[str]]:
    """Return the patches of the same stack that each patch names in ``Requires:``.

    :raises UserError: if such a patch isn't in the stack.
    """
    prefix = f"{carried.stack.pin.upstream}/"
    found: dict[str, set[str]] = {}
    for name, header in carried.stack.headers():
        found[name] = set()
        for required in header.values("Requires"):
            if required.startswith(prefix):
                found[name].add(required.removeprefix(prefix))
    for name, required_names in found.items():
        if missing := sorted(required_names - found.keys()):
            raise UserError(
                f"{prefix}{name} requires {prefix}{missing[0]}, which is not in the stack",
                hint="`patchq check` lists all such patches; correct their Requires:",
            )
    return found


def dependents(store: Git, carried: Carried, name: str) -> list[str]:
    """Return the later patches of a stack that need the named patch, directly or indirectly.

    The later patches are merged in order, without the named patch. Each patch that conflicts is returned, and is
    omitted from the following merges.
    """
    names = carried.names
    with scratch(store) as temporary:
        graph = _Graph(temporary, carried.base, carried.commits)
        return [names[later] for later in graph.dependents(names.index(name))]


@dataclass(frozen=True, slots=True)
class _Onto:
    """Tree onto which patches are merged.

    :ivar files: files that earlier merges changed.
    """

    tree: TreeId
    files: frozenset[tuple[bytes, TreeEntry]] = frozenset()


@dataclass(slots=True)
class _PathVersions:
    """All changes of one path, sorted by the numbers of the patches that make them."""

    numbers: list[int] = field(default_factory=list)
    changes: list[PathChange] = field(default_factory=list)

    def before(self, number: int) -> TreeEntry | None:
        """Return the path's tree entry before the patch with this number is applied."""
        at = bisect_left(self.numbers, number)
        if at < len(self.changes):
            return self.changes[at].old
        return self.changes[-1].new


#: Patch number, the tree onto which the patch is merged, and True if no further patch is merged onto the result.
_Key = tuple[int, _Onto, bool]
_Search = Generator[_Key, _Onto | None, list[str]]
_PLAIN_MODES = (b"100644", b"100755")


class _Graph:
    """Dependency graph of one stack, with a cache of its merges.

    :param store: temporary repository that contains the stack's objects, and to which merge results are
        written.
    """

    def __init__(self, store: Git, base: CommitId, commits: Sequence[tuple[str, CommitInfo]]) -> None:
        self.store = store
        self.commits = commits
        infos = [info for _, info in commits]
        self.trees = [store.tree_of([base])[0], *(info.tree for info in infos)]
        self.changes = store.changes_of([info.commit for info in infos])
        self.touched = list(map(touched, self.changes))
        self.by_path: dict[bytes, list[int]] = {}
        for number, paths in enumerate(self.touched):
            for path in paths:
                self.by_path.setdefault(path, []).append(number)
        self.versions: dict[bytes, _PathVersions] = {}
        for number, changes in enumerate(self.changes):
            for change in changes:
                versions = self.versions.setdefault(change.path, _PathVersions())
                versions.numbers.append(number)
                versions.changes.append(change)
        self.numbers = dict(zip(self.trees, range(len(self.trees)), strict=True))
        self.merged: dict[_Key, _Onto | None] = {}
        self.contents: dict[FileSides, BlobId | None] = {}
        self.changed_lines: dict[tuple[BlobId, BlobId], list[tuple[int, int]]] = {}

    def needs(self, numbers: Sequence[int]) -> list[str]:
        """Return the other patches that the patches with these numbers need, in series order."""
        return self.all_needs([numbers])[0]

    def all_needs(self, groups: Sequence[Sequence[int]]) -> list[list[str]]:
        """Return the patches that each group of patches needs.

        The searches advance in rounds: in each round, one git process makes the next merge of every search.
        """
        found: list[list[str]] = [[] for _ in groups]
        searches: list[tuple[int, _Search, _Onto | None]]
        searches = [(n, self._search(numbers), None) for n, numbers in enumerate(groups)]
        while searches:
            waiting: list[tuple[int, _Search, _Key]] = []
            keys: dict[_Key, None] = {}
            for n, search, answer in searches:
                try:
                    key = search.send(answer)
                    while key in self.merged:
                        key = search.send(self.merged[key])
                except StopIteration as end:
                    found[n] = end.value
                else:
                    waiting.append((n, search, key))
                    keys[key] = None
            self._merge(list(keys))
            searches = [(n, search, self.merged[key]) for n, search, key in waiting]
        return found

    def dependents(self, number: int) -> list[int]:
        """Return the numbers of the later patches that conflict if this patch is omitted.

        A later patch that conflicts is also omitted from the following merges.
        """
        onto, found = _Onto(self.trees[number]), []
        for later in range(number + 1, len(self.commits)):
            key = later, onto, False
            self._merge([key])
            result = self.merged[key]
            if result is None:
                found.append(later)
            else:
                onto = result
        return found

    def _search(self, numbers: Sequence[int]) -> _Search:
        """Search for the patches that a group of patches needs.

        Yield each merge to make; receive its result, or None for a conflict. The search goes through the earlier
        patches, from last to first. For each earlier patch, it merges the kept patches without the earlier patch. If
        the merge conflicts, the earlier patch is needed. The search then keeps this patch, too, and also looks for
        its dependencies.
        """
        kept = sorted(numbers)
        # A kept patch can only need earlier patches that share a path with it.
        waiting: set[int] = set()
        for number in kept:
            waiting.update(self._sharing(number))
        while waiting:
            other = max(waiting)
            waiting.remove(other)
            if other in kept:
                continue
            block = kept[bisect_left(kept, other) :]
            onto: _Onto | None = _Onto(self.trees[other])
            for member in block:
                if onto is not None:
                    onto = yield member, onto, member == block[-1]
                else:
                    onto = None
            if onto is None:
                insort(kept, other)
                waiting |= self._sharing(other)
        return [self.commits[k][0] for k in kept if k not in numbers]

    def _sharing(self, number: int) -> set[int]:
        """Return the earlier patches for which :func:`touched` returns at least one of this patch's paths."""
        found: set[int] = set()
        for path in self.touched[number]:
            for other in self.by_path[path]:
                if other < number:
                    found.add(other)
        return found

    def _merge(self, keys: Sequence[_Key]) -> None:
        """Merge patches: file by file if a patch only edits files, else by merging whole trees."""
        plain: dict[_Key, dict[bytes, FileSides]] = {}
        rest: list[_Key] = []
        for key in keys:
            number, onto, _ = key
            if onto == _Onto(self.trees[number]):  # the original parent tree
                self.merged[key] = _Onto(self.commits[number][1].tree)
            elif (sides := self._sides(number, onto)) is not None:
                plain[key] = sides
            else:
                rest.append(key)
        last_files: list[FileSides] = []
        for (_, _, is_last), sides in plain.items():
            if is_last:
                last_files += sides.values()
        self._compare(last_files)
        files: list[FileSides] = []
        for key, sides in list(plain.items()):
            _, onto, is_last = key
            if is_last and all(map(self._are_apart, sides.values())):
                self.merged[key] = onto  # no further merge uses this result
                del plain[key]
            else:
                files += sides.values()
        self._merge_contents(files)
        for key, sides in plain.items():
            self.merged[key] = self._carried(key, sides)
        trees = [(self.trees[n], onto.tree, dict(onto.files), self.commits[n][1].tree) for n, onto, _ in rest]
        for key, merge in zip(rest, merge_trees(self.store, trees), strict=True):
            if merge.stages or merge.failed:
                self.merged[key] = None
            else:
                self.merged[key] = _Onto(merge.tree)

    def _sides(self, number: int, onto: _Onto) -> dict[bytes, FileSides] | None:
        """Return the base, ours and theirs blobs of each file that a patch changes.

        Return None if only a merge of whole trees is reliable. For example, a file that is added, removed or changes
        its mode may be part of a rename. Links and submodules aren't merged as text.
        """
        at = self.numbers.get(onto.tree)
        if at is None:
            return None
        replaced = dict(onto.files)
        found: dict[bytes, FileSides] = {}
        for change in self.changes[number]:
            old, new = change.old, change.new
            ours = replaced.get(change.path) or self.versions[change.path].before(at)
            if old is None or new is None or ours is None:
                return None
            if not old.mode == new.mode == ours.mode or old.mode not in _PLAIN_MODES:
                return None
            found[change.path] = old.blob, ours.blob, new.blob
        return found

    def _compare(self, files: Sequence[FileSides]) -> None:
        """For each file, find the lines of the base that each side changes."""
        pairs = []
        for base, ours, theirs in files:
            pairs.append((base, ours))
            pairs.append((base, theirs))
        wanted = []
        for pair in dict.fromkeys(pairs):
            if pair[0] != pair[1] and pair not in self.changed_lines:
                wanted.append(pair)
        self.changed_lines |= dict(zip(wanted, changed_lines(self.store, wanted), strict=True))

    def _are_apart(self, file: FileSides) -> bool:
        """Return True if unchanged lines separate the changes of both sides, so that the merge has no conflict."""
        base, ours, theirs = file
        if ours in (base, theirs):
            return True
        ours_lines, their_lines = self.changed_lines[base, ours], self.changed_lines[base, theirs]
        for (first, end), (start, last) in product(ours_lines, their_lines):
            if start <= end and first <= last:
                return False
        return bool(ours_lines and their_lines)

    def _merge_contents(self, files: Sequence[FileSides]) -> None:
        """Merge files and cache the results. Skip the files whose results are already cached."""
        wanted = []
        for file in dict.fromkeys(files):
            base, ours, theirs = file
            if ours in (base, theirs):
                self.contents[file] = theirs
            elif file not in self.contents:
                wanted.append(file)
        self.contents |= dict(zip(wanted, merge_contents(self.store, wanted), strict=True))

    def _carried(self, key: _Key, sides: dict[bytes, FileSides]) -> _Onto | None:
        """Return the tree with a patch's merged files; None if a file conflicts."""
        number, onto, _ = key
        files = dict(onto.files)
        for change in self.changes[number]:
            blob = self.contents[sides[change.path]]
            if blob is None or change.new is None:
                return None
            files[change.path] = TreeEntry(change.new.mode, blob)
        return _Onto(onto.tree, frozenset(files.items()))


def as_dot(found: Sequence[Needs]) -> str:
    """Return the graph in Graphviz format.

    Arrows point to needed patches. Dashed arrows are dependencies from ``Requires:`` only.
    """
    lines = ["digraph patches {", "  rankdir=RL;", "  node [shape=box, fontname=monospace];"]
    for upstream, members in _by_upstream(found).items():
        lines.append(f'  subgraph "cluster_{upstream}" {{ label="{upstream}";')
        lines += [f'    "{n.patch}";' for n in members]
        lines.append("  }")
    for needs in found:
        for other in needs.direct:
            lines.append(f'  "{needs.patch}" -> "{other}";')
        for other in needs.requires:
            if other not in needs.needs:
                lines.append(f'  "{needs.patch}" -> "{other}" [style=dashed];')
    return "\n".join([*lines, "}"]) + "\n"
