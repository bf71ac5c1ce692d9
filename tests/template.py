"""A project that is built once and copied for each test: what tests begin with costs a copy, not a dozen commands.

A copy is what the commands would have left there: worktrees, the lock and the journal name their absolute places,
and what is known of files by their inodes is known of the copies.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from kit import git
from patchq.system import fsio


def copy_upstream(template: Path, to: Path) -> Path:
    """Copy ``template/upstream`` to ``to/upstream``."""
    folder = to / "upstream"
    shutil.copytree(template / "upstream", folder, symlinks=True)
    git(folder, "update-index", "-q", "--refresh")
    return folder


def copy_project(template: Path, to: Path) -> Path:
    """Copy ``template/project``, which has ``template/upstream`` as its upstream, to ``to/project``."""
    root = to / "project"
    shutil.copytree(template / "project", root, symlinks=True)
    journal = root / ".patchq" / "journal"
    renamed: dict[bytes, bytes] = {}
    for path in [root / "upstream.lock", *_names_its_place(root), *journal.glob("objects/*/*")]:
        old = path.read_bytes()
        new = old.replace(os.fsencode(template), os.fsencode(to))
        if new == old:
            continue
        path.write_bytes(new)
        if journal in path.parents:  # by its content's digest
            digests = [hashlib.sha256(data).hexdigest() for data in (old, new)]
            renamed[digests[0].encode()] = digests[1].encode()
            (place := journal / "objects" / digests[1][:2] / digests[1][2:]).parent.mkdir(exist_ok=True)
            path.rename(place)
    for path in journal.glob("operations/*.json"):
        data = path.read_bytes()
        for digest, other in renamed.items():
            data = data.replace(digest, other)
        path.write_bytes(data)
    for path in (root / ".patchq" / "state").glob("*.json"):
        state = json.loads(path.read_bytes())
        folder = root / "patches" / path.stem / state["ref"]
        for patch in state["patches"]:
            if any(patch[1]):
                found = (folder / f"{patch[0]}.patch").stat()
                patch[1] = [found.st_mtime_ns, found.st_size, found.st_ino]
        path.write_bytes(fsio.dump_json(state))
    for tree in (root / ".patchq" / "trees").iterdir():
        git(tree, "update-index", "-q", "--refresh")
    return root


def _names_its_place(root: Path) -> list[Path]:
    """A worktree's file of its repository, and the repository's of its worktree."""
    private = root / ".patchq"
    return [*private.glob("trees/*/.git"), *private.glob("store.git/worktrees/*/gitdir")]
