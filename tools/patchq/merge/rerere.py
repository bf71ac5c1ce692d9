"""Resolutions that are remembered: git's own rerere, its cache committed beside the patches.

What a project has recorded lies in ``patches/<upstream>/rr-cache``, in rerere's own format, but cut down to what
the resolution changed and three lines around it, as in a patch: rerere's merge needs no more, and a project
doesn't come to hold upstream's files. rerere itself works in a repository of its own that is made for one conflict,
so that both directions depend on nothing but what they are given: a kill in between, or another rebase, can't
confuse it.
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
from patchq.system import fsio, project_files
from patchq.system.paths import Layout

_ON = ("rerere.enabled=true", "rerere.autoUpdate=false")
_MARKER = re.compile(rb"^(?:<{7}|>{7})(?: |$)", re.MULTILINE)


#: Lines of a conflict that is recorded. A longer one is a rewrite, which doesn't come a second time, and to keep it
#: would be to keep upstream's code.
LONGEST = 200


def recorded(layout: Layout, upstream: str) -> Path:
    """Where an upstream's resolutions are committed."""
    return layout.root / "patches" / upstream / "rr-cache"


def is_settled(content: bytes) -> bool:
    """Whether a file holds no conflict markers."""
    return not _MARKER.search(content)


def mark_conflicts(git: Git, stages: Sequence[Stage]) -> None:
    """Make an index say which paths conflict."""
    lines = [b"0 %s\t%s\0" % (b"0" * 40, path) for path in sorted({s.path for s in stages})]
    lines += [b"%s %s %d\t%s\0" % (s.entry.mode, s.entry.blob.encode(), s.number, s.path) for s in stages]
    git.run("update-index", "-z", "--index-info", data=b"".join(lines))


def replay(
    store: Git, stages: Sequence[Stage], parked: Mapping[bytes, bytes], layout: Layout, upstream: str
) -> dict[bytes, bytes]:
    """Return the files that what is recorded for an upstream resolves.

    :param parked: the conflicting files, with markers.
    """
    folder = recorded(layout, upstream)
    if not folder.is_dir():
        return {}
    with _repository(store, stages, parked) as git:
        for path in sorted(folder.glob("*/p*image*")):
            target = git.folder / ".git" / "rr-cache" / path.parent.name / path.name
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(project_files.read(layout.root, path) or b"")
        git.run("rerere", config=_ON)
        found = {path: (git.folder / os.fsdecode(path)).read_bytes() for path in parked}
    # Where the same words conflict in two places, rerere may put back the one conflict for the other.
    return {path: content for path, content in found.items() if content != parked[path] and is_settled(content)}


class Recorded:
    """What is recorded for an upstream, asked of many conflicts: only those that can be known reach git's rerere."""

    def __init__(self, store: Git, layout: Layout, upstream: str) -> None:
        self.store, self.layout, self.upstream = store, layout, upstream
        folder = recorded(layout, upstream)
        self.known = {case.name for case in folder.iterdir()} if folder.is_dir() else set()

    def resolve(self, stages: Sequence[Stage], contents: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """The files of a conflict as what is recorded resolves all of it, and nothing else; empty where it doesn't.

        :param contents: the files with markers, by path.
        """
        paths = {s.path for s in stages}
        both = [p for p in paths if {s.number for s in stages if s.path == p} >= {2, 3} and p in contents]
        if not self.known or len(both) < len(paths) or any(conflict_id(contents[p]) not in self.known for p in paths):
            return {}
        found = replay(self.store, stages, {path: contents[path] for path in both}, self.layout, self.upstream)
        away = any(is_away(contents[path], content) for path, content in found.items())
        return found if set(found) == paths and not away else {}


def conflict_id(content: bytes) -> str:
    """rerere's name for the conflicts of a file: both sides of each, in an order of their own."""
    digest, sides, part = hashlib.sha1(usedforsecurity=False), [b"", b""], -1
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
    layout: Layout,
    upstream: str,
) -> dict[Path, bytes]:
    """Return the files to write below :func:`recorded`, which say how conflicts were resolved.

    :param parked: the conflicting files, with markers; ``resolved``: the same ones afterwards.
    """
    found: dict[Path, bytes] = {}
    folder = recorded(layout, upstream)
    with _repository(store, stages, parked) as git:
        git.run("rerere", config=_ON)
        for path, content in ((p, c) for p, c in resolved.items() if p in parked):
            (git.folder / os.fsdecode(path)).write_bytes(content)
        git.run("rerere", config=_ON)
        for case in sorted((git.folder / ".git" / "rr-cache").iterdir()):
            before, after = (fsio.read_or_none(case / name) for name in ("preimage", "postimage"))
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
    """Two versions of a file where they differ, with three lines around."""
    old, new = split_lines(before), split_lines(after)
    before_parts, after_parts = [], []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(3):
        for _, i, j, k, end in group:
            before_parts += old[i:j]
            after_parts += new[k:end]
    return b"".join(before_parts), b"".join(after_parts)


def is_away(parked: bytes, resolved: bytes) -> bool:
    """Whether a replayed resolution changes lines that aren't beside a conflict.

    rerere puts such a change wherever its few lines of context stand now: that may be in another function.
    """
    old, new = split_lines(parked), split_lines(resolved)
    marks = [n for n, line in enumerate(old) if _MARKER.match(line)]
    groups = difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(3)
    return any(not any(group[0][1] <= n < group[-1][2] for n in marks) for group in groups)


def _variant(root: Path, case: Path, preimage: bytes) -> str:
    """rerere's suffix for a conflict: the same words in another file are a variant of their own."""
    number = 0
    while True:
        suffix = f".{number}" if number else ""
        known = project_files.read(root, case / f"preimage{suffix}")
        if known is None or known == preimage:
            return suffix
        number += 1


@contextmanager
def _repository(store: Git, stages: Sequence[Stage], files: Mapping[bytes, bytes]) -> Iterator[Git]:
    """A repository in the middle of these conflicts."""
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
