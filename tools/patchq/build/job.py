"""Input that all builds of a set share, and the result of one build."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.project.project import Project
from patchq.stacks.applied import Applied


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Applied set to build wheels for, and the options of the build.

    :ivar versions: version of each upstream that has build settings and patches, such as ``1.2+patchq.1a2b3c4d``: the
        release's version and the start of the stack id.
    :ivar platform: target machine; empty for this one.
    :ivar wheel_tag: part of the file name of the release wheel to overlay; empty for the wheel for
        this machine.
    :ivar isolation: build in a separate environment with the lock's pinned requirements.
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
        """Folder of the set's wheels, ``dist/SET``."""
        return self.project.layout.dist / self.set_name

    def is_nested(self, part: Applied, parent: Applied) -> bool:
        """Return True if ``part`` is nested in the tree of ``parent``."""
        into = self.project.lock.upstreams[part.stack.pin.upstream].into
        return bool(into) and into[0] == parent.stack.pin.upstream  # type: ignore[index]

    def touched(self, item: Applied) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield each file that the stack changes, and its new content (None for a removed file)."""
        changes = self.project.store.changes(item.state.base, item.state.tip)
        blobs = self.project.store.read_blobs(c.new.blob for c in changes if c.new)
        for change in changes:
            yield change.path, blobs[change.new.blob] if change.new else None

    def siblings(self, item: Applied) -> dict[str, str]:
        """Return the set's other distributions, each with the version that the wheel of ``item`` requires.

        An upstream without patches is pinned to its own release, if that release is on an index.
        """
        from packaging.utils import canonicalize_name

        siblings: dict[str, str] = {}
        for a in self.applied:
            if (a.build and a.stack.pin.upstream != item.stack.pin.upstream) and (
                version := self.versions.get(a.stack.pin.upstream, a.release)
            ):
                siblings[canonicalize_name(a.build.distribution)] = version
        return siblings

    @property
    def unpatched(self) -> tuple[Unpatched, ...]:
        """Upstreams of the set that have build settings but no patches."""
        found: list[Unpatched] = []
        for a in self.applied:
            if a.build and a.stack.pin.upstream not in self.versions:
                found.append(Unpatched(a.stack.pin.upstream, a.build.distribution, a.release))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Unpatched:
    """Upstream that no applied patch changes. Its unchanged release is used.

    :ivar version: version of the release on the package index; empty if the pin's ref is not on the index.
    """

    upstream: str
    distribution: str
    version: str


@dataclass(frozen=True, slots=True)
class Made:
    """Built wheel in ``dist/``.

    :ivar left_out: patches that the wheel doesn't contain.
    """

    path: Path
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
