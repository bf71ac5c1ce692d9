"""Find the lines of a patch's diff part that no reader of diffs uses.

`git apply` and `patch` pass over what they don't take for a part of a diff: notes below the
separator, text behind the last hunk, and also a header or hunk that a mail program has damaged.
Text is named, and a damaged part of a diff is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from patchq.adopt.found import Found
from patchq.errors import FormatError
from patchq.names import show_path

_HUNK = re.compile(rb"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_EXTENDED = re.compile(
    rb"(?:old mode|new mode|new file mode|deleted file mode|similarity index|dissimilarity index|rename from|rename to|"
    rb"copy from|copy to|index) "
)
#: Lines that tools write around a diff, and that say nothing that the diff doesn't.
_AROUND = re.compile(
    rb"diff -|diff |Index: |={20,}$|-{20,}$|_{20,}$|\*{15}$|---$|--- \S|\+\+\+ \S|base-commit: |"
    rb"prerequisite-patch-id: |RCS file: |retrieving revision |Property changes on: |changeset: "
)
_STAT = re.compile(
    rb" .* \| +(?:\d+(?: [+-]*)?|Bin(?: .*)?|Unknown)$| \d+ files? changed(?:, .*)?$|"
    rb" (?:create|delete) mode \d{6} | mode change \d{6} => \d{6} | (?:rename|copy|rewrite) .* \(\d+%\)$"
)
_DAMAGED = re.compile(
    rb"[ \t>]*(?:diff --git \S|@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@|GIT binary patch|(?:old|new) mode \d{6}|"
    rb"(?:new|deleted) file mode \d{6}|rename (?:from|to) \S|copy (?:from|to) \S|(?:literal|delta) \d+\r?$|"
    rb"(?:---|\+\+\+) [ab]/\S|old mode\r?$|new mode\r?$|(?:new|deleted) file(?: mode)?\r?$)|[+-](?!- ?\r?$|--)"
)
_SIGNATURE = re.compile(rb"-- ?\r?$")
_VERSION = re.compile(rb"v?\d+(?:\.[\w-]+)+(?: \(.*\))?$")
_ENCODED = re.compile(rb"[A-Za-z][!-~]+\r?$")
_MOST_SHOWN = 3


def name_leftovers(found: Found) -> Found:
    """Return a patch with a note that names the lines that are no part of its diff.

    If one of them is a damaged part of a diff, return the patch with that as its problem.
    """
    if found.left_out or found.problem or not found.diff:
        return found
    left = leftovers(found.diff)
    damaged = next(((number, line) for number, line in left if _DAMAGED.match(line)), None)
    if damaged:
        error = FormatError(
            f"{found.where}: line {damaged[0]} of its diff is damaged, and git would skip it: "
            f"{show_path(damaged[1][:60])}",
            hint="take away what stands before it, or put back what is missing above it",
        )
        return replace(found, problem=error)
    if not left:
        return found
    shown = ", ".join(repr(line.decode("utf-8", "replace").strip()[:60]) for _, line in left[:_MOST_SHOWN])
    more = f" and {len(left) - _MOST_SHOWN} more lines" if len(left) > _MOST_SHOWN else ""
    return replace(found, said=(*found.said, f"{found.where}: left out, as no part of its diff: {shown}{more}"))


def leftovers(diff: bytes) -> list[tuple[int, bytes]]:
    """Return the lines outside hunks and headers, with their numbers from 1."""
    lines = diff.split(b"\n")
    left: list[tuple[int, bytes]] = []
    at, begun = 0, False
    while at < len(lines):
        line = lines[at].rstrip(b"\r")
        if match := _HUNK.match(line):
            if not begun:
                left.append((at + 1, line))
            after = _behind_hunk(lines, at, match)
            if after is None:
                return left  # its counts are wrong: git refuses it
            at = after
            continue
        if line.startswith(b"diff --git "):
            begun = True
            at += 1
            while at < len(lines) and _EXTENDED.match(lines[at]):
                at += 1
            continue
        if line == b"GIT binary patch" and begun:
            at = _behind_binary(lines, at + 1)
            continue
        if line.startswith(b"--- ") and lines[at + 1 : at + 2] and lines[at + 1].startswith(b"+++ "):
            begun = True
            at += 2
            continue
        if _SIGNATURE.match(line) and _VERSION.match(b"".join(lines[at + 1 : at + 2]).strip()):
            at += 2
            continue
        at += 1
        if (
            line.strip()
            and not _SIGNATURE.match(line)
            and not (_AROUND.match(line) or (not begun and _STAT.match(line)))
        ):
            left.append((at, line))
    return left


def _behind_hunk(lines: Sequence[bytes], at: int, match: re.Match[bytes]) -> int | None:
    """Return the index of the line behind a hunk; None if its lines and its counts disagree."""
    old, new = (int(count) if count is not None else 1 for count in match.groups())
    at += 1
    while old > 0 or new > 0:
        kind = lines[at][:1] if at < len(lines) else b"?"
        if kind in (b" ", b"", b"\r") and old and new:
            old, new = old - 1, new - 1
        elif kind == b"-" and old:
            old -= 1
        elif kind == b"+" and new:
            new -= 1
        elif kind != b"\\":
            return None
        at += 1
    while at < len(lines) and lines[at].startswith(b"\\ "):
        at += 1
    return at


def _behind_binary(lines: Sequence[bytes], at: int) -> int:
    """Return the index of the line behind a binary patch."""
    while at < len(lines) and re.match(rb"(?:literal|delta) \d+\r?$", lines[at]):
        at += 1
        while at < len(lines) and _ENCODED.match(lines[at]):
            at += 1
        while at < len(lines) and not lines[at].strip():
            at += 1
    return at
