"""Refs, blobs, trees and commits. To write many objects, use ``fastimport`` instead."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from patchq.errors import SourceError
from patchq.formats.header import Ident, decode
from patchq.formats.treepath import parents_of
from patchq.git.command import MEND, Command
from patchq.names import BlobId, CommitId, TreeId
from patchq.records import dataclass
from patchq.system import runner

if TYPE_CHECKING:
    from patchq.git._reader import ObjectReader

_ID = re.compile(r"[0-9a-f]{40}")
#: Maximum number of paths per command, because the size of a command line is limited.
_MOST_PATHS = 200
#: Number of packs above which :meth:`Objects.join_packs` repacks.
MAX_PACKS = 50


def blob_id(content: bytes) -> BlobId:
    """Return the git id of a blob."""
    return BlobId(hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())


def contents_of(wanted: Sequence[BlobId], out: bytes) -> dict[BlobId, bytes]:
    """Parse the output of ``cat-file --batch`` for a list of blobs. Blobs that don't exist are left out."""
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
    """Entry of a tree: the mode and blob of a file."""

    mode: bytes
    blob: BlobId


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo:
    """Metadata of a commit."""

    commit: CommitId
    tree: TreeId
    parents: tuple[CommitId, ...]
    author: Ident
    message: str


class Objects(Command):
    """Repository operations that read and write objects."""

    def resolve(self, *names: str) -> list[str]:
        """Return the object ids of revisions.

        :raises runner.CommandError: if a revision is unknown.
        """
        out = self.run("rev-parse", *names).decode()
        return out.split("\n")[: len(names)]

    def ref_or_none(self, ref: str) -> CommitId | None:
        """Return the commit that ``ref`` points at; None if there is no such ref."""
        argv = ("rev-parse", "--quiet", "--verify", f"{ref}^{{commit}}")
        found = self.line(*argv, ok_codes=(0, 1, 128))
        if found:
            return CommitId(found)
        return None

    def refs(self, *prefixes: str) -> dict[str, str]:
        """Return the refs below the prefixes and their object ids."""
        out = self.run("for-each-ref", "--format=%(refname) %(objectname)", *prefixes)
        found: dict[str, str] = {}
        # Ref names have any encoding. Don't use splitlines: names may contain other line separators.
        for line in out.decode("utf-8", "replace").split("\n")[:-1]:
            name, _, object_id = line.partition(" ")
            found[name] = object_id
        return found

    def update_refs(self, moves: Sequence[tuple[str, str | None, str | None]]) -> None:
        """Create, move or delete refs ``(name, old, new)`` in one transaction.

        If ``old`` is None, the ref must not exist. If ``new`` is None, the ref is deleted.

        :raises runner.CommandError: if a ref no longer has its old value.
        """
        zero = "0" * 40
        lines = [f"update {ref}\0{new or zero}\0{old or zero}\0" for ref, old, new in moves]
        if lines:
            self.run("update-ref", "-z", "--stdin", data="".join(lines).encode())

    def tree_of(self, commits: Sequence[str]) -> list[TreeId]:
        """Return the trees of commits. One process reads all of them."""
        names = [f"{commit}^{{tree}}" for commit in commits]
        known: dict[str, str] = {}
        # The persistent reader may only answer for object ids, because other names may change their meaning.
        if all(map(_ID.fullmatch, commits)):
            known = self._staying(len(names), lambda reader: reader.ids(names))
        if known.keys() >= set(names):
            return [TreeId(known[name]) for name in names]
        return [TreeId(tree) for tree in self.resolve(*names)]

    def list_tree(self, treeish: str, paths: Sequence[bytes] = ()) -> dict[bytes, TreeEntry]:
        """Return the files of a tree by path: all files, or only those at or below ``paths``."""
        out = self.run("ls-tree", "-r", "-z", "--full-tree", treeish, "--", *map(os.fsdecode, paths))
        found: dict[bytes, TreeEntry] = {}
        for line in out.split(b"\0")[:-1]:
            meta, path = line.split(b"\t", 1)
            mode, _, blob = meta.split(b" ")
            found[path] = TreeEntry(mode, BlobId(blob.decode()))
        return found

    def list_near(self, treeish: str, paths: Sequence[bytes]) -> tuple[dict[bytes, TreeEntry], set[bytes]]:
        """Return the files at or below these paths, and the existing folders along the paths.

        If the parent of a path is a file instead of a folder, this file is included. Only the tree objects along the
        paths are read.
        """
        found, there = self._list_some(treeish, ("-r", "-t"), paths)
        folders = set(chain.from_iterable(map(parents_of, paths)))
        if lacking := folders - there:
            found |= self._list_some(treeish, (), sorted(lacking))[0]
        return found, there

    def _list_some(
        self, treeish: str, options: Sequence[str], paths: Sequence[bytes]
    ) -> tuple[dict[bytes, TreeEntry], set[bytes]]:
        """Return the files and the folders that ``ls-tree`` lists for these paths."""
        argv = ("--literal-pathspecs", "ls-tree", *options, "-z", "--full-tree", treeish, "--")
        found: dict[bytes, TreeEntry] = {}
        folders: set[bytes] = set()
        for start in range(0, len(paths), _MOST_PATHS):
            out = self.run(*argv, *map(os.fsdecode, paths[start : start + _MOST_PATHS]))
            for line in out.split(b"\0")[:-1]:
                meta, path = line.split(b"\t", 1)
                mode, kind, blob = meta.split(b" ")
                if kind == b"tree":
                    folders.add(path)
                else:
                    found[path] = TreeEntry(mode, BlobId(blob.decode()))
        return found, folders

    def read_blobs(self, blobs: Iterable[BlobId]) -> dict[BlobId, bytes]:
        """Return the contents of blobs. At most one new ``cat-file`` process is started.

        :raises SourceError: if a blob is missing.
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

    def _staying(self, count: int, ask: Callable[[ObjectReader], dict[K, V] | None]) -> dict[K, V]:
        """Query the persistent reader. Return an empty result if the reader can't be used, or if ``count`` is large."""
        from patchq.git._reader import AT_ONCE, reader  # not needed by most commands

        if count > AT_ONCE:
            return {}
        found = reader(self)
        if found is None:
            return {}
        return ask(found) or {}

    def texts(self, entries: Mapping[bytes, TreeEntry]) -> dict[bytes, bytes]:
        """Return the contents of tree entries. For a submodule, return the line that git shows in diffs."""
        files = [entry.blob for entry in entries.values() if entry.mode != b"160000"]
        contents = self.read_blobs(files)
        found: dict[bytes, bytes] = {}
        for path, entry in entries.items():
            if entry.mode == b"160000":
                found[path] = b"Subproject commit %s\n" % entry.blob.encode()
            else:
                found[path] = contents[entry.blob]
        return found

    def commit_tree(self, tree: str, parents: Sequence[str], author: Ident, message: str) -> CommitId:
        """Write a commit. The committer equals the author, so the id depends only on the arguments."""
        env = {
            "GIT_AUTHOR_NAME": author.name,
            "GIT_AUTHOR_EMAIL": author.email,
            "GIT_AUTHOR_DATE": f"@{author.when} {author.zone}",
            "GIT_COMMITTER_NAME": author.name,
            "GIT_COMMITTER_EMAIL": author.email,
            "GIT_COMMITTER_DATE": f"@{author.when} {author.zone}",
        }
        argv = ["commit-tree", tree]
        for parent in parents:
            argv += ["-p", parent]
        out = self.run(*argv, "-F", "-", data=message.encode(), env=env)
        return CommitId(out.decode().strip())

    def lacking(self, blobs: Iterable[BlobId]) -> list[BlobId]:
        """Return the blobs that the repository doesn't contain."""
        missing: list[BlobId] = []
        for line in self._batch_check(list(dict.fromkeys(blobs))):
            if line.endswith(" missing"):
                missing.append(BlobId(line.removesuffix(" missing")))
        return missing

    def commits_here(self, commits: Iterable[CommitId]) -> set[CommitId]:
        """Return the commits that the repository contains, even if their trees or files are missing."""
        lines = self._batch_check([f"{commit}^{{commit}}" for commit in dict.fromkeys(commits)])
        found: set[CommitId] = set()
        for line in lines:
            if " " not in line:
                found.add(CommitId(line))
        return found

    def _batch_check(self, names: Sequence[str]) -> list[str]:
        """Return a line for each name: the object's id, or ``NAME missing``."""
        if not names:
            return []
        data = "".join(f"{name}\n" for name in names).encode()
        return self.run("cat-file", "--batch-check=%(objectname)", data=data).decode().splitlines()

    def log(self, *specs: str, first_parent: bool = True, paths: Iterable[bytes] = ()) -> list[CommitInfo]:
        """Return the commits of a range, oldest first.

        :param first_parent: follow first parents only. If False, all parents are followed, and parents come before
            children.
        :param paths: include only commits that touch one of these paths, on any branch.
        """
        argv = ["log", "-z", "--reverse", "--encoding=UTF-8", "--date=raw"]
        argv.append("--format=%H%x00%T%x00%P%x00%an%x00%ae%x00%ad%x00%B")
        argv.append("--first-parent" if first_parent else "--topo-order")
        limits = [":(literal)" + os.fsdecode(path) for path in paths]
        if limits:
            argv.append("--full-history")
        out = self.run(*argv, *specs, "--", *limits)
        fields = [decode(field) for field in out.split(b"\0")[:-1]]
        found: list[CommitInfo] = []
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
        """Return whether the repository contains the commits completely: each commit, tree and file."""
        data = "".join(f"{commit}\n" for commit in commits).encode()
        try:
            self.run("rev-list", "--objects", "--quiet", "--stdin", data=data)
        except runner.CommandError:
            return False
        return True

    def join_packs(self) -> None:
        """Repack the repository if it contains many packs. Each fetch and each first apply adds a pack."""
        if len(list((self.folder / "objects" / "pack").glob("*.pack"))) > MAX_PACKS:
            # Keep unreachable objects, because undo may need them.
            self.run("repack", "-a", "-d", "-k", "-q")
