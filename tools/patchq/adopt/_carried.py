"""Import of a recipe that was imported before: the patches that the stack already has are named, not adopted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from patchq.adopt._headers import trailer_value
from patchq.adopt._replayed import is_same_change
from patchq.adopt.fit import Fitter
from patchq.adopt.found import FoundPatch, ReadOptions
from patchq.project.project import Project
from patchq.stacks.edit import Loaded


def with_carried(
    project: Project, loaded: Loaded, found: Sequence[FoundPatch], reading: ReadOptions
) -> list[FoundPatch]:
    """Return the patches of a recipe. Those that make the change of a patch of the stack are marked as equal.

    The patches are tried on the tree before the earlier import. A patch that makes another change there, or doesn't
    apply, stays as it is.
    """
    names = {patch.name for patch in found if not patch.left_out}
    origins = {patch.origin for patch in found if not patch.left_out and patch.origin}
    earlier = []
    for entry in loaded.entries:
        if entry.name in names or trailer_value(entry.commit.message, "Origin") in origins:
            earlier.append(entry)
    if not earlier:
        return list(found)
    store, upstream = project.store, loaded.stack.pin.upstream
    parents = earlier[0].commit.parents
    start = parents[0] if parents else loaded.state.base
    base = store.tree_of([loaded.state.base])[0]
    fitter = Fitter(store, upstream, project.lock.nested_in(upstream), start, reading)
    before = store.tree_of([start])[0]
    result = []
    for patch, (item, after) in zip(found, fitter.fit_all(found), strict=True):
        if item.is_taken:
            same = next((one for one in earlier if is_same_change(store, (before, after), one, base)), None)
            if same:
                earlier.remove(same)
                note = f"{patch.where}: the stack already has this patch"
                patch = replace(patch, name=same.name, carried="equal", diff=b"", notes=(note,))
            before = after
        result.append(patch)
    return result
