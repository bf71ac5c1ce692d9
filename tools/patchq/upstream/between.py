"""The releases on the way from one ref to another: where no commits are at hand, they say what came when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from patchq.errors import SourceError
from patchq.formats.lock import Pin
from patchq.names import CommitId
from patchq.project.project import Project
from patchq.project.refs import pins_between, version_of
from patchq.sources.pins import Fetcher


@dataclass(frozen=True, slots=True)
class Release:
    """A release on the way, and the commit in the store that has its files."""

    ref: str
    commit: CommitId


def on_the_way(project: Project, old: Pin, new: Pin, known: Mapping[str, CommitId]) -> list[Release]:
    """The releases between two pins that are pinned and in the store, oldest first; none where a pin is no release.

    Others that the store may have aren't taken: git searches each for renamed files, which costs a rebase of our own
    stack a sixth of its time.

    :param known: refs that are looked at anyway, with their commits; those between the two are taken.
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
            found[version] = Release(ref, commit)
    return [found[version] for version in sorted(found)]
