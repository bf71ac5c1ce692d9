"""Paths of a project's files, the user's cache folder, and checks of names that become paths."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote

from patchq.errors import FormatError, UserError
from patchq.records import dataclass

LOCK_NAME = "upstream.lock"
#: Folder of the kernels to compile ahead of time, one file per upstream.
KERNELS = "kernels"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


def check_name(value: str, what: str) -> str:
    """Return ``value`` if it is valid as a file or folder name in a project.

    A valid name has at most 100 letters, digits, ``.``, ``_``, ``+`` and ``-``, and starts with a letter or a
    digit. It doesn't contain ``..`` or end with ``.`` or ``.lock``. Such a name has no special meaning in any
    file system, ref or shell.

    :raises FormatError: if the name is invalid.
    """
    bad = not _NAME.fullmatch(value) or ".." in value or value.endswith((".lock", "."))
    if bad:
        raise FormatError(
            f"{value!r} can't be the name of {what}",
            hint="use letters, digits, '.', '_', '+' and '-', starting with a letter or digit",
        )
    return value


def fold_name(name: str) -> str:
    """Return the same text for all names that a case-insensitive file system (macOS, Windows) treats as equal.

    >>> fold_name("P4") == fold_name("p4"), fold_name("e\u0301") == fold_name("\u00c9")
    (True, True)
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def find_twins(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the first two names that are the same file on a case-insensitive file system; None if all differ."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(fold_name(name), name)
        if other != name:
            return other, name
    return None


def check_inside(value: str, what: str) -> PurePosixPath:
    """Check that ``value`` is a relative path that can't lead out of its base folder, and return it as a path.

    :param what: name of the value, for the error message.
    :raises FormatError: for an empty or absolute path, ``..``, ``.git``, a backslash or a control
        character.
    """
    path = PurePosixPath(value)
    parts = path.parts
    if (
        not parts
        or path.is_absolute()
        or any(p == ".." or p.lower() == ".git" for p in parts)
        or any(ord(c) < 32 or c == "\\" for c in value)
    ):
        raise FormatError(
            f"{what} {value!r} is not a relative path inside its folder",
            hint="use a relative path without '..' and '.git'",
        )
    return path


_IN_NO_REF = re.compile(r"[\0-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")


def check_ref(value: str, what: str) -> str:
    """Return ``value`` if it is valid as a tag or branch name (``git check-ref-format``).

    Full ref names (``refs/pull/1/head``) are also valid, except names below ``refs/replace`` and ``refs/patchq``.

    :raises FormatError: if the name is invalid.
    """
    bad = (
        not value
        or value == "@"
        or value[0] in "-/"
        or value.endswith(("/", "."))
        or _IN_NO_REF.search(value)
        or any(part.startswith(".") or part.endswith(".lock") for part in value.split("/"))
        or value.startswith(("refs/replace/", "refs/patchq/"))
    )
    if bad:
        raise FormatError(f"{value!r} can't be the name of {what}", hint="`git check-ref-format` describes the rules")
    return value


def ref_component(ref: str) -> str:
    """Encode a ref as one part of another ref's name, without ``/`` and without characters that are special for git.

    >>> ref_component("release/1.0"), ref_component("a:b")
    ('release%2F1.0', 'a%3Ab')
    """
    return ref_to_folder(ref).replace("..", "%2E%2E")


def ref_to_folder(ref: str) -> str:
    """Return the folder name for a ref. Characters that are invalid in a name are percent-encoded.

    >>> ref_to_folder("v0.13.0"), ref_to_folder("release/1.0")
    ('v0.13.0', 'release%2F1.0')
    """
    name = quote(ref, safe="+")
    if name.startswith("."):
        return "%2E" + name[1:]
    return name


def folder_to_ref(name: str) -> str:
    """Return the ref for a folder name; the inverse of :func:`ref_to_folder`."""
    return unquote(name)


@dataclass(frozen=True, slots=True)
class Layout:
    """Files and folders of the project at ``root`` (an absolute path).

    :ivar shared_store: store of another project, if this project is an older version of the other project and
        uses its store; otherwise None.
    """

    root: Path
    shared_store: Path | None = None

    @property
    def lock(self) -> Path:
        return self.root / LOCK_NAME

    @property
    def private(self) -> Path:
        return self.root / ".patchq"

    @property
    def store(self) -> Path:
        return self.shared_store or self.private / "store.git"

    @property
    def dist(self) -> Path:
        return self.root / "dist"

    def stack(self, upstream: str, ref: str) -> Path:
        """Return the folder of a stack."""
        return self.root / "patches" / upstream / ref_to_folder(ref)

    def tree(self, upstream: str) -> Path:
        """Return the worktree of an upstream."""
        return self.private / "trees" / upstream

    def state(self, upstream: str) -> Path:
        """Return the file in which ``apply`` stores the state of an upstream."""
        return self.private / "state" / f"{upstream}.json"


def find_project(start: Path) -> Layout:
    """Find the project that contains the folder ``start``.

    :raises UserError: if neither ``start`` nor a folder above it contains an ``upstream.lock``, or if the
        current folder no longer exists.
    """
    try:
        start = start.resolve()
    except FileNotFoundError:
        raise UserError(
            "the current folder no longer exists", hint="change to an existing folder, or pass --project DIR"
        ) from None
    for folder in (start, *start.parents):
        if os.path.lexists(folder / LOCK_NAME):
            return Layout(folder)
    raise UserError(
        f"no {LOCK_NAME} in {start} or above",
        hint="`patchq init` makes a project here; `--project DIR` uses the project in another folder",
    )


def cache_folder() -> Path:
    """Return the folder for downloads. All projects of the current user share this folder."""
    if override := os.environ.get("PATCHQ_CACHE"):
        return Path(override)
    if sys.platform == "darwin":
        return Path("~/Library/Caches/patchq").expanduser()
    # The specification ignores relative paths: https://specifications.freedesktop.org/basedir-spec/latest/
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if named.startswith("/") else Path("~/.cache").expanduser()) / "patchq"
