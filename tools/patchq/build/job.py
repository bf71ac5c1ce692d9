"""What all builds of one call share, and what one of them made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.project.project import Project
from patchq.stacks.applied import Applied


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The applied set that wheels are made of.

    :ivar versions: by upstream that has a build and patches: its release, and the stack id as local version.
    :ivar platform: which machine the wheels are for; empty for this one.
    :ivar wheel_tag: overlay the release wheel whose file name holds this; empty for this machine's.
    :ivar isolation: build in an environment of its own with the lock's pinned requirements.
    """

    project: Project
    set_name: str
    applied: Sequence[Applied]
    stack_id: str
    versions: Mapping[str, str]
    wheel_tag: str
    isolation: bool
    offline: bool
    platform: str = ""

    @property
    def dist(self) -> Path:
        """Where this set's wheels lie."""
        return self.project.layout.dist / self.set_name

    def is_nested(self, part: Applied, parent: Applied) -> bool:
        """Whether an upstream's tree is part of the other's."""
        into = self.project.lock.upstreams[part.stack.pin.upstream].into
        return bool(into) and into[0] == parent.stack.pin.upstream  # type: ignore[index]

    def touched(self, item: Applied) -> Iterator[tuple[bytes, bytes | None]]:
        """Each file that the stack changes, with its content after it; None where it removes it."""
        changes = self.project.store.changes(item.state.base, item.state.tip)
        blobs = self.project.store.read_blobs(c.new.blob for c in changes if c.new)
        for change in changes:
            yield change.path, blobs[change.new.blob] if change.new else None

    def siblings(self, item: Applied) -> dict[str, str]:
        """The set's other distributions and their versions, which the wheel pins.

        An upstream without patches is pinned to its own release, if that is on an index.
        """
        from packaging.utils import canonicalize_name

        return {
            canonicalize_name(a.build.distribution): version
            for a in self.applied
            if a.build and a.stack.pin.upstream != item.stack.pin.upstream
            if (version := self.versions.get(a.stack.pin.upstream, a.release))
        }

    @property
    def unpatched(self) -> tuple[Unpatched, ...]:
        """The set's upstreams that have a build and no patches."""
        return tuple(
            Unpatched(a.stack.pin.upstream, a.build.distribution, a.release)
            for a in self.applied
            if a.build and a.stack.pin.upstream not in self.versions
        )


@dataclass(frozen=True, slots=True)
class Unpatched:
    """An upstream that no applied patch changes, so that its own release is to be installed.

    :ivar version: the release's; empty if the pin names none on an index.
    """

    upstream: str
    distribution: str
    version: str


@dataclass(frozen=True, slots=True)
class Made:
    """A wheel as it was put into ``dist/``. ``left_out`` are patches that it doesn't have."""

    path: Path
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
