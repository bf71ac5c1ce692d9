"""Which paths a tree may have, so that it can be written out on every file system."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from patchq.errors import FormatError
from patchq.names import show_path

#: Folders that a path may lead through. Python's own ways to walk and remove folders end at about a thousand.
MOST_DEEP = 256
#: What git's core.protectNTFS takes for ``.git``: its short name, blanks and dots behind it, its streams.
_GIT_FOLDER = re.compile(rb"(?:\.git|git~1)[ .]*(?::.*)?", re.IGNORECASE | re.DOTALL)
#: What HFS+ leaves out of names, and core.protectHFS with it.
_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_GIT_NAME = re.compile(rb"\.git|gi[a-z0-9]{2,6}~\d", re.IGNORECASE)


def _visible(name: bytes) -> bytes:
    if name.isascii():
        return name
    return _IGNORED.sub("", name.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def is_tree_path(path: bytes) -> bool:
    """Whether ``path`` stays inside a tree and outside ``.git``, and every file system takes its names."""
    parts = path.split(b"/")
    if b"" in parts or b"." in parts or b".." in parts or b"\0" in path:
        return False
    if len(path) >= 4096 or max(map(len, parts)) >= 256 or len(parts) > MOST_DEEP:
        return False
    if path.isascii() and b"git" not in (lowered := path.lower()) and b"~" not in lowered:
        return True
    # A backslash parts names on Windows.
    names = [name for part in parts for name in part.split(b"\\")]
    return not any(_GIT_FOLDER.fullmatch(_visible(name)) for name in names)


def is_for_git(path: bytes) -> bool:
    """Whether a path's last name is like one that git reads (``.gitmodules``): it may not be a symbolic link."""
    return _GIT_NAME.match(_visible(path.rsplit(b"/", 1)[-1])) is not None


def one_name(paths: Iterable[bytes]) -> tuple[bytes, bytes] | None:
    """Two paths that are one to a file system that folds case and ways to write an accent; None if there are none."""
    seen: dict[str, bytes] = {}
    for path in paths:
        parts = path.split(b"/")
        for size in range(1, len(parts) + 1):
            name = b"/".join(parts[:size])
            folded = unicodedata.normalize("NFC", name.decode("utf-8", "surrogateescape")).casefold()
            if seen.setdefault(folded, name) != name:
                return seen[folded], name
    return None


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
