"""Bulk writes to the store by ``git fast-import``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from patchq.formats.header import Ident
from patchq.git.command import is_plain
from patchq.git.repository import Git
from patchq.names import CommitId, TreeId
from patchq.system import fsio


@contextmanager
def fast_import(store: Git, *options: str) -> Iterator[IO[bytes]]:
    """Run ``git fast-import`` and yield its input. git imports nothing unless the input ends with ``done``."""
    argv = ("fast-import", "--quiet", "--done", "--force", "--depth=1", "--date-format=raw", *options)
    packs = store.folder / "objects" / "pack"
    try:
        with store.feed(*argv, config=("core.compression=1", "fastimport.unpackLimit=1")) as process:
            assert process.stdin
            yield process.stdin
    except BaseException:
        # A killed fast-import leaves its unfinished pack and a crash report.
        for rest in (*packs.glob("tmp_pack_*"), *store.folder.glob("fast_import_crash_*")):
            rest.unlink(missing_ok=True)
        raise


@contextmanager
def import_commits(store: Git, ref: bytes) -> Iterator[tuple[IO[bytes], dict[int, CommitId]]]:
    """Run ``git fast-import`` for commits on a temporary ref.

    Yield the input of the process, and a dict of commit ids by mark. The dict is filled when the block ends.
    If the import fails, only unreachable objects remain.
    """
    ids: dict[int, CommitId] = {}
    with fsio.temporary_folder() as folder:
        marks = folder / "marks"
        with fast_import(store, f"--export-marks={marks}") as out:
            yield out, ids
            out.write(b"reset %s\nfrom %s\n\ndone\n" % (ref, b"0" * 40))
        for line in marks.read_text().splitlines():
            mark, commit = line.split()
            ids[int(mark[1:])] = CommitId(commit)


def commit_start(ref: bytes, mark: int, author: Ident, message: str, parent: bytes) -> bytes:
    """Return the header of a ``fast-import`` commit. The author is also the committer.

    :param parent: id or mark of the parent commit.
    """
    ident, text = author.line(), message.encode()
    head = b"commit %s\nmark :%d\nauthor %s\ncommitter %s\n" % (ref, mark, ident, ident)
    return head + b"data %d\n%s\nfrom %s\n" % (len(text), text, parent)


#: Minimum number of commits for fast-import. For fewer commits, one commit-tree process for each is faster.
_MANY = 4


def commit_trees(store: Git, tip: CommitId, trees: Sequence[tuple[TreeId, Ident, str]]) -> list[CommitId]:
    """Write a chain of commits on top of ``tip``. The commit ids are the same as from ``git commit-tree``."""
    made: list[CommitId] = []
    if len(trees) < _MANY or not all(is_plain(author) for _, author, _ in trees):
        for tree, author, message in trees:
            tip = store.commit_tree(tree, [tip], author, message)
            made.append(tip)
        return made
    ref = b"refs/patchq/scratch/trees"
    with import_commits(store, ref) as (out, ids):
        for mark, (tree, author, message) in enumerate(trees, 1):
            out.write(commit_start(ref, mark, author, message, b":%d" % (mark - 1) if made else tip.encode()))
            out.write(b'M 040000 %s ""\n' % tree.encode())
            made.append(tip)
    return [ids[mark] for mark in range(1, len(trees) + 1)]


def quote_path(path: bytes) -> bytes:
    """Quote a path for ``fast-import`` if necessary."""
    if not path.startswith(b'"') and b"\n" not in path:
        return path
    escaped = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + escaped + b'"'
