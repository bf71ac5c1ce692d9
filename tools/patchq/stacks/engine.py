"""Conversion of patches to commits. Most of the time of ``apply`` is spent here.

``ls-tree`` and ``cat-file`` read the files that the patches change. :mod:`patchq.formats.diff` applies the
diffs in process, and ``fast-import`` writes one commit per patch. Diffs that the in-process code doesn't
support (:class:`patchq.formats.diff.Unsupported`) are applied by ``git apply`` to a temporary index.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import IO

from patchq.errors import Conflict, ConflictError, ConflictKind, FormatError, PatchqError
from patchq.formats import diff, treepath
from patchq.formats.diff import SYMLINK, FilePatch, Hunk, Mismatch, Unsupported, refuse_damaged
from patchq.formats.header import Header
from patchq.git.diffs import MovedHunk
from patchq.git.fastimport import commit_start, import_commits, quote_path
from patchq.git.objects import blob_id
from patchq.git.repository import Git
from patchq.names import AppliedPatch, CommitId, Offset, show_path
from patchq.patterns.regenerate import RuleStop, regenerate
from patchq.patterns.rules import rules_of
from patchq.records import dataclass
from patchq.stacks._memtree import FileMismatch, Result, View
from patchq.system import fsio, runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """Patch to apply."""

    name: str
    header: Header
    diff: bytes
    where: str


class Engine:
    """Applier of patches to one upstream. It writes objects, but moves no refs."""

    def __init__(self, store: Git, upstream: str, nested: Mapping[str, str]) -> None:
        self.store, self.upstream = store, upstream
        self.nested = {path.encode(): name for path, name in nested.items()}

    def apply(self, onto: CommitId, patches: Sequence[Incoming]) -> list[AppliedPatch]:
        """Apply ``patches`` in order on top of ``onto``, without fuzz.

        :raises ConflictError: for the first patch that doesn't apply. The error contains the file's lines at the
            expected place.
        :raises FormatError: for a damaged diff, or a path outside the tree or in a nested upstream.
        """
        parsed = [(patch, self._parse(patch)) for patch in patches]
        done: list[AppliedPatch] = []
        for odd, run in itertools.groupby(parsed, key=lambda item: isinstance(item[1], Unsupported)):
            if not odd:
                done += self._in_process(onto, [(p, f) for p, f in run if not isinstance(f, Unsupported)])
                onto = done[-1].commit
                continue
            for patch, why in run:
                assert isinstance(why, Unsupported)
                done.append(self._by_git(onto, patch, why))
                onto = done[-1].commit
        return done

    def _parse(self, patch: Incoming) -> list[FilePatch] | Unsupported:
        try:
            files = diff.parse(patch.diff, patch.where)
        except Unsupported as error:
            return error
        for file in files:
            self._check_nested(patch, file.paths)
        return files

    def _check_nested(self, patch: Incoming, paths: Iterable[bytes]) -> None:
        for path in paths:
            for folder, owner in self.nested.items():
                if path == folder or path.startswith(folder + b"/"):
                    raise FormatError(
                        f"{patch.where} changes {show_path(path)}, which belongs to the upstream {owner}",
                        hint=f"move this change to a patch of {owner}",
                    )

    # In process

    def _in_process(self, onto: CommitId, patches: Sequence[tuple[Incoming, list[FilePatch]]]) -> list[AppliedPatch]:
        view = View(self.store, onto)
        view.prefetch(_old_paths(itertools.chain.from_iterable(files for _, files in patches)))
        applied: list[AppliedPatch] = []
        ref = f"refs/patchq/scratch/{self.upstream}".encode()
        # The ref is temporary, because `apply` must change nothing if another stack fails.
        with import_commits(self.store, ref) as (out, ids):
            for number, (patch, files) in enumerate(patches, 1):
                if number == 1:
                    parent = onto.encode()
                else:
                    parent = b":%d" % (number - 1)
                out.write(commit_start(ref, number, patch.header.author, patch.header.message, parent))
                applied.append(self._write_patch(view, patch, files, out))
        return [replace(done, commit=ids[number]) for number, done in enumerate(applied, 1)]

    def _write_patch(self, view: View, patch: Incoming, files: Sequence[FilePatch], out: IO[bytes]) -> AppliedPatch:
        found: list[Offset] = []
        applied = AppliedPatch(name=patch.name, commit=CommitId(""))
        try:
            results = view.apply(files, found)
            applied = replace(applied, offsets=tuple(found))
        except FileMismatch as error:
            results = self._by_rule(patch, view, error)
            applied = replace(applied, by_rule=True)
        for path, result in results:
            if result is None:
                out.write(b"D %s\n" % quote_path(path))
            else:
                mode, content = result
                out.write(b"M %s inline %s\ndata %d\n" % (mode, quote_path(path), len(content)))
                out.write(content)
                out.write(b"\n")
        return applied

    def _by_rule(self, patch: Incoming, view: View, error: FileMismatch) -> list[Result]:
        """Apply the rules of a patch whose diff doesn't apply.

        :raises ConflictError: if the patch has no rules, or if the number of matches differs from the number that a
            rule states.
        """
        conflict = self._conflict(patch, view, error.file, error.mismatch)
        rules = rules_of(patch.header.message, patch.where)
        if not rules:
            raise conflict from None
        try:
            found = regenerate(rules, view)
        except RuleStop as stop:
            first = conflict.conflicts[0]
            raise self._error([replace(first, reason=f"{first.reason}; {stop}")]) from None
        for path in found:
            self._check_nested(patch, [path])
        return view.put(found)

    def _conflict(self, patch: Incoming, view: View, file: FilePatch, mismatch: Mismatch) -> ConflictError:
        path = show_path(file.old_path or file.path)
        hunk, reason = mismatch.hunk, mismatch.reason
        conflict = Conflict(upstream=self.upstream, patch=patch.name, path=path, reason=reason, kind=mismatch.kind)
        if hunk is not None:
            image = diff.split_lines(view.content(file.old_path))
            at = closest(hunk, image)
            conflict = replace(
                conflict,
                hunk=hunk.header.decode("utf-8", "replace"),
                line=at + 1,
                expected=list(map(_text, hunk.old)),
                found=list(map(_text, image[at : at + len(hunk.old)])),
            )
            if _has_result(hunk, image):
                reason = (
                    "the hunk's new lines are in the file, and the hunk's old lines are not: upstream may have this "
                    "change already"
                )
                conflict = replace(conflict, reason=reason, kind=ConflictKind.APPLIED)
        elif mismatch.kind is ConflictKind.MISSING and (place := _same_name(file.old_path or b"", view.files)):
            reason = f"{reason}; a file of that name is at {show_path(place)}"
            conflict = replace(conflict, reason=reason, kind=ConflictKind.MOVED)
        hint = ""
        if mismatch.places:
            conflict = replace(conflict, places=mismatch.places, found=())
            hint = (
                f"choose one: write its line number after the + of {conflict.hunk.split(' @@')[0]} @@ "
                f"in {patch.where}, then `patchq apply`"
            )
        return self._error([conflict], hint)

    def _error(self, conflicts: list[Conflict], hint: str = "") -> ConflictError:
        first = conflicts[0]
        return ConflictError(
            f"{self.upstream}: {first.patch} doesn't apply: {first.path}: {first.reason}; nothing was changed",
            conflicts,
            hint=hint
            or f"`patchq apply {self.upstream} --fix {first.patch}` puts it into the worktree, for you to finish",
        )

    # By git

    def _by_git(self, onto: CommitId, patch: Incoming, why: Unsupported) -> AppliedPatch:
        """Apply one patch by ``git apply``.

        Refuse a patch if a hunk fits in several places, because git would choose one of them.
        """
        refuse_damaged(patch.diff, patch.where)
        offsets = self._rehearse(onto, patch, why)
        with fsio.temporary_folder() as folder:
            index = folder / "index"
            env = {"GIT_INDEX_FILE": str(index)}
            self.store.run("read-tree", onto, env=env)
            try:
                moved = self.store.apply_to_index(patch.diff, index)
            except runner.CommandError as error:
                if error.lacks_object:
                    raise
                raise self._refused(patch, why, error.output) from None
            if moved and why.files is None:
                raise self._unsure(patch, why, moved[0])
            tree = self.store.run("write-tree", env=env).decode().strip()
        changed = self.store.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", onto, tree).split(b"\0")
        for path_changed in changed[:-1]:
            treepath.check_tree_path(path_changed, patch.where)
        self._check_nested(patch, changed[:-1])
        for change in self.store.changes(onto, tree):
            if change.new and change.new.mode == SYMLINK and change.new.blob == _EMPTY:
                raise FormatError(
                    f"{patch.where}: {show_path(change.path)} is a symlink without a target, so it can't be created",
                    hint="restore the hunk that contains the target; the patch file may be truncated",
                )
        commit = self.store.commit_tree(tree, (onto,), patch.header.author, patch.header.message)
        return AppliedPatch(name=patch.name, commit=commit, offsets=offsets)

    def _rehearse(self, onto: CommitId, patch: Incoming, why: Unsupported) -> tuple[Offset, ...]:
        """Check in memory that each hunk fits in exactly one place. Files that only git supports are skipped.

        :returns: the offsets of the hunks that don't apply at the line in their header.
        :raises ConflictError: if a hunk doesn't apply.
        :raises FormatError: if git would misread context at the end of a file.
        """
        offsets: list[Offset] = []
        if why.files is None:
            if _OPEN_CONTEXT.search(patch.diff):
                raise FormatError(
                    f"{patch.where}: {why.reason}; also, a context line has no newline at its end, and git would "
                    "match it with a line that ends with a newline",
                    hint=_ANEW,
                )
            return ()
        view = View(self.store, onto)
        view.prefetch(_old_paths(why.files))
        for file in why.files:
            try:
                if not file.binary:
                    view.patched(file, offsets)
            except Mismatch as error:
                raise self._conflict(patch, view, file, error) from None
        return tuple(offsets)

    def _refused(self, patch: Incoming, why: Unsupported, message: str) -> PatchqError:
        lines = []
        for line in message.splitlines():
            if line.startswith(("error: ", "fatal: ")):
                lines.append(line[7:])
        if lines:
            text = lines[0]
        else:
            text = message
        if not lines or _MALFORMED.search(text):
            return FormatError(f"{patch.where}: {why.reason}; git's message: {text}", hint=_ANEW)
        if text.count(":") > 1:
            path = text.split(":")[1].strip()
        else:
            path = text.split(":")[0]
        return self._error([Conflict(upstream=self.upstream, patch=patch.name, path=path, reason=text)])

    def _unsure(self, patch: Incoming, why: Unsupported, moved: MovedHunk) -> ConflictError:
        reason = (
            f"git would apply hunk {moved.number} at line {moved.line}, {moved.lines:+d} lines from its position; "
            f"patchq can't check that no other place fits, because {why.reason}"
        )
        return self._error([Conflict(upstream=self.upstream, patch=patch.name, path=moved.path, reason=reason)], _ANEW)


_EMPTY = blob_id(b"")
#: git's messages for malformed patches.
_MALFORMED = re.compile(
    r"corrupt|fragment without header|bad git-diff|lacks filename|only garbage|No valid patches|inconsistent header|"
    r"invalid mode|invalid path|unable to find filename|depends on old contents|still has contents|unrecognized"
)
#: Context line without a newline.
_OPEN_CONTEXT = re.compile(rb"^ .*\n\\ ", re.MULTILINE)
_ANEW = "make the change in the worktree; `patchq new` and `patchq export` write it as git writes patches"


def _old_paths(files: Iterable[FilePatch]) -> list[bytes]:
    return list(filter(None, (file.old_path for file in files)))


def _text(line: bytes) -> str:
    return show_path(line.rstrip(b"\r\n").replace(b"\t", b"    "))


def closest(hunk: Hunk, image: Sequence[bytes]) -> int:
    """Return the start index at which most of the hunk's old lines match the file, for an error message."""
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


def _has_result(hunk: Hunk, image: Sequence[bytes]) -> bool:
    """Return whether a file already contains the new lines of a hunk."""
    new = list(hunk.new)
    return bool(new) and any(list(image[at : at + len(new)]) == new for at in range(len(image)))


def _same_name(path: bytes, others: Iterable[bytes]) -> bytes:
    """Return the first of the other paths with the same last component as ``path``; empty if there is none."""
    name = path.rpartition(b"/")[2]
    for other in others:
        if other.rpartition(b"/")[2] == name:
            return other
    return b""
