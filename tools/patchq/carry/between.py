"""The releases on the way from one ref to another: where no commits are at hand, they say what came when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from patchq.errors import PatchqError, SourceError
from patchq.formats.lock import Pin
from patchq.names import CommitId
from patchq.project.project import Project
from patchq.project.refs import release_pin, releases_of, version_of
from patchq.sources.pins import Fetcher

#: So many releases are asked at most: each is a tree to read, and maybe an archive to download.
MOST = 8


@dataclass(frozen=True, slots=True)
class Release:
    """A release on the way, and the commit in the store that has its files."""

    ref: str
    commit: CommitId


def on_the_way(
    project: Project, old: Pin, new: Pin, known: Mapping[str, CommitId], *, download: bool
) -> list[Release]:  # fmt: skip
    """The releases between two pins that are at hand, oldest first; none where a pin is no release.

    :param known: refs that are here already, with their commits; those between the two are taken.
    :param download: bring those of the pin's archive, too, where few are here.
    """
    ends = version_of(old.ref), version_of(new.ref)
    if ends[0] is None or ends[1] is None:
        return []
    found = {}
    for ref, commit in {**known, **_pinned(project, old.upstream)}.items():
        version = version_of(ref)
        if version is not None and ends[0] < version < ends[1]:
            found[version] = Release(ref, commit)
    if download and len(found) < MOST:
        brought = _brought(project, old, new, {str(version) for version in found}, MOST - len(found))
        found.update((version, release) for release in brought if (version := version_of(release.ref)) is not None)
    return [found[version] for version in sorted(found)]


def _pinned(project: Project, upstream: str) -> dict[str, CommitId]:
    """The refs of an upstream that are pinned and here."""
    fetcher, found = Fetcher(project.layout, project.lock, say=project.say, offline=True), {}
    for pin in project.lock.upstreams[upstream].pins.values():
        try:
            found[pin.ref] = fetcher.fetch([pin])[0].commit
        except SourceError:
            continue
    return found


def _brought(project: Project, old: Pin, new: Pin, without: set[str], most: int) -> list[Release]:
    """Releases of the pin's archive between two, brought into the store; none where the index can't be reached."""
    try:
        refs = releases_of(old, f">{version_of(old.ref)},<{version_of(new.ref)}")
        refs = _spread([ref for ref in refs if str(version_of(ref)) not in without], most)
        pins = [release_pin(old, ref) for ref in refs]
        bases = Fetcher(project.layout, project.lock, say=project.say, progress=project.progress).fetch(pins)
    except PatchqError:
        return []
    return [Release(pin.ref, base.commit) for pin, base in zip(pins, bases, strict=True)]


def _spread(refs: list[str], most: int) -> list[str]:
    """So many of them, the first, the last, and those at even distances between."""
    if len(refs) <= most:
        return refs
    return [refs[n * (len(refs) - 1) // max(1, most - 1)] for n in range(most)]
