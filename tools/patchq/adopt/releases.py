"""On which releases of the package index a patch applies that doesn't fit the pinned one.

Whether a patch applies isn't monotone over releases: it may fit, not fit, and fit again. So the search begins with the
newest release and where it was probably made, goes to those that have most of its old lines until it finds one that it
fits, and bisects from there to both ends of that run. So many releases are tried and no more, and that is said. Of each
only the files that the patches name are read.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from patchq.adopt.diffs import OddDiff, Placing, find_placing, sections
from patchq.adopt.fit import TAKEN, Fitter
from patchq.adopt.found import Elsewhere, Found, Reading
from patchq.errors import PatchqError
from patchq.formats.lock import Pin
from patchq.names import CommitId
from patchq.project.project import Project
from patchq.sources import index
from patchq.sources.archive import import_release
from patchq.sources.pins import is_local_archive

#: Downloads for one import at most.
MOST_TRIED = 16
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


def search_releases(
    project: Project, pin: Pin, found: Sequence[Found], left: Sequence[Found], reading: Reading
) -> dict[int, Elsewhere]:
    """On which releases the patches apply that were left, by their places in ``left``; empty where there is no index.

    :param found: all of the batch, which are put on a release in their order.
    :raises SourceError: if no index answers.
    """
    if not pin.archive or is_local_archive(pin.archive) or not left:
        return {}
    name, _, version = pin.archive.partition("==")
    files = index.find_releases(name)
    pinned, releases = _around(files, version)
    made = [_made(patch, [file for _, file in releases]) for patch in left]
    if not releases:
        return {}
    search = Search(len(releases), pinned, made)
    trial = _Trial(project, pin, name, found, reading)
    skipped = 0
    while len(search.tried) < MOST_TRIED and (at := search.next()) is not None:
        label, file = releases[at]
        project.say(f"{pin.upstream}: trying the release {label}")
        try:
            told = trial.outcomes(file, label)
            search.take(at, [told[id(patch)][0] for patch in left], [told[id(patch)][1] for patch in left])
        except PatchqError as error:  # one that can't be had says nothing of the others
            project.say(f"{name} {label} is left out: {error.message}")
            search.take(at, [""] * len(left))
            skipped += 1
    return {n: _told(search, n, [label for label, _ in releases], skipped) for n in range(len(left))}


def _told(search: Search, patch: int, labels: Sequence[str], skipped: int) -> Elsewhere:
    fits = [labels[at] for at in search.fits(patch)]
    there = [labels[at] for at in sorted(search.tried) if search.tried[at][patch] == "there"]
    tried = len(search.tried) - skipped
    return Elsewhere(
        fits[-1] if fits else "", fits[0] if fits else "", there[0] if there else "", tried, len(labels)
    )  # fmt: skip


def _around(files: Sequence[index.Release], version: str) -> tuple[int, list[tuple[str, index.Release]]]:
    """The releases without the pinned one in their order, and where it would stand; pre-releases only beside one."""
    from packaging.version import Version

    ours = Version(version)
    found = {file.version: file for file in files if not file.version.is_prerelease or ours.is_prerelease}
    found.pop(ours, None)
    versions = sorted(found)
    return bisect_left(versions, ours), [(str(v), found[v]) for v in versions]


def _made(patch: Found, releases: Sequence[index.Release]) -> int | None:
    """The last release before a patch's date, where both are known."""
    when = patch.author.when if patch.author else int(patch.date.removeprefix("@").partition(" ")[0] or 0)
    before = [at for at, release in enumerate(releases) if 0 < release.uploaded <= when]
    return max(before, key=lambda at: releases[at].uploaded, default=None)


class _Trial:
    """A batch on releases, one after the other."""

    def __init__(self, project: Project, pin: Pin, name: str, found: Sequence[Found], reading: Reading) -> None:
        self.project, self.pin, self.name = project, pin, name
        self.reading = Reading(reading.strip, reading.folder)
        # Trees of commits have their own base; what can't be read is none anywhere.
        self.found = [f for f in found if f.trees is None and not f.problem and not f.left_out]
        self.names = {
            match[1].strip(b'"').rsplit(b"/", 1)[-1] for patch in self.found for match in _NAMES.finditer(patch.diff)
        }

    def outcomes(self, file: index.Release, label: str) -> dict[int, tuple[str, float]]:
        """What becomes of each patch on a release's own files, and its likeness, by the patch's ``id``."""
        path = index.download(file.file, "", self.project.progress)
        nested = self.project.lock.nested_in(self.pin.upstream)
        commit = import_release(
            self.project.store, path, self.pin, f"{self.name}=={label}",
            only=lambda at: at.rsplit(b"/", 1)[-1] in self.names, skip=nested,
        )  # fmt: skip
        fitter = Fitter(self.project.store, self.pin.upstream, nested, commit, self.reading)
        alike = [self._likeness(commit, f) for f in self.found]
        tried = fitter.fit_all(self.found)
        return {id(f): (item.outcome, like) for f, (item, _), like in zip(self.found, tried, alike, strict=True)}

    def _likeness(self, commit: CommitId, patch: Found) -> float:
        """Which share of the lines that a patch expects its files have there, in any order."""
        files = self.project.store.list_tree(commit)
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
            lines = self.project.store.read_blobs([entry.blob])[entry.blob].split(b"\n") if entry and old else []
            there, expected = there + len(old & {line.strip() for line in lines}), expected + len(old)
        return there / expected if expected else 0.0
