"""Checks of the paths in a tree: every file system must be able to store the tree.

``git/worktree.py`` runs them before a worktree changes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from patchq.errors import FormatError
from patchq.names import show_path

#: Most parts of a path. Python's functions that walk and remove folders fail at about a thousand.
MOST_DEEP = 256
#: Names that git's core.protectNTFS reads as ``.git``: its short name, blanks and dots after it,
#: its streams.
_GIT_FOLDER = re.compile(rb"(?:\.git|git~1)[ .]*(?::.*)?", re.IGNORECASE | re.DOTALL)
#: Characters that HFS+ and git's core.protectHFS ignore in names.
_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_GIT_NAME = re.compile(rb"\.git|gi[a-z0-9]{2,6}~\d", re.IGNORECASE)


def _visible(name: bytes) -> bytes:
    if name.isascii():
        return name
    return _IGNORED.sub("", name.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def is_tree_path(path: bytes) -> bool:
    """Return True if every file system can store ``path``, inside the tree and outside ``.git``."""
    parts = path.split(b"/")
    if b"" in parts or b"." in parts or b".." in parts or b"\0" in path:
        return False
    if len(path) >= 4096 or max(map(len, parts)) >= 256 or len(parts) > MOST_DEEP:
        return False
    if path.isascii() and b"git" not in (lowered := path.lower()) and b"~" not in lowered:
        return True
    # A backslash separates names on Windows.
    names = []
    for part in parts:
        names += part.split(b"\\")
    return not any(_GIT_FOLDER.fullmatch(_visible(name)) for name in names)


def is_for_git(path: bytes) -> bool:
    """Return True if a path's last component resembles the name of a file that git reads (``.gitmodules``).

    Such a file must not be a symbolic link.
    """
    return _GIT_NAME.match(_visible(path.rsplit(b"/", 1)[-1])) is not None


def parents_of(path: bytes) -> list[bytes]:
    """Return the parent folders of a path, outermost first.

    >>> parents_of(b"a/b/c.py")
    [b'a', b'a/b']
    """
    parents = []
    end = path.find(b"/")
    while end >= 0:
        parents.append(path[:end])
        end = path.find(b"/", end + 1)
    return parents


def one_name(paths: Iterable[bytes]) -> tuple[bytes, bytes] | None:
    """Return two paths that differ only in case or Unicode normalization (``A.py`` and ``a.py``); None if none do."""
    seen: dict[str, bytes] = {}
    for path in paths:
        for name in (*parents_of(path), path):
            folded = unicodedata.normalize("NFC", name.decode("utf-8", "surrogateescape")).casefold()
            if seen.setdefault(folded, name) != name:
                return seen[folded], name
    return None


def check_tree_path(path: bytes, where: str) -> bytes:
    """Return ``path`` if :func:`is_tree_path` accepts it.

    :raises FormatError: if :func:`is_tree_path` doesn't accept it.
    """
    if not is_tree_path(path):
        raise FormatError(
            f"{where}: the path {show_path(path)!r} leaves the tree, reaches into .git or is too long",
            hint="check where this patch comes from before you use it",
        )
    return path
