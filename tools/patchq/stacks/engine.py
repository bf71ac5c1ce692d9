"""Patches to commits: the hot path of ``apply``.

One ``ls-tree`` and one ``cat-file --batch`` bring what the patches touch, the diffs are applied
in process (:mod:`patchq.formats.diff`), and one ``fast-import`` takes a commit a patch. What the
in-process applier leaves to git (:class:`patchq.formats.diff.Unsupported`) goes through a temporary index.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from patchq.errors import Conflict, ConflictError, FormatError
from patchq.formats import diff, treepath
from patchq.formats.diff import GITLINK, REGULAR, SYMLINK, FilePatch, Hunk, Mismatch, Unsupported
from patchq.formats.header import Header
from patchq.git.fastimport import commit_start, import_commits, quote_path
from patchq.git.repository import Git
from patchq.names import AppliedPatch, CommitId, Offset, show_path
from patchq.system import runner


@dataclass(frozen=True, slots=True)
class Incoming:
    """A patch to apply."""

    name: str
    header: Header
    diff: bytes
    where: str


class Engine:
    """Applies patches of one upstream on top of a commit; writes objects, moves no refs."""

    def __init__(self, store: Git, upstream: str, nested: Mapping[str, str]) -> None:
        self.store, self.upstream = store, upstream
        self.nested = {path.encode(): name for path, name in nested.items()}

    def apply(self, onto: CommitId, patches: Sequence[Incoming]) -> list[AppliedPatch]:
        """Apply ``patches`` in order on ``onto``, with zero fuzz.

        :raises ConflictError: for the first that doesn't fit, with what is there instead.
        :raises FormatError: for a damaged diff or a path outside the tree.
        """
        parsed: list[tuple[Incoming, list[FilePatch] | None]] = []
        for patch in patches:
            files: list[FilePatch] | None = None
            with contextlib.suppress(Unsupported):
                files = diff.parse(patch.diff, patch.where)
            for file in files or ():
                self._check_nested(patch, file.paths)
            parsed.append((patch, files))
        done: list[AppliedPatch] = []
        at = 0
        while at < len(parsed):
            end = at
            while end < len(parsed) and parsed[end][1] is not None:
                end += 1
            if end > at:
                done += self._in_process(onto, [(p, f or []) for p, f in parsed[at:end]])
            else:
                end += 1
                done.append(self._by_git(onto, parsed[at][0]))
            onto = done[-1].commit
            at = end
        return done

    def _check_nested(self, patch: Incoming, paths: Iterable[bytes]) -> None:
        for path in paths:
            for folder, owner in self.nested.items():
                if path == folder or path.startswith(folder + b"/"):
                    raise FormatError(
                        f"{patch.where} changes {show_path(path)}, which belongs to the upstream {owner}",
                        hint=f"make it a patch of {owner}",
                    )

    # In process

    def _in_process(self, onto: CommitId, patches: Sequence[tuple[Incoming, list[FilePatch]]]) -> list[AppliedPatch]:
        view = _View(self.store, onto)
        view.prefetch(f.old_path for _, files in patches for f in files if f.old_path is not None)
        offsets: list[tuple[Offset, ...]] = []
        ref = f"refs/patchq/scratch/{self.upstream}".encode()
        # No ref stays behind: a failing stack beside this one must leave all as it was.
        with import_commits(self.store, ref) as (out, ids):
            for number, (patch, files) in enumerate(patches, 1):
                parent = onto.encode() if number == 1 else b":%d" % (number - 1)
                out.write(commit_start(ref, number, patch.header.author, patch.header.message, parent))
                offsets.append(self._write_patch(view, patch, files, out))
        return [AppliedPatch(patch.name, ids[n], offsets[n - 1]) for n, (patch, _) in enumerate(patches, 1)]

    def _write_patch(
        self, view: _View, patch: Incoming, files: Sequence[FilePatch], out: IO[bytes]
    ) -> tuple[Offset, ...]:
        found: list[Offset] = []
        try:
            for path, result in view.apply(files, found):
                if result is None:
                    out.write(b"D %s\n" % quote_path(path))
                else:
                    mode, content = result
                    out.write(b"M %s inline %s\ndata %d\n" % (mode, quote_path(path), len(content)))
                    out.write(content)
                    out.write(b"\n")
        except _FileMismatch as error:
            raise self._conflict(patch, view, error.file, error.mismatch) from None
        return tuple(found)

    def _conflict(self, patch: Incoming, view: _View, file: FilePatch, mismatch: Mismatch) -> ConflictError:
        path = show_path(file.old_path or file.path)
        hunk, reason = mismatch.hunk, mismatch.reason
        conflict = Conflict(self.upstream, patch.name, path, reason)
        if hunk is not None:
            image = diff.split_lines(view.content(file.old_path))
            at = closest(hunk, image)
            if _is_there(hunk, image):
                reason = "its lines are not there, but its result is: upstream may hold this change already"
            conflict = Conflict(
                self.upstream, patch.name, path, reason, hunk.header.decode("utf-8", "replace"), at + 1,
                [_text(line) for line in hunk.old], [_text(line) for line in image[at : at + len(hunk.old)]],
            )  # fmt: skip
        elif file.old_path is not None and file.old_path not in view.files:
            same = [p for p in view.files if p.rsplit(b"/", 1)[-1] == file.old_path.rsplit(b"/", 1)[-1]]
            if same:
                conflict = Conflict(
                    self.upstream, patch.name, path, f"{reason}; a file of that name is at {show_path(same[0])}"
                )
        return self._error([conflict])

    def _error(self, conflicts: list[Conflict]) -> ConflictError:
        first = conflicts[0]
        return ConflictError(
            f"{self.upstream}: {first.patch} doesn't apply: {first.path}: {first.reason}; nothing was changed",
            conflicts,
            hint=f"`patchq apply {self.upstream} --to PATCH` stops before it; change the file in the worktree, "
            f"`patchq new`, then `patchq drop {first.patch}`",
        )

    # By git

    def _by_git(self, onto: CommitId, patch: Incoming) -> AppliedPatch:
        with tempfile.TemporaryDirectory(prefix="patchq-") as folder:
            index = Path(folder) / "index"
            env = {"GIT_INDEX_FILE": str(index)}
            self.store.run("read-tree", onto, env=env)
            try:
                self.store.apply_to_index(patch.diff, index)
            except runner.CommandError as error:
                lines = [line.removeprefix("error: ") for line in error.said.splitlines() if line.startswith("error: ")]
                text = lines[0] if lines else error.said
                path = text.split(":")[1].strip() if text.count(":") > 1 else text.split(":")[0]
                raise self._error([Conflict(self.upstream, patch.name, path, text)]) from None
            tree = self.store.run("write-tree", env=env).decode().strip()
        changed = self.store.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", onto, tree).split(b"\0")
        for path_changed in changed[:-1]:
            treepath.check_tree_path(path_changed, patch.where)
        self._check_nested(patch, changed[:-1])
        return AppliedPatch(
            patch.name, self.store.commit_tree(tree, (onto,), patch.header.author, patch.header.message)
        )


class _FileMismatch(Exception):
    def __init__(self, file: FilePatch, mismatch: Mismatch) -> None:
        super().__init__(mismatch.reason)
        self.file, self.mismatch = file, mismatch


_Result = tuple[bytes, tuple[bytes, bytes] | None]


class _View:
    """The tree as the series goes on: what was listed, and in memory what it has changed."""

    def __init__(self, store: Git, commit: CommitId) -> None:
        self.store = store
        self._listed = store.list_tree(commit)
        self.files: dict[bytes, bytes] = {path: entry.mode for path, entry in self._listed.items()}
        self._contents: dict[bytes, bytes] = {}
        self._folders: Counter[bytes] | None = None

    def prefetch(self, paths: Iterable[bytes]) -> None:
        """Read the blobs of all paths that are there, at once."""
        wanted = {p: self._listed[p].blob for p in paths if p in self.files and self.files[p] != GITLINK}
        blobs = self.store.read_blobs(wanted.values())
        self._contents.update((p, blobs[b]) for p, b in wanted.items())

    def content(self, path: bytes | None) -> bytes:
        """A file's content as it is now; empty for no file."""
        return self._contents.get(path, b"") if path is not None else b""

    def apply(self, files: Sequence[FilePatch], offsets: list[Offset]) -> list[_Result]:
        """Apply one patch; returns what changed. Removals come first, as git does it."""
        removed: list[_Result] = []
        written: list[_Result] = []
        for file in files:
            try:
                result = self._apply_file(file, offsets)
            except Mismatch as error:
                raise _FileMismatch(file, error) from None
            if file.old_path is not None and file.new_path != file.old_path and not file.copy:
                removed.append((file.old_path, None))
            if result is not None and file.new_path is not None:
                written.append((file.new_path, result))
        gone = {path for path, _ in removed}
        fresh = {f.new_path: f.new_mode for f in files if f.new_path is not None and f.new_path != f.old_path}
        for file in files:
            if file.new_path is not None and file.new_path != file.old_path:
                reason = self._in_the_way(file.new_path, gone, fresh)
                if reason:
                    raise _FileMismatch(file, Mismatch(reason))
        for path, _ in removed:
            self._forget(path)
        for path, result in written:
            assert result
            self._store(path, *result)
        return removed + written

    def _apply_file(self, file: FilePatch, offsets: list[Offset]) -> tuple[bytes, bytes] | None:
        if file.old_path is None:
            mode, content = file.new_mode or REGULAR, b""
        else:
            found = self.files.get(file.old_path)
            if found is None:
                raise Mismatch("the file is not there")
            if found == GITLINK:
                raise Mismatch("is a submodule")
            if file.old_mode and (file.old_mode == SYMLINK) != (found == SYMLINK):
                raise Mismatch("is a link where the patch has a file, or the other way round")
            mode, content = file.new_mode or found, self._contents[file.old_path]
        content, moved = diff.apply_hunks(file.hunks, content)
        for hunk, lines in moved:
            offsets.append(Offset(show_path(file.path), hunk.header.decode("utf-8", "replace"), lines))
        if file.new_path is None:
            if content:
                raise Mismatch("the patch removes the file, but not all of its content")
            return None
        return mode, content

    def _in_the_way(self, path: bytes, gone: set[bytes], fresh: Mapping[bytes, bytes | None]) -> str:
        if path in self.files and path not in gone:
            return "the file exists already"
        parts = path.split(b"/")
        for size in range(1, len(parts)):
            parent = b"/".join(parts[:size])
            there = parent in self.files and parent not in gone
            if there or parent in fresh:
                if (self.files[parent] if there else fresh[parent]) == SYMLINK:
                    return f"{show_path(parent)} is a symbolic link: nothing is written through it"
                return f"{show_path(parent)} is a file, not a folder"
        if self._count_folders()[path] > sum(g.startswith(path + b"/") for g in gone):
            return "a folder of that name is there"
        return ""

    def _count_folders(self) -> Counter[bytes]:
        """How many files lie below each folder; counted when first asked for."""
        if self._folders is None:
            self._folders = Counter()
            for path in self.files:
                self._folders.update(_parents(path))
        return self._folders

    def _forget(self, path: bytes) -> None:
        del self.files[path]
        self._contents.pop(path, None)
        if self._folders is not None:
            self._folders.subtract(_parents(path))

    def _store(self, path: bytes, mode: bytes, content: bytes) -> None:
        if path not in self.files and self._folders is not None:
            self._folders.update(_parents(path))
        self.files[path] = mode
        self._contents[path] = content


def _parents(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:n]) for n in range(1, len(parts))]


def _text(line: bytes) -> str:
    return show_path(line.rstrip(b"\r\n").replace(b"\t", b"    "))


def closest(hunk: Hunk, image: Sequence[bytes]) -> int:
    """The index of the line where most of the hunk's old lines stand in order; for messages."""
    votes: Counter[int] = Counter()
    places: dict[bytes, list[int]] = {}
    for at, line in enumerate(image):
        places.setdefault(line, []).append(at)
    for at, line in enumerate(hunk.old):
        if line.strip():
            votes.update(p - at for p in places.get(line, ())[:200])
    want = max(hunk.new_start - 1, 0)
    best = max(votes, key=lambda at: (votes[at], -abs(at - want)), default=want)
    return max(0, min(best, max(len(image) - 1, 0)))


def _is_there(hunk: Hunk, image: Sequence[bytes]) -> bool:
    new = list(hunk.new)
    return bool(new) and any(list(image[at : at + len(new)]) == new for at, line in enumerate(image) if line == new[0])
