"""Cleanup after a killed patchq or git process: lock files, and partial files and packs.

git and patchq write to a temporary file and then rename it, so a leftover file contains nothing of value. But git
refuses to write a file while its lock file exists, and temporary files confuse users. Therefore, the next patchq that
holds the project's lock removes all leftover files, regardless of their age. git's lock files that existed before the
killed command began are kept, because they belong to a git command that the user started.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchq.system import fsio, runner
from patchq.system.paths import Layout

_SHALLOW_COPY = "shallow.before"


@contextmanager
def cleared(layout: Layout, after_a_kill: bool) -> Iterator[None]:
    """Clean up before and after a command that holds the project's lock.

    If the previous command was killed, first remove the files that it left. If this command fails, or if a signal ends
    one of its processes, remove this command's leftover files at the end.

    :param after_a_kill: True if the previous command was killed.
    """
    note = layout.private / "locks-of-others"
    if after_a_kill:
        noted = (fsio.read_or_none(note) or b"").split(b"\0")
        _clear(layout, {os.fsdecode(path) for path in noted})
    others = {str(path) for path in _locks(layout)}
    if others:
        fsio.write_atomic(note, b"\0".join(os.fsencode(path) for path in sorted(others)))
    runner.CommandError.by_signal = False
    try:
        yield
        # Not after every command: the user may have started git meanwhile, and a new lock file may belong to this git.
        if runner.CommandError.by_signal:
            _clear(layout, others)
    except BaseException:
        _clear(layout, others)
        raise
    finally:
        note.unlink(missing_ok=True)


@contextmanager
def kept_shallow(repository: Path) -> Iterator[None]:
    """Keep a copy of git's file ``shallow`` during a fetch that creates no refs.

    git doesn't sync this file. If a power cut damages the file, git can't read the repository, and the next command
    puts the copy back.
    """
    path, copy = repository / "shallow", repository / _SHALLOW_COPY
    fsio.write_atomic(copy, fsio.read_or_none(path) or b"")
    yield
    fsio.sync_file(path)
    copy.unlink()


def _put_back_shallow(repository: Path) -> None:
    before = fsio.read_or_none(repository / _SHALLOW_COPY)
    if before is None:
        return
    if before:
        fsio.write_atomic(repository / "shallow", before)
    else:
        fsio.remove(repository / "shallow")
    fsio.remove(repository / _SHALLOW_COPY)


def _clear(layout: Layout, keep: set[str]) -> None:
    for repository in (layout.store, *_histories(layout)):
        _put_back_shallow(repository)
    for path in (*_locks(layout), *_unfinished(layout)):
        if str(path) not in keep:
            try:
                path.unlink()
            except OSError:
                continue  # already gone, or read-only: the code that needs the file reports it
    import shutil

    shutil.rmtree(layout.private / "tmp", ignore_errors=True)


def _histories(layout: Layout) -> Iterator[Path]:
    """Return the history repositories. As with the store, only the holder of the project's lock writes to them."""
    return (layout.private / "history").glob("*.git")


def _locks(layout: Layout) -> Iterator[Path]:
    """Yield git's lock files for refs, worktree HEADs, indexes and repositories. git doesn't lock objects."""
    for repository in (layout.store, *_histories(layout)):
        for folder, folders, files in os.walk(repository):
            if Path(folder) == repository and "objects" in folders:
                folders.remove("objects")
            for name in files:
                if name.endswith(".lock"):
                    yield Path(folder, name)


def _unfinished(layout: Layout) -> Iterator[Path]:
    """Yield partial files: git's files in the repositories, and patchq's files next to the files that they replace."""
    store = layout.store
    packs = store / "objects" / "pack"
    for repository in (store, *_histories(layout)):
        yield from (repository / "objects" / "pack").glob("tmp_*")
    for mark in packs.glob("pack-*.keep"):
        if _of_fast_import(mark):
            yield mark
    yield from store.glob("objects/??/tmp_obj_*")
    yield from store.glob("fast_import_crash_*")
    # Only folders that are written under the lock: elsewhere, another process may be writing a
    # result or a report now.
    pattern = f".*{fsio.UNFINISHED}"
    yield from layout.root.glob(f".{layout.lock.name}{pattern[1:]}")
    for folder in (layout.root / "patches", layout.root / "measurements", layout.dist):
        yield from folder.rglob(pattern)
    for name in ("journal", "state", "rebase", "wheels", "check"):
        yield from (layout.private / name).rglob(pattern)


def _of_fast_import(mark: Path) -> bool:
    """Return True if fast-import wrote ``mark``, the ``.keep`` file of a pack.

    fast-import refuses to write the same pack again while the ``.keep`` file exists. After a power cut, this file may
    be truncated or filled with zeros.
    """
    return b"fast-import".startswith((fsio.read_or_none(mark) or b"").strip(b"\0\n"))
