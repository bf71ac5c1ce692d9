"""Removal or move of one patch in a stack. Only patches that can be affected are merged and written again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from patchq.formats.header import mail_safe
from patchq.formats.treepath import parents_of
from patchq.git.diffs import PathChange
from patchq.git.fastimport import commit_start, import_commits, quote_path
from patchq.git.replay import pick
from patchq.git.repository import Git
from patchq.names import CommitId
from patchq.stacks.reconcile import ReconciledEntry

_REF = b"refs/patchq/scratch/reorder"
#: Minimum number of consecutive patches to import together. Fewer are merged one by one, because each import adds a
#: pack to the store.
_FEW = 8


def touched(changes: Sequence[PathChange]) -> frozenset[bytes]:
    """Return the paths that a patch changes.

    For an added or removed file, also return its path and its parent folders, each with a trailing slash. These
    folders are needed because a file may replace a folder, and because git may detect a renamed folder. If the
    results for two patches have no path in common, the patches can be applied in either order, with the same diffs.
    """
    paths: set[bytes] = set()
    for change in changes:
        paths.add(change.path)
        if change.old is None or change.new is None:
            for folder in (*parents_of(change.path), change.path):
                paths.add(folder + b"/")
    return frozenset(paths)


def reorder(
    store: Git,
    upstream: str,
    base: CommitId,
    before: Sequence[ReconciledEntry],
    after: Sequence[ReconciledEntry],
    moved: str,
) -> tuple[list[ReconciledEntry], set[str]]:
    """Commit the entries ``after`` on top of the base.

    :param before: current stack.
    :param after: same stack after the patch ``moved`` was removed or moved.
    :returns: the new entries, and the names of the patches whose patch files stay unchanged.
    :raises ConflictError: if a patch doesn't merge.
    """
    names = [e.name for e in before]
    changes = dict(zip(names, store.changes_of([e.commit.commit for e in before]), strict=True))
    sets = {name: touched(found) for name, found in changes.items()}
    trees = {base: store.tree_of([base])[0]}
    for e in before:
        trees[e.commit.commit] = e.commit.tree
    done: list[ReconciledEntry] = []
    tip, same = base, set()
    for kind, some in groupby(_kinds(names, after, moved, sets), key=itemgetter(1)):
        chosen = list(map(itemgetter(0), some))
        if kind != "merge":
            for entry in chosen:
                if mail_safe(entry.commit.message) == entry.commit.message:
                    same.add(entry.name)
        if kind == "merge" or (kind == "change" and len(chosen) < _FEW):
            for entry in chosen:
                onto = store.tree_of([tip])[0]
                tree = pick(store, upstream, entry.name, trees[entry.commit.parents[0]], entry.commit.tree, onto)
                message = mail_safe(entry.commit.message)
                parents, tip = (tip,), store.commit_tree(tree, [tip], entry.commit.author, message)
                commit = replace(entry.commit, commit=tip, tree=tree, parents=parents, message=message)
                done.append(ReconciledEntry(entry.name, commit))
            continue
        if kind == "there":
            done += chosen
        else:
            done += _import(store, tip, chosen, changes)
        tip = done[-1].commit.commit
    return done, same


def _kinds(
    before: Sequence[str], after: Sequence[ReconciledEntry], moved: str, sets: dict[str, frozenset[bytes]]
) -> Iterator[tuple[ReconciledEntry, str]]:
    """Yield each entry with one of three methods for committing it.

    ``there``: keep the existing commit. ``change``: import the same changes. ``merge``: merge three ways.

    :param before: names of the current stack's patches.
    :param sets: paths that each patch touches, as :func:`touched` returns them.
    """
    places = {name: number for number, name in enumerate(before)}
    at = places[moved]
    there, passed = True, False
    # `differs` contains the paths that may differ between the old and the new parent tree of a patch.
    merged: set[bytes] = set()
    for number, entry in enumerate(after):
        there = there and number < len(before) and before[number] == entry.name
        if there:
            passed = passed or entry.name == moved
            yield entry, "there"
            continue
        if entry.name == moved:
            between = before[number:at] if number < at else before[at + 1 : number + 1]
            differs = merged.union(*map(sets.__getitem__, between))
            passed = True
        else:
            was_above = at < places[entry.name]
            differs = merged | sets[moved] if passed != was_above else merged
        if differs & sets[entry.name]:
            merged |= sets[entry.name]
            yield entry, "merge"
        else:
            yield entry, "change"


def _import(
    store: Git, tip: CommitId, entries: Sequence[ReconciledEntry], changes: dict[str, list[PathChange]]
) -> list[ReconciledEntry]:
    """Commit the changes of the entries on top of ``tip``, one after the other, in one git process."""
    with import_commits(store, _REF) as (out, ids):
        for number, entry in enumerate(entries, 1):
            if number == 1:
                mark = tip.encode()
            else:
                mark = b":%d" % (number - 1)
            out.write(commit_start(_REF, number, entry.commit.author, mail_safe(entry.commit.message), mark))
            # Removals come first, because a folder may replace a file.
            for change in sorted(changes[entry.name], key=lambda c: c.new is not None):
                if change.new is None:
                    out.write(b"D %s\n" % quote_path(change.path))
                else:
                    mode, blob = change.new.mode, change.new.blob.encode()
                    out.write(b"M %s %s %s\n" % (mode, blob, quote_path(change.path)))
    made = [ids[number] for number in range(1, len(entries) + 1)]
    found = []
    for entry, commit, tree, parent in zip(entries, made, store.tree_of(made), [tip, *made], strict=False):
        message = mail_safe(entry.commit.message)
        info = replace(entry.commit, commit=commit, tree=tree, parents=(parent,), message=message)
        found.append(ReconciledEntry(entry.name, info))
    return found
