"""Search for patches in upstream's commits, and for upstream's later changes to the same lines.

There are three kinds of evidence, strongest first: a commit with the same patch id; one or more commits that
together made the change of every block; a commit after which a file is identical to the patched file.

The main line follows first parents, and defines the order of the steps. A merge counts as one step. If a merge
hides the commit that made the change, the line through that commit is searched instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain

from patchq.errors import SourceError
from patchq.formats import diff
from patchq.git.diffs import Against, PathChange
from patchq.git.objects import CommitInfo, TreeEntry
from patchq.git.repository import Git
from patchq.merge.blocks import Block, blocks
from patchq.merge.patches import Patch
from patchq.names import BlobId, CommitId
from patchq.system import runner
from patchq.upstream.status import (
    File,
    FileVersion,
    HunkState,
    HunkStatus,
    StatusSteps,
    UpstreamCommit,
    UpstreamVerdict,
    judge,
)

_PULL_REQUEST = re.compile(r"\(#(\d+)\)\s*$|^Merge pull request #(\d+)")


#: Minimum number of files of a folder that one commit deletes to count as a cleanup, not a revert.
_CLEARED = 4


class Lineage(StatusSteps):
    """Line of upstream's commits, in which each commit is the parent of the next one.

    :ivar releases: names of releases, by commit.
    """

    def __init__(
        self,
        git: Git,
        commits: Sequence[CommitInfo],
        releases: Mapping[CommitId, str],
        need: Callable[[Iterable[BlobId]], None] = lambda _: None,
        known: dict[CommitId, list[PathChange]] | None = None,
        against: Against | None = None,
    ) -> None:
        """Read the changes of the commits.

        :param known: cache of the changes in each commit, updated in place. Several lines share this cache, because
            they have most commits in common.
        :param against: parent to compare a merge with, by merge. Only merges whose first parent isn't on the line
            have an entry.
        """
        self.git, self.need, self.releases = git, need, releases
        self.commits = commits
        if known is None:
            self.known = {}
        else:
            self.known = known
        self.against = against or {}
        new = []
        for c in commits:
            if c.commit not in self.known and c.commit not in self.against:
                new.append(c.commit)
        self.known.update(zip(new, git.changes_of(new, first_parent=True), strict=True))
        merges = list(self.against)
        other = dict(zip(merges, git.changes_of(merges, against=self.against), strict=True))
        self.changes = [other.get(c.commit) or self.known.get(c.commit, []) for c in commits]
        self.touching: dict[bytes, list[tuple[int, PathChange]]] = {}
        for number, changes in enumerate(self.changes):
            for change in changes:
                self.touching.setdefault(change.path, []).append((number, change))
        self.paths: list[frozenset[bytes]] = []
        for changes in self.changes:
            self.paths.append(frozenset(change.path for change in changes))
        self._releases = sorted((n, releases[c.commit]) for n, c in enumerate(self.commits) if c.commit in releases)
        self._ids: dict[int, str] = {}
        self._blobs: dict[BlobId, bytes] = {}
        self._renames: dict[int, dict[bytes, bytes]] = {}
        self._made: dict[int, dict[bytes, list[Block]]] = {}

    def commit(self, number: int, did: HunkState) -> UpstreamCommit:
        """Return a commit as evidence."""
        info = self.commits[number]
        subject = info.message.split("\n", 1)[0]
        release = next((name for n, name in self._releases if n >= number), "")
        return UpstreamCommit(
            did=did,
            commit=info.commit,
            subject=subject,
            pull_request=pull_request_of(subject),
            release=release,
        )

    def same(self, patch: Patch, patch_id: str) -> list[int]:
        """Return the numbers of the commits with the same patch id as the patch."""
        likely = [n for n, paths in enumerate(self.paths) if paths == patch.paths]
        if wanted := [n for n in likely if n not in self._ids]:
            self._need_all(wanted)
            ids = self.git.patch_ids_of([self.commits[n].commit for n in wanted])
            self._ids.update(zip(wanted, ids, strict=True))
        found: list[int] = []
        for n in likely:
            if patch_id and self._ids[n] == patch_id:
                found.append(n)
        return found

    def versions(self, path: bytes, first: TreeEntry | None, made: Container[bytes] = ()) -> list[FileVersion]:
        """Return a file's versions along this line of commits, following renames.

        :param made: paths that the patch adds. A rename to one of these paths counts as a deletion.
        """
        found, after = [FileVersion(-1, path, first)], -1
        while True:
            for number, change in self.touching.get(path, ()):
                if number > after:
                    found.append(FileVersion(number, path, change.new))
                    place = None
                    if change.new is None:
                        place = self._renamed(number).get(path)
                    if place and place not in made:
                        break
            else:
                return found
            assert place is not None
            after, path = number, place
            entry = next(c.new for c in self.changes[number] if c.path == place)
            found[-1] = FileVersion(number, path, entry)

    def _renamed(self, number: int) -> dict[bytes, bytes]:
        if number not in self._renames:
            self._need_all([number])
            commit = self.commits[number].commit
            self._renames[number] = self.git.renames_of(commit, self.against.get(commit))
        return self._renames[number]

    def read_diffs(self, numbers: set[int]) -> None:
        """Read the changed blocks of several commits in one batch."""
        wanted = sorted(numbers - self._made.keys() - {-1})
        self._need_all(wanted)
        commits = [self.commits[n].commit for n in wanted]
        texts = []
        if wanted:
            texts = self.git.diffs_of(commits, as_merged=True, against=self.against)
        for number, text in zip(wanted, texts, strict=True):
            try:
                files = diff.parse(text, self.commits[number].commit)
            except diff.Unsupported:
                files = []
            made = {}
            for f in files:
                if f.new_path and not f.binary:
                    made[f.new_path] = blocks(f.hunks)
            self._made[number] = made

    def made(self, number: int) -> Mapping[bytes, Sequence[Block]]:
        """Return a commit's changed blocks by path; empty if its diff was not read."""
        return self._made.get(number, {})

    def clears(self, number: int, path: bytes) -> bool:
        """Return whether a commit deletes a file together with other files in its folder."""
        folder = path.rpartition(b"/")[0]
        deleted = []
        for c in self.changes[number]:
            if c.new is None and c.path.rpartition(b"/")[0] == folder:
                deleted.append(c)
        return len(deleted) >= _CLEARED

    def message(self, number: int) -> str:
        """Return a commit's message."""
        return self.commits[number].message

    def read(self, entries: Sequence[TreeEntry | None]) -> None:
        """Read files with one git process."""
        wanted = {e.blob for e in entries if e and e.mode not in (diff.GITLINK, diff.SYMLINK)} - self._blobs.keys()
        if wanted:
            self.need(wanted)
            self._blobs.update(self.git.read_blobs(wanted))

    def _need_all(self, numbers: Sequence[int]) -> None:
        """Fetch the missing files that these commits change."""
        wanted = set()
        for number in numbers:
            for change in self.changes[number]:
                for entry in (change.old, change.new):
                    if entry and entry.mode != diff.GITLINK:
                        wanted.add(entry.blob)
        self.need(wanted)

    def text(self, entry: TreeEntry | None) -> bytes | None:
        """Return a file's content; None if it can't be read."""
        if entry:
            return self._blobs.get(entry.blob)
        return None


def pull_request_of(subject: str) -> str:
    """Return the number of a commit's pull request from the commit's subject; empty if the subject has no number.

    >>> pull_request_of('Revert "Add x (#12)" (#34)'), pull_request_of("Merge pull request #5 from a/b")
    ('34', '5')
    """
    match = _PULL_REQUEST.search(subject)
    if match:
        return match[1] or match[2]
    return ""


def names_of(message: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return a message's subject in lower case, and the pull request numbers and commit ids in the message.

    The commit's own pull request comes first. The ids are those of cherry-picked, backported or linked commits.
    """
    subject = message.split("\n", 1)[0]
    numbers = list(filter(None, [pull_request_of(subject)]))
    numbers += re.findall(r"/pull/(\d+)", message)
    ids = re.findall(r"(?:cherry picked from commit|Backport:?|/commit/)[ \[]*([0-9a-f]{8,40})\b", message)
    return _PULL_REQUEST.sub("", subject).strip().lower(), tuple(numbers), tuple(ids)


#: Maximum number of lines that are searched because they begin with a side-branch commit that names the patch.
_MOST_NAMED = 8


class SideBranches:
    """Commits between two refs that change certain paths and that reach the main line only through merges."""

    def __init__(self, line: Lineage, base: CommitId, target: CommitId, paths: Iterable[bytes]) -> None:
        """Store the range of commits. The commits are read when first used.

        :param line: main line between the two refs.
        """
        self.line, self.target = line, target
        self.range, self.paths = f"{base}..{target}", sorted(set(paths))

    @cached_property
    def has_any(self) -> bool:
        """Return whether the main line contains merges."""
        return any(len(info.parents) > 1 for info in self.line.commits)

    @cached_property
    def _side(self) -> Lineage:
        """Return the commits of side branches as a line. Parents come before children.

        Two neighbours may be on different branches.
        """
        main, line = {info.commit for info in self.line.commits}, self.line
        found = line.git.log("--no-merges", self.range, first_parent=False, paths=self.paths)
        side = [info for info in found if info.commit not in main]
        return Lineage(line.git, side, line.releases, line.need, line.known)

    @cached_property
    def _parents(self) -> dict[CommitId, list[CommitId]]:
        """Return the parents of each commit in the range, in topological order, oldest first."""
        out = self.line.git.run("rev-list", "--topo-order", "--reverse", "--parents", self.range, "--").decode()
        found = {}
        for row in out.splitlines():
            commit, *parents = map(CommitId, row.split())
            found[commit] = parents
        return found

    def same(self, patch: Patch, patch_id: str) -> list[int]:
        """Return the numbers of the commits with the same patch id as the patch."""
        if self.has_any:
            return self._side.same(patch, patch_id)
        return []

    def named(self, patch: Patch) -> list[int]:
        """Return the numbers of commits that name the patch (:func:`named_by`) and change its paths.

        Leave out commits on the lines through the other commits, because the search of a line finds them, too.
        """
        if not self.has_any:
            return []
        found: list[int] = []
        searched: set[CommitId] = set()
        for number in sorted(named_by(self._side, patch)):
            is_new = self._side.commits[number].commit not in searched
            if is_new and self._side.paths[number] & patch.paths and len(found) < _MOST_NAMED:
                found.append(number)
                searched.update(self._way_through(number)[0])
        return found

    def line_through(self, number: int) -> Lineage:
        """Return the line from a commit to the target. It follows first parents where possible."""
        way, against = self._way_through(number)
        known = {info.commit: info for info in (*self.line.commits, *self._side.commits)}
        if lacking := [commit for commit in way if commit not in known]:
            known.update((i.commit, i) for i in self.line.git.log("--no-walk=unsorted", *lacking))
        commits = [known[commit] for commit in reversed(way)]
        line = self.line
        return Lineage(line.git, commits, line.releases, line.need, line.known, against)

    def _way_through(self, number: int) -> tuple[list[CommitId], dict[CommitId, CommitId]]:
        """Return the commits of the line through a commit, newest first.

        Also return the parent on the line of each merge whose first parent isn't on the line.
        """
        start = self._side.commits[number].commit
        after = {start}
        for commit, parents in self._parents.items():
            if not after.isdisjoint(parents):
                after.add(commit)
        way, against = [self.target], dict[CommitId, CommitId]()
        while way[-1] != start:
            parents = self._parents[way[-1]]
            parent = next(p for p in parents if p in after)
            if parent != parents[0]:
                against[way[-1]] = parent
            way.append(parent)
        return way, against


def named_by(line: Lineage, patch: Patch) -> set[int]:
    """Return the numbers of commits that name the patch by its subject, its pull request or a commit id."""
    subject, numbers, ids = names_of(patch.commit.message)
    found = set()
    for n, info in enumerate(line.commits):
        their_subject, their_numbers, _ = names_of(info.message)
        same_pull_request = bool(their_numbers) and their_numbers[0] in numbers
        if their_subject == subject or same_pull_request or (ids and info.commit.startswith(ids)):
            found.add(n)
    return found


class Landed:
    """Search for patches in a line of upstream's commits.

    :param patch_ids: git's patch ids by patch name.
    :param sides: commits of merged side branches.
    """

    def __init__(self, line: Lineage, patch_ids: Mapping[str, str], sides: SideBranches | None = None) -> None:
        self.line, self.patch_ids, self.sides = line, patch_ids, sides

    def has_whole(self, patch: Patch) -> bool:
        """Return whether upstream has a commit with the same patch id that was not reverted."""
        try:
            known = bool(self.line.same(patch, self._id(patch)) or self._same_beside(patch))
        except (SourceError, runner.CommandError):
            return False
        verdict = None
        if known:
            verdict = self.look(patch)
        return verdict is not None and verdict.taken

    def look(self, patch: Patch) -> UpstreamVerdict | None:
        """Return the state of a patch in upstream; None if it is unknown, or if objects are missing locally."""
        try:
            found = self._look(patch)
            if found and found.identical:
                return found
            return self._look_beside(patch, found)
        except (SourceError, runner.CommandError):
            return None

    def _id(self, patch: Patch) -> str:
        return self.patch_ids.get(patch.name, "")

    def _same_beside(self, patch: Patch) -> list[int]:
        if self.sides:
            return self.sides.same(patch, self._id(patch))
        return []

    def _look_beside(self, patch: Patch, found: UpstreamVerdict | None) -> UpstreamVerdict | None:
        """Search for a patch on lines through side branches.

        :param found: state of the patch on the main line; None if unknown.
        :returns: the state on the first line that contains the whole patch. If no line does: ``found`` or, if it is
            None, the first known state.
        """
        if self.sides is None:
            return found
        numbers = self._same_beside(patch)[::-1]
        if not (found and found.taken):
            numbers += self.sides.named(patch)[::-1]
        for number in dict.fromkeys(numbers):
            other = Landed(self.sides.line_through(number), self.patch_ids)._look(patch)
            if other and other.taken:
                return other
            found = found or other
        return found

    def _look(self, patch: Patch) -> UpstreamVerdict | None:
        line = self.line
        if not patch.edits or not any(path in line.touching for path in patch.paths):
            return None
        same = line.same(patch, self._id(patch))
        # A patch's rename is a deletion and an addition; so is the same rename upstream.
        comes = {e.path for e in patch.edits if e.old is None}
        tracks = {}
        for e in patch.edits:
            tracks[e.path] = line.versions(e.path, e.old, () if e.new else comes)
        versions = list(chain.from_iterable(tracks.values()))
        line.read([version.entry for version in versions])
        line.read([edit.new for edit in patch.edits])
        line.read_diffs({version.number for version in versions})
        named = named_by(line, patch)
        statuses: dict[bytes, list[tuple[HunkStatus, int]]] = {}
        for edit in patch.edits:
            statuses[edit.path] = File(line, patch, edit, tracks[edit.path], named).statuses(max(same, default=None))
        return judge(line, statuses, bool(same))
