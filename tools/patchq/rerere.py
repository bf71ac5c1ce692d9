"""Resolutions that are remembered: git's own rerere, its cache committed beside the patches.

rerere reads and writes ``rr-cache`` in the store. What a project has recorded lies in
``patches/<upstream>/rr-cache``, in rerere's own format, and is copied there and back.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from patchq import fsio
from patchq.git import Git, Stage
from patchq.paths import Layout
from patchq.worktree import Worktree

_ON = ("rerere.enabled=true", "rerere.autoUpdate=false")


def recorded(layout: Layout, upstream: str) -> Path:
    """Where an upstream's resolutions are committed."""
    return layout.root / "patches" / upstream / "rr-cache"


def fill(store: Git, folder: Path) -> None:
    """Give the store what a project has recorded."""
    for path in sorted(folder.glob("*/p*image*")):
        target = store.folder / "rr-cache" / path.parent.name / path.name
        if fsio.read_or_none(target) != path.read_bytes():
            fsio.write_atomic(target, path.read_bytes())


def conflict(worktree: Worktree, stages: Sequence[Stage]) -> None:
    """Make the index say which paths conflict; the files hold the markers already."""
    lines = [b"0 %s\t%s\0" % (b"0" * 40, path) for path in sorted({s.path for s in stages})]
    lines += [b"%s %s %d\t%s\0" % (s.entry.mode, s.entry.blob.encode(), s.number, s.path) for s in stages]
    worktree.git.run("update-index", "-z", "--index-info", data=b"".join(lines))


def replay(worktree: Worktree, paths: Sequence[bytes]) -> list[bytes]:
    """Let rerere resolve what it knows of these paths; returns those that it did. It notes the others' conflicts."""
    before = {path: _read(worktree, path) for path in unsettled(worktree, paths)}
    worktree.git.run("rerere", config=_ON)
    left = unsettled(worktree, paths)
    for path in left:
        # Where the same words conflict in two places, rerere may put back one conflict for another, unlabelled.
        if path in before and _read(worktree, path) != before[path]:
            fsio.write_atomic(worktree.path / os.fsdecode(path), before[path])
    return sorted(before.keys() - set(left))


def unsettled(worktree: Worktree, paths: Sequence[bytes]) -> list[bytes]:
    """Those of the paths whose files still hold conflict markers."""
    marks = (b"<<<<<<<", b">>>>>>>")
    return [
        path
        for path in paths
        if any(line[:7] in marks and line[7:8] in (b"", b" ") for line in _read(worktree, path).split(b"\n"))
    ]


def _read(worktree: Worktree, path: bytes) -> bytes:
    return fsio.read_or_none(worktree.path / os.fsdecode(path)) or b""


def record(worktree: Worktree, folder: Path) -> dict[Path, bytes]:
    """Have rerere note how the conflicts were resolved; returns the files to commit below ``folder``."""
    noted = _noted(worktree)
    worktree.git.run("rerere", config=_ON)
    found = {}
    for key in noted:
        name, _, variant = key.partition(".")
        suffix = f".{variant}" if variant else ""
        for image in ("preimage", "postimage"):
            data = fsio.read_or_none(worktree.store.folder / "rr-cache" / name / (image + suffix))
            if data is None:
                break
            found[folder / name / (image + suffix)] = data
    complete = {p.parent for p in found if p.name.startswith("postimage")}
    return {p: d for p, d in found.items() if p.parent in complete}


def forget(worktree: Worktree, paths: Sequence[bytes]) -> None:
    """Have rerere drop its resolutions of these paths: they were wrong."""
    for path in paths:
        worktree.git.run("rerere", "forget", "--", os.fsdecode(path), config=_ON)


def _noted(worktree: Worktree) -> dict[str, bytes]:
    """What rerere keeps track of in this worktree: conflict id to path."""
    data = fsio.read_or_none(worktree.git_folder() / "MERGE_RR") or b""
    pairs = (entry.split(b"\t", 1) for entry in data.split(b"\0") if b"\t" in entry)
    return {key.decode(): path for key, path in pairs}
