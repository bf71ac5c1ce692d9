"""Checks that a tree can be checked out on this and other systems. They run before anything is changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from patchq.errors import FormatError
from patchq.formats import treepath
from patchq.git.repository import Git
from patchq.names import CommitId, show_path
from patchq.system import fsio, runner

#: Refuse paths that Windows or macOS forbid: a stack must work on every system.
PROTECTED = ("core.protectNTFS=true", "core.protectHFS=true")


@contextmanager
def output(upstream: str) -> Iterator[None]:
    """Convert git's error about an invalid path into an error for the user.

    :raises FormatError: if git refuses a path.
    """
    try:
        yield
    except runner.CommandError as error:
        if match := re.search(r"invalid path '(.*)'", error.output):
            raise _odd_tree(upstream, f"git refuses the path {match[1]!r}") from None
        raise


def check_names(store: Git, upstream: str, commit: CommitId, nested: Sequence[bytes]) -> None:
    """Check that this file system can store a commit's paths, and that they don't overlap with nested upstreams.

    :param nested: paths in the tree that belong to other upstreams.
    :raises FormatError: if two paths differ only by case on a file system that ignores case, or a
        file is at the path of a nested upstream.
    """
    if nested:
        there = store.list_tree(commit, nested)
        if found := [path for path, entry in there.items() if entry.mode != b"160000"]:
            raise _odd_tree(upstream, f"{show_path(found[0])} is at the path of a nested upstream")
    if fsio.folds_case(store.folder) and (same := treepath.one_name(store.list_tree(commit))):
        raise _odd_tree(upstream, f"to this file system {' and '.join(map(show_path, same))} are one name")


def _odd_tree(upstream: str, what: str) -> FormatError:
    return FormatError(
        f"{upstream}: the tree can't be written out: {what}; nothing was changed",
        hint="remove that path from the patch that adds it; if upstream adds it, pin another ref",
    )
