"""Upstreams in local folders: resolution of their paths, and import of a folder that is not a repository."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from patchq.errors import SourceError
from patchq.formats.lock import Pin
from patchq.git.repository import Git, scratch
from patchq.names import CommitId
from patchq.system.paths import Layout


def local_folder(layout: Layout, url: str) -> Path | None:
    """Return the local folder that a URL names; None for a remote URL."""
    if url.startswith("file://"):
        return Path(os.path.realpath(layout.root / url[7:]))
    if "://" in url or (":" in url.split("/")[0]):
        return None
    return local_path(layout, url)


def git_source(layout: Layout, url: str) -> str:
    """Return the address from which git fetches a URL of the lock. A local folder becomes its absolute path."""
    return str(local_folder(layout, url) or url)


def local_path(layout: Layout, path: str) -> Path:
    """Resolve a local path in the lock.

    ``os.path`` is used, because ``Path`` raises RuntimeError for an unknown ``~name`` and for link loops.
    """
    return Path(os.path.realpath(layout.root / os.path.expanduser(path)))  # noqa: PTH111


def is_repository(folder: Path) -> bool:
    """Return True if git can fetch from this folder."""
    return (folder / ".git").exists() or ((folder / "HEAD").exists() and (folder / "objects").is_dir())


def folder_commit(layout: Layout, store: Git, folder: Path, pin: Pin, skip: Iterable[str] = ()) -> CommitId:
    """Return the commit id that an import of a plain folder's files would give. Write nothing to the store.

    The files aren't imported, because the lock that names the folder may come from an untrusted project.

    :raises SourceError: if the folder is a home folder, the project's folder or a folder above one of them,
        or if a file can't be read.
    :raises FormatError: in the same cases as :func:`patchq.sources.archive.import_archive`.
    """
    whose = pin.url.partition("/")[0] if pin.url.startswith("~") else "~"  # `~name` is another user's home folder
    homes = {local_path(layout, name) for name in ("~", whose)}
    why = ""
    if folder in (layout.root, *layout.root.parents):
        why = "it contains this project"
    if any(folder in (home, *home.parents) for home in homes):
        why = why or "it contains a home folder"
    if why:
        raise SourceError(
            f"{folder} can't be an upstream: {why}; nothing was read",
            hint="use a folder that contains only upstream's files, or upstream's repository",
        )
    with scratch(store) as temporary:
        return keep_folder(temporary, folder, pin, skip)


def keep_folder(store: Git, folder: Path, pin: Pin, skip: Iterable[str] = ()) -> CommitId:
    """Import a plain folder's files as one commit, and return the commit's id."""
    from patchq.sources.archive import import_folder

    return import_folder(store, folder, pin, skip=skip)
