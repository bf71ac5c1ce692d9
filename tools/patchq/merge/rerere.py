"""Recorded resolutions: the cache of git's rerere, committed together with the patches.

A project's resolutions are in ``patches/<upstream>/rr-cache`` in rerere's format. Each resolution is reduced to the
changed lines and three lines of context, which is enough for rerere, so the project doesn't contain copies of
upstream's files. For each conflict, rerere runs in a new temporary repository, so that an interrupted run or another
rebase can't affect the result.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from patchq.formats.diff import split_lines
from patchq.git.mergetree import Stage
from patchq.git.repository import Checkout, Git, borrow_objects
from patchq.merge.patches import stage_paths
from patchq.system import fsio, project_files
from patchq.system.paths import Layout

_ON = ("rerere.enabled=true", "rerere.autoUpdate=false")
_MARKER = re.compile(rb"^(?:<{7}|>{7})(?: |$)", re.MULTILINE)


#: Maximum length in lines of a recorded conflict. A longer conflict is a rewrite, which does not recur,
#: and recording it would copy upstream's code.
LONGEST = 200


def recorded(layout: Layout, upstream: str) -> Path:
    """Return the directory of an upstream's committed resolutions."""
    return layout.root / "patches" / upstream / "rr-cache"


def is_settled(content: bytes) -> bool:
    """Return whether a file contains no conflict markers."""
    return not _MARKER.search(content)


def mark_conflicts(git: Git, stages: Sequence[Stage]) -> None:
    """Write the stages of conflicting paths to the index."""
    lines = []
    for path in stage_paths(stages):
        lines.append(b"0 %s\t%s\0" % (b"0" * 40, path))
    for stage in stages:
        mode, blob = stage.entry.mode, stage.entry.blob.encode()
        lines.append(b"%s %s %d\t%s\0" % (mode, blob, stage.number, stage.path))
    git.run("update-index", "-z", "--index-info", data=b"".join(lines))


def replay(
    store: Git,
    stages: Sequence[Stage],
    parked: Mapping[bytes, bytes],
    layout: Layout,
    upstream: str,
) -> dict[bytes, bytes]:
    """Return the files that an upstream's recorded resolutions resolve.

    :param parked: contents of the conflicting files, with conflict markers.
    """
    folder = recorded(layout, upstream)
    if not folder.is_dir():
        return {}
    with _repository(store, stages, parked) as git:
        for image in sorted(folder.glob("*/p*image*")):
            target = git.folder / ".git" / "rr-cache" / image.parent.name / image.name
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(project_files.read(layout.root, image) or b"")
        git.run("rerere", config=_ON)
        found = {}
        for path, marked in parked.items():
            content = (git.folder / os.fsdecode(path)).read_bytes()
            # If the same text conflicts in two places, rerere may restore one conflict for the other.
            if content != marked and is_settled(content):
                found[path] = content
    return found


class Recorded:
    """Recorded resolutions of one upstream. Only conflicts with a known id are passed to rerere."""

    def __init__(self, store: Git, layout: Layout, upstream: str) -> None:
        self.store, self.layout, self.upstream = store, layout, upstream
        folder = recorded(layout, upstream)
        if folder.is_dir():
            self.known = {case.name for case in folder.iterdir()}
        else:
            self.known = set()

    def resolve(self, stages: Sequence[Stage], contents: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """Return the resolved files if recorded resolutions resolve the whole conflict, else ``{}``.

        A resolution that also changes lines outside the conflict is not used.

        :param contents: contents of the files with conflict markers, by path.
        """
        if not self.known:
            return {}
        numbers: dict[bytes, set[int]] = {}
        for stage in stages:
            numbers.setdefault(stage.path, set()).add(stage.number)
        marked = {}
        for path, present in numbers.items():
            if not present >= {2, 3} or path not in contents:
                return {}
            if conflict_id(contents[path]) not in self.known:
                return {}
            marked[path] = contents[path]
        found = replay(self.store, stages, marked, layout=self.layout, upstream=self.upstream)
        if found.keys() != numbers.keys():
            return {}
        for path, content in found.items():
            if is_away(contents[path], content):
                return {}
        return found


def conflict_id(content: bytes) -> str:
    """Return rerere's id for a file's conflicts: the SHA-1 of the sorted sides of all conflicts."""
    digest = hashlib.sha1(usedforsecurity=False)
    sides, part = [b"", b""], -1
    for line in split_lines(content):
        if _begins(line, b"<"):
            sides, part = [b"", b""], 0
        elif part >= 0 and _begins(line, b"|"):
            part = 2
        elif part >= 0 and line.rstrip(b"\r\n") == b"=======":
            part = 1
        elif part >= 0 and _begins(line, b">"):
            for side in sorted(sides):
                digest.update(side + b"\0")
            part = -1
        elif part in (0, 1):
            sides[part] += line
    return digest.hexdigest()


def _begins(line: bytes, mark: bytes) -> bool:
    return line.startswith(mark * 7) and line[7:8] in (b" ", b"\n", b"\r", b"")


def record(
    store: Git,
    stages: Sequence[Stage],
    parked: Mapping[bytes, bytes],
    resolved: Mapping[bytes, bytes],
    *,
    layout: Layout,
    upstream: str,
) -> dict[Path, bytes]:
    """Return the files that store resolved conflicts in rerere's format, by their path below :func:`recorded`.

    :param parked: contents of the conflicting files, with conflict markers.
    :param resolved: contents of the same files after the resolution.
    """
    found: dict[Path, bytes] = {}
    folder = recorded(layout, upstream)
    with _repository(store, stages, parked) as git:
        git.run("rerere", config=_ON)
        for path, content in resolved.items():
            if path in parked:
                (git.folder / os.fsdecode(path)).write_bytes(content)
        git.run("rerere", config=_ON)
        for case in sorted((git.folder / ".git" / "rr-cache").iterdir()):
            before = fsio.read_or_none(case / "preimage")
            after = fsio.read_or_none(case / "postimage")
            if before is None or after is None:
                continue
            before, after = cut_down(before, after)
            if before.count(b"\n") > LONGEST:
                continue
            suffix = _variant(layout.root, folder / case.name, before)
            found[folder / case.name / f"preimage{suffix}"] = before
            found[folder / case.name / f"postimage{suffix}"] = after
    return found


def cut_down(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """Reduce two versions of a file to the lines that differ, with three lines of context."""
    old, new = split_lines(before), split_lines(after)
    before_parts, after_parts = [], []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(3):
        for _, i, j, k, end in group:
            before_parts += old[i:j]
            after_parts += new[k:end]
    return b"".join(before_parts), b"".join(after_parts)


def is_away(parked: bytes, resolved: bytes) -> bool:
    """Return whether a replayed resolution also changes lines outside of every conflict.

    rerere would apply such a change wherever the few lines of context match, possibly in another function.
    """
    old, new = split_lines(parked), split_lines(resolved)
    groups = difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(3)
    for group in groups:
        start, end = group[0][1], group[-1][2]
        if not any(map(_MARKER.match, old[start:end])):
            return True
    return False


def _variant(root: Path, case: Path, preimage: bytes) -> str:
    """Return rerere's suffix for a conflict. If another file has the same conflict, its suffix is different."""
    number = 0
    while True:
        suffix = ""
        if number:
            suffix = f".{number}"
        known = project_files.read(root, case / f"preimage{suffix}")
        if known is None or known == preimage:
            return suffix
        number += 1


@contextmanager
def _repository(store: Git, stages: Sequence[Stage], files: Mapping[bytes, bytes]) -> Iterator[Git]:
    """Create a temporary repository whose index and worktree contain these conflicts."""
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        git = Checkout(Path(text))
        git.run("init", "--quiet", "--template=", ".")
        (git.folder / ".git" / "objects" / "info").mkdir(exist_ok=True)
        borrow_objects(git.folder / ".git", (store.folder / "objects").resolve())
        (git.folder / ".git" / "rr-cache").mkdir()
        mark_conflicts(git, [s for s in stages if s.path in files])
        for path, content in files.items():
            target = git.folder / os.fsdecode(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        yield git
