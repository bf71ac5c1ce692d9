"""What differs between trees: by path, as text, as patch files, and diffs applied."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.git.objects import Objects, TreeEntry
from patchq.names import BlobId, CommitId, TreeId
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


@dataclass(frozen=True, slots=True)
class PathChange:
    """What differs between two trees at one path; None is no file."""

    path: bytes
    old: TreeEntry | None
    new: TreeEntry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedHunk:
    """A hunk that git applied ``lines`` lines away from where it says: hunk ``number`` of its file, now at ``line``."""

    path: str
    number: int
    line: int
    lines: int


_CORRUPT = re.compile(r"^error: corrupt binary patch.*$|^error: unrecognized binary patch.*$", re.MULTILINE)
_CHECKING = re.compile(r"Checking patch (.*)\.\.\.")
_MOVED = re.compile(r"Hunk #(\d+) succeeded at (\d+) \(offset (-?\d+) lines?\)\.")


def _changes(fields: Sequence[bytes]) -> list[PathChange]:
    """What ``diff-tree -z`` says: a line of modes and blobs, then a path, and so on."""
    found = []
    for meta, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, new_mode, old, new, _ = meta.removeprefix(b":").split(b" ")
        sides = ((old_mode, old), (new_mode, new))
        entries = (None if mode == b"000000" else TreeEntry(mode, BlobId(blob.decode())) for mode, blob in sides)
        found.append(PathChange(path, *entries))
    return found


#: Of a merge, the parent to compare it with.
Against = Mapping[CommitId, CommitId]


def _to_compare(commits: Sequence[CommitId], against: Against | None) -> bytes:
    """Return commits for the standard input of ``git diff-tree``, which reads a parent behind a commit."""
    parents = against or {}
    return "".join(f"{c} {parents[c]}\n" if c in parents else f"{c}\n" for c in commits).encode()


class Diffs(Objects):
    """Making, naming and applying diffs."""

    def changes(self, before: str, after: str) -> list[PathChange]:
        """Each path that differs between two trees or commits; a rename is a removal and an addition."""
        return _changes(self.run("diff-tree", "-r", "-z", "--no-renames", before, after).split(b"\0")[:-1])

    def changes_between(self, pairs: Sequence[tuple[TreeId, TreeId]]) -> list[list[PathChange]]:
        """Return what differs between the trees of each pair, all by one process."""
        data = "".join(f"{before} {after}\n" for before, after in pairs).encode()
        out = self.run("diff-tree", "-r", "-z", "--no-renames", "--stdin", data=data) if pairs else b""
        found: list[list[bytes]] = []
        fields = iter(out.split(b"\0"))
        for field in fields:
            # A line names the pair; nothing separates it from the first change, or from the line of the next pair.
            *headers, change = field.split(b"\n")
            found += [[] for _ in headers]
            if change:
                found[-1] += [change, next(fields)]
        return [_changes(each) for each in found]

    def changes_of(
        self, commits: Sequence[CommitId], *, first_parent: bool = False, against: Against | None = None
    ) -> list[list[PathChange]]:
        """What each of the commits changes of its parent.

        :param first_parent: of a merge, what it brings; else nothing.
        :param against: the parent to compare a merge with, where that isn't its first.
        """
        data = _to_compare(commits, against)
        merges = ("--diff-merges=first-parent",) if first_parent else ()
        out = self.run("diff-tree", "-r", "-z", "--no-renames", *merges, "--stdin", data=data) if commits else b""
        found: dict[bytes, list[bytes]] = {c.encode(): [] for c in commits}
        fields = found[commits[0].encode()] if commits else []
        for field in out.split(b"\0")[:-1]:
            commit = field.strip()
            if commit in found:
                fields = found[commit]
            else:
                fields.append(field)
        return [_changes(found[c.encode()]) for c in commits]

    def renames_of(self, commit: CommitId, parent: CommitId | None = None) -> dict[bytes, bytes]:
        """The files that a commit renames: from where to where; since its first parent, or this one."""
        return self._renames(parent or "--no-commit-id", commit)

    def renames_between(self, before: str, after: str) -> dict[bytes, bytes]:
        """Return the files that are renamed between two trees: from where to where."""
        return self._renames(before, after)

    def moved(self, before: str, after: str, path: bytes) -> bytes | None:
        """Where a file of one tree is in another, in a folder beside it or by its name in any; None where it isn't."""
        folder, _, name = re.sub(rb"([*?\[\]\\])", rb"\\\1", path).rpartition(b"/")
        places = (b":(literal)" + path, b":(glob)" + (folder + b"/*" if folder else b"*"), b":(glob)**/" + name)
        return self._renames(before, after, "--", *map(os.fsdecode, places)).get(path)

    def _renames(self, *args: str) -> dict[bytes, bytes]:
        argv = ("diff-tree", "-r", "-z", "-M", "--diff-merges=first-parent", "--diff-filter=R", "--name-status")
        fields = self.run(*argv, *args, config=_DIFF_CONFIG).split(b"\0")[:-1]
        return dict(zip(fields[1::3], fields[2::3], strict=True))

    def diffs_of(
        self, commits: Sequence[CommitId], *, as_merged: bool = False, against: Against | None = None
    ) -> list[bytes]:
        """The diff of each of the commits from its first parent, renames as a removal and an addition.

        :param as_merged: by the algorithm that git's merges use, not the one that people read.
        :param against: the parent to compare a merge with, where that isn't its first.
        """
        data = _to_compare(commits, against)
        argv = ["diff-tree", "-p", "--full-index", "--no-renames", "--unified=3", "--no-ext-diff", "--no-textconv"]
        argv += ["--diff-merges=first-parent"]
        argv += ["--diff-algorithm=histogram", "--no-indent-heuristic"] if as_merged else []
        out = self.run(*argv, "--src-prefix=a/", "--dst-prefix=b/", "--stdin", data=data, config=_DIFF_CONFIG)
        found = dict.fromkeys(commits, b"")
        # No line of a diff begins with an id.
        parts = re.split(rb"^([0-9a-f]{40})\n", out, flags=re.MULTILINE)
        found.update((CommitId(c.decode()), text) for c, text in zip(parts[1::2], parts[2::2], strict=True))
        return [found[c] for c in commits]

    def diff_as_merged(self, before: str, after: str) -> bytes:
        """Return the diff of two trees by the algorithm that git's merges use.

        With a line around each change: without any, git cuts off what both files end with before it compares them.
        """
        argv = ["diff-tree", "-p", "--full-index", "--no-renames", "--unified=1", "--no-ext-diff", "--no-textconv"]
        argv += ["--diff-algorithm=histogram", "--no-indent-heuristic", "--src-prefix=a/", "--dst-prefix=b/"]
        return self.run(*argv, before, after, config=_DIFF_CONFIG)

    def lines_of(self, commit: CommitId, tip: CommitId, path: bytes, since: CommitId) -> set[int]:
        """The lines of a file at ``tip``, from 1, that are as ``commit`` wrote them; it lies after ``since``."""
        out = self.run("blame", "--porcelain", f"{since}..{tip}", "--", os.fsdecode(path))
        found = set()
        for line in out.split(b"\n"):
            if line.startswith(commit.encode() + b" "):
                found.add(int(line.split()[2]))
        return found

    def patch_ids_of(self, commits: Sequence[CommitId]) -> list[str]:
        """git's stable patch id of each of the commits; empty for one that changes nothing."""
        if not commits:
            return []
        argv = ("log", "-p", "--diff-merges=first-parent", "--no-color", "--full-index", "--no-walk=unsorted")
        log = self.run(*argv, *commits, "--")
        lines = self.run("patch-id", "--stable", data=log).decode().splitlines()
        found = {commit: pid for pid, commit in (line.split() for line in lines)}
        return [found.get(c, "") for c in commits]

    def format_patches(self, spec: str, folder: Path) -> None:
        """Write a range as patch files, in the bytes that docs/reference/formats.md fixes."""
        self.run(
            "format-patch",
            "--quiet",
            f"--output-directory={folder}",
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
            spec,
            config=_DIFF_CONFIG,
        )

    def apply_to_index(self, patch: bytes, index: Path) -> list[MovedHunk]:
        """``git apply --cached`` with zero fuzz on a temporary index; the hunks that it put elsewhere than they say.

        :raises runner.CommandError: when git refuses.
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
        said = done.stderr.decode("utf-8", "replace")
        if damaged := _CORRUPT.search(said):
            # git stops reading at a damaged binary patch, applies what stands above it, and exits with 0.
            raise CommandError(("git", "apply"), done.returncode, b"", damaged[0].encode())
        for line in said.splitlines():
            if match := _CHECKING.fullmatch(line):
                path = match[1]
            elif match := _MOVED.fullmatch(line):
                found.append(MovedHunk(path=path, number=int(match[1]), line=int(match[2]), lines=int(match[3])))
        return found
