"""Search for patches in upstream's releases, used if no commits are available locally.

The difference between two releases is treated as one step, like a commit. A release may contain several
patches of the stack. A patch must be compared with trees that lack the patches after it in the stack. Therefore,
these are reverted in memory, last patch first, as by `git apply -R`, and each is a separate step at the end of
the release. Because a release is weaker evidence than a commit, the criteria are stricter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from pathlib import PurePosixPath

from patchq.errors import SourceError
from patchq.formats import diff
from patchq.formats.lock import Pin
from patchq.git.diffs import PathChange
from patchq.git.merges import MergeObjects, flat_trees
from patchq.git.objects import TreeEntry
from patchq.git.repository import Git
from patchq.merge.blocks import Block, Text, blocks, telling, text_of, word_of
from patchq.merge.patches import Patch
from patchq.merge.target import Column
from patchq.names import BlobId, CommitId, TreeId, show_path
from patchq.project.project import Project
from patchq.project.refs import pins_between, version_of
from patchq.records import dataclass
from patchq.sources.pins import Fetcher
from patchq.upstream.status import (
    MOVED,
    File,
    FileVersion,
    HunkState,
    HunkStatus,
    StatusSteps,
    UpstreamCommit,
    UpstreamVerdict,
    judge,
)

#: Minimum number of a block's lines for a match in a new file not to be a coincidence.
_LONG = 5
#: Maximum size in bytes of the files that are cached from one patch to the next.
_MEMORY = 32 << 20
_NONE: Mapping[bytes, Sequence[Block]] = {}


@dataclass(frozen=True, slots=True)
class UpstreamRelease:
    """Release between two refs, with the commit in the store that contains its files."""

    ref: str
    commit: CommitId


def on_the_way(project: Project, old: Pin, new: Pin, known: Mapping[str, CommitId]) -> list[UpstreamRelease]:
    """Return the pinned releases between two pins, oldest first. Releases that the store lacks are left out.

    The result is empty if one of the two pins is not a release. Unpinned releases in the store are left out,
    because git would search each of them for renamed files. In a rebase of our own stack, this search took a
    sixth of the time.

    :param known: commits that are compared anyway, by ref. Releases among them are included even if unpinned.
    """
    ends = version_of(old.ref), version_of(new.ref)
    if ends[0] is None or ends[1] is None:
        return []
    here = dict(known)
    fetcher = Fetcher(project.layout, project.lock, say=project.say, offline=True)
    for pin in pins_between(project.lock.upstreams[old.upstream], old, new):
        try:
            here[pin.ref] = fetcher.fetch([pin])[0].commit
        except SourceError:
            here.pop(pin.ref, None)
    found = {}
    for ref, commit in here.items():
        version = version_of(ref)
        if version is not None and ends[0] < version < ends[1]:
            found[version] = UpstreamRelease(ref, commit)
    return [found[version] for version in sorted(found)]


@dataclass(frozen=True, slots=True)
class _ReleaseStep:
    """Step in release number ``release``.

    :ivar own: number of the stack's patch that makes this step, or -1 for the release's other changes.
    """

    release: int
    own: int = -1


class Releases:
    """Search for a stack's patches in upstream's releases.

    :param git: repository with all objects. Merge results are written to it.
    :param base: tree for which the stack was written.
    :param releases: later trees of upstream with their labels, oldest first, target last. Each tree contains
        the entries for the paths of all patches.
    :param patches: patches of the stack, in order.
    """

    def __init__(
        self, git: Git, base: Column, releases: Sequence[tuple[str, Column]], patches: Sequence[Patch]
    ) -> None:
        self.git, self.base, self.patches = git, base, patches
        self.labels = [label for label, _ in releases]
        self.columns = [column for _, column in releases]
        #: Release that contains each patch that was searched; None if no release does.
        self.came: dict[int, int | None] = {}
        #: For each release, the files before each contained patch, by patch number and path.
        self.before: list[dict[int, dict[bytes, TreeEntry | None]]] = [{} for _ in releases]
        self.moved: dict[tuple[TreeId, TreeId, bytes], bytes | None] = {}
        self.new: dict[tuple[int, str], set[bytes]] = {}
        self.contents: dict[BlobId, bytes] = {}
        self.written: set[BlobId] = set()

    def look(self, patch: Patch, at: int | None = None) -> UpstreamVerdict | None:
        """Return the state of a patch in upstream; None if the releases contain no evidence.

        :param at: number of the last patch that is not reverted in the releases (default: the patch's own number).
        """
        if at is None:
            at = self.patches.index(patch)
        later = self._later(patch, at)
        if sum(map(len, self.contents.values())) > _MEMORY:
            self.contents = {}
        if not self._may_have(patch, later):
            return None
        self._read_unsettled(later)
        for number in reversed(later):
            if number not in self.came:
                self._settle(number)
        found = self._judge(patch, at)[0]
        if found and not found.taken and self._follow(patch):
            found = self._judge(patch, at)[0]
        return found

    def _later(self, patch: Patch, at: int) -> list[int]:
        """Return the patches after number ``at`` that share files with the patch, directly or through each other."""
        later, paths = [], set(patch.paths)
        for number in range(at + 1, len(self.patches)):
            if self.patches[number].paths & paths:
                later.append(number)
                paths |= self.patches[number].paths
        return later

    def _may_have(self, patch: Patch, later: Sequence[int]) -> bool:
        """Return whether any version of the patch's files may contain its lines."""
        # A reverted patch restores old lines, so search those files as well as the releases' files.
        seen = self._everywhere(patch)
        for number in later:
            for edit in self.patches[number].edits:
                if edit.path in patch.paths:
                    seen.append(edit.old)
        self.read(seen)
        texts = []
        for e in seen:
            if e and e.blob in self.contents:
                texts.append(self.contents[e.blob])
        return _may_be_there(patch, patch.edits, texts)

    def _read_unsettled(self, later: Sequence[int]) -> None:
        """Read the files of those later patches that were not searched yet, with one git process."""
        wanted: list[TreeEntry | None] = []
        for other in [self.patches[number] for number in later if number not in self.came]:
            wanted += self._everywhere(other)
            for edit in other.edits:
                wanted += (edit.old, edit.new)
        self.read(wanted)

    def _follow(self, patch: Patch) -> bool:
        """Follow renames from release to release.

        This finds files that a comparison of only the first and the last release misses.

        :returns: whether a renamed file was found.
        """
        learnt = False
        for before, column in pairwise((self.base, *self.columns)):
            for path in patch.paths:
                old = before.moved.get(path, path)
                if old not in before.bare or column.moved.get(path, path) in column.bare:
                    continue
                place: bytes | None = old
                if old not in column.bare:
                    place = self._moved(before.tree, column.tree, old)
                if place and place not in column.bare:
                    column.bare |= self.git.list_tree(column.tree, [place])
                if place:
                    column.moved[path] = place
                    learnt = True
        return learnt

    def _moved(self, before: TreeId, after: TreeId, path: bytes) -> bytes | None:
        if (before, after, path) not in self.moved:
            self.moved[before, after, path] = self.git.moved(before, after, path)
        return self.moved[before, after, path]

    def new_lines(self, release: int, like: bytes) -> set[bytes]:
        """Return the lines of those new files of a release that have the same suffix as the path ``like``."""
        suffix = PurePosixPath(show_path(like)).suffix
        if (release, suffix) not in self.new:
            before, column = (self.base, *self.columns)[release : release + 2]
            added = [c for c in self.git.changes(before.tree, column.tree) if c.old is None]
            files = []
            for c in added:
                if c.new and PurePosixPath(show_path(c.path)).suffix == suffix:
                    files.append(c.new)
            new = []
            for entry in files:
                if entry.mode not in (diff.GITLINK, diff.SYMLINK):
                    new.append(entry.blob)
            # `text_of` would cache these files, which are needed only once.
            contents = self.git.read_blobs(new).values()
            lines: set[bytes] = set()
            for content in contents:
                lines.update(Text(content).lines)
            self.new[release, suffix] = lines
        return self.new[release, suffix]

    def _everywhere(self, patch: Patch) -> list[TreeEntry | None]:
        """Return the entries of a patch's files before all releases and at each release."""
        found = []
        for column in (self.base, *self.columns):
            found += [self._bare(column, edit, patch) for edit in patch.edits]
        return found

    def _settle(self, number: int) -> None:
        """Find the release that contains a patch, and revert the patch in that release.

        A file that is identical to the patched file is reverted even if the release lacks the patch's other
        changes.
        """
        patch = self.patches[number]
        _, came = self._judge(patch, number)
        self.came[number] = came
        out: set[bytes] = set()
        for release, own in enumerate(self.before):
            for edit in patch.edits:
                stands = edit.path not in out and self.entry(release, number, edit, patch) == edit.new
                if stands and edit.old and edit.new:
                    own.setdefault(number, {})[edit.path] = edit.old
                    out.add(edit.path)
        if came is not None:
            rest = self._taken_out(patch, number, came)
            self.before[came].setdefault(number, {}).update((p, e) for p, e in rest.items() if p not in out)

    def _judge(self, patch: Patch, at: int) -> tuple[UpstreamVerdict | None, int | None]:
        """Return the state of a patch, and the first release that contains the whole patch."""
        steps = _Steps(self, patch, at)
        for edit in patch.edits:
            entries = [self.entry(-1, at, edit, patch), *(v.entry for v in steps.versions[edit.path][1:])]
            texts = [text for text in map(steps.text, entries) if text is not None]
            if texts and not _may_be_there(patch, [edit], texts):
                return None, None
        statuses: dict[bytes, list[tuple[HunkStatus, int]]] = {}
        for edit in patch.edits:
            versions, first = steps.versions[edit.path], self.entry(-1, at, edit, patch)
            own = all(steps.order[v.number].own >= 0 for v in versions[1:])
            if first == edit.new and own:
                continue  # the patch reverts an earlier patch of the stack, not upstream's code
            since = next((v.number for v in versions[1:] if v.entry == edit.new != first), None)
            floor = text_of(steps.text(first))
            statuses[edit.path] = File(steps, patch, edit, versions, floor=floor).statuses(since)
        every = [status for status, _ in chain.from_iterable(statuses.values())]
        verdict = judge(steps, statuses, False)
        if not every or any(status.first < 0 for status in every):
            return verdict, None
        return verdict, steps.order[max(status.first for status in every)].release

    def entry(self, release: int, after: int, edit: PathChange, patch: Patch) -> TreeEntry | None:
        """Return the entry of a patch's file at a release, without the stack's patches after number ``after``.

        :param release: number of the release, or -1 for the tree before all releases.
        """
        if release < 0:
            return self._bare(self.base, edit, patch)
        found = self.before[release]
        for number in sorted(found):
            if number > after and edit.path in found[number]:
                return found[number][edit.path]
        return self._bare(self.columns[release], edit, patch)

    def _bare(self, column: Column, edit: PathChange, patch: Patch) -> TreeEntry | None:
        place = column.moved.get(edit.path, edit.path)
        if edit.new is None and any(e.path == place and e.old is None for e in patch.edits):
            place = edit.path  # upstream made the patch's rename, so the old path is deleted
        return column.bare.get(place)

    def _taken_out(self, patch: Patch, number: int, release: int) -> dict[bytes, TreeEntry | None]:
        """Return the files of a release after reverting a patch. Files in which it can't be reverted are left out."""
        found: dict[bytes, TreeEntry | None] = {}
        merges: list[tuple[bytes, TreeEntry, TreeEntry, TreeEntry]] = []
        whole = True
        for edit in patch.edits:
            now = self.entry(release, number, edit, patch)
            if now == edit.new:
                found[edit.path] = edit.old
            elif edit.old and edit.new and now and edit.path in patch.hunks:
                merges.append((edit.path, edit.new, now, edit.old))
            else:
                whole = False
        if not whole:  # additions and deletions may be half of a rename
            found = {e.path: e.old for e in patch.edits if e.path in found and e.old and e.new}
        return found | (self._merged(merges) if merges else {})

    def _merged(self, sides: Sequence[tuple[bytes, TreeEntry, TreeEntry, TreeEntry]]) -> dict[bytes, TreeEntry | None]:
        """Merge files (path, base, ours, theirs); return the files that merge without a conflict."""
        with MergeObjects(self.git, self.written) as objects:
            base: dict[bytes, TreeEntry | None] = {}
            ours: dict[bytes, TreeEntry | None] = {}
            theirs: dict[bytes, TreeEntry | None] = {}
            for number, (_, *entries) in enumerate(sides):
                name = b"%05d" % number
                base[name], ours[name], theirs[name] = entries
            pending = objects.sides(("", base), ("", ours), ("", theirs))
        (merge,) = self.git.merge([objects.ids_of(pending)])
        (tree,) = flat_trees(self.git, [merge.tree])
        apart = {int(path) for path in merge.paths}
        found: dict[bytes, TreeEntry | None] = {}
        for n, (path, *_) in enumerate(sides):
            if n in tree and n not in apart:
                found[path] = tree[n]
        return found

    def read(self, entries: Sequence[TreeEntry | None]) -> None:
        """Read files with one git process."""
        wanted = {e.blob for e in entries if e and e.mode not in (diff.GITLINK, diff.SYMLINK)} - self.contents.keys()
        if wanted:
            self.contents.update(self.git.read_blobs(wanted))


def _may_be_there(patch: Patch, edits: Sequence[PathChange], texts: Sequence[bytes]) -> bool:
    """Return whether the longest word of every added line occurs in at least one version of the files."""
    words: set[bytes] = set()
    for edit in edits:
        for block in patch.blocks(edit.path):
            words.update(map(word_of, block.added))

    def occurs(word: bytes) -> bool:
        return any(word in text for text in texts)

    return all(map(occurs, words))


class _Steps(StatusSteps):
    """Steps for one patch: for each release, first upstream's changes, then the changes of the stack's patches."""

    def __init__(self, releases: Releases, patch: Patch, at: int) -> None:
        self.releases, self.patch = releases, patch
        self.order: list[_ReleaseStep] = []
        self.versions = {e.path: [FileVersion(-1, e.path, e.old)] for e in patch.edits}
        self._diffs: list[tuple[int, bytes, TreeEntry, TreeEntry]] = []
        last = {e.path: releases.entry(-1, at, e, patch) for e in patch.edits}
        for release, own in enumerate(releases.before):
            for step in (_ReleaseStep(release), *(_ReleaseStep(release, n) for n in sorted(own) if n > at)):
                for edit in patch.edits:
                    if step.own < 0:
                        after = at
                    else:
                        after = step.own
                    now, before = releases.entry(release, after, edit, patch), last[edit.path]
                    if now != before:
                        self.versions[edit.path].append(FileVersion(len(self.order), edit.path, now))
                        if step.own < 0 and now and before and edit.path in patch.hunks:
                            self._diffs.append((len(self.order), edit.path, before, now))
                    last[edit.path] = now
                self.order.append(step)
        wanted: list[TreeEntry | None] = [edit.new for edit in patch.edits]
        wanted += [version.entry for version in chain.from_iterable(self.versions.values())]
        for _, _, before, now in self._diffs:
            wanted += (before, now)
        releases.read(wanted)
        self._made: dict[int, dict[bytes, Sequence[Block]]] | None = None

    def makes(self, number: int, path: bytes, block: Block, times: int = 0) -> bool:
        """Return whether a step makes a change. No diff is needed if the file doesn't contain the added lines."""
        entry = next((v.entry for v in self.versions.get(path, ()) if v.number == number), None)
        now = text_of(self.text(entry))
        return all(now.count(line) for line in block.added) and super().makes(number, path, block, times)

    def text(self, entry: TreeEntry | None) -> bytes | None:
        """Return a file's content; None if it can't be read."""
        if entry:
            return self.releases.contents.get(entry.blob)
        return None

    def made(self, number: int) -> Mapping[bytes, Sequence[Block]]:
        """Return a step's changed blocks by path.

        For a release, only files of the judged patch are compared.
        """
        if self.order[number].own >= 0:
            own = self.releases.patches[self.order[number].own]
            return {path: own.blocks(path) for path in own.hunks}
        if self._made is None:
            self._made = self._read()
        return self._made.get(number, _NONE)

    def _read(self) -> dict[int, dict[bytes, Sequence[Block]]]:
        """Return the changed blocks between releases, by the diff algorithm of git's merges."""
        git, found = self.releases.git, dict[int, dict[bytes, Sequence[Block]]]()
        if not self._diffs:
            return found
        with MergeObjects(git, self.releases.written) as objects:
            root = objects.commit("", {b"%05d" % n: before for n, (_, _, before, _) in enumerate(self._diffs)})
            after = {b"%05d" % n: now for n, (_, _, _, now) in enumerate(self._diffs)}
            top = objects.commit("", after, parent=root)
        (text,) = git.diffs_of([objects.id(top)], as_merged=True)
        try:
            files = diff.parse(text, "releases")
        except diff.Unsupported:
            return found
        for file in files:
            if file.new_path and not file.binary:
                number, path, _, _ = self._diffs[int(file.new_path)]
                found.setdefault(number, {})[path] = blocks(file.hunks)
        return found

    def moves(self, number: int, path: bytes, block: Block) -> bool:
        """Return whether a step moves a block to other files. Long blocks are also searched in new files."""
        if super().moves(number, path, block):
            return True
        lines = telling(block.added)
        if not self.is_coarse(number) or len(lines) < _LONG:
            return False
        return len(lines & self.releases.new_lines(self.order[number].release, path)) >= MOVED * len(lines)

    def message(self, number: int) -> str:
        """Return the message of a step that is a patch of the stack; empty for a release."""
        own = self.order[number].own
        if own >= 0:
            return self.releases.patches[own].commit.message
        return ""

    def is_coarse(self, number: int) -> bool:
        """Return whether a step is a whole release."""
        return self.order[number].own < 0

    def is_revert(self, number: int, lines: int) -> bool:
        """Return whether a step is a patch of the stack that reverts these lines; False for a release."""
        return self.order[number].own >= 0 and super().is_revert(number, lines)

    def commit(self, number: int, did: HunkState) -> UpstreamCommit:
        """Return a step as evidence: a release, or a stack's patch that the release contains."""
        step = self.order[number]
        name = ""
        if step.own >= 0:
            name = self.releases.patches[step.own].name
        return UpstreamCommit(
            did=did, commit=CommitId(""), subject=name, pull_request="", release=self.releases.labels[step.release]
        )
