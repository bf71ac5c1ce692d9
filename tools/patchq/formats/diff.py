"""Git diffs, parsed and applied in process, with the exact semantics of ``git apply``.

Why not git for each patch: a process or three a patch is what makes the peers slow. Why it is
safe: the rules below are those of git 2.39's ``apply.c`` (search order, anchoring, no overlap,
no fuzz), a property test compares both on random diffs, and whatever is not handled here
(binary patches, diffs without a ``diff --git`` line, a path twice in one patch) raises
:class:`Unsupported`, upon which the caller hands that one patch to git.
In one case it refuses what git takes: a last context line without a newline doesn't match a line
that has one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from patchq.errors import FormatError
from patchq.names import show_path

REGULAR, EXECUTABLE, SYMLINK, GITLINK = b"100644", b"100755", b"120000", b"160000"


class Unsupported(Exception):
    """A diff that is for git itself to apply."""


class Mismatch(Exception):
    """A file patch that doesn't fit. ``hunk`` is None where the file as a whole doesn't."""

    def __init__(self, reason: str, hunk: Hunk | None = None) -> None:
        super().__init__(reason)
        self.reason, self.hunk = reason, hunk


@dataclass(frozen=True, slots=True)
class Hunk:
    """``old`` and ``new`` are the lines with their ends, context included.

    ``context`` counts the lines that are in both, ``trailing`` those of them at the end.
    """

    header: bytes
    old_start: int
    new_start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    trailing: int
    context: int


@dataclass(slots=True)
class FilePatch:
    """One ``diff --git`` of a patch. Paths are without ``a/`` and ``b/``; None for no file."""

    old_path: bytes | None
    new_path: bytes | None
    old_mode: bytes | None = None
    new_mode: bytes | None = None
    copy: bool = False
    binary: bool = False
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def paths(self) -> set[bytes]:
        """The paths on both sides."""
        return {p for p in (self.old_path, self.new_path) if p is not None}

    @property
    def path(self) -> bytes:
        """The path to name in messages."""
        return self.new_path or self.old_path or b""


_GIT_LINE = re.compile(rb"diff --git (.*)")
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


def is_tree_path(path: bytes) -> bool:
    """Whether ``path`` stays inside a tree and outside ``.git``, and every file system takes its names."""
    parts = path.split(b"/")
    lowered = [p.lower().rstrip(b". ") for p in parts]
    odd = {b"", b".", b".."}.intersection(parts) or {b".git", b"git~1"}.intersection(lowered)
    return bool(path) and b"\0" not in path and not odd and len(path) < 4096 and max(map(len, parts)) < 256


def check_tree_path(path: bytes, where: str) -> bytes:
    """Return ``path`` if :func:`is_tree_path`.

    :raises FormatError: otherwise.
    """
    if not is_tree_path(path):
        raise FormatError(
            f"{where}: the path {show_path(path)!r} leaves the tree, reaches into .git or is too long",
            hint="don't use this patch before you know where it comes from",
        )
    return path


def unquote(value: bytes) -> bytes:
    """Undo git's C-style quoting of a path."""
    if not value.startswith(b'"'):
        return value
    return re.sub(
        rb"\\([0-7]{3}|.)",
        lambda m: bytes([int(m[1], 8) & 255]) if len(m[1]) == 3 else _ESCAPES.get(m[1], m[1]),
        value[1:-1],
    )


def parse(data: bytes, where: str) -> list[FilePatch]:
    """Parse the diff of a patch file.

    :param where: what to call it in an error.
    :raises FormatError: for a damaged diff, or a path that leaves the tree.
    :raises Unsupported: for what only git applies; its paths are checked all the same.
    """
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    found: list[FilePatch] = []
    at, end = 0, len(lines)
    while at < end:
        if lines[at].startswith(b"diff --git "):
            patch, at = _parse_file(lines, at, where)
            found.append(patch)
        elif lines[at].startswith((b"--- ", b"+++ ", b"@@ -")):
            raise Unsupported("a diff without a 'diff --git' line")
        else:
            at += 1
    paths: set[bytes] = set()
    for file in found:
        for path in file.paths:
            if path in paths:
                raise Unsupported("a path twice in one patch")
            paths.add(check_tree_path(path, where))
    if any(f.binary for f in found):
        raise Unsupported("a binary patch")
    return found


def _parse_file(lines: Sequence[bytes], at: int, where: str) -> tuple[FilePatch, int]:
    start = at
    patch = FilePatch(None, None)
    names = _names_of(lines[at])
    patch.old_path = patch.new_path = names
    at += 1
    created = deleted = False
    while at < len(lines):
        line = lines[at]
        word, _, value = line.partition(b" ")
        if line.startswith(b"old mode "):
            patch.old_mode = line[9:]
        elif line.startswith(b"new mode "):
            patch.new_mode = line[9:]
        elif line.startswith(b"deleted file mode "):
            deleted, patch.old_mode = True, line[18:]
        elif line.startswith(b"new file mode "):
            created, patch.new_mode = True, line[14:]
        elif line.startswith((b"rename from ", b"copy from ")):
            patch.old_path, patch.copy = unquote(value[5:]), word == b"copy"
        elif line.startswith((b"rename to ", b"copy to ")):
            patch.new_path = unquote(value[3:])
        elif line.startswith(b"index "):
            words = line.split(b" ")
            if len(words) > 2:  # as in git, it only states what the file was; the result keeps the file's own
                patch.old_mode = words[2]
        elif line.startswith((b"similarity index ", b"dissimilarity index ")):
            pass
        elif line.startswith(b"--- ") and at + 1 < len(lines) and lines[at + 1].startswith(b"+++ "):
            # Their order matters to git only where the first line's names are ambiguous.
            old, new = (_side(lines[at + i], 4) for i in (0, 1))
            if names is None and patch.old_path is None and patch.new_path is None:
                patch.old_path = patch.new_path = new if new is not None else old
            at = _parse_hunks(patch, lines, at + 2, where)
            break
        elif line.startswith((b"GIT binary patch", b"Binary files ")):
            patch.binary = True
            at += 1
            break
        else:
            break
        at += 1
    if patch.old_path is None and patch.new_path is None:
        raise FormatError(f"{where}:{start + 1}: no file name in the diff", hint=f"look at {where}")
    for mode in (patch.old_mode, patch.new_mode):
        if mode not in (None, REGULAR, EXECUTABLE, SYMLINK, GITLINK):
            raise Unsupported(f"mode {mode!r}")
    if GITLINK in (patch.old_mode, patch.new_mode):
        raise Unsupported("a submodule")
    if created:
        patch.old_path = None
    if deleted:
        patch.new_path = None
    return patch, at


def _side(line: bytes, skip: int) -> bytes | None:
    """The path of a ``---`` or ``+++`` line, without its ``a/`` or ``b/`` and a tab behind it."""
    value = line[skip:]
    value = unquote(value.rstrip(b"\t")) if value.startswith(b'"') else value.split(b"\t")[0]
    return None if value == b"/dev/null" else value[2:]


def _names_of(line: bytes) -> bytes | None:
    """The path of a ``diff --git`` line if both sides are the same, else None."""
    match = _GIT_LINE.fullmatch(line)
    text = match[1] if match else b""
    if text.startswith(b'"'):
        parts = re.fullmatch(rb'("(?:[^"\\]|\\.)*") (.*)', text, re.DOTALL)
        if not parts:
            return None
        old, new = unquote(parts[1]), unquote(parts[2])
    elif text.endswith(b'"'):
        old, _, quoted = text.partition(b' "')
        new = unquote(b'"' + quoted)
    else:
        half = len(text) // 2
        old, new = text[:half], text[half + 1 :]
    if old[:2] == b"a/" and new[:2] == b"b/" and old[2:] == new[2:]:
        return old[2:]
    return None


def _parse_hunks(patch: FilePatch, lines: Sequence[bytes], at: int, where: str) -> int:
    while at < len(lines):
        match = _HUNK.match(lines[at])
        if not match:
            break
        header, begin = lines[at], at + 1
        old_left, new_left = (int(match[i]) if match[i] is not None else 1 for i in (2, 4))
        old: list[bytes] = []
        new: list[bytes] = []
        context = trailing = 0
        at += 1
        while old_left > 0 or new_left > 0:
            line = lines[at] if at < len(lines) else b"?"
            kind, text = line[:1], line[1:] + b"\n"
            if kind in (b" ", b"") and old_left > 0 and new_left > 0:
                # Some mailers drop the blank of an empty context line; git accepts that.
                old.append(text)
                new.append(text)
                old_left, new_left = old_left - 1, new_left - 1
                trailing += 1
                context += 1
            elif kind == b"-" and old_left > 0:
                old.append(text)
                old_left, trailing = old_left - 1, 0
            elif kind == b"+" and new_left > 0:
                new.append(text)
                new_left, trailing = new_left - 1, 0
            elif kind == b"\\" and at > begin:
                _drop_newline(lines[at - 1], old, new)
            else:
                raise FormatError(
                    f"{where}: {show_path(patch.path)}: the hunk {header.decode('utf-8', 'replace')!r} "
                    "is damaged: its lines and its counts disagree",
                    hint=f"look at {where}; a hand-edited hunk needs new counts (`patchq export` makes them)",
                )
            at += 1
        if at < len(lines) and lines[at].startswith(b"\\"):
            _drop_newline(lines[at - 1], old, new)
            at += 1
        patch.hunks.append(Hunk(header, int(match[1]), int(match[3]), tuple(old), tuple(new), trailing, context))
    return at


def _drop_newline(above: bytes, old: list[bytes], new: list[bytes]) -> None:
    if above[:1] in (b" ", b"-", b"") and old:
        old[-1] = old[-1].removesuffix(b"\n")
    if above[:1] in (b" ", b"+", b"") and new:
        new[-1] = new[-1].removesuffix(b"\n")


def split_lines(content: bytes) -> list[bytes]:
    """The lines of a file with their ends; only LF ends a line, as for git."""
    lines = content.split(b"\n")
    last = lines.pop()
    found = [line + b"\n" for line in lines]
    if last:
        found.append(last)
    return found


def apply_hunks(hunks: Sequence[Hunk], content: bytes) -> tuple[bytes, list[tuple[Hunk, int]]]:
    """Apply the hunks of one file to its content.

    :returns: the new content, and for each hunk that was found elsewhere than its header says,
        by how many lines.
    :raises Mismatch: naming the first hunk whose lines are not there exactly.
    """
    image = split_lines(content)
    # Lines that an earlier hunk wrote can't be matched by a later one (git: LINE_PATCHED).
    done: list[tuple[int, int]] = []
    moved: list[tuple[Hunk, int]] = []
    for hunk in hunks:
        want = max(hunk.new_start - 1, 0)
        at = _find(hunk, image, want, done)
        if at < 0:
            raise Mismatch("its lines are not there", hunk)
        if at != want:
            moved.append((hunk, at - want))
        grown = len(hunk.new) - len(hunk.old)
        image[at : at + len(hunk.old)] = hunk.new
        if grown:
            done = [(a + grown, b + grown) if a >= at + len(hunk.old) else (a, b) for a, b in done]
        done.append((at, at + len(hunk.new)))
    return b"".join(image), moved


def _find(hunk: Hunk, image: list[bytes], want: int, done: Sequence[tuple[int, int]]) -> int:
    """Where the hunk's old lines are, searched in git's order around ``want``, or -1."""
    size, total = len(hunk.old), len(image)
    old = list(hunk.old)
    at_start = hunk.old_start == 0 or hunk.old_start == 1
    at_end = hunk.trailing == 0
    if at_start:
        line = 0
    elif at_end:
        line = total - size
    else:
        line = want
    if not 0 <= line <= total:
        line = total

    def fits(at: int) -> bool:
        if at + size > total or (at_end and at + size != total) or (at_start and at):
            return False
        if size and image[at] != old[0]:
            return False
        if any(a < at + size and at < b for a, b in done):
            return False
        return image[at : at + size] == old

    if fits(line):
        return line
    back, forward = line, line
    while back > 0 or forward < total:
        if forward < total:
            forward += 1
            if fits(forward):
                return forward
        if back > 0:
            back -= 1
            if fits(back):
                return back
    return -1
