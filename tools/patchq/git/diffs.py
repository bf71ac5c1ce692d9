"""Diffs between trees: changed paths, diff text, patch files, and ``git apply``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchq.git.objects import Objects, TreeEntry
from patchq.names import BlobId, CommitId, TreeId
from patchq.records import dataclass
from patchq.system.runner import CommandError

_DIFF_CONFIG = (
    "diff.renames=true",
    "diff.renameLimit=0",
    "diff.algorithm=myers",
    "diff.indentHeuristic=true",
    "diff.noprefix=false",
    "diff.mnemonicPrefix=false",
    "diff.interHunkContext=0",
    "diff.suppressBlankEmpty=false",
    "core.quotePath=true",
    "core.attributesFile=/dev/null",
    "format.encodeEmailHeaders=true",
)

#: Options of ``git format-patch`` for the files of a stack: docs/reference/formats.md defines the format.
_PATCH_FILES = (
    "--quiet",
    "--always",
    "--zero-commit",
    "--full-index",
    "--no-signature",
    "--no-stat",
    "--keep-subject",
    "--unified=3",
    "--binary",
    "--no-ext-diff",
    "--no-textconv",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--no-color",
    "--filename-max-length=40",
)


@dataclass(frozen=True, slots=True)
class PathChange:
    """Difference between two trees at one path. ``old`` or ``new`` is None if that tree has no file at this path."""

    path: bytes
    old: TreeEntry | None
    new: TreeEntry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedHunk:
    """Hunk that git applied with an offset.

    :ivar number: number of the hunk in its file.
    :ivar line: line at which the hunk applied.
    :ivar lines: offset from the line in the hunk's header.
    """

    path: str
    number: int
    line: int
    lines: int


_CORRUPT = re.compile(r"^error: corrupt binary patch.*$|^error: unrecognized binary patch.*$", re.MULTILINE)
_CHECKING = re.compile(r"Checking patch (.*)\.\.\.")
_MOVED = re.compile(r"Hunk #(\d+) succeeded at (\d+) \(offset (-?\d+) lines?\)\.")


def _changes(fields: Sequence[bytes]) -> list[PathChange]:
    """Parse the fields of ``diff-tree -z``. Each change has two fields: its modes and blobs, then its path."""
    found = []
    for meta, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, new_mode, old, new, _ = meta.removeprefix(b":").split(b" ")
        found.append(PathChange(path, _entry(old_mode, old), _entry(new_mode, new)))
    return found


def _entry(mode: bytes, blob: bytes) -> TreeEntry | None:
    if mode == b"000000":
        return None
    return TreeEntry(mode, BlobId(blob.decode()))


#: Parents with which to compare merges, by merge commit.
Against = Mapping[CommitId, CommitId]


def _to_compare(commits: Sequence[CommitId], against: Against | None) -> bytes:
    """Return the input for ``git diff-tree``: one commit per line, with the parent to compare it with."""
    lines: list[str] = []
    for commit in commits:
        if against and commit in against:
            lines.append(f"{commit} {against[commit]}\n")
        else:
            lines.append(f"{commit}\n")
    return "".join(lines).encode()


class Diffs(Objects):
    """Diff operations of a repository."""

    def changes(self, before: str, after: str) -> list[PathChange]:
        """Return the differences of two trees or commits. A rename counts as a removal and an addition."""
        return _changes(self.run("diff-tree", "-r", "-z", "--no-renames", before, after).split(b"\0")[:-1])

    def changes_between(self, pairs: Sequence[tuple[TreeId, TreeId]]) -> list[list[PathChange]]:
        """Return the differences of each pair of trees. One process reads all pairs."""
        data = "".join(f"{before} {after}\n" for before, after in pairs).encode()
        out = b""
        if pairs:
            out = self.run("diff-tree", "-r", "-z", "--no-renames", "--stdin", data=data)
        found: list[list[bytes]] = []
        fields = iter(out.split(b"\0"))
        for field in fields:
            # The first field of a pair is a line that names the pair. No NUL separates this line from the first change,
            # or from the next pair's line.
            *headers, change = field.split(b"\n")
            found += [[] for _ in headers]
            if change:
                found[-1] += [change, next(fields)]
        return [_changes(each) for each in found]

    def changes_of(
        self, commits: Sequence[CommitId], *, first_parent: bool = False, against: Against | None = None
    ) -> list[list[PathChange]]:
        """Return the changes of each commit relative to its parent.

        :param first_parent: compare a merge with its first parent. By default, a merge counts as unchanged.
        :param against: parents with which to compare merges, by merge commit.
        """
        data = _to_compare(commits, against)
        merges = []
        if first_parent:
            merges.append("--diff-merges=first-parent")
        out = b""
        if commits:
            out = self.run("diff-tree", "-r", "-z", "--no-renames", *merges, "--stdin", data=data)
        found: dict[bytes, list[bytes]] = {c.encode(): [] for c in commits}
        fields = []
        if commits:
            fields = found[commits[0].encode()]
        for field in out.split(b"\0")[:-1]:
            commit = field.strip()
            if commit in found:
                fields = found[commit]
            else:
                fields.append(field)
        return [_changes(found[c.encode()]) for c in commits]

    def renames_of(self, commit: CommitId, parent: CommitId | None = None) -> dict[bytes, bytes]:
        """Return the files that a commit renames, as old path → new path.

        :param parent: parent to compare the commit with; by default, its first parent.
        """
        return self._renames(parent or "--no-commit-id", commit)

    def renames_between(self, before: str, after: str) -> dict[bytes, bytes]:
        """Return the files that were renamed between two trees, as old path → new path."""
        return self._renames(before, after)

    def moved(self, before: str, after: str, path: bytes) -> bytes | None:
        """Return the new path of a renamed file; None if the file wasn't renamed.

        Only files in the same folder, and files of the same name in other folders, are considered.
        """
        folder, _, name = re.sub(rb"([*?\[\]\\])", rb"\\\1", path).rpartition(b"/")
        siblings = b"*"
        if folder:
            siblings = folder + b"/*"
        places = (b":(literal)" + path, b":(glob)" + siblings, b":(glob)**/" + name)
        return self._renames(before, after, "--", *map(os.fsdecode, places)).get(path)

    def _renames(self, *args: str) -> dict[bytes, bytes]:
        argv = ("diff-tree", "-r", "-z", "-M", "--diff-merges=first-parent", "--diff-filter=R", "--name-status")
        fields = self.run(*argv, *args, config=_DIFF_CONFIG).split(b"\0")[:-1]
        return dict(zip(fields[1::3], fields[2::3], strict=True))

    def diffs_of(
        self, commits: Sequence[CommitId], *, as_merged: bool = False, against: Against | None = None
    ) -> list[bytes]:
        """Return each commit's diff relative to its first parent. A rename is shown as a removal and an addition.

        :param as_merged: use the diff algorithm of git's merges.
        :param against: parents with which to compare merges, by merge commit.
        """
        data = _to_compare(commits, against)
        argv = ["diff-tree", "-p", "--full-index", "--no-renames", "--unified=3", "--no-ext-diff", "--no-textconv"]
        argv += ["--diff-merges=first-parent"]
        if as_merged:
            argv += ["--diff-algorithm=histogram", "--no-indent-heuristic"]
        out = self.run(*argv, "--src-prefix=a/", "--dst-prefix=b/", "--stdin", data=data, config=_DIFF_CONFIG)
        found = dict.fromkeys(commits, b"")
        # No line of a diff begins with an id.
        parts = re.split(rb"^([0-9a-f]{40})\n", out, flags=re.MULTILINE)
        found.update((CommitId(c.decode()), text) for c, text in zip(parts[1::2], parts[2::2], strict=True))
        return [found[c] for c in commits]

    def diff_as_merged(self, before: str, after: str) -> bytes:
        """Return the diff of two trees by the algorithm that git's merges use."""
        # One line of context: with none, git strips the common end of the files before it compares.
        argv = ["diff-tree", "-p", "--full-index", "--no-renames", "--unified=1", "--no-ext-diff", "--no-textconv"]
        argv += ["--diff-algorithm=histogram", "--no-indent-heuristic", "--src-prefix=a/", "--dst-prefix=b/"]
        return self.run(*argv, before, after, config=_DIFF_CONFIG)

    def lines_of(self, commit: CommitId, tip: CommitId, path: bytes, since: CommitId) -> set[int]:
        """Return the line numbers (from 1) of a file at ``tip`` that ``git blame`` assigns to ``commit``.

        :param since: ancestor of ``commit`` at which the search ends.
        """
        out = self.run("blame", "--porcelain", f"{since}..{tip}", "--", os.fsdecode(path))
        found = set()
        for line in out.split(b"\n"):
            if line.startswith(commit.encode() + b" "):
                found.add(int(line.split()[2]))
        return found

    def patch_ids_of(self, commits: Sequence[CommitId]) -> list[str]:
        """Return the stable patch id of each commit; empty for a commit without changes."""
        if not commits:
            return []
        argv = ("log", "-p", "--diff-merges=first-parent", "--no-color", "--full-index", "--no-walk=unsorted")
        log = self.run(*argv, *commits, "--")
        lines = self.run("patch-id", "--stable", data=log).decode().splitlines()
        found: dict[str, str] = {}
        for line in lines:
            patch_id, commit = line.split()
            found[commit] = patch_id
        return [found.get(commit, "") for commit in commits]

    def format_patches(self, spec: str, folder: Path) -> None:
        """Write a range as patch files, in the format that docs/reference/formats.md defines."""
        self.run("format-patch", *_PATCH_FILES, f"--output-directory={folder}", spec)

    def apply_to_index(self, patch: bytes, index: Path) -> list[MovedHunk]:
        """Apply a patch to a temporary index without fuzz, and return the hunks that applied with an offset.

        :raises runner.CommandError: if the patch doesn't apply.
        """
        done = self.ask(
            "apply",
            "--cached",
            "--verbose",
            "--whitespace=nowarn",
            "-",
            data=patch,
            env={"GIT_INDEX_FILE": str(index)},
            config=("core.attributesFile=/dev/null",),
            ok_codes=(0,),
        )
        found, path = [], ""
        message = done.stderr.decode("utf-8", "replace")
        if damaged := _CORRUPT.search(message):
            # At a damaged binary patch git stops, applies the part above it, and exits with 0.
            raise CommandError(("git", "apply"), done.returncode, b"", damaged[0].encode())
        for line in message.splitlines():
            if match := _CHECKING.fullmatch(line):
                path = match[1]
            elif match := _MOVED.fullmatch(line):
                found.append(MovedHunk(path=path, number=int(match[1]), line=int(match[2]), lines=int(match[3])))
        return found
