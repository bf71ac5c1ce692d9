"""Whether a tree can be written out: found out before anything of a change moves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from patchq.errors import FormatError
from patchq.formats import treepath
from patchq.git.repository import Git
from patchq.names import CommitId, show_path
from patchq.system import fsio, runner

#: What one system forbids is forbidden on each: a stack is for all of them.
PROTECTED = ("core.protectNTFS=true", "core.protectHFS=true")


@contextmanager
def told(upstream: str) -> Iterator[None]:
    """Around a ``git read-tree``: a path that it refuses becomes an error that says so.

    :raises FormatError: instead of git's own.
    """
    try:
        yield
    except runner.CommandError as error:
        if match := re.search(r"invalid path '(.*)'", error.said):
            raise _odd_tree(upstream, f"git says: invalid path {match[1]!r}") from None
        raise


def check_names(store: Git, upstream: str, commit: CommitId, nested: Sequence[bytes]) -> None:
    """Look at the names of a commit's files as this file system will.

    :param nested: paths that belong to other upstreams.
    :raises FormatError: if two names are one here, or a file lies where a nested upstream belongs.
    """
    if nested:
        there = store.list_tree(commit, nested)
        if found := [path for path, entry in there.items() if entry.mode != b"160000"]:
            raise _odd_tree(upstream, f"{show_path(found[0])} lies where a nested upstream belongs")
    if fsio.folds_case(store.folder) and (same := treepath.one_name(store.list_tree(commit))):
        raise _odd_tree(upstream, f"to this file system {' and '.join(map(show_path, same))} are one name")


def _odd_tree(upstream: str, what: str) -> FormatError:
    return FormatError(
        f"{upstream}: the tree can't be written out: {what}; nothing was changed",
        hint="take that path out of the patch that adds it; if it is upstream's own, pin another ref",
    )
