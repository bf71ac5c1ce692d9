"""What upstream did to the lines that a patch changes, since the ref that it was written for.

By commits where the git host gives its history, else by releases: then it is known that lines changed between two of
them, not why.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from patchq.git.repository import Git
from patchq.merge.patches import Patch
from patchq.merge.target import Column
from patchq.names import CommitId, show_path

#: Of a history, at most so many commits are named for one place.
MOST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Touch:
    """Lines of a file that a patch changes, and what upstream did to them.

    :ivar first, last: the lines in the ref that the patch was written for, from 1.
    :ivar by: releases in which they changed (``v0.14.0``), or commits (``0123abcd subject``).
    :ivar gone: the ref from which on the file is not there any more, or empty.
    """

    path: str
    first: int
    last: int
    by: tuple[str, ...]
    gone: str = ""


def by_releases(store: Git, patch: Patch, base: Column, versions: Sequence[tuple[str, Column]]) -> list[Touch]:
    """What changed between releases.

    :param versions: upstream's later trees with what to call them, oldest first.
    """
    found = []
    for path, hunks in patch.hunks.items():
        for hunk in hunks:
            first, last = _lines(hunk.old_start, len(hunk.old))
            changed, gone = [], ""
            at, before = (first, last), base.bare.get(path)
            for label, column in versions:
                now = column.bare.get(column.moved.get(path, path))
                if before is None or now is None:
                    gone = label
                    break
                if before.blob != now.blob:
                    at, touched = _follow(store, before.blob, now.blob, at)
                    changed += [label] if touched else []
                before = now
            found.append(Touch(path=show_path(path), first=first, last=last, by=tuple(changed), gone=gone))
    return found


def _lines(start: int, count: int) -> tuple[int, int]:
    return start, start + max(count, 1) - 1


_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


def _follow(store: Git, old: str, new: str, at: tuple[int, int]) -> tuple[tuple[int, int], bool]:
    """Where lines of a file went, and whether any of them changed."""
    out = store.run("diff", "--unified=0", "--no-color", "--no-ext-diff", "--text", old, new).decode("utf-8", "replace")
    first, last = at
    grown_before = grown_inside = 0
    touched = False
    for match in _HUNK.finditer(out):
        start, lost, _, come = (int(n) if n is not None else 1 for n in match.groups())
        end = start + lost - 1 if lost else start  # an insertion stands after line `start`
        if end < first:
            grown_before += come - lost
        elif (start if lost else start + 1) <= last:
            touched = True
            grown_inside += come - lost
    first += grown_before
    return (first, max(first, last + grown_before + grown_inside)), touched


def by_commits(history: Git, patch: Patch, old: CommitId, new: CommitId) -> list[Touch]:
    """What commits of a history changed, newest first.

    :param patch: as it is on ``new``.
    :param history: a repository that has all commits of ``old..new``.
    """
    found = []
    for path, hunks in patch.hunks.items():
        for hunk in hunks:
            first, last = _lines(hunk.old_start, len(hunk.old))
            where = f"-L{first},{last}:{os.fsdecode(path)}"
            argv = ("log", "-s", f"--max-count={MOST}", "--format=%h %s", where, f"{old}..{new}", "--")
            out = history.run(*argv) if old != new else b""  # of no commits, git's -L is an error
            lines = out.decode("utf-8", "replace").splitlines()
            found.append(
                Touch(path=show_path(path), first=first, last=last, by=tuple(line for line in lines if line.strip()))
            )
    return found
