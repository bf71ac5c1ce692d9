"""One change at a time: planned whole, carried out so that a kill at any point can be mended.

A change names every file, ref and worktree that it moves, with their values before and after.
It is written to ``.patchq/journal/pending.json`` before anything moves; from then on it can only
go forward: the next command that takes the lock finishes it. When it is done, the record becomes
the operation log, from which ``undo`` takes it back.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from patchq.errors import EditedTreeError, FormatError, PatchqError, StateError, UserError
from patchq.formats.header import Ident
from patchq.git.repository import Git
from patchq.git.worktree import Worktree, branch_of
from patchq.names import CommitId
from patchq.system import fsio, project_files
from patchq.system.paths import Layout, check_inside

VERSION = 1
#: Operations that can be undone; older ones are forgotten.
KEEP = 200
#: Refs of commits that keep what ``undo`` had handed back and could not leave in the files.
KEPT = "refs/patchq/kept/"
_DIGEST, _ID = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class TreeMove:
    """A worktree's commit before and after; None is no worktree.

    With ``adopt`` the files stay as they are and only the index moves: the edits that they hold
    become part of the commit, or, when it is undone, edits again.
    """

    upstream: str
    old: CommitId | None
    new: CommitId | None
    adopt: bool = False


@dataclass(slots=True)
class Change:
    """What one command is going to do. ``files`` are relative to the project; None removes."""

    verb: str
    summary: str
    files: dict[str, bytes | None] = field(default_factory=dict)
    refs: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    trees: list[TreeMove] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.files or self.refs or self.trees)


@contextmanager
def _names_the_way_out() -> Iterator[None]:
    """What a command has begun and can't finish may be given up: an error says by what."""
    try:
        yield
    except PatchqError as error:
        error.hint += "; or `patchq undo --pending`, which gives up the command that was interrupted"
        raise


class Journal:
    """Carries changes out and takes them back. The caller holds the project's lock."""

    def __init__(self, layout: Layout, store: Git, worktree: Callable[[str], Worktree]) -> None:
        self.layout, self.store, self.worktree = layout, store, worktree
        self.folder = layout.private / "journal"
        self.pending = self.folder / "pending.json"
        self._handed = self.folder / "handed-back.json"

    def perform(self, change: Change, *, undoes: str = "") -> None:
        """Carry out ``change``. After the pending record is written it will happen."""
        for name in change.files:
            self._check_place(name, "this command")
        change.files = {p: d for p, d in change.files.items() if self._read_file(p) != d}
        change.refs = [m for m in change.refs if m[1] != m[2]]
        if change.empty:
            return
        adopted = {tree.new for tree in change.trees if tree.adopt}
        for tree in change.trees:
            if tree.new and not tree.adopt:
                self.worktree(tree.upstream).rehearse(tree.old, tree.new, adopted=tree.old in adopted)
        kept: dict[Path, bytes] = {}
        record = {
            "version": VERSION,
            "verb": change.verb,
            "summary": change.summary,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "files": {
                path: [self._keep(self._read_file(path), kept), self._keep(data, kept)]
                for path, data in change.files.items()
            },
            "refs": change.refs,
            "trees": [[t.upstream, t.old, t.new, t.adopt] for t in change.trees],
            "undoes": undoes,
        }
        fsio.write_all(kept)
        fsio.write_atomic(self.pending, fsio.dump_json(record))
        with _names_the_way_out():
            self._carry_out(record, resumed=False)

    def recover(self) -> str:
        """Finish the change that a killed command left; returns its summary, or an empty string."""
        data = fsio.read_or_none(self.pending)
        if data is None:
            return ""
        record = self._read(self.pending)
        with _names_the_way_out():
            self._carry_out(record, resumed=True)
        return str(record["summary"])

    def give_up(self) -> tuple[str, list[str]]:
        """Take back the change that is under way, whatever of it has happened.

        What a person has edited since stays as it is. Once begun, this can only go on.

        :returns: its summary, and the files that were edited since.
        :raises UserError: if there is none.
        :raises EditedTreeError: if a worktree holds an edit; it is kept.
        """
        if fsio.read_or_none(self.pending) is None:
            raise UserError("no command is pending", hint="`patchq undo` takes back the last one that is done")
        record = self._read(self.pending)
        edited = [p for p, ends in self._owned(record["files"]) if self._digest(p) not in ends]
        if not record.get("given_up"):
            record["files"] = {p: ends[::-1] for p, ends in record["files"].items()}
            record["refs"] = [(ref, new, old) for ref, old, new in record["refs"]]
            record["trees"] = [(up, new, old, adopt) for up, old, new, adopt in reversed(record["trees"])]
        for path in edited:
            del record["files"][path]
        fsio.write_atomic(self.pending, fsio.dump_json({**record, "given_up": True}))
        self.recover()
        return str(record["summary"]), edited

    def _carry_out(self, record: Mapping[str, Any], *, resumed: bool) -> None:
        trees = [TreeMove(*t) for t in record["trees"]]
        files: Mapping[str, Sequence[str | None]] = record["files"]
        moves = [(str(r), old, new) for r, old, new in record["refs"]]
        if resumed:
            now = self.store.refs("refs")
            moves = [(r, now.get(r), new) for r, old, new in moves if now.get(r) != new]
            for path, (before, after) in self._owned(files):
                self._check_unchanged(path, before, after)
        back = bool(record.get("given_up"))
        kept = {CommitId(new) for ref, _, new in record["refs"] if ref.startswith(KEPT) and new}
        for tree in trees:
            self._move_tree(tree, resumed=resumed, back=back, kept=tree.old in kept)
        if trees:  # git syncs no file that it checks out
            fsio.sync_file_system(self.layout.private)
        self.store.update_refs(moves)
        contents = {self.layout.root / path: self._kept(after) for path, (_, after) in files.items()}
        for full in contents if resumed else ():
            fsio.remove_unfinished(full)
        for full in (path for path, data in contents.items() if data is None):
            fsio.remove(full)
        fsio.write_all({path: data for path, data in contents.items() if data is not None})
        self._finish(record)

    def _move_tree(self, tree: TreeMove, *, resumed: bool, back: bool, kept: bool) -> None:
        """Move a worktree; with ``kept``, a ref of this change keeps the commit that it is at."""
        worktree = self.worktree(tree.upstream)
        if resumed:
            worktree.mend()
        if tree.new is None:
            if back and tree.old:
                worktree.withdraw(tree.old)
            else:
                worktree.remove(force=kept and worktree.exists and self._holds(worktree, tree.old))
            return
        if tree.old is None:
            worktree.create(tree.new)
        if tree.adopt:
            worktree.adopt(tree.new)
        elif resumed:
            worktree.resume(tree.old, tree.new, back=back)
        else:
            worktree.checkout(tree.old, tree.new)

    def _holds(self, worktree: Worktree, commit: CommitId | None) -> bool:
        """Return whether a worktree's files are a commit's."""
        return commit is not None and worktree.snapshot(pass_over=True) == self.store.tree_of([commit])[0]

    def _check_unchanged(self, path: str, before: str | None, after: str | None) -> None:
        if self._digest(path) not in (before, after):
            raise EditedTreeError(
                f"{path} was edited after a command was interrupted; it is kept",
                hint="put it back as it was, and run the command again",
            )

    def _finish(self, record: Mapping[str, Any]) -> None:
        if record.get("given_up"):
            fsio.remove(self.pending)
            fsio.sync_folder(self.folder)
            return
        operations = self.folder / "operations"
        operations.mkdir(exist_ok=True)
        if record["undoes"]:
            fsio.rename(self.pending, operations / f"{record['undoes']}.undone")
            fsio.remove(operations / f"{record['undoes']}.json")
            return
        names = sorted(p.stem for p in operations.glob("*.json"))
        used = [int(p.stem) for p in operations.iterdir() if p.stem.isdigit()]
        fsio.rename(self.pending, operations / f"{max(used, default=0) + 1:08d}.json")
        for name in names[: max(0, len(names) + 1 - KEEP)]:
            fsio.remove(operations / f"{name}.json")

    def _read_file(self, path: str) -> bytes | None:
        return project_files.read(self.layout.root, self.layout.root / path)

    def _digest(self, path: str) -> str | None:
        data = self._read_file(path)
        return hashlib.sha256(data).hexdigest() if data is not None else None

    def _owned(self, files: Mapping[str, Sequence[str | None]]) -> list[tuple[str, Sequence[str | None]]]:
        """Those of the files that are the user's; what lies in .patchq is patchq's own memory."""
        return [(path, ends) for path, ends in files.items() if not path.startswith(self.layout.private.name + "/")]

    def _keep(self, data: bytes | None, new: dict[Path, bytes]) -> str | None:
        """The digest of a content, which is added to ``new`` if the journal hasn't got it yet."""
        if data is None:
            return None
        digest = hashlib.sha256(data).hexdigest()
        path = self._object(digest)
        if not path.exists():
            new[path] = data
        return digest

    def _kept(self, digest: str | None) -> bytes | None:
        if digest is None:
            return None
        data = self._object(digest).read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise StateError(
                f"{self._object(digest)} is not what the journal kept", hint="use git to restore the files"
            )
        return data

    def _object(self, digest: str) -> Path:
        return self.folder / "objects" / digest[:2] / digest[2:]

    def last(self) -> tuple[str, dict[str, Any]] | None:
        """The newest operation that can be undone: its number and record."""
        operations = self.folder / "operations"
        names = sorted(p.stem for p in operations.glob("*.json")) if operations.is_dir() else []
        if not names:
            return None
        path = operations / f"{names[-1]}.json"
        return names[-1], self._read(path)

    def _read(self, path: Path) -> dict[str, Any]:
        """A record, whose files lie in the project, whose refs are git's and whose contents have their digests.

        :raises StateError: if it is anything else.
        """
        record = fsio.load_state(fsio.read_or_none(path) or b"", path, VERSION)
        hint = f"remove {path}: patchq wrote no such thing"
        try:
            for name, ends in record["files"].items():
                self._check_place(name, str(path))
                if any(end is not None and not _DIGEST.fullmatch(end) for end in ends):
                    raise ValueError(name)
            for ref, *ends in record["refs"]:
                if not ref.startswith("refs/") or any(end is not None and not _ID.fullmatch(end) for end in ends):
                    raise ValueError(ref)
            for upstream, *ends, _ in record["trees"]:
                # A rebase's worktree is named UPSTREAM@REF, with the ref as a folder's name.
                if "/" in upstream or upstream.startswith(".") or any(e and not _ID.fullmatch(e) for e in ends):
                    raise ValueError(upstream)
        except (KeyError, TypeError, ValueError, AttributeError, FormatError) as error:
            raise StateError(f"{path} is no record of patchq's: {error}", hint=hint) from None
        return record

    def _check_place(self, name: str, who: str) -> None:
        """:raises StateError: if a file to write lies outside of the project, or behind a symbolic link."""
        check_inside(name, f"{who}: the file")
        link = next((p for part in PurePosixPath(name).parents if (p := self.layout.root / part).is_symlink()), None)
        if link and link != self.layout.root:
            raise StateError(f"{who} would write through the symbolic link {link}: {name}", hint=f"remove {link}")

    def _handed_back(self, worktree: Worktree) -> bool:
        """Return whether a worktree is as the last ``undo`` left it, with what it handed back."""
        found = self._known_handed_back().get(worktree.upstream)
        if found is None or worktree.status(untracked=False).busy:
            return False
        return bool(found == [worktree.head(), worktree.snapshot(pass_over=True)])

    def _known_handed_back(self) -> dict[str, Any]:
        data = fsio.read_or_none(self._handed)
        return dict(fsio.load_state(data, self._handed, VERSION)["worktrees"]) if data is not None else {}

    def _note_handed_back(self, upstreams: Iterable[str]) -> None:
        """Remember how ``undo`` left worktrees. A kill before this only makes the next ``undo`` stricter."""
        worktrees = self._known_handed_back()
        for upstream in upstreams:
            worktree = self.worktree(upstream)
            if worktree.exists:
                worktrees[upstream] = [worktree.head(), worktree.snapshot(pass_over=True)]
        fsio.write_atomic(self._handed, fsio.dump_json({"version": VERSION, "worktrees": worktrees}))

    def _way_back(self, tree: TreeMove) -> tuple[list[TreeMove], CommitId | None]:
        """Return how a worktree gets back, and the commit that keeps what can't stay in its files.

        Edits and commits that the ``undo`` before has handed back never block: they stay in the
        files where git can leave them there, otherwise a commit keeps them.

        :raises EditedTreeError: if it holds anything else of the user's.
        """
        if tree.old is None:
            return [tree], None
        worktree, head = self.worktree(tree.upstream), self.worktree(tree.upstream).head()
        if head is None or not self._handed_back(worktree):
            worktree.refuse_edits(tree.old)
            return [tree], None
        if tree.adopt:
            return [TreeMove(tree.upstream, head, tree.new, True)], None
        if head == tree.old and tree.new is not None and worktree.can_move(head, tree.new):
            return [tree], None
        files = worktree.snapshot(pass_over=True)
        if files == self.store.tree_of([head])[0]:
            return [TreeMove(tree.upstream, head, tree.new)], None if head == tree.old else head
        kept = self.store.commit_tree(files, [head], _nobody(), "Edits handed back\n")
        return [TreeMove(tree.upstream, head, kept, True), TreeMove(tree.upstream, kept, tree.new)], kept

    def undo(self) -> tuple[str, list[CommitId]]:
        """Take back the newest operation.

        :returns: its summary, and commits that keep edits or commits which earlier ``undo`` had handed back.
        :raises UserError: if there is none.
        :raises EditedTreeError: if what it wrote was changed since.
        """
        found = self.last()
        if found is None:
            raise UserError("there is nothing to undo", hint="`patchq status` shows where things stand")
        number, record = found
        trees: list[TreeMove] = []
        kept: list[CommitId] = []
        for upstream, old, new, adopt in reversed(record["trees"]):
            moves, commit = self._way_back(TreeMove(upstream, new, old, adopt))
            trees += moves
            kept += [commit] if commit else []
        # A worktree's first move begins where its branch is now.
        branches = {branch_of(tree.upstream): tree for tree in reversed(trees)}
        moved = []
        refs = self.store.refs("refs")
        for ref, old, new in record["refs"]:
            now = refs.get(ref)
            own = branches.get(ref)
            if now != new and not (own and now == own.old):
                raise EditedTreeError(
                    f"{ref} was moved since `{record['verb']}`; nothing was undone",
                    hint="`patchq export` writes new commits to the stack, and that can be undone",
                )
            moved.append((ref, now, old))
        moved += [(f"{KEPT}{commit}", refs.get(f"{KEPT}{commit}"), commit) for commit in kept]
        for path, (_, after) in self._owned(record["files"]):
            if self._digest(path) != after:
                raise EditedTreeError(
                    f"{path} was edited since `{record['verb']}`; nothing was undone",
                    hint=f"put {path} back as patchq wrote it, then `patchq undo`",
                )
        try:
            files = {path: self._kept(before) for path, (before, _) in record["files"].items()}
        except FileNotFoundError as error:
            raise StateError(f"the journal has lost {error.filename}", hint="use git to restore the files") from None
        self.perform(Change("undo", f"undo {record['summary']}", files, moved, trees), undoes=number)
        # An operation may have moved no file of a worktree, and yet hand back the commits that it had taken.
        states = f"{self.layout.private.name}/state/"
        applied = {PurePosixPath(path).stem for path in record["files"] if path.startswith(states)}
        self._note_handed_back({tree.upstream for tree in trees} | applied)
        return str(record["summary"]), kept


def _nobody() -> Ident:
    return Ident("patchq", "patchq@localhost", int(time.time()), "+0000")
