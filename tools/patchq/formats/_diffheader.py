"""Header of one file's diff, as ``git diff`` writes it.

git also accepts headers that it would never write. If two header lines contradict each other, git follows one of them.
This module reads a header only if all its lines agree. Leave other headers to git.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

_MODES = (b"100644", b"100755", b"120000", b"160000")
_INDEX = re.compile(rb"index [0-9a-f]{1,40}\.\.[0-9a-f]{1,40}(?: (100644|100755|120000))?")
_SIMILAR = re.compile(rb"similarity index (?:100|\d{1,2})%")
_DISSIMILAR = re.compile(rb"dissimilarity index (?:100|\d{1,2})%")
_BARE = re.compile(rb'[^"\\\x00-\x1f\x7f]*')
_QUOTED = re.compile(rb'"(?:[^"\\\x00-\x1f\x7f]|\\(?:[abtnvfr"\\]|[0-3][0-7]{2}))*"')
#: Line of a header that contains a path.
_PATH = re.compile(rb"(?:--- |\+\+\+ |(?:rename|copy) (?:from|to) )([^\t]+).*")
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2}|.)", re.DOTALL)
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


@dataclass(slots=True, kw_only=True)
class FileHeader:
    """Header above the hunks of one file.

    Paths don't include ``a/`` and ``b/``. A path of None means that the file doesn't exist on that side.

    ``old_mode`` is None if the header doesn't state the old mode. ``new_mode`` is None if the mode doesn't change.
    """

    old_path: bytes | None
    new_path: bytes | None
    old_mode: bytes | None = None
    new_mode: bytes | None = None
    copy: bool = False
    binary: bool = False
    hunks: bool = False


def read_header(lines: Sequence[bytes], at: int) -> tuple[FileHeader, int] | None:
    """Read the header that begins with the ``diff --git`` line ``lines[at]``.

    :returns: the header, and the index of the first line after it; None if git might interpret these lines
        differently.
    """
    try:
        return _read(lines, at)
    except (_OddError, IndexError):
        return None


def read_paths(lines: Sequence[bytes], at: int) -> set[bytes]:
    """Return the paths in the header that begins with the ``diff --git`` line ``lines[at]``.

    If only git can read the header, return the paths in its lines, even if the lines contradict each other.
    """
    header = read_header(lines, at)
    if header:
        return {path for path in (header[0].old_path, header[0].new_path) if path is not None}
    found = set()
    for line in lines[at + 1 :]:
        if line.startswith((b"diff --git ", b"@@ -")):
            break
        match = _PATH.fullmatch(line)
        if match is None or match[1] == b"/dev/null":
            continue
        with suppress(_OddError):
            path = _plain(match[1])
            if line.startswith((b"--- ", b"+++ ")):
                path = path.partition(b"/")[2]
            found.add(path)
    return found


class _OddError(Exception):
    """Error for a header line that git wouldn't have written at this position."""


def _read(lines: Sequence[bytes], at: int) -> tuple[FileHeader, int]:
    end = len(lines)
    names = lines[at]
    at += 1
    stated = None
    copy = False
    old, new = _same_names(names)
    old_mode, new_mode, at = _changed_modes(lines, at)
    created, deleted = bool(new_mode and not old_mode), bool(old_mode and not new_mode)
    moded = old_mode or new_mode
    if at < end and lines[at].startswith(b"similarity "):
        copy = lines[at + 1].startswith(b"copy ")
        old = _value(lines[at + 1], b"copy from " if copy else b"rename from ")
        new = _value(lines[at + 2], b"copy to " if copy else b"rename to ")
        if not _SIMILAR.fullmatch(lines[at]) or created or deleted or old == new:
            raise _OddError
        at += 3
    elif at < end and lines[at].startswith(b"dissimilarity "):
        if not _DISSIMILAR.fullmatch(lines[at]) or created or deleted:
            raise _OddError
        at += 1
    if at < end and lines[at].startswith(b"index "):
        stated = _stated_mode(lines[at])
        if stated and moded:
            raise _OddError
        at += 1
    if old is None or new is None or names != b"diff --git %s %s" % (_label(b"a/", old), _label(b"b/", new)):
        raise _OddError
    header = FileHeader(
        old_path=_plain(old), new_path=_plain(new), old_mode=old_mode or stated, new_mode=new_mode, copy=copy
    )
    old_label, new_label = _label(b"a/", old), _label(b"b/", new)
    if created:
        header.old_path, old_label = None, b"/dev/null"
    if deleted:
        header.new_path, new_label = None, b"/dev/null"
    at = _sides(header, lines, at, old_label, new_label)
    changes = moded or old != new
    if not (header.hunks or header.binary or changes):
        raise _OddError
    return header, at


def _changed_modes(lines: Sequence[bytes], at: int) -> tuple[bytes | None, bytes | None, int]:
    """Read the modes of a new or deleted file, or of a file whose mode changes.

    :returns: the old mode (None for a new file), the new mode (None for a deleted file), and the index of the
        next line. Both modes are None if the mode doesn't change.
    """
    if at == len(lines):
        return None, None, at
    line = lines[at]
    if line.startswith(b"old mode "):
        old, new = line[9:], _value(lines[at + 1], b"new mode ")
        if {old, new} != {b"100644", b"100755"}:
            raise _OddError
        return old, new, at + 2
    if line.startswith(b"new file mode "):
        return None, _known_mode(line[14:]), at + 1
    if line.startswith(b"deleted file mode "):
        return _known_mode(line[18:]), None, at + 1
    return None, None, at


def _known_mode(mode: bytes) -> bytes:
    if mode not in _MODES:
        raise _OddError
    return mode


def _stated_mode(line: bytes) -> bytes | None:
    """Return the mode in an ``index`` line; None if the line has none.

    git writes a mode in this line only if the file's mode doesn't change.
    """
    match = _INDEX.fullmatch(line)
    if not match:
        raise _OddError
    return match[1]


def _sides(header: FileHeader, lines: Sequence[bytes], at: int, old: bytes, new: bytes) -> int:
    """Read the ``---`` and ``+++`` lines above the hunks, or detect that the file is binary or has no hunks.

    :returns: the index of the next line.
    """
    if at >= len(lines):
        return at
    if lines[at].startswith(b"--- "):
        # git adds a tab after a path with a blank.
        if lines[at].removesuffix(b"\t") != b"--- " + old or lines[at + 1].removesuffix(b"\t") != b"+++ " + new:
            raise _OddError
        if not lines[at + 2].startswith(b"@@ -"):
            raise _OddError
        header.hunks = True
        return at + 2
    header.binary = lines[at] == b"GIT binary patch" or lines[at].startswith(b"Binary files ")
    return at


def _value(line: bytes, key: bytes) -> bytes:
    if not line.startswith(key):
        raise _OddError
    return line[len(key) :]


def _same_names(line: bytes) -> tuple[bytes | None, bytes | None]:
    """Return the two paths of a ``diff --git`` line, with quotes and escapes; ``(None, None)`` if the paths differ."""
    text = line[11:]
    half = len(text) // 2
    first = text[:half]
    if first.startswith(b"a/"):
        return first[2:], first[2:]
    if first.startswith(b'"a/'):
        return b'"' + first[3:], b'"' + first[3:]
    return None, None


def _label(prefix: bytes, path: bytes) -> bytes:
    """Add the prefix ``a/`` or ``b/`` to a path of a header: ``x`` → ``a/x``, ``"x"`` → ``"a/x"``."""
    if path.startswith(b'"'):
        return b'"' + prefix + path[1:]
    return prefix + path


def _plain(path: bytes) -> bytes:
    """Return a path from a header without its quotes and escapes."""
    if not path.startswith(b'"'):
        if not _BARE.fullmatch(path):
            raise _OddError
        return path
    if not _QUOTED.fullmatch(path):
        raise _OddError
    found = _ESCAPE.sub(lambda m: bytes([int(m[1], 8)]) if len(m[1]) == 3 else _ESCAPES.get(m[1], m[1]), path[1:-1])
    if b"\0" in found:
        raise _OddError
    return found
