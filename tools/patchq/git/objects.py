"""Blobs, trees and commits: read in bulk, and written one by one (many: ``fastimport``)."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from patchq.errors import SourceError
from patchq.formats.header import Ident, decode
from patchq.git._refs import Refs
from patchq.git.command import MEND
from patchq.names import BlobId, CommitId, TreeId
from patchq.system import runner

if TYPE_CHECKING:
    from patchq.git._reader import Reader

_ID = re.compile(r"[0-9a-f]{40}")
#: Packs past which they become one.
MAX_PACKS = 50


def blob_id(content: bytes) -> BlobId:
    """The id that git gives to a blob of these bytes."""
    return BlobId(hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())


def contents_of(wanted: Sequence[BlobId], out: bytes) -> dict[BlobId, bytes]:
    """What ``cat-file --batch`` answers to a list of blobs; without those that aren't there."""
    found: dict[BlobId, bytes] = {}
    at = 0
    for blob in wanted:
        end = out.index(b"\n", at)
        words = out[at:end].split()
        if len(words) != 3:
            at = end + 1
            continue
        size = int(words[2])
        found[blob] = out[end + 1 : end + 1 + size]
        at = end + size + 2
    return found


K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file of a tree."""

    mode: bytes
    blob: BlobId


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo:
    """What ``export`` needs to know of a commit."""

    commit: CommitId
    tree: TreeId
    parents: tuple[CommitId, ...]
    author: Ident
    message: str


class Objects(Refs):
    """Reading and writing objects."""

    def tree_of(self, commits: Sequence[str]) -> list[TreeId]:
        """The trees of commits, in one call."""
        names = [f"{c}^{{tree}}" for c in commits]
        known = self._staying(len(names), lambda r: r.ids(names)) if all(map(_ID.fullmatch, commits)) else {}
        return [TreeId(t) for t in ([known[n] for n in names] if known.keys() >= set(names) else self.resolve(*names))]

    def list_tree(self, treeish: str, paths: Sequence[bytes] = ()) -> dict[bytes, TreeEntry]:
        """Every file of a tree, or those at these paths, by path."""
        out = self.run("ls-tree", "-r", "-z", "--full-tree", treeish, "--", *map(os.fsdecode, paths))
        found: dict[bytes, TreeEntry] = {}
        for line in out.split(b"\0")[:-1]:
            meta, path = line.split(b"\t", 1)
            mode, _, blob = meta.split(b" ")
            found[path] = TreeEntry(mode, BlobId(blob.decode()))
        return found

    def read_blobs(self, blobs: Iterable[BlobId]) -> dict[BlobId, bytes]:
        """The contents of blobs, by one ``cat-file`` at most.

        :raises SourceError: for one that the store has lost.
        """
        wanted = list(dict.fromkeys(blobs))
        if not wanted:
            return {}
        found = self._staying(len(wanted), lambda r: r.contents(wanted))
        if rest := [blob for blob in wanted if blob not in found]:
            out = self.run("cat-file", "--batch", data="".join(f"{b}\n" for b in rest).encode())
            found |= contents_of(rest, out)
        for blob in wanted:
            if blob not in found:
                raise SourceError(f"the store has lost the object {blob}", hint=MEND)
        return found

    def _staying(self, count: int, ask: Callable[[Reader], dict[K, V] | None]) -> dict[K, V]:
        """What a reader that runs already says of a few things; nothing where there is none, or too much to ask."""
        from patchq.git._reader import AT_ONCE, reader  # most commands ask for nothing

        found = reader(self) if count <= AT_ONCE else None
        return (ask(found) if found else None) or {}

    def texts(self, entries: Mapping[bytes, TreeEntry]) -> dict[bytes, bytes]:
        """What stands at paths; of a submodule, whose commit is in no store of ours, what git's diffs have of it."""
        links = {
            path: b"Subproject commit %s\n" % e.blob.encode() for path, e in entries.items() if e.mode == b"160000"
        }
        contents = self.read_blobs(e.blob for path, e in entries.items() if path not in links)
        return {path: links.get(path) or contents[e.blob] for path, e in entries.items()}

    def commit_tree(self, tree: str, parents: Sequence[str], author: Ident, message: str) -> CommitId:
        """Write a commit whose committer is its author, so that its id depends on nothing else."""
        env = {
            "GIT_AUTHOR_NAME": author.name,
            "GIT_AUTHOR_EMAIL": author.email,
            "GIT_AUTHOR_DATE": f"@{author.when} {author.zone}",
            "GIT_COMMITTER_NAME": author.name,
            "GIT_COMMITTER_EMAIL": author.email,
            "GIT_COMMITTER_DATE": f"@{author.when} {author.zone}",
        }
        args = [x for p in parents for x in ("-p", p)]
        return CommitId(
            self.run("commit-tree", tree, *args, "-F", "-", data=message.encode(), env=env).decode().strip()
        )

    def lacking(self, blobs: Iterable[BlobId]) -> list[BlobId]:
        """Those of these files that are not here."""
        data = "".join(f"{blob}\n" for blob in dict.fromkeys(blobs)).encode()
        out = self.run("cat-file", "--batch-check=%(objectname)", data=data).decode() if data else ""
        return [BlobId(line.removesuffix(" missing")) for line in out.splitlines() if line.endswith(" missing")]

    def commits_here(self, commits: Iterable[CommitId]) -> set[CommitId]:
        """Those of these commits that are here, whether or not all that they consist of is."""
        data = "".join(f"{commit}^{{commit}}\n" for commit in dict.fromkeys(commits)).encode()
        out = self.run("cat-file", "--batch-check=%(objectname)", data=data).decode() if data else ""
        return {CommitId(line) for line in out.splitlines() if " " not in line}

    def log(self, *specs: str, first_parent: bool = True, paths: Iterable[bytes] = ()) -> list[CommitInfo]:
        """Return the commits of a range, oldest first.

        :param first_parent: along first parents; else all, a commit's parents before it.
        :param paths: only those that touch one of these, on whatever branch they were made.
        """
        form = "%H%x00%T%x00%P%x00%an%x00%ae%x00%ad%x00%B"
        out = self.run(
            "log",
            "-z",
            "--reverse",
            *(["--first-parent"] if first_parent else ["--topo-order"]),
            *(["--full-history"] if paths else []),
            "--encoding=UTF-8",
            "--date=raw",
            f"--format={form}",
            *specs,
            "--",
            *(":(literal)" + os.fsdecode(path) for path in paths),
        )
        fields = [decode(field) for field in out.split(b"\0")[:-1]]
        found = []
        for at in range(0, len(fields), 7):
            commit, tree, parents, name, email, date, message = fields[at : at + 7]
            when, _, zone = date.partition(" ")
            author = Ident(name, email, int(when or 0), zone or "+0000")
            ids = tuple(CommitId(p) for p in parents.split())
            found.append(
                CommitInfo(commit=CommitId(commit), tree=TreeId(tree), parents=ids, author=author, message=message)
            )
        return found

    def is_whole(self, commits: Iterable[str]) -> bool:
        """Whether every commit, tree and file that these commits consist of is here."""
        data = "".join(f"{commit}\n" for commit in commits).encode()
        try:
            self.run("rev-list", "--objects", "--quiet", "--stdin", data=data)
        except runner.CommandError:
            return False
        return True

    def join_packs(self) -> None:
        """Make one pack of many: each fetch and each cold apply adds one, and every git looks into all of them."""
        if len(list((self.folder / "objects" / "pack").glob("*.pack"))) > MAX_PACKS:
            # Unreachable objects stay: undo may need them.
            self.run("repack", "-a", "-d", "-k", "-q")
