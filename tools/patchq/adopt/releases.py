"""On which releases a patch applies that doesn't fit the pinned one: those of the package index, and git tags.

Whether a patch applies isn't monotone over releases: it may fit, not fit, and fit again. So the search begins with the
newest release and where it was probably made, goes to those that have most of its old lines until it finds one that it
fits, and bisects from there to both ends of that run. So many releases are tried and no more, nor is more downloaded
than may be, and that is said. Of each only the files that the patches name are read.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from patchq.adopt.diffs import OddDiff, Placing, find_placing, sections
from patchq.adopt.fit import TAKEN, Fitter
from patchq.adopt.found import Downloaded, Elsewhere, Found, Reading
from patchq.adopt.tagged import Tagged
from patchq.carry.history import at_hand
from patchq.errors import PatchqError, SourceError
from patchq.formats.lock import Pin
from patchq.git.repository import Git, scratch
from patchq.names import CommitId
from patchq.project.project import Project
from patchq.project.refs import tag_versions
from patchq.sources import index
from patchq.sources.archive import import_release
from patchq.sources.bases import have_base
from patchq.sources.pins import is_local_archive
from patchq.sources.simple import IndexFile
from patchq.system.allowance import Allowance, Exhausted

if TYPE_CHECKING:
    from packaging.version import Version

#: Releases tried for one import at most, and bytes downloaded for that unless the command says otherwise.
MOST_TRIED, MOST_DOWNLOADED = 16, 256 << 20
_NAMES = re.compile(rb"^(?:--- |\+\+\+ |rename from |rename to |copy from |diff --git .* )([^\t\r\n]+)", re.MULTILINE)


class Search:
    """Which release to try next, for each of some patches; pure.

    >>> search = Search(9, 4, [None])
    >>> while (at := search.next()) is not None:
    ...     search.take(at, ["applies" if 1 <= at <= 2 else "conflict"], [1 - abs(at - 2) / 9])
    >>> search.fits(0), sorted(search.tried)
    ([1, 2], [0, 1, 2, 3, 4, 8])

    :param count: of releases, in their order, without the pinned one, which stands before number ``pin``.
    :param made: by patch, the release that it was probably made against.
    """

    def __init__(self, count: int, pin: int, made: Sequence[int | None]) -> None:
        self.count, self.pin, self.made = count, pin, made
        self.tried: dict[int, Sequence[str]] = {}
        self.likeness: dict[int, Sequence[float]] = {}

    def take(self, at: int, outcomes: Sequence[str], likeness: Sequence[float] = ()) -> None:
        """What became of each patch on a release, and which share of its old lines is there."""
        self.tried[at] = outcomes
        self.likeness[at] = likeness or [0.0] * len(outcomes)

    def fits(self, patch: int) -> list[int]:
        """The releases that a patch applies on, in their order."""
        return sorted(at for at, outcomes in self.tried.items() if outcomes[patch] in TAKEN)

    def next(self) -> int | None:
        """The release to try next, by the first patch that needs one."""
        for patch in range(len(self.made)):
            for at in self._wanted(patch):
                if 0 <= at < self.count and at not in self.tried:
                    return at
        return None

    def _wanted(self, patch: int) -> Iterator[int]:
        yield self.count - 1  # the newest may have it already
        fits = self.fits(patch)
        if not fits:
            yield from self._towards(patch)
            return
        # The pinned release, which it doesn't fit, stands between two of the others.
        newest, oldest = fits[-1], fits[0]
        above = [at for at in self.tried if at > newest] + [self.count] + [self.pin] * (newest < self.pin)
        below = [at for at in self.tried if at < oldest] + [-1] + [self.pin - 1] * (oldest >= self.pin)
        if (end := min(above)) - newest > 1:
            yield (newest + end) // 2
        if oldest - (end := max(below)) > 1:
            yield (oldest + end) // 2

    def _towards(self, patch: int) -> Iterator[int]:
        """While it fits none: where it was probably made, beside the pin, the ends, then beside the likest ones."""
        made = self.made[patch]
        if made is not None:
            yield from (made, made + 1)
        yield from (self.pin - 1, self.pin, 0)
        tried = sorted(self.tried)
        likest = sorted(tried, key=lambda at: (-self.likeness[at][patch], abs(at - self.pin)))
        for best in likest:
            here = tried.index(best)
            ends = (tried[here - 1] if here else -1, tried[here + 1] if here + 1 < len(tried) else self.count)
            for end in sorted(ends, key=lambda end: -abs(end - best)):
                if abs(end - best) > 1:
                    yield (best + end) // 2


@dataclass(frozen=True, slots=True)
class Release:
    """A release that can be tried: as a tag, and where it has none or that can't be had, as a file of the index.

    :ivar label: what people call it.
    :ivar uploaded: when, in seconds since 1970; 0 where that isn't known.
    """

    label: str
    uploaded: float
    tag: str = ""
    file: IndexFile | None = None


def search_releases(
    project: Project, pin: Pin, found: Sequence[Found], left: Sequence[Found], reading: Reading, *,
    offline: bool = False, most: int = MOST_DOWNLOADED,
) -> dict[int, Elsewhere]:  # fmt: skip
    """On which releases the patches apply that were left, by their places in ``left``; empty where none are known.

    :param found: all of the batch, which are put on a release in their order.
    :param offline: nobody is asked: those tags are tried whose files are here.
    :param most: bytes that may be downloaded; releases that would need more are passed over.
    :raises SourceError: if neither an index nor a git host answers.
    """
    if not left:
        return {}
    with at_hand(project, pin.upstream) as history:
        tagged = Tagged(project, pin, history if pin.source != "archive" else None, offline=offline)
        with scratch(project.store, *tagged.places) as beside:
            pinned, releases = _releases(project, pin, tagged, beside, offline=offline)
            if not releases:
                return {}
            search = Search(len(releases), pinned, [_made(patch, releases) for patch in left])
            trial = _Trial(project, pin, beside, tagged, found, reading, Allowance(most))
            skipped: set[int] = set()
            passed: list[str] = []
            while len(search.tried) < MOST_TRIED and (at := search.next()) is not None:
                project.say(f"{pin.upstream}: trying the release {releases[at].label}")
                try:
                    told = trial.outcomes(releases[at])
                    search.take(at, [told[id(patch)][0] for patch in left], [told[id(patch)][1] for patch in left])
                except PatchqError as error:  # one that can't be had says nothing of the others
                    project.say(f"{pin.upstream} {releases[at].label} is left out: {error.message}")
                    search.take(at, [""] * len(left))
                    skipped.add(at)
                    passed += [releases[at].label] if isinstance(error, Exhausted) else []
    bound = Downloaded(trial.allowance.used, most, tuple(passed))
    return {n: _told(search, n, [r.label for r in releases], len(skipped), bound) for n in range(len(left))}


def _told(search: Search, patch: int, labels: Sequence[str], skipped: int, bound: Downloaded) -> Elsewhere:
    fits = [labels[at] for at in search.fits(patch)]
    there = [labels[at] for at in sorted(search.tried) if search.tried[at][patch] == "there"]
    tried = len(search.tried) - skipped
    return Elsewhere(
        fits[-1] if fits else "", fits[0] if fits else "", there[0] if there else "", tried, len(labels), bound
    )  # fmt: skip


def _releases(project: Project, pin: Pin, tagged: Tagged, beside: Git, *, offline: bool) -> tuple[int, list[Release]]:
    """The releases without the pinned one in their order, and where it would stand; pre-releases only beside one.

    Of one that is both a tag and a file of the index, that which is read as the pin was.
    """
    tags = tagged.versions()
    files = _files(project, pin, bool(tags)) if not offline else {}
    base = have_base(project.store, pin, project.store.refs("refs/patchq/base", "refs/patchq/archive"))
    dates = tagged.dates(beside, tags.values())
    found = {version: Release(tag, dates.get(tag, 0), tag) for version, tag in tags.items()}
    for version, file in files.items():
        if version not in found or (base and base.source == "archive"):
            found[version] = Release(str(version), file.uploaded, "", file.file)
        else:
            found[version] = replace(found[version], uploaded=file.uploaded, file=file.file)
    ours = _version(pin, bool(tags))
    if ours:
        found.pop(ours, None)
    among = sorted(v for v in found if not v.is_prerelease or (ours and ours.is_prerelease))
    return bisect_left(among, ours) if ours else len(among), [found[v] for v in among]


def _files(project: Project, pin: Pin, tags: bool) -> dict[Version, index.Release]:
    """The releases of a pin's archive, where it is of the index; of another upstream's archive only without tags."""
    if not pin.archive or is_local_archive(pin.archive) or pin.source == "git" or (pin.subdir and tags):
        return {}
    try:
        return {file.version: file for file in index.find_releases(pin.archive.partition("==")[0])}
    except SourceError as error:
        if not tags:
            raise
        project.say(f"{pin.upstream}: {error.message}")
        return {}


def _version(pin: Pin, tags: bool) -> Version | None:
    """Where a pin stands among the releases; None for a branch or a commit, which comes after all."""
    from packaging.version import Version

    if tags and (own := tag_versions([pin.ref], pin.ref)):
        return next(iter(own))
    named = pin.archive and not is_local_archive(pin.archive) and not (pin.subdir and tags)
    return Version(pin.archive.partition("==")[2]) if named else None


def _made(patch: Found, releases: Sequence[Release]) -> int | None:
    """The last release before a patch's date, where both are known."""
    when = patch.author.when if patch.author else int(patch.date.removeprefix("@").partition(" ")[0] or 0)
    before = [at for at, release in enumerate(releases) if 0 < release.uploaded <= when]
    return max(before, key=lambda at: releases[at].uploaded, default=None)


class _Trial:
    """A batch on releases, one after the other; what is made of them lies in the repository ``beside``."""

    def __init__(
        self, project: Project, pin: Pin, beside: Git, tagged: Tagged, found: Sequence[Found], reading: Reading,
        allowance: Allowance,
    ) -> None:  # fmt: skip
        self.project, self.pin, self.git, self.tagged, self.allowance = project, pin, beside, tagged, allowance
        self.reading = Reading(reading.strip, reading.folder)
        self.nested = project.lock.nested_in(pin.upstream)
        # Trees of commits have their own base; what can't be read is none anywhere.
        self.found = [f for f in found if f.trees is None and not f.problem and not f.left_out]
        self.names = {
            match[1].strip(b'"').rsplit(b"/", 1)[-1] for patch in self.found for match in _NAMES.finditer(patch.diff)
        }

    def outcomes(self, release: Release) -> dict[int, tuple[str, float]]:
        """What becomes of each patch on a release's own files, and its likeness, by the patch's ``id``.

        :raises PatchqError: if the release can't be had.
        """
        commit = self._bring(release)
        fitter = Fitter(self.git, self.pin.upstream, self.nested, commit, self.reading)
        alike = [self._likeness(commit, f) for f in self.found]
        tried = fitter.fit_all(self.found)
        return {id(f): (item.outcome, like) for f, (item, _), like in zip(self.found, tried, alike, strict=True)}

    def _bring(self, release: Release) -> CommitId:
        nested = tuple(f"{path}/".encode() for path in self.nested)
        if release.tag:
            try:
                return self.tagged.bring(
                    self.git, release.tag, lambda at: self._named(at) and not at.startswith(nested), self.allowance
                )
            except SourceError as error:
                if isinstance(error, Exhausted) or not release.file:
                    raise
        assert release.file
        path = index.download(release.file, "", self.project.progress, allowance=self.allowance)
        archive = f"{self.pin.archive.partition('==')[0]}=={release.label}"
        return import_release(self.git, path, self.pin, archive, only=self._named, skip=self.nested)

    def _named(self, path: bytes) -> bool:
        return path.rsplit(b"/", 1)[-1] in self.names

    def _likeness(self, commit: CommitId, patch: Found) -> float:
        """Which share of the lines that a patch expects its files have there, in any order."""
        files = self.git.list_tree(commit)
        try:
            found = sections(patch.diff)
        except OddDiff:
            return 0.0
        given = Placing(patch.strip, patch.folder)
        placing = find_placing(found, files, given) or given
        there = expected = 0
        for section in found:
            old = {line[1:].strip() for line in section.hunks if line[:1] in (b" ", b"-")} - {b""}
            entry = next((files[at] for n in (section.new, section.old) if (at := placing.place(n)) in files), None)
            lines = self.git.read_blobs([entry.blob])[entry.blob].split(b"\n") if entry and old else []
            there, expected = there + len(old & {line.strip() for line in lines}), expected + len(old)
        return there / expected if expected else 0.0
