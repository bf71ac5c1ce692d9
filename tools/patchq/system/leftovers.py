"""What a killed command, or a killed git, leaves behind: locks, half-written files and packs.

None of it holds anything: git writes beside a file and renames, as patchq does. But a lock that is
left keeps git from ever writing that file again, and a temporary file is somebody's to wonder
about. Whoever holds the project's lock next clears it, whatever the clock says; the locks that a
person's own git held when the dead command began are not its own, and stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchq.system import fsio
from patchq.system.paths import Layout


@contextmanager
def cleared(layout: Layout, after_a_kill: bool) -> Iterator[None]:
    """A command's work under the project's lock: what the one before left is cleared, and its own if it fails."""
    note = layout.private / "locks-of-others"
    if after_a_kill:
        noted = (fsio.read_or_none(note) or b"").split(b"\0")
        _clear(layout, {os.fsdecode(path) for path in noted})
    others = {str(path) for path in _locks(layout)}
    if others:
        fsio.write_atomic(note, b"\0".join(os.fsencode(path) for path in sorted(others)))
    try:
        yield
    except BaseException:
        _clear(layout, others)
        raise
    finally:
        note.unlink(missing_ok=True)


def _clear(layout: Layout, keep: set[str]) -> None:
    for path in (*_locks(layout), *_unfinished(layout)):
        if str(path) not in keep:
            try:
                path.unlink()
            except OSError:
                continue  # gone by itself, or in a folder that can't be written: told by what needs it
    import shutil

    shutil.rmtree(layout.private / "tmp", ignore_errors=True)


def _histories(layout: Layout) -> Iterator[Path]:
    """Repositories that are written under the lock as the store is."""
    return (layout.private / "history").glob("*.git")


def _locks(layout: Layout) -> Iterator[Path]:
    """Git's locks: of refs, of worktrees' HEADs and indexes, of the repositories themselves. Objects have none."""
    for repository in (layout.store, *_histories(layout)):
        for folder, folders, files in os.walk(repository):
            if Path(folder) == repository and "objects" in folders:
                folders.remove("objects")
            yield from (Path(folder, name) for name in files if name.endswith(".lock"))


def _unfinished(layout: Layout) -> Iterator[Path]:
    """Files that were being written: by git into the store, by patchq beside what they were to replace."""
    store = layout.store
    packs = store / "objects" / "pack"
    for repository in (store, *_histories(layout)):
        yield from (repository / "objects" / "pack").glob("tmp_*")
    yield from (mark for mark in packs.glob("pack-*.keep") if _of_fast_import(mark))
    yield from store.glob("objects/??/tmp_obj_*")
    yield from store.glob("fast_import_crash_*")
    # Only where nobody writes without the lock: a result, or a report, may be another process's just now.
    pattern = f".*{fsio.UNFINISHED}"
    yield from layout.root.glob(f".{layout.lock.name}{pattern[1:]}")
    for folder in (layout.root / "patches", layout.root / "measurements", layout.dist):
        yield from folder.rglob(pattern)
    for name in ("journal", "state", "rebase", "wheels", "check"):
        yield from (layout.private / name).rglob(pattern)


def _of_fast_import(mark: Path) -> bool:
    """Whether the mark that keeps a pack is fast-import's: it refuses to write that pack again beside it.

    After a power cut the mark may hold a part of what was written, or zeros in its place.
    """
    return b"fast-import".startswith((fsio.read_or_none(mark) or b"").strip(b"\0\n"))
