"""A stack without one of its patches, or with it elsewhere: only what that can change is merged and written again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from patchq.formats.header import mail_safe
from patchq.git.diffs import PathChange
from patchq.git.fastimport import commit_start, import_commits, quote_path
from patchq.git.replay import pick
from patchq.git.repository import Git
from patchq.names import CommitId
from patchq.stacks.reconcile import ReconciledEntry

_REF = b"refs/patchq/scratch/reorder"
#: Fewer in a row are merged like their neighbours: each import is a pack of its own in the store.
_FEW = 8


def touched(changes: Sequence[PathChange]) -> frozenset[bytes]:
    """The paths that a patch touches; of one that is added or removed, itself and its folders as folders too.

    Folders matter where a file takes the place of a folder, or where git follows a renamed one. Two patches whose
    sets have nothing in common merge to what each of them does.
    """
    paths: set[bytes] = set()
    for change in changes:
        paths.add(change.path)
        if change.old is None or change.new is None:
            parts = change.path.split(b"/")
            paths |= {b"/".join(parts[:n]) + b"/" for n in range(1, len(parts) + 1)}
    return frozenset(paths)


def reorder(
    store: Git,
    upstream: str,
    base: CommitId,
    before: Sequence[ReconciledEntry],
    after: Sequence[ReconciledEntry],
    moved: str,
) -> tuple[list[ReconciledEntry], set[str]]:
    """The entries ``after`` as commits on the base, and the names of those whose diff is what it was.

    :param before: the stack as it is; ``after`` is the same without the patch ``moved``, or with it elsewhere.
    :raises ConflictError: where one doesn't merge.
    """
    changes = dict(zip((e.name for e in before), store.changes_of([e.commit.commit for e in before]), strict=True))
    sets = {name: touched(found) for name, found in changes.items()}
    places = {e.name: n for n, e in enumerate(before)}
    trees = dict(zip([base], store.tree_of([base]), strict=True)) | {e.commit.commit: e.commit.tree for e in before}
    done: list[ReconciledEntry] = []
    tip, same = base, set()
    for kind, some in groupby(_kinds(before, after, moved, places, sets), key=lambda item: item[1]):
        chosen = [entry for entry, _ in some]
        if kind != "merge":
            same |= {entry.name for entry in chosen if mail_safe(entry.commit.message) == entry.commit.message}
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
    before: Sequence[ReconciledEntry],
    after: Sequence[ReconciledEntry],
    moved: str,
    places: dict[str, int],
    sets: dict[str, frozenset[bytes]],
) -> Iterator[tuple[ReconciledEntry, str]]:
    """What is to be done with each entry: it is ``there``, it is the same ``change``, or it is to ``merge``.

    ``differs``: the paths in which the tree that a patch comes onto may be another than the one it was made for.
    """
    there, passed = True, False
    merged: set[bytes] = set()
    for number, entry in enumerate(after):
        there = there and number < len(before) and before[number].name == entry.name
        if there:
            passed = passed or entry.name == moved
            yield entry, "there"
            continue
        if entry.name == moved:
            at = places[moved]
            between = [e.name for e in (before[number:at] if number < at else before[at + 1 : number + 1])]
            differs = merged.union(*(sets[name] for name in between))
            passed = True
        else:
            differs = merged | (sets[moved] if passed != (places[moved] < places[entry.name]) else frozenset())
        if differs & sets[entry.name]:
            merged |= sets[entry.name]
            yield entry, "merge"
        else:
            yield entry, "change"


def _import(
    store: Git, tip: CommitId, entries: Sequence[ReconciledEntry], changes: dict[str, list[PathChange]]
) -> list[ReconciledEntry]:
    """Commits that change what theirs changed, one on the other, by one process."""
    with import_commits(store, _REF) as (out, ids):
        for number, entry in enumerate(entries, 1):
            mark = tip.encode() if number == 1 else b":%d" % (number - 1)
            out.write(commit_start(_REF, number, entry.commit.author, mail_safe(entry.commit.message), mark))
            # What goes goes first: a folder may come where a file was.
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
        found.append(
            ReconciledEntry(
                entry.name, replace(entry.commit, commit=commit, tree=tree, parents=(parent,), message=message)
            )
        )
    return found
