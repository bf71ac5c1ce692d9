"""Trial application of patches to a stack, with the reason if a patch doesn't apply."""

from __future__ import annotations

import re
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchq.adopt._diffs import OddDiff, Placing, as_git, find_placing, sections, without_returns
from patchq.adopt.found import Elsewhere, FoundPatch, ReadOptions
from patchq.errors import Conflict, ConflictError, ConflictKind, PatchqError, UserError
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
#: Blank lines between two files or at the end, which git and patch ignore.
_BETWEEN = re.compile(rb"\n[ \t]*\ndiff --git |\n[ \t]+\n?\Z")
_FUZZ = "it applies only with fuzz, as lines around its change are others: does it still mean this place?"
#: Outcomes of patches that are adopted, and of patches that are not.
TAKEN, LEFT = ("applies", "offset", "merged"), ("there", "conflict", "unreadable", "left out")
#: Outcomes of the commits of a branch that is imported again.
CARRIED = ("new", "changed", "equal", "gone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Outcome of one patch of a batch.

    :ivar outcome: a value of :data:`TAKEN`, :data:`LEFT` or :data:`CARRIED`; ``there``: the tree already has the
        change.
    :ivar detail: reason and possible fixes, as text for users.
    :ivar conflicts: places where the patch doesn't apply, in the form that ``apply`` reports.
    :ivar elsewhere: result of the release search, if there was one.
    :ivar account: outcome of the step of a script or Dockerfile that the patch comes from.
    """

    name: str
    where: str
    outcome: str
    detail: str = ""
    notes: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    elsewhere: Elsewhere | None = None
    account: Account | None = None


class Fitter:
    """Tree to which patches are applied one after another."""

    def __init__(self, store: Git, upstream: str, nested: dict[str, str], tip: CommitId, reading: ReadOptions) -> None:
        self.store, self.upstream, self.nested, self.reading = store, upstream, nested, reading
        self.engine = Engine(store, upstream, nested)
        self._tip: CommitId | None = tip
        #: Errors of the patches that were not adopted, in order.
        self.errors: list[PatchqError] = []
        self.tree = store.tree_of([tip])[0]
        self.files = set(store.list_tree(tip))
        #: Changed paths of each patch that is given as two trees.
        self._changes: dict[tuple[TreeId, TreeId], list[PathChange]] = {}

    def fit_all(
        self, found: Sequence[FoundPatch], tell: Callable[[int], None] = lambda _: None
    ) -> list[tuple[Item, TreeId]]:
        """Return the outcome of each patch and the tree after it.

        A patch that doesn't apply leaves the tree unchanged.

        :param tell: callback for the number of patches tried so far, if they are tried one by one.
        """
        plain = [f for f in found if not f.left_out]
        if plain and all(
            f.trees is None and not f.problem and f.diff.startswith(b"diff --git a/") and self._as_given(f)
            for f in plain
        ):
            try:
                return self._at_once(found)
            except PatchqError:
                pass  # trying them one by one finds the patch that fails
        pairs = list(dict.fromkeys(f.trees for f in plain if f.trees))
        self._changes = dict(zip(pairs, self.store.changes_between(pairs), strict=True))
        tried: list[tuple[Item, TreeId]] = []
        for patch in found:
            tell(len(tried))
            tried.append(self.fit(patch))
        return tried

    def conflicts_with(self, patch: FoundPatch, start: CommitId, earlier: Sequence[tuple[Item, TreeId]]) -> str:
        """Return the earlier patch of the import after which a patch no longer applies; empty for none.

        :param start: commit before the import.
        """
        if patch.trees:
            return ""
        trial = Fitter(self.store, self.upstream, self.nested, start, self.reading)
        if trial.fit(patch)[0].outcome not in TAKEN:
            return ""
        taken = [(item.name, tree) for item, tree in earlier if item.outcome in TAKEN]

        def conflicts(place: tuple[str, TreeId]) -> bool:
            commit = self.store.commit_tree(place[1], (), _NOBODY, "tree")
            trial = Fitter(self.store, self.upstream, self.nested, commit, self.reading)
            return trial.fit(patch)[0].outcome not in TAKEN

        # It applies before the first patch and not after the last one.
        at = bisect_left(taken, True, key=conflicts)
        if at == len(taken):
            return ""
        return taken[at][0]

    def _as_given(self, patch: FoundPatch) -> bool:
        usual = patch.strip == 1 and not patch.folder and not patch.reverse and not patch.remove_empty
        return usual and not _RETURNED.search(patch.diff)

    def _at_once(self, found: Sequence[FoundPatch]) -> list[tuple[Item, TreeId]]:
        taken = [f for f in found if not f.left_out]
        done = self.engine.apply(self.tip, [self._incoming(f, f.diff) for f in taken])
        trees = self.store.tree_of([d.commit for d in done])
        changes = self.store.changes_of([d.commit for d in done])
        items: dict[int, tuple[Item, TreeId]] = {}
        before = self.tree
        for patch, applied, tree, changed in zip(taken, done, trees, changes, strict=True):
            self._check_changes(patch, changed, before, tree)
            outcome = "applies"
            if applied.offsets:
                outcome = "offset"
            items[id(patch)] = (
                Item(name=patch.name, where=patch.where, outcome=outcome, detail="", notes=patch.notes),
                tree,
            )
            before = tree
        self._tip, self.tree = done[-1].commit, before
        result = []
        before = TreeId("")
        for patch in found:
            result.append(items.get(id(patch)) or (self._left_out(patch), before))
        return result

    def fit(self, patch: FoundPatch) -> tuple[Item, TreeId]:
        """Apply a patch to the tree, if possible. Return its outcome and the tree."""
        item, tree = self._fit(patch)
        return replace(item, account=patch.account), tree

    def _fit(self, patch: FoundPatch) -> tuple[Item, TreeId]:
        if patch.left_out:
            return self._left_out(patch), self.tree
        if patch.carried:
            detail = "; ".join(patch.notes)
            return Item(name=patch.name, where=patch.where, outcome=patch.carried, detail=detail), self.tree
        if patch.problem:
            self.errors.append(patch.problem)
            if patch.account:
                return Item(name=patch.name, where=patch.where, outcome="unreadable"), self.tree
            notes = re.sub(rf"{re.escape(patch.where)}( \(mail \d+\))?: ", "", patch.problem.message, count=1)
            return Item(name=patch.name, where=patch.where, outcome="unreadable", detail=notes), self.tree
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
            conflicts = tuple(replace(c, patch=c.patch or patch.name) for c in error.conflicts)
            return Item(
                name=patch.name,
                where=patch.where,
                outcome=outcome,
                detail=detail,
                notes=patch.notes,
                conflicts=conflicts,
            ), self.tree
        except PatchqError as error:
            self.errors.append(error)
            return Item(
                name=patch.name, where=patch.where, outcome="unreadable", detail=error.message, notes=patch.notes
            ), self.tree
        for change in changed:
            (self.files.add if change.new else self.files.discard)(change.path)
        self._tip, self.tree = tip, tree
        return item, tree

    @property
    def tip(self) -> CommitId:
        """Commit of the current tree, created when it is needed."""
        if self._tip is None:
            self._tip = self.store.commit_tree(self.tree, (), _NOBODY, "tree")
        return self._tip

    def _left_out(self, patch: FoundPatch) -> Item:
        return Item(
            name=patch.name, where=patch.where, outcome="left out", detail="; ".join(patch.notes), notes=patch.notes
        )

    def _incoming(self, patch: FoundPatch, diff: bytes) -> Incoming:
        return Incoming(
            name=patch.name, header=Header(_NOBODY, patch.message or patch.name), diff=diff, where=patch.where
        )

    def _check_changes(self, patch: FoundPatch, changed: Sequence[PathChange], before: TreeId, after: TreeId) -> None:
        if any(c.new and c.new.mode == b"160000" for c in changed):
            refuse_repositories(self.store, patch.where, before, after, "where it was made")
        for path in (show_path(change.path) for change in changed):
            owner = next((n for p, n in self.nested.items() if path == p or path.startswith(p + "/")), "")
            if owner:
                raise UserError(
                    f"{patch.where} changes {path}, which belongs to {owner}", hint=f"`patchq import {owner}`"
                )

    # Diffs

    def _fit_diff(self, patch: FoundPatch) -> tuple[Item, TreeId | None, CommitId | None]:
        text, notes, odd = self._readable(patch)
        notes = (*patch.notes, *notes)
        if not text.strip():
            return (
                Item(name=patch.name, where=patch.where, outcome="applies", detail="", notes=notes),
                self.tree,
                self._tip,
            )
        try:
            if patch.reverse or patch.remove_empty:
                item = Item(name=patch.name, where=patch.where, outcome="applies", notes=notes)
                return item, self._with_options(patch, text, odd), None
            if odd and (patch.strip != 1 or patch.folder):
                return (
                    Item(name=patch.name, where=patch.where, outcome="applies", detail="", notes=notes),
                    self._by_git(patch, text),
                    None,
                )
            done = self.engine.apply(self.tip, [self._incoming(patch, text)])[-1]
        except ConflictError:
            if not self.reading.three_way or (tree := self._merged(text)) is None:
                raise
            return Item(name=patch.name, where=patch.where, outcome="merged", detail="", notes=notes), tree, None
        moved = [f"{o.path}: {o.hunk.split(' @@')[0]} @@ {o.lines:+d} lines" for o in done.offsets]
        item = Item(
            name=patch.name,
            where=patch.where,
            outcome="offset" if moved else "applies",
            detail="; ".join(moved),
            notes=notes,
        )
        return item, self.store.tree_of([done.commit])[0], done.commit

    def _readable(self, patch: FoundPatch) -> tuple[bytes, tuple[str, ...], bool]:
        """Return the diff in git's form, notes for the user, and True if only git can read it."""
        diff, notes = patch.diff, []
        if _RETURNED.search(diff):
            diff = without_returns(diff)
            notes.append(f"{patch.where} came with CR LF at its lines' ends: taken with LF")
        given = Placing(patch.strip, patch.folder)
        try:
            found = sections(diff)
            forced = self.reading.strip is not None
            placing = (given if forced else find_placing(found, self.files, given, exact=patch.exact)) or given
            if placing != given:
                notes.append(f"{patch.where} is read with {placing or '-p1'}: its files are there")
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
            raise ConflictError(f"{patch.where} doesn't apply", [conflict], hint="another -p N, or --directory DIR")
        return tree

    def _with_options(self, patch: FoundPatch, diff: bytes, odd: bool) -> TreeId:
        """Return the tree after a patch that is applied in reverse, or removes files that it empties."""
        where = []
        if odd:
            where = [f"-p{patch.strip}", *([f"--directory={patch.folder}"] if patch.folder else [])]
        tree, notes = self._applied(diff, *where, *(["--reverse"] if patch.reverse else []))
        if tree is None:
            conflict = Conflict(upstream=self.upstream, patch=patch.name, path="", reason=notes.removeprefix("error: "))
            raise ConflictError(f"{patch.where} doesn't apply", [conflict], hint="another -p N, or --directory DIR")
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
        """Return the tree after ``git apply``, or None and the message of git."""
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
        if tree == self.tree and patch.merge:
            notes = f"{patch.where} is left out: the tree has what this merge brings"
            return (
                Item(name=patch.name, where=patch.where, outcome="left out", detail=notes, notes=(*patch.notes, notes)),
                None,
                None,
            )
        if tree == self.tree and before != after:
            return (
                Item(
                    name=patch.name,
                    where=patch.where,
                    outcome="there",
                    detail="the tree has its change already",
                    notes=patch.notes,
                ),
                None,
                None,
            )
        outcome = "merged"
        if before == self.tree:
            outcome = "applies"
        return Item(name=patch.name, where=patch.where, outcome=outcome, detail="", notes=patch.notes), tree, None

    # Reasons for conflicts

    def _why(self, patch: FoundPatch, error: ConflictError) -> tuple[str, str]:
        """Return ``there`` or ``conflict``, and the reason as text."""
        first = None
        if error.conflicts:
            first = error.conflicts[0]
        if first:
            notes = f"{first.path}: {first.reason}".removeprefix(": ")
        else:
            notes = error.message
        if patch.trees:
            return "conflict", f"{', '.join(c.path for c in error.conflicts)}: 3-way merge conflict"
        text, _, _ = self._readable(patch)
        if self._applied(text, "--reverse")[0]:
            return "there", "the tree has its change already: taken back, it applies"
        hints = []
        ends = self._other_ends(text)
        if ends:
            hints.append(ends)
        else:
            if not self.reading.three_way and self._merged(text) is not None:
                hints.append("--3way merges it: the version that it was made against is in the store")
            if self._applied(text, "-C1")[0]:
                hints.append(_FUZZ + self._by_hand(patch))
        if not hints and first and first.kind is ConflictKind.MISSING:
            hints.append("-p N or --directory DIR say where its files lie, if the tree has them")
        return "conflict", "; ".join([notes, *hints])

    def _by_hand(self, patch: FoundPatch) -> str:
        """Return the commands that make a patch with fuzz; empty if the patch is not a whole file."""
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
        lines = text.split(b"\n")
        body = re.compile(rb"[-+ ]")
        within = [bool(body.match(x)) and not x.startswith((b"--- ", b"+++ ")) for x in lines]
        returned = b"\n".join(x + b"\r" if w else x for x, w in zip(lines, within, strict=True))
        if self._applied(returned)[0]:
            return "its lines end in LF, the file's in CR LF: `unix2dos` on its hunks, or make it anew there"
        plain = b"\n".join(x.removesuffix(b"\r") if w else x for x, w in zip(lines, within, strict=True))
        if plain != text and self._applied(plain)[0]:
            return "its lines end in CR LF, the file's in LF: `dos2unix` mends it"
        return ""
