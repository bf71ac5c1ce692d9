"""Trial application of patches on top of a stack, with the reason if a patch doesn't apply."""

from __future__ import annotations

import re
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchq.adopt._diffs import OddDiff, Placing, as_git, find_placing, sections, without_returns
from patchq.adopt.found import Elsewhere, FoundPatch, ItemOutcome, ReadOptions
from patchq.errors import Conflict, ConflictError, ConflictKind, PatchqError, UserError
from patchq.formats.diff import GITLINK
from patchq.formats.header import Header, Ident
from patchq.git.diffs import PathChange
from patchq.git.gitlinks import refuse_repositories
from patchq.git.objects import blob_id
from patchq.git.replay import pick
from patchq.git.repository import Git
from patchq.names import CommitId, TreeId, sh, show_path
from patchq.replay.outcomes import Account
from patchq.stacks.engine import Engine, Incoming

_EMPTY = blob_id(b"")
_NOBODY = Ident("patchq", "patchq@localhost", 946684800, "+0000")
_RETURNED = re.compile(rb"^(?:diff --git|--- |\+\+\+ |@@ -)[^\n]*\r\n", re.MULTILINE)
#: Blank lines between two files or at the end, which git and the program patch ignore.
_BETWEEN = re.compile(rb"\n[ \t]*\ndiff --git |\n[ \t]+\n?\Z")
_FUZZ = "it applies only with fuzz, because the lines around its change differ: is this still the right place?"
#: Outcomes of patches that are adopted.
TAKEN = (ItemOutcome.APPLIES, ItemOutcome.OFFSET, ItemOutcome.MERGED)
#: Outcomes of the commits of a branch that is imported again.
CARRIED = (ItemOutcome.NEW, ItemOutcome.CHANGED, ItemOutcome.EQUAL, ItemOutcome.GONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Outcome of one patch of an import.

    :ivar detail: reason and possible fixes, as text for users.
    :ivar conflicts: places where the patch doesn't apply, as reported by ``apply``.
    :ivar elsewhere: result of the release search; None if there was no search.
    :ivar account: outcome of the script's or Dockerfile's step that made the patch.
    """

    name: str
    where: str
    outcome: ItemOutcome
    detail: str = ""
    notes: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    elsewhere: Elsewhere | None = None
    account: Account | None = None

    @property
    def is_taken(self) -> bool:
        """True if the patch is adopted."""
        return self.outcome in TAKEN

    @property
    def is_refused(self) -> bool:
        """True if the patch can't be adopted; False for an entry that the import skips, such as a cover letter."""
        return self.outcome not in (*TAKEN, *CARRIED, ItemOutcome.LEFT_OUT)

    @property
    def is_changed_step(self) -> bool:
        """True if a script's step or a patch file made a patch of the stack, but now makes another change."""
        return any(conflict.kind is ConflictKind.CHANGED_STEP for conflict in self.conflicts)


class Fitter:
    """Trial of patches, one after another, on a tree. Each patch that applies changes the tree for the next one."""

    def __init__(self, store: Git, upstream: str, nested: dict[str, str], tip: CommitId, reading: ReadOptions) -> None:
        self.store, self.upstream, self.nested, self.reading = store, upstream, nested, reading
        self.engine = Engine(store, upstream, nested)
        self._tip: CommitId | None = tip
        #: Errors of the patches that were not adopted, in order.
        self.errors: list[PatchqError] = []
        self.tree = store.tree_of([tip])[0]
        self.files = set(store.list_tree(tip))
        #: Changed paths of each patch that consists of two trees instead of a diff.
        self._changes: dict[tuple[TreeId, TreeId], list[PathChange]] = {}

    def fit_all(
        self, found: Sequence[FoundPatch], tell: Callable[[int], None] = lambda _: None
    ) -> list[tuple[Item, TreeId]]:
        """Return the outcome of each patch and the tree after it.

        A patch that doesn't apply leaves the tree unchanged.

        :param tell: callback that gets the number of patches tried so far. It is not called if all patches apply at
            once.
        """
        plain = [f for f in found if not f.left_out]
        if plain and all(map(self._is_git_diff, plain)):
            try:
                return self._at_once(found)
            except PatchqError:
                pass  # try the patches one by one to find the one that fails
        unique = dict.fromkeys(f.trees for f in plain)
        pairs = list(filter(None, unique))
        self._changes = dict(zip(pairs, self.store.changes_between(pairs), strict=True))
        tried: list[tuple[Item, TreeId]] = []
        for patch in found:
            tell(len(tried))
            tried.append(self.fit(patch))
        return tried

    def conflicts_with(self, patch: FoundPatch, start: CommitId, earlier: Sequence[tuple[Item, TreeId]]) -> str:
        """Return the name of an earlier patch of the import that keeps a patch from applying; empty if there is none.

        :param start: commit before the import.
        """
        if patch.trees:
            return ""
        trial = Fitter(self.store, self.upstream, self.nested, start, self.reading)
        if not trial.fit(patch)[0].is_taken:
            return ""
        taken = [pair for pair in earlier if pair[0].is_taken]

        def conflicts(pair: tuple[Item, TreeId]) -> bool:
            commit = self.store.commit_tree(pair[1], (), _NOBODY, "tree")
            trial = Fitter(self.store, self.upstream, self.nested, commit, self.reading)
            return not trial.fit(patch)[0].is_taken

        # The patch applies before the first patch, but not after the last one.
        at = bisect_left(taken, True, key=conflicts)
        if at == len(taken):
            return ""
        return taken[at][0].name

    def _is_git_diff(self, patch: FoundPatch) -> bool:
        """Return True if ``git apply -p1`` can apply the diff unchanged."""
        if patch.trees or patch.problem or not patch.diff.startswith(b"diff --git a/"):
            return False
        usual = patch.strip == 1 and not patch.folder and not patch.reverse and not patch.remove_empty
        return usual and not _RETURNED.search(patch.diff)

    def _at_once(self, found: Sequence[FoundPatch]) -> list[tuple[Item, TreeId]]:
        taken = [f for f in found if not f.left_out]
        done = self.engine.apply(self.tip, [self._incoming(f, f.diff) for f in taken])
        commits = [applied.commit for applied in done]
        trees, changes = self.store.tree_of(commits), self.store.changes_of(commits)
        items: dict[int, tuple[Item, TreeId]] = {}
        before = self.tree
        for patch, applied, tree, changed in zip(taken, done, trees, changes, strict=True):
            self._check_changes(patch, changed, before, tree)
            outcome = ItemOutcome.OFFSET if applied.offsets else ItemOutcome.APPLIES
            item = Item(name=patch.name, where=patch.where, outcome=outcome, notes=patch.notes)
            items[id(patch)] = item, tree
            before = tree
        self._tip, self.tree = done[-1].commit, before
        result = []
        before = TreeId("")
        for patch in found:
            result.append(items.get(id(patch)) or (self._left_out(patch), before))
        return result

    def fit(self, patch: FoundPatch) -> tuple[Item, TreeId]:
        """Try to apply a patch to the tree. Return the patch's outcome and the resulting tree."""
        item, tree = self._fit(patch)
        return replace(item, account=patch.account), tree

    def _fit(self, patch: FoundPatch) -> tuple[Item, TreeId]:
        if patch.left_out:
            return self._left_out(patch), self.tree
        if patch.carried:
            item = Item(name=patch.name, where=patch.where, outcome=patch.carried, detail="; ".join(patch.notes))
            if patch.carried == ItemOutcome.CONFLICT:
                conflict = Conflict(
                    upstream=self.upstream,
                    patch=patch.name,
                    path="",
                    reason="the step changed" if patch.account else "the patch changed",
                    kind=ConflictKind.CHANGED_STEP,
                )
                item = replace(item, conflicts=(conflict,), notes=(to_take(self.upstream, [patch.name]),))
            return item, self.tree
        if patch.problem:
            return self._unreadable(patch, patch.problem), self.tree
        try:
            if patch.trees:
                item, tree, tip = self._fit_trees(patch)
            else:
                item, tree, tip = self._fit_diff(patch)
            if tree is None:
                return item, self.tree
            changed = self._changes.get((self.tree, tree))
            if changed is None:
                changed = self.store.changes(self.tree, tree)
            self._check_changes(patch, changed, self.tree, tree)
        except ConflictError as error:
            self.errors.append(error)
            outcome, detail = self._why(patch, error)
            conflicts = []
            for conflict in error.conflicts:
                conflicts.append(replace(conflict, patch=conflict.patch or patch.name))
            item = Item(name=patch.name, where=patch.where, outcome=outcome, detail=detail, notes=patch.notes)
            return replace(item, conflicts=tuple(conflicts)), self.tree
        except PatchqError as error:
            self.errors.append(error)
            return Item(
                name=patch.name,
                where=patch.where,
                outcome=ItemOutcome.UNREADABLE,
                detail=error.message,
                notes=patch.notes,
            ), self.tree
        for change in changed:
            (self.files.add if change.new else self.files.discard)(change.path)
        self._tip, self.tree = tip, tree
        return item, tree

    def _unreadable(self, patch: FoundPatch, problem: PatchqError) -> Item:
        """Return the outcome of a patch that can't be read, with its error."""
        self.errors.append(problem)
        if patch.account:
            return Item(name=patch.name, where=patch.where, outcome=ItemOutcome.UNREADABLE)
        notes = re.sub(rf"{re.escape(patch.where)}( \(mail \d+\))?: ", "", problem.message, count=1)
        return Item(name=patch.name, where=patch.where, outcome=ItemOutcome.UNREADABLE, detail=notes)

    @property
    def tip(self) -> CommitId:
        """Commit of the current tree, created when it is needed."""
        if self._tip is None:
            self._tip = self.store.commit_tree(self.tree, (), _NOBODY, "tree")
        return self._tip

    def _left_out(self, patch: FoundPatch) -> Item:
        return Item(
            name=patch.name,
            where=patch.where,
            outcome=ItemOutcome.LEFT_OUT,
            detail="; ".join(patch.notes),
            notes=patch.notes,
        )

    def _incoming(self, patch: FoundPatch, diff: bytes) -> Incoming:
        return Incoming(
            name=patch.name, header=Header(_NOBODY, patch.message or patch.name), diff=diff, where=patch.where
        )

    def _check_changes(self, patch: FoundPatch, changed: Sequence[PathChange], before: TreeId, after: TreeId) -> None:
        for change in changed:
            if change.new and change.new.mode == GITLINK:
                refuse_repositories(self.store, patch.where, before, after, "where it was made")
        for change in changed:
            path = show_path(change.path)
            for folder, owner in self.nested.items():
                if path == folder or path.startswith(folder + "/"):
                    raise UserError(
                        f"{patch.where} changes {path}, which belongs to {owner}", hint=f"`patchq import {owner}`"
                    )

    # Diffs

    def _fit_diff(self, patch: FoundPatch) -> tuple[Item, TreeId | None, CommitId | None]:
        text, notes, odd = self._readable(patch)
        notes = (*patch.notes, *notes)
        item = Item(name=patch.name, where=patch.where, outcome=ItemOutcome.APPLIES, notes=notes)
        if not text.strip():
            return item, self.tree, self._tip
        try:
            if patch.reverse or patch.remove_empty:
                return item, self._with_options(patch, text, odd), None
            if odd and (patch.strip != 1 or patch.folder):
                return item, self._by_git(patch, text), None
            done = self.engine.apply(self.tip, [self._incoming(patch, text)])[-1]
        except ConflictError:
            if not self.reading.three_way or (tree := self._merged(text)) is None:
                raise
            return replace(item, outcome=ItemOutcome.MERGED), tree, None
        moved = []
        for offset in done.offsets:
            moved.append(f"{offset.path}: {offset.hunk.split(' @@')[0]} @@ {offset.lines:+d} lines")
        if moved:
            item = replace(item, outcome=ItemOutcome.OFFSET, detail="; ".join(moved))
        return item, self.store.tree_of([done.commit])[0], done.commit

    def _readable(self, patch: FoundPatch) -> tuple[bytes, tuple[str, ...], bool]:
        """Return the diff in git's form, notes for the user, and True if only git can read the diff."""
        diff, notes = patch.diff, []
        if _RETURNED.search(diff):
            diff = without_returns(diff)
            notes.append(f"{patch.where} has CR LF line ends: it is read with LF")
        given = Placing(patch.strip, patch.folder)
        try:
            found = sections(diff)
            forced = self.reading.strip is not None
            placing = (given if forced else find_placing(found, self.files, given, exact=patch.exact)) or given
            if placing != given:
                shown = placing or "-p1"
                notes.append(f"{patch.where} is read with {shown}, because its file names match the tree that way")
            if placing == Placing() and diff.startswith(b"diff --git a/") and not _BETWEEN.search(diff):
                return diff, tuple(notes), False
            return as_git(found, placing, self.files), tuple(notes), False
        except OddDiff:
            return diff, tuple(notes), True

    def _by_git(self, patch: FoundPatch, diff: bytes) -> TreeId:
        where = []
        if patch.folder:
            where = [f"--directory={patch.folder}"]
        tree, notes = self._applied(diff, f"-p{patch.strip}", *where)
        if tree is None:
            conflict = Conflict(upstream=self.upstream, patch=patch.name, path="", reason=notes.removeprefix("error: "))
            raise ConflictError(f"{patch.where} doesn't apply", [conflict], hint="try another -p N, or --directory DIR")
        return tree

    def _with_options(self, patch: FoundPatch, diff: bytes, odd: bool) -> TreeId:
        """Return the tree after applying a patch in reverse, or with the option to remove files that become empty."""
        where = []
        if odd:
            where = [f"-p{patch.strip}", *([f"--directory={patch.folder}"] if patch.folder else [])]
        tree, notes = self._applied(diff, *where, *(["--reverse"] if patch.reverse else []))
        if tree is None:
            conflict = Conflict(upstream=self.upstream, patch=patch.name, path="", reason=notes.removeprefix("error: "))
            raise ConflictError(f"{patch.where} doesn't apply", [conflict], hint="try another -p N, or --directory DIR")
        emptied = []
        for c in self.store.changes(self.tree, tree):
            if c.old and c.new and c.new.blob == _EMPTY:
                emptied.append(c.path)
        if not emptied or not patch.remove_empty:
            return tree
        with tempfile.TemporaryDirectory(prefix="patchq-") as folder:
            env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            self.store.run("read-tree", tree, env=env)
            lines = [b"0 %s\t%s\0" % (b"0" * 40, path) for path in emptied]
            self.store.run("update-index", "-z", "--index-info", data=b"".join(lines), env=env)
            return TreeId(self.store.run("write-tree", env=env).decode().strip())

    def _applied(self, diff: bytes, *options: str) -> tuple[TreeId | None, str]:
        """Return the tree after ``git apply``; None and git's message if the diff doesn't apply."""
        with tempfile.TemporaryDirectory(prefix="patchq-") as folder:
            env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            self.store.run("read-tree", self.tree, env=env)
            done = self.store.ask("apply", "--cached", "--whitespace=nowarn", *options, "-", data=diff, env=env)
            if (
                done.returncode
                or b"error: corrupt binary patch" in done.stderr
                or self.store.run("ls-files", "--unmerged", env=env)
            ):
                return None, done.stderr.decode("utf-8", "replace").strip()
            return TreeId(self.store.run("write-tree", env=env).decode().strip()), ""

    def _merged(self, diff: bytes) -> TreeId | None:
        return self._applied(diff, "--3way")[0]

    # Trees

    def _fit_trees(self, patch: FoundPatch) -> tuple[Item, TreeId | None, None]:
        assert patch.trees
        before, after = patch.trees
        tree = pick(self.store, self.upstream, patch.name, before, after, self.tree)
        item = Item(name=patch.name, where=patch.where, outcome=ItemOutcome.MERGED, notes=patch.notes)
        if tree == self.tree and patch.merge:
            note = f"{patch.where} is left out: the tree already has the changes of this merge"
            return replace(item, outcome=ItemOutcome.LEFT_OUT, detail=note, notes=(*patch.notes, note)), None, None
        if tree == self.tree and before != after:
            return replace(item, outcome=ItemOutcome.THERE, detail="the tree already has its change"), None, None
        if before == self.tree:
            item = replace(item, outcome=ItemOutcome.APPLIES)
        return item, tree, None

    # Reasons for conflicts

    def _why(self, patch: FoundPatch, error: ConflictError) -> tuple[ItemOutcome, str]:
        """Return the outcome of a patch that doesn't apply, and the reason as text for users.

        The outcome is ``there`` if the tree already has the patch's change, otherwise ``conflict``.
        """
        first = None
        if error.conflicts:
            first = error.conflicts[0]
        if first:
            notes = f"{first.path}: {first.reason}".removeprefix(": ")
        else:
            notes = error.message
        if patch.trees:
            return ItemOutcome.CONFLICT, merge_conflict(error)
        text, _, _ = self._readable(patch)
        if self._applied(text, "--reverse")[0]:
            return ItemOutcome.THERE, "the tree already has its change: the patch applies in reverse"
        hints = []
        ends = self._other_ends(text)
        if ends:
            hints.append(ends)
        else:
            if not self.reading.three_way and self._merged(text) is not None:
                hints.append("--3way can merge the patch, because the store contains the version for which it was made")
            if self._applied(text, "-C1")[0]:
                hints.append(_FUZZ + self._by_hand(patch))
        if not hints and first and first.kind is ConflictKind.MISSING:
            hints.append("if these files are in another folder of the tree, set -p N or --directory DIR")
        return ItemOutcome.CONFLICT, "; ".join([notes, *hints])

    def _by_hand(self, patch: FoundPatch) -> str:
        """Return the commands that apply a patch with fuzz.

        Return an empty string if the patch's file holds several patches, or if ``patch.folder`` is set.
        """
        if not Path(patch.where).is_file() or patch.folder:
            return ""
        tree = f".patchq/trees/{self.upstream}"
        new = ["patchq", "new", self.upstream, patch.name]
        if patch.author:
            new += ["--author", f"{patch.author.name} <{patch.author.email}>"]
        return (
            f" If so: `patchq apply {self.upstream} && patch -p{sh(patch.strip)} -d {tree} < {sh(patch.where)}`, check "
            f"the edits, `{' '.join(map(sh, new))}`"
        )

    def _other_ends(self, text: bytes) -> str:
        """Return a hint if the patch applies after converting its line ends to CR LF or LF; else an empty string."""
        returned, plain = [], []
        for line in text.split(b"\n"):
            is_of_hunk = line[:1] in (b"-", b"+", b" ") and not line.startswith((b"--- ", b"+++ "))
            returned.append(line + b"\r" if is_of_hunk else line)
            plain.append(line.removesuffix(b"\r") if is_of_hunk else line)
        if self._applied(b"\n".join(returned))[0]:
            return "the patch has LF line ends, but the file has CR LF: convert the patch's hunks with `unix2dos`"
        with_lf = b"\n".join(plain)
        if with_lf != text and self._applied(with_lf)[0]:
            return "the patch has CR LF line ends, but the file has LF: convert the patch with `dos2unix`"
        return ""


def to_take(upstream: str, changed: Sequence[str], gone: Sequence[str] = ()) -> str:
    """Return a hint with two ways to update patches: with the stack's messages, or with new messages.

    :param gone: further patches that the new versions may replace.
    """
    name = sh(changed[0])
    return (
        f"to keep the patch's message and trailers: `patchq apply {upstream} --fix {name}`, make the edit in the "
        f"worktree, `patchq export {upstream} --amend {name}`; to take a new message, without trailers that were "
        f"added: `{drop_commands(upstream, [*changed, *gone])}`, then import again"
    )


def drop_commands(upstream: str, names: Sequence[str]) -> str:
    """Return a shell line that drops these patches."""
    return " && ".join(f"patchq drop {upstream}/{sh(name)}" for name in names)


def merge_conflict(error: ConflictError) -> str:
    """Return the reason why a patch doesn't merge, as text for users."""
    return f"{', '.join(c.path for c in error.conflicts)}: 3-way merge conflict"
