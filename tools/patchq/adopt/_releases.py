"""Search for other releases to which a patch applies if it doesn't apply to the pinned release.

The search tries the other pins of the lock and the releases of the package index. It begins with the newest release and
the release that the patch was probably made against. It continues near the releases whose files contain most of the
patch's context and removed lines, until the patch applies. From that release, it bisects to find the oldest and the
newest release to which the patch applies. The number of tried releases and the size of the downloads are limited. Only
the files that the patches name are read.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchq.adopt._diffs import OddDiff, Placing, find_placing, sections
from patchq.adopt.fit import TAKEN, Fitter
from patchq.adopt.found import Downloaded, Elsewhere, FoundPatch, ItemOutcome, ReadOptions
from patchq.errors import PatchqError
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

#: Maximum number of releases that one import tries, and the default limit of bytes to download.
MOST_TRIED, MOST_DOWNLOADED = 16, 256 << 20
_NAMES = re.compile(rb"^(?:--- |\+\+\+ |rename from |rename to |copy from |diff --git .* )([^\t\r\n]+)", re.MULTILINE)


class ReleaseSearch:
    """Strategy that chooses the next release to try, for several patches.

    The class only computes: the caller applies the patches and records their outcomes with :meth:`take`.

    >>> search = ReleaseSearch(9, 4, [None])
    >>> while (at := search.next()) is not None:
    ...     search.take(at, [ItemOutcome.APPLIES if 1 <= at <= 2 else ItemOutcome.CONFLICT], [1 - abs(at - 2) / 9])
    >>> search.fits(0), sorted(search.tried)
    ([1, 2], [0, 1, 2, 3, 4, 8])

    :param count: number of releases other than the pinned one. Their indexes start at the oldest release.
    :param pin: index of the first release after the pinned one.
    :param made: for each patch, the index of the release it was probably made against; None if unknown.
    """

    def __init__(self, count: int, pin: int, made: Sequence[int | None]) -> None:
        self.count, self.pin, self.made = count, pin, made
        self.tried: dict[int, Sequence[ItemOutcome]] = {}
        self.likeness: dict[int, Sequence[float]] = {}

    def take(self, at: int, outcomes: Sequence[ItemOutcome], likeness: Sequence[float] = ()) -> None:
        """Record each patch's outcome on a release, and the share of its old lines that the release contains."""
        self.tried[at] = outcomes
        self.likeness[at] = likeness or [0.0] * len(outcomes)

    def fits(self, patch: int) -> list[int]:
        """Return the releases to which a patch applies, oldest first."""
        return sorted(at for at, outcomes in self.tried.items() if outcomes[patch] in TAKEN)

    def next(self) -> int | None:
        """Return the next release to try; None at the end of the search.

        The release is chosen for the first patch whose search isn't finished.
        """
        for patch in range(len(self.made)):
            for at in self._wanted(patch):
                if 0 <= at < self.count and at not in self.tried:
                    return at
        return None

    def _wanted(self, patch: int) -> Iterator[int]:
        yield self.count - 1  # the newest release may already have the change
        fits = self.fits(patch)
        if not fits:
            yield from self._towards(patch)
            return
        # The patch doesn't apply to the pinned release, which lies between the releases `pin - 1` and `pin`.
        newest, oldest = fits[-1], fits[0]
        above = [at for at in self.tried if at > newest] + [self.count] + [self.pin] * (newest < self.pin)
        below = [at for at in self.tried if at < oldest] + [-1] + [self.pin - 1] * (oldest >= self.pin)
        if (end := min(above)) - newest > 1:
            yield (newest + end) // 2
        if oldest - (end := max(below)) > 1:
            yield (oldest + end) // 2

    def _towards(self, patch: int) -> Iterator[int]:
        """Yield releases to try for a patch that applies to none of the tried releases.

        Begin with the release that the patch was probably made against, and the release after it. Continue with the
        releases next to the pinned release, and the oldest release. Then take releases near the tried releases that are
        most similar to the patch.
        """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRelease:
    """Release to try: a pinned commit in the store, or an archive on the package index.

    :ivar uploaded: time of the upload in seconds since 1970; 0 if unknown.
    """

    label: str
    uploaded: float = 0.0
    commit: CommitId | None = None
    file: IndexFile | None = None


def search_releases(
    project: Project,
    pin: Pin,
    found: Sequence[FoundPatch],
    left: Sequence[FoundPatch],
    reading: ReadOptions,
    *,
    offline: bool = False,
    most: int = MOST_DOWNLOADED,
) -> dict[int, Elsewhere]:
    """Search for releases to which the patches in ``left`` apply.

    Return each patch's result, keyed by its index in ``left``; an empty dict if no other release is known.

    :param found: all patches of the import, which are applied to each release in order.
    :param offline: try only pinned refs.
    :param most: maximum number of bytes to download. Releases that would exceed it are skipped.
    :raises SourceError: if the index doesn't answer.
    """
    if not left:
        return {}
    pinned, releases = _releases(project, pin, offline=offline)
    if not releases:
        return {}
    search = ReleaseSearch(len(releases), pinned, [_made(patch, releases) for patch in left])
    skipped = 0
    too_large: list[str] = []
    with scratch(project.store) as git:
        trial = _Trial(project, pin, git, found, reading, allowance=Allowance(most))
        while len(search.tried) < MOST_TRIED and (at := search.next()) is not None:
            release = releases[at]
            project.say(f"{pin.upstream}: trying the release {release.label}")
            try:
                remarks = trial.outcomes(release)
            except PatchqError as error:  # after a failed download, the search continues
                project.say(f"{pin.upstream} {release.label} can't be tried: {error.message}")
                search.take(at, [ItemOutcome.LEFT_OUT] * len(left))
                skipped += 1
                if isinstance(error, Exhausted):
                    too_large.append(release.label)
            else:
                outcomes, likeness = [], []
                for patch in left:
                    outcome, share = remarks[id(patch)]
                    outcomes.append(outcome)
                    likeness.append(share)
                search.take(at, outcomes, likeness)
    downloaded = Downloaded(trial.allowance.used, most, tuple(too_large))
    labels = [release.label for release in releases]
    found_for = {}
    for n in range(len(left)):
        found_for[n] = _result(search, n, labels, len(search.tried) - skipped, downloaded)
    return found_for


def _result(search: ReleaseSearch, patch: int, labels: Sequence[str], tried: int, downloaded: Downloaded) -> Elsewhere:
    fits = [labels[at] for at in search.fits(patch)]
    there = []
    for at, outcomes in sorted(search.tried.items()):
        if outcomes[patch] == ItemOutcome.THERE:
            there.append(labels[at])
    return Elsewhere(
        newest=fits[-1] if fits else "",
        oldest=fits[0] if fits else "",
        there=there[0] if there else "",
        tried=tried,
        of=len(labels),
        downloaded=downloaded,
    )


def _releases(project: Project, pin: Pin, *, offline: bool) -> tuple[int, list[TrialRelease]]:
    """Return the index of the first release after the pinned one, and all releases except the pinned one, oldest first.

    Pre-releases are included only if the pin is a pre-release.
    """
    found: dict[Version, TrialRelease] = {}
    if not offline:
        for version, release in _index_releases(pin).items():
            found[version] = TrialRelease(label=str(version), uploaded=release.uploaded, file=release.file)
    refs = project.store.refs("refs/patchq/base", "refs/patchq/archive")
    for other in project.lock.upstreams[pin.upstream].pins.values():
        number = _version(other)
        base = have_base(project.store, other, refs)
        if number and base:
            uploaded = 0.0
            if number in found:
                uploaded = found[number].uploaded
            found[number] = TrialRelease(label=other.ref, uploaded=uploaded, commit=base.commit)
    ours = _version(pin)
    if ours:
        found.pop(ours, None)
    versions = sorted(found)
    if ours is None or not ours.is_prerelease:
        versions = [version for version in versions if not version.is_prerelease]
    first_after_pin = bisect_left(versions, ours) if ours else len(versions)
    return first_after_pin, [found[version] for version in versions]


def _index_releases(pin: Pin) -> dict[Version, index.IndexRelease]:
    """Return the pinned project's releases on the package index; empty if the pin names no archive there."""
    if not pin.archive or is_local_archive(pin.archive) or pin.source == "git":
        return {}
    return {release.version: release for release in index.find_releases(pin.archive.partition("==")[0])}


def _version(pin: Pin) -> Version | None:
    """Return a pin's version; None for a branch or a commit."""
    from packaging.version import Version

    if pin.archive and not is_local_archive(pin.archive):
        return Version(pin.archive.partition("==")[2])
    return next(iter(tag_versions([pin.ref], pin.ref)), None)


def _made(patch: FoundPatch, releases: Sequence[TrialRelease]) -> int | None:
    """Return the index of the last release before a patch's date; None if there is none or a date is unknown."""
    if patch.author:
        when = patch.author.when
    else:
        when = int(patch.date.removeprefix("@").partition(" ")[0] or 0)
    last = None
    for at, release in enumerate(releases):
        if 0 < release.uploaded <= when and (last is None or release.uploaded > releases[last].uploaded):
            last = at
    return last


class _Trial:
    """Trial of patches on several releases, one after another, in the repository ``git``."""

    def __init__(
        self,
        project: Project,
        pin: Pin,
        git: Git,
        found: Sequence[FoundPatch],
        reading: ReadOptions,
        *,
        allowance: Allowance,
    ) -> None:
        self.project, self.pin, self.git, self.allowance = project, pin, git, allowance
        self.reading = ReadOptions(reading.strip, reading.folder)
        self.nested = project.lock.nested_in(pin.upstream)
        # A patch made from a commit has its own base, and an unreadable patch can't be tried.
        self.found = []
        self.names = set()
        for patch in found:
            if patch.trees or patch.problem or patch.left_out or patch.carried:
                continue
            self.found.append(patch)
            for match in _NAMES.finditer(patch.diff):
                self.names.add(_base_name(match[1].strip(b'"')))

    def outcomes(self, release: TrialRelease) -> dict[int, tuple[ItemOutcome, float]]:
        """Return the outcome and likeness (:meth:`_likeness`) of each patch on a release, keyed by ``id(patch)``.

        :raises PatchqError: if the release can't be downloaded.
        """
        commit = self._bring(release)
        fitter = Fitter(self.git, self.pin.upstream, self.nested, commit, self.reading)
        found = {}
        for patch, (item, _) in zip(self.found, fitter.fit_all(self.found), strict=True):
            found[id(patch)] = (item.outcome, self._likeness(commit, patch))
        return found

    def _bring(self, release: TrialRelease) -> CommitId:
        if release.commit:
            return release.commit
        assert release.file
        path = index.download(release.file, "", self.project.progress, allowance=self.allowance)
        archive = f"{self.pin.archive.partition('==')[0]}=={release.label}"
        return import_release(self.git, path, self.pin, archive, only=self._is_named, skip=self.nested)

    def _is_named(self, path: bytes) -> bool:
        return _base_name(path) in self.names

    def _likeness(self, commit: CommitId, patch: FoundPatch) -> float:
        """Return the share of a patch's context and removed lines that the release's files contain, in any order."""
        files = self.git.list_tree(commit)
        try:
            found = sections(patch.diff)
        except OddDiff:
            return 0.0
        given = Placing(patch.strip, patch.folder)
        placing = find_placing(found, files, given) or given
        there = expected = 0
        for section in found:
            old = set()
            for line in section.hunks:
                if line[:1] in (b" ", b"-") and line[1:].strip():
                    old.add(line[1:].strip())
            entry = files.get(placing.place(section.new)) or files.get(placing.place(section.old))
            if entry and old:
                lines = self.git.read_blobs([entry.blob])[entry.blob].split(b"\n")
                there += len(old.intersection(line.strip() for line in lines))
            expected += len(old)
        if expected:
            return there / expected
        return 0.0


def _base_name(path: bytes) -> bytes:
    return path.rsplit(b"/", 1)[-1]
