"""Journal of a project's changes. Each change is planned as a whole, and is finished even after a crash at any point.

A change lists each file, ref and worktree that it moves, with the values before and after. The change is written to
``.patchq/journal/pending.json`` before anything is moved. After a crash, the next command that takes the project's lock
finishes the change. The record of a finished change becomes an operation in the log. ``undo`` reverts an operation, and
``redo`` carries it out again.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from patchq.errors import EditedTreeError, FormatError, PatchqError, StateError, UserError
from patchq.formats.header import Ident
from patchq.git.repository import Git
from patchq.git.worktree import Worktree, branch_of
from patchq.names import CommitId
from patchq.records import dataclass
from patchq.system import fsio, project_files
from patchq.system.paths import Layout, check_inside

VERSION = 1
#: Number of operations that can be undone.
KEEP = 200
#: Refs of commits with edits that an earlier ``undo`` had restored and that can't stay in the
#: files.
KEPT = "refs/patchq/kept/"
_PAST = {"undo": "undone", "redo": "redone"}
_DIGEST, _ID = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class TreeMove:
    """Commit of a worktree before and after a change; None if the worktree doesn't exist.

    With ``adopt``, git's index moves but the files stay unchanged. So edits in the files become part of the commit, and
    become edits again when the change is undone.
    """

    upstream: str
    old: CommitId | None
    new: CommitId | None
    adopt: bool = False


@dataclass(slots=True, kw_only=True)
class Change:
    """Planned change of a command. Paths in ``files`` are relative to the project; None removes a file.

    :ivar refs: Refs to move, with their old and new values.
    """

    verb: str
    summary: str
    files: dict[str, bytes | None] = field(default_factory=dict)
    refs: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    trees: list[TreeMove] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.files or self.refs or self.trees)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reversal:
    """Plan to revert an operation, or to carry it out again.

    :ivar number: Number of the operation.
    :ivar record: Record of the operation.
    :ivar kept: Commits that preserve edits which an earlier ``undo`` restored and which can't stay in the files.
    """

    number: str
    record: Mapping[str, Any]
    change: Change
    kept: tuple[CommitId, ...] = ()


@contextmanager
def _hint_at_undo() -> Iterator[None]:
    """Add the command that gives up an interrupted change to the hints of errors."""
    try:
        yield
    except PatchqError as error:
        error.hint += "; or `patchq undo --pending`, which gives up the interrupted command"
        raise


class Journal:
    """Journal of a project, which carries out and reverts changes. The caller holds the project's lock."""

    def __init__(self, layout: Layout, store: Git, worktree: Callable[[str], Worktree]) -> None:
        self.layout = layout
        self.store = store
        self.worktree = worktree
        self.folder = layout.private / "journal"
        self.pending = self.folder / "pending.json"
        self._handed = self.folder / "handed-back.json"

    def perform(self, change: Change) -> None:
        """Carry out ``change``. Once the pending record is written, the change is finished even after a crash."""
        self._perform(change, {"undoes": "", "parent": self._last()})

    def _perform(self, change: Change, kind: Mapping[str, Any]) -> None:
        """Carry out a change.

        :param kind: Fields of the record that determine how :meth:`_finish` ends the change.
        """
        for name, data in list(change.files.items()):
            self._check_place(name, "this command")
            if self._read_file(name) == data:
                del change.files[name]
        change.refs = [(ref, old, new) for ref, old, new in change.refs if old != new]
        if change.empty:
            return
        adopted = {tree.new for tree in change.trees if tree.adopt}
        for tree in change.trees:
            if tree.new and not tree.adopt:
                self.worktree(tree.upstream).rehearse(tree.old, tree.new, adopted=tree.old in adopted)
        kept: dict[Path, bytes] = {}
        files = {}
        for path, data in change.files.items():
            files[path] = [self._keep(self._read_file(path), kept), self._keep(data, kept)]
        record = {
            "version": VERSION,
            "verb": change.verb,
            "summary": change.summary,
            "time": fsio.utc_now(),
            "files": files,
            "refs": change.refs,
            "trees": [[tree.upstream, tree.old, tree.new, tree.adopt] for tree in change.trees],
            **kind,
        }
        fsio.write_all(kept)
        fsio.write_atomic(self.pending, fsio.dump_json(record))
        with _hint_at_undo():
            self._carry_out(record, resumed=False)

    def recover(self) -> str:
        """Finish the change of an interrupted command. Return the change's summary; empty if no change is pending."""
        data = fsio.read_or_none(self.pending)
        if data is None:
            return ""
        record = self._read(self.pending)
        with _hint_at_undo():
            self._carry_out(record, resumed=True)
        return str(record["summary"])

    def give_up(self) -> tuple[str, list[str]]:
        """Revert the pending change, no matter how much of it was carried out.

        Files that the user has edited since are kept. An interrupted revert is finished like any
        other change.

        :returns: The summary of the change, and the files that were kept because the user has edited them.
        :raises UserError: if no change is pending.
        :raises EditedTreeError: if a worktree has edits.
        """
        if fsio.read_or_none(self.pending) is None:
            hint = "`patchq undo` reverts the last finished command"
            raise UserError("no command is pending", hint=hint)
        record = self._read(self.pending)
        edited = []
        for path, ends in self._owned(record["files"]):
            if self._digest(path) not in ends:
                edited.append(path)
        if not record.get("given_up"):
            _reverse(record)
        for path in edited:
            del record["files"][path]
        fsio.write_atomic(self.pending, fsio.dump_json({**record, "given_up": True}))
        self.recover()
        return str(record["summary"]), edited

    def _carry_out(self, record: Mapping[str, Any], *, resumed: bool) -> None:
        trees = [TreeMove(*move) for move in record["trees"]]
        files: Mapping[str, Sequence[str | None]] = record["files"]
        refs: list[tuple[str, str | None, str | None]] = []
        kept = set()
        current = {}
        if resumed:
            current = self.store.refs("refs")
        for ref, old, new in record["refs"]:
            if ref.startswith(KEPT) and new:
                kept.add(CommitId(new))
            if not resumed:
                refs.append((ref, old, new))
            elif current.get(ref) != new:
                refs.append((ref, current.get(ref), new))
        if resumed:
            for path, (before, after) in self._owned(files):
                self._check_unchanged(path, before, after)
        back = bool(record.get("given_up"))
        for tree in trees:
            self._move_tree(tree, resumed=resumed, back=back, kept=tree.old in kept)
        if trees:  # git doesn't sync the files of a checkout
            fsio.sync_file_system(self.layout.private)
        self.store.update_refs(refs)
        self._write_files(files, resumed=resumed)
        self._finish(record)

    def _write_files(self, files: Mapping[str, Sequence[str | None]], *, resumed: bool) -> None:
        contents: dict[Path, bytes] = {}
        removed = []
        for path, (_, after) in files.items():
            full = self.layout.root / path
            data = self._kept(after)
            if data is None:
                removed.append(full)
            else:
                contents[full] = data
        if resumed:
            for full in (*contents, *removed):
                fsio.remove_unfinished(full)
        for full in removed:
            fsio.remove(full)
        fsio.write_all(contents)

    def _move_tree(self, tree: TreeMove, *, resumed: bool, back: bool, kept: bool) -> None:
        """Move a worktree to the commit that the change names.

        :param back: True if a change is given up.
        :param kept: True if a ref that this change writes preserves the worktree's commit.
        """
        worktree = self.worktree(tree.upstream)
        if resumed:
            worktree.mend()
        if tree.new is None:
            if back and tree.old:
                worktree.withdraw(tree.old)
            else:
                is_kept = kept and worktree.exists and self._holds(worktree, tree.old)
                worktree.remove(force=is_kept)
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
        """Return whether a worktree's files are those of a commit."""
        if commit is None:
            return False
        return worktree.snapshot(pass_over=True) == self.store.tree_of([commit])[0]

    def _check_unchanged(self, path: str, before: str | None, after: str | None) -> None:
        if self._digest(path) not in (before, after):
            raise EditedTreeError(
                f"{path} was edited after a command was interrupted; the edit is kept",
                hint="restore the file's earlier content, and run the command again",
            )

    def _finish(self, record: Mapping[str, Any]) -> None:
        operations = self.folder / "operations"
        operations.mkdir(exist_ok=True)
        if number := record.get("redoes"):
            self._finish_redo(record, operations / f"{number}.json", operations / f"{number}.undone")
            return
        if record.get("given_up"):
            fsio.remove(self.pending)
            fsio.sync_folder(self.folder)
            return
        if record["undoes"]:
            fsio.rename(self.pending, operations / f"{record['undoes']}.undone")
            fsio.remove(operations / f"{record['undoes']}.json")
            return
        names = self._numbers(".json")
        used = []
        for path in operations.iterdir():
            if path.stem.isdigit():
                used.append(int(path.stem))
        fsio.rename(self.pending, operations / f"{max(used, default=0) + 1:08d}.json")
        for name in names[: max(0, len(names) + 1 - KEEP)]:
            fsio.remove(operations / f"{name}.json")

    def _finish_redo(self, record: Mapping[str, Any], done: Path, undone: Path) -> None:
        """Mark the redone operation as done in the journal; if the ``redo`` is given up, mark it as undone again."""
        if record.get("given_up"):
            # The reverse of a redo is the undo before it.
            undo = {}
            for key, value in record.items():
                if key not in ("given_up", "redoes"):
                    undo[key] = value
            undo |= {"verb": "undo", "undoes": done.stem}
            fsio.write_atomic(undone, fsio.dump_json(undo))
            fsio.remove(done)
        else:
            fsio.write_atomic(done, fsio.dump_json(record["original"]))
            fsio.remove(undone)
        fsio.remove(self.pending)
        fsio.sync_folder(self.folder)

    def _numbers(self, suffix: str) -> list[str]:
        """Return the numbers of the operations whose record files have this suffix, in order."""
        folder = self.folder / "operations"
        if folder.is_dir():
            names = {path.name for path in folder.iterdir()}
        else:
            names = set()
        numbers = []
        for name in sorted(names):
            number = name.removesuffix(suffix)
            # An interrupted undo leaves both records.
            if number != name and (suffix == ".undone" or f"{number}.undone" not in names):
                numbers.append(number)
        return numbers

    def _read_file(self, path: str) -> bytes | None:
        return project_files.read(self.layout.root, self.layout.root / path)

    def _digest(self, path: str) -> str | None:
        data = self._read_file(path)
        if data is not None:
            return hashlib.sha256(data).hexdigest()
        return None

    def _owned(self, files: Mapping[str, Sequence[str | None]]) -> list[tuple[str, Sequence[str | None]]]:
        """Return the files that belong to the user: those outside of ``.patchq``."""
        private = self.layout.private.name + "/"
        found: list[tuple[str, Sequence[str | None]]] = []
        for path, ends in files.items():
            if not path.startswith(private):
                found.append((path, ends))
        return found

    def _keep(self, data: bytes | None, new: dict[Path, bytes]) -> str | None:
        """Return the digest of a file's content. If the journal doesn't contain the content, add it to ``new``."""
        if data is None:
            return None
        digest = hashlib.sha256(data).hexdigest()
        path = self._object(digest)
        if not path.exists():
            new[path] = data
        return digest

    def _kept(self, digest: str | None) -> bytes | None:
        """Return the file content that the journal stores under a digest.

        :raises StateError: if the content is damaged or missing.
        """
        if digest is None:
            return None
        path = self._object(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise StateError(f"the journal has lost {path}", hint="use git to restore the files") from None
        if hashlib.sha256(data).hexdigest() != digest:
            reason = f"{path} is damaged: its content doesn't match its name"
            raise StateError(reason, hint="use git to restore the files")
        return data

    def _object(self, digest: str) -> Path:
        return self.folder / "objects" / digest[:2] / digest[2:]

    def last(self) -> tuple[str, dict[str, Any]] | None:
        """Return the number and record of the newest operation that can be undone."""
        number = self._last()
        if number:
            return (number, self._record(f"{number}.json"))
        return None

    def _last(self) -> str:
        """Return the number of the newest operation that can be undone; empty if no operation can be."""
        numbers = self._numbers(".json")
        if numbers:
            return numbers[-1]
        return ""

    def redoable(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the operations that ``redo`` can carry out, in order.

        Each item is the number of an operation and the record of its ``undo``. If a new operation was carried out after
        an ``undo``, the operations undone before are not included.
        """
        parent = self._last()
        found = []
        for number in self._numbers(".undone"):
            if number > parent:
                found.append((number, self._record(f"{number}.undone")))
        chain: list[tuple[str, dict[str, Any]]] = []
        while True:
            children = []
            for item in found:
                if _parent(item[1]) == parent:
                    children.append(item)
            if not children or children[-1][1].get("redo") is not True:
                return chain
            chain.append(children[-1])
            parent = children[-1][0]

    def operations(self) -> Iterator[tuple[str, bool, dict[str, Any]]]:
        """Yield the operations, newest first: the number, True if the operation is undone, and the record.

        Undone operations are included only if ``redo`` can carry them out.
        """
        for number, record in reversed(self.redoable()):
            yield number, True, record["original"]
        for number in reversed(self._numbers(".json")):
            yield number, False, self._record(f"{number}.json")

    def content(self, digest: str | None) -> bytes | None:
        """Return the file content with a digest from a record; None for the digest None, which stands for no file."""
        return self._kept(digest)

    def _record(self, name: str) -> dict[str, Any]:
        return self._read(self.folder / "operations" / name)

    def _read(self, path: Path) -> dict[str, Any]:
        """Read a record and check its file names, refs and digests.

        :raises StateError: if the record is malformed.
        """
        record = fsio.load_state(fsio.read_or_none(path) or b"", path, VERSION)
        try:
            self._check_record(record, str(path))
            if "original" in record:  # of an undo or redo
                self._check_record(record["original"], str(path))
        except (KeyError, TypeError, ValueError, AttributeError, FormatError) as error:
            hint = "move that file away, or delete it, because patchq didn't write it"
            raise StateError(f"{path} is not a record of patchq: {error}", hint=hint) from None
        return record

    def _check_record(self, record: Mapping[str, Any], writer: str) -> None:
        """Check the fields of a record. An exception of any type means that the record is malformed."""
        for key in ("verb", "summary"):
            if not isinstance(record[key], str):
                raise ValueError(key)
        for name, (before, after) in record["files"].items():
            self._check_place(name, writer)
            _check_ends(name, (before, after), _DIGEST)
        for ref, before, after in record["refs"]:
            if not ref.startswith("refs/"):
                raise ValueError(ref)
            _check_ends(ref, (before, after), _ID)
        for upstream, before, after, _ in record["trees"]:
            # The worktree of a rebase is named UPSTREAM@REF, with the ref encoded as a file name.
            if "/" in upstream or upstream.startswith("."):
                raise ValueError(upstream)
            _check_ends(upstream, (before or None, after or None), _ID)

    def _check_place(self, name: str, writer: str) -> None:
        """Check that the path of a file to write is inside the project, and not behind a symbolic link.

        :raises StateError: if the path is behind a symbolic link.
        """
        check_inside(name, f"{writer}: the file")
        for parent in PurePosixPath(name).parents:
            path = self.layout.root / parent
            if path != self.layout.root and path.is_symlink():
                reason = f"{writer} would write through the symbolic link {path}: {name}"
                raise StateError(reason, hint=f"remove {path}")

    def _is_restored(self, worktree: Worktree) -> bool:
        """Return whether a worktree still has the content that the last ``undo`` left in it."""
        found = self._restored_trees().get(worktree.upstream)
        if found is None or worktree.status(untracked=False).busy:
            return False
        return bool(found == [worktree.head(), worktree.snapshot(pass_over=True)])

    def _restored_trees(self) -> dict[str, Any]:
        data = fsio.read_or_none(self._handed)
        if data is None:
            return {}
        return dict(fsio.load_state(data, self._handed, VERSION)["worktrees"])

    def note_restored(self, upstreams: Iterable[str]) -> None:
        """Record the state in which ``undo`` has left worktrees.

        Without this record, such as after a crash, the next ``undo`` refuses edits that it could otherwise keep.
        """
        worktrees = self._restored_trees()
        for upstream in upstreams:
            worktree = self.worktree(upstream)
            if worktree.exists:
                worktrees[upstream] = [worktree.head(), worktree.snapshot(pass_over=True)]
        fsio.write_atomic(self._handed, fsio.dump_json({"version": VERSION, "worktrees": worktrees}))

    def _moves_back(self, tree: TreeMove) -> tuple[list[TreeMove], CommitId | None]:
        """Return the moves that revert a worktree, and a commit that preserves edits; None if no commit is needed.

        Edits and commits that an earlier ``undo`` restored never cause an error. They stay in the worktree if git can
        move the worktree without overwriting them. Otherwise, the commit preserves them.

        :raises EditedTreeError: if the worktree has other edits.
        """
        if tree.old is None:
            return [tree], None
        worktree = self.worktree(tree.upstream)
        head = worktree.head()
        if head is None or not self._is_restored(worktree):
            worktree.refuse_edits(tree.old)
            return [tree], None
        if tree.adopt:
            return [TreeMove(tree.upstream, head, tree.new, adopt=True)], None
        if head == tree.old and tree.new is not None and worktree.can_move(head, tree.new):
            return [tree], None
        files = worktree.snapshot(pass_over=True)
        if files == self.store.tree_of([head])[0]:
            return [TreeMove(tree.upstream, head, tree.new)], None if head == tree.old else head
        kept = self.store.commit_tree(files, [head], _patchq_ident(), "Edits handed back\n")
        moves = [
            TreeMove(tree.upstream, head, kept, adopt=True),
            TreeMove(tree.upstream, kept, tree.new),
        ]
        return moves, kept

    def plan_undo(self) -> Reversal:
        """Plan the reversal of the newest operation.

        :raises UserError: if there is no operation.
        :raises EditedTreeError: if its files, refs or worktrees were changed after the operation.
        """
        found = self.last()
        if found is None:
            hint = "`patchq status` shows the state of the project"
            raise UserError("there is nothing to undo", hint=hint)
        number, record = found
        trees: list[TreeMove] = []
        kept: list[CommitId] = []
        for upstream, old, new, adopt in reversed(record["trees"]):
            moves, commit = self._moves_back(TreeMove(upstream, new, old, adopt))
            trees += moves
            if commit:
                kept.append(commit)
        # The first move of a worktree starts at the current commit of its branch.
        branches = {branch_of(tree.upstream): tree for tree in reversed(trees)}
        moved = []
        refs = self.store.refs("refs")
        for ref, old, new in record["refs"]:
            now = refs.get(ref)
            own = branches.get(ref)
            if now != new and not (own and now == own.old):
                raise EditedTreeError(
                    f"{ref} was moved since `{record['verb']}`; nothing was undone",
                    hint="`patchq export` writes new commits to the stack; `patchq undo` then reverts the export",
                )
            moved.append((ref, now, old))
        for commit in kept:
            moved.append((f"{KEPT}{commit}", refs.get(f"{KEPT}{commit}"), commit))
        self._check_files(record, "undo")
        change = Change(verb="undo", summary=f"undo {record['summary']}", refs=moved, trees=trees)
        for path, (before, _) in record["files"].items():
            change.files[path] = self._kept(before)
        return Reversal(number=number, record=record, change=change, kept=tuple(kept))

    def undo(self, *, redo: bool = True) -> Reversal:
        """Revert the newest operation.

        :param redo: False to prevent ``redo`` from carrying out the operation again.
        :raises UserError: if there is no operation.
        :raises EditedTreeError: if its files, refs or worktrees were changed after the operation.
        """
        plan = self.plan_undo()
        self._perform(plan.change, {"undoes": plan.number, "original": plan.record, "redo": redo})
        self._note_moved(plan)
        return plan

    def plan_redo(self) -> Reversal:
        """Plan to redo the operation that was undone last.

        Each worktree must be in the state in which ``undo`` left it, or have no edits.

        :raises UserError: if no operation was undone, or if another operation was carried out after the ``undo``.
        :raises EditedTreeError: if its files, refs or worktrees were changed after the ``undo``.
        """
        redoable = self.redoable()
        if not redoable:
            raise UserError("there is nothing to redo", hint="`patchq log` lists the operations")
        number, record = redoable[0]
        self._check_files(record, "redo")
        refs = self.store.refs("refs")
        for ref, _, new in record["refs"]:
            if refs.get(ref) != new:
                raise EditedTreeError(
                    f"{ref} was moved since `{record['verb']}`; nothing was redone",
                    hint="`patchq export` writes new commits to the stack",
                )
        original = record["original"]
        back = dict(record)
        _reverse(back)
        trees = []
        checked = set()
        for move in back["trees"]:
            tree = TreeMove(*move)
            if tree.upstream not in checked:
                checked.add(tree.upstream)
                tree = self._move_again(tree)
            trees.append(tree)
        change = Change(verb="redo", summary=f"redo {original['summary']}", refs=back["refs"], trees=trees)
        for path, (_, after) in back["files"].items():
            change.files[path] = self._kept(after)
        return Reversal(number=number, record=original, change=change)

    def redo(self) -> Reversal:
        """Redo the operation that was undone last.

        :raises UserError: if no operation was undone, or if another operation was carried out after the ``undo``.
        :raises EditedTreeError: if its files, refs or worktrees were changed after the ``undo``.
        """
        plan = self.plan_redo()
        self._perform(plan.change, {"undoes": "", "redoes": plan.number, "original": plan.record, "redo": True})
        self._note_moved(plan)
        return plan

    def _move_again(self, tree: TreeMove) -> TreeMove:
        """Check that ``redo`` can change a worktree, and return the first step of that change.

        If the edits that ``undo`` left in the worktree are gone, the move also changes the files.

        :raises EditedTreeError: if the worktree has edits that ``undo`` didn't leave in it.
        """
        worktree = self.worktree(tree.upstream)
        if worktree.exists and not self._is_restored(worktree):
            worktree.refuse_edits(tree.old)
            # The edits that undo left in the files are gone, so the files move too.
            return replace(tree, adopt=False)
        return tree

    def _check_files(self, record: Mapping[str, Any], verb: str) -> None:
        """Check that the user's files are in the state in which a change left them.

        :raises EditedTreeError: if a file was edited after the change.
        """
        for path, (_, after) in self._owned(record["files"]):
            if self._digest(path) != after:
                raise EditedTreeError(
                    f"{path} was edited since `{record['verb']}`; nothing was {_PAST[verb]}",
                    hint=f"put {path} back as patchq wrote it, then `patchq {verb}`",
                )

    def _note_moved(self, plan: Reversal) -> None:
        """Record the state of the worktrees that ``undo`` or ``redo`` has just moved."""
        # An operation that moved no files may still have taken commits, which are restored now.
        restored = {tree.upstream for tree in plan.change.trees}
        for path in plan.record["files"]:
            if path.startswith(f"{self.layout.private.name}/state/"):
                restored.add(PurePosixPath(path).stem)
        self.note_restored(restored)


def _parent(record: Mapping[str, Any]) -> str | None:
    """Return the number of the operation before an undone operation; None if the record doesn't name it."""
    original = record.get("original", {})
    if "parent" in original:
        return str(original["parent"])
    return None


def _reverse(record: dict[str, Any]) -> None:
    """Swap the old and new values in the record of a change."""
    record["files"] = {path: ends[::-1] for path, ends in record["files"].items()}
    record["refs"] = [(ref, new, old) for ref, old, new in record["refs"]]
    trees = []
    for upstream, old, new, adopt in reversed(record["trees"]):
        trees.append((upstream, new, old, adopt))
    record["trees"] = trees


def _check_ends(name: str, ends: Iterable[str | None], shape: re.Pattern[str]) -> None:
    """Check the form of an item's old and new value in a recorded change.

    :raises ValueError: if a value is not None and doesn't match ``shape``.
    """
    for end in ends:
        if end is not None and not shape.fullmatch(end):
            raise ValueError(name)


def _patchq_ident() -> Ident:
    return Ident("patchq", "patchq@localhost", int(time.time()), "+0000")
