"""Last results of ``test --mutate`` for each patch, saved in ``.patchq/strength``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from patchq.project.project import Project
from patchq.records import dataclass
from patchq.system import fsio

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownStrength:
    """Last result of a patch's mutants.

    :ivar killed: number of killed mutants.
    :ivar of: number of killed and surviving mutants; equivalent mutants and mutants that were not tried don't count.
    :ivar sampled: True if only a sample of the patch's mutants was tried.
    """

    killed: int
    of: int
    equivalent: int
    not_tried: int
    sampled: bool

    @property
    def score(self) -> float:
        """Share of mutants that the proof killed."""
        return self.killed / self.of


def _file(project: Project, patch: str) -> Path:
    return project.layout.private / "strength" / f"{patch.replace('/', '@')}.json"


def remember(project: Project, patch: str, found: dict[str, Any]) -> None:
    """Save the strength of a patch.

    :param patch: ``upstream/name``.
    """
    fsio.write_atomic(_file(project, patch), fsio.dump_json({"version": _VERSION, **found}))


def known_strength(project: Project, patch: str) -> KnownStrength | None:
    """Return the last result of a patch's mutants; None without killed or surviving mutants."""
    path = _file(project, patch)
    data = fsio.read_or_none(path)
    found = {}
    if data:
        found = fsio.load_state(data, path, _VERSION)
    killed, survived, equivalent, not_tried = (
        int(found.get(key) or 0) for key in ("killed", "survived", "equivalent", "not_tried")
    )
    if not killed + survived:
        return None
    sampled = int(found.get("in_all") or 0) > len(found.get("mutants") or [])
    return KnownStrength(
        killed=killed, of=killed + survived, equivalent=equivalent, not_tried=not_tried, sampled=sampled
    )


def known_score(project: Project, patch: str) -> float | None:
    """Return the share of a patch's mutants that the proof killed in the last run; None if the share is unknown."""
    strength = known_strength(project, patch)
    if strength:
        return round(strength.score, 4)
    return None
