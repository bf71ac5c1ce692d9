"""Upstreams that are folders of this machine: which one a lock means, and the files of one that is no repository."""

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
    """Return the folder that a URL names, if it names one on this machine."""
    if url.startswith("file://"):
        return Path(os.path.realpath(layout.root / url[7:]))
    if "://" in url or (":" in url.split("/")[0]):
        return None
    return local_path(layout, url)


def local_path(layout: Layout, path: str) -> Path:
    """Return where a path of the lock leads. `Path` raises RuntimeError for an unknown `~name`, and for link loops."""
    return Path(os.path.realpath(layout.root / os.path.expanduser(path)))  # noqa: PTH111


def is_repository(folder: Path) -> bool:
    """Whether git can fetch from this folder."""
    return (folder / ".git").exists() or ((folder / "HEAD").exists() and (folder / "objects").is_dir())


def folder_commit(layout: Layout, store: Git, folder: Path, pin: Pin, skip: Iterable[str] = ()) -> CommitId:
    """The commit that a plain folder's files are. Nothing is kept: the lock that names it may be anybody's.

    :raises SourceError: for a home folder, the folder that the project lies in and those above them; and where a file
        can't be read.
    :raises FormatError: as :func:`patchq.sources.archive.import_archive`.
    """
    whose = pin.url.partition("/")[0] if pin.url.startswith("~") else "~"  # `~name` is another user's home folder
    homes = {local_path(layout, name) for name in ("~", whose)}
    why = "this project lies in it" if folder in (layout.root, *layout.root.parents) else ""
    if any(folder in (home, *home.parents) for home in homes):
        why = why or "a home folder lies in it"
    if why:
        raise SourceError(
            f"{folder} is no upstream: {why}; nothing of it was read",
            hint="name the folder that holds upstream's files alone, or its repository",
        )
    with scratch(store) as beside:
        return keep_folder(beside, folder, pin, skip)


def keep_folder(store: Git, folder: Path, pin: Pin, skip: Iterable[str] = ()) -> CommitId:
    """Import a plain folder's files as one commit; returns its id."""
    from patchq.sources.archive import import_folder

    return import_folder(store, folder, pin, skip=skip)
