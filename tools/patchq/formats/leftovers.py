"""Search in a diff for text that ``git apply`` and ``patch`` ignore.

Both programs skip lines that they don't recognize as part of a diff: notes below the separator, text after
the last hunk, and also a header or hunk that a mail program has damaged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_HUNK = re.compile(rb"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_EXTENDED = re.compile(
    rb"(?:old mode|new mode|new file mode|deleted file mode|similarity index|dissimilarity index|rename from|rename to|"
    rb"copy from|copy to|index) "
)
#: Lines that tools write around a diff without adding information.
_AROUND = re.compile(
    rb"diff -|diff |Index: |={20,}$|-{20,}$|_{20,}$|\*{15}$|---$|--- \S|\+\+\+ \S|base-commit: |"
    rb"prerequisite-patch-id: |RCS file: |retrieving revision |Property changes on: |changeset: "
)
_STAT = re.compile(
    rb" .* \| +(?:\d+(?: [+-]*)?|Bin(?: .*)?|Unknown)$| \d+ files? changed(?:, .*)?$|"
    rb" (?:create|delete) mode \d{6} | mode change \d{6} => \d{6} | (?:rename|copy|rewrite) .* \(\d+%\)$"
)
_SIGNATURE = re.compile(rb"-- ?\r?$")
_VERSION = re.compile(rb"v?\d+(?:\.[\w-]+)+(?: \(.*\))?$")
_ENCODED = re.compile(rb"[A-Za-z][!-~]+\r?$")


def leftovers(diff: bytes) -> list[tuple[int, bytes]]:
    """Return the lines that are outside of hunks and headers, with their numbers from 1."""
    lines = diff.split(b"\n")
    left: list[tuple[int, bytes]] = []
    at, begun = 0, False
    while at < len(lines):
        line = lines[at].rstrip(b"\r")
        if match := _HUNK.match(line):
            if not begun:
                left.append((at + 1, line))
            behind = end_of_hunk(lines, at + 1, line_count(match[1]), line_count(match[2]))
            if behind is None:
                return left  # its counts are wrong: git refuses the hunk
            at = behind
            continue
        if line.startswith(b"diff --git "):
            begun = True
            after, is_complete = _behind_header(lines, at)
            if not is_complete:
                left.append((at + 1, line))
            at = after
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


def _behind_header(lines: Sequence[bytes], start: int) -> tuple[int, bool]:
    """Skip a ``diff --git`` header, and the binary patch after it, if there is one.

    :returns: the index of the next line, and False if the header's change doesn't follow the header directly.
    """
    at = start + 1
    while at < len(lines) and _EXTENDED.match(lines[at]):
        at += 1
    follows = b""
    if at < len(lines):
        follows = lines[at][:4]
    bare = at == start + 1 or (at == start + 2 and lines[start + 1].startswith(b"index "))
    is_complete = not bare or follows in (b"--- ", b"+++ ", b"@@ -", b"GIT ", b"Bina")
    if at < len(lines) and lines[at].rstrip(b"\r") == b"GIT binary patch":
        at = _behind_binary(lines, at + 1)
    return at, is_complete


def line_count(text: bytes | None) -> int:
    """Return a line count from a hunk's header. A missing count means 1."""
    if text is None:
        return 1
    return int(text)


def end_of_hunk(lines: Sequence[bytes], at: int, old: int, new: int) -> int | None:
    """Return the index of the line after a hunk; None if the hunk's lines don't match its line counts.

    :param at: index of the hunk's first line after the header.
    :param old, new: line counts of the old and new file in the hunk's header.
    """
    while old or new:
        kind = b"?"
        if at < len(lines):
            kind = lines[at][:1]
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
    """Return the index of the line after a binary patch."""
    while at < len(lines) and re.match(rb"(?:literal|delta) \d+\r?$", lines[at]):
        at += 1
        while at < len(lines) and _ENCODED.match(lines[at]):
            at += 1
        while at < len(lines) and not lines[at].strip():
            at += 1
    return at
