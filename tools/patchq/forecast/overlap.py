"""Upstream's changes to the lines that a patch changes, since the ref for which the patch was written.

The changes are listed by commit if the git host provides the history, else by release.
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

#: Maximum number of commits listed for one hunk.
MOST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HunkOverlap:
    """Upstream's changes to the lines of one hunk.

    :ivar first, last: line numbers (from 1) in the ref for which the patch was written.
    :ivar by: releases (``v0.14.0``) or commits (``0123abcd subject``) that changed these lines.
    :ivar gone: first ref that doesn't contain the file; empty if every ref contains it.
    """

    path: str
    first: int
    last: int
    by: tuple[str, ...]
    gone: str = ""


def by_releases(store: Git, patch: Patch, base: Column, versions: Sequence[tuple[str, Column]]) -> list[HunkOverlap]:
    """Return upstream's changes to a patch's lines, by release.

    :param versions: later trees of upstream with their labels, oldest first.
    """
    found = []
    for path, hunks in patch.hunks.items():
        for hunk in hunks:
            first, last = _lines(hunk.old_start, len(hunk.old))
            changed: list[str] = []
            gone = ""
            at, before = (first, last), base.bare.get(path)
            for label, column in versions:
                now = column.bare.get(column.moved.get(path, path))
                if before is None or now is None:
                    gone = label
                    break
                if before.blob != now.blob:
                    at, touched = _follow(store, before.blob, now.blob, at)
                    if touched:
                        changed.append(label)
                before = now
            found.append(HunkOverlap(path=show_path(path), first=first, last=last, by=tuple(changed), gone=gone))
    return found


def _lines(start: int, count: int) -> tuple[int, int]:
    return start, start + max(count, 1) - 1


_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


def _follow(store: Git, old: str, new: str, at: tuple[int, int]) -> tuple[tuple[int, int], bool]:
    """Return the new position of a range of lines, and True if any of the lines changed."""
    out = store.run("diff", "--unified=0", "--no-color", "--no-ext-diff", "--text", old, new).decode("utf-8", "replace")
    first, last = at
    grown_before = grown_inside = 0
    touched = False
    for match in _HUNK.finditer(out):
        start, lost, _, come = (int(n) if n is not None else 1 for n in match.groups())
        end = start + max(lost, 1) - 1
        if not lost:
            start += 1  # git inserts after the named line
        if end < first:
            grown_before += come - lost
        elif start <= last:
            touched = True
            grown_inside += come - lost
    first += grown_before
    return (first, max(first, last + grown_before + grown_inside)), touched


def by_commits(history: Git, patch: Patch, old: CommitId, new: CommitId) -> list[HunkOverlap]:
    """Return upstream's changes to a patch's lines, by commit, newest first.

    :param patch: patch as applied to ``new``.
    :param history: repository with all commits of ``old..new``.
    """
    found = []
    for path, hunks in patch.hunks.items():
        for hunk in hunks:
            first, last = _lines(hunk.old_start, len(hunk.old))
            where = f"-L{first},{last}:{os.fsdecode(path)}"
            argv = ("log", "-s", f"--max-count={MOST}", "--format=%h %s", where, f"{old}..{new}", "--")
            out = history.run(*argv) if old != new else b""  # git log -L fails on an empty range
            lines = out.decode("utf-8", "replace").splitlines()
            commits = tuple(filter(str.strip, lines))
            found.append(HunkOverlap(path=show_path(path), first=first, last=last, by=commits))
    return found
