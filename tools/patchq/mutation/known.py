"""What ``test --mutate`` last found of each patch, as files under ``.patchq/strength``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchq.project.project import Project
from patchq.system import fsio

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownStrength:
    """What the mutants of a patch came to when they were last asked.

    :ivar killed: so many of ``of``, the mutants with an answer; ``equivalent`` and ``not_tried`` are apart.
    :ivar sampled: whether only some of the patch's mutants were chosen, so that the share is of a sample.
    """

    killed: int
    of: int
    equivalent: int
    not_tried: int
    sampled: bool

    @property
    def score(self) -> float:
        """The share that was killed."""
        return self.killed / self.of


def _file(project: Project, patch: str) -> Path:
    return project.layout.private / "strength" / f"{patch.replace('/', '@')}.json"


def remember(project: Project, patch: str, found: dict[str, Any]) -> None:
    """Keep a patch's strength; ``patch`` is ``upstream/name``."""
    fsio.write_atomic(_file(project, patch), fsio.dump_json({"version": _VERSION, **found}))


def known_strength(project: Project, patch: str) -> KnownStrength | None:
    """What became of a patch's mutants when its proof was last asked; None if it wasn't, or none has an answer."""
    path = _file(project, patch)
    data = fsio.read_or_none(path)
    found = fsio.load_state(data, path, _VERSION) if data else {}
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
    """The share of a patch's mutants that its proof killed when it was last asked; None if it wasn't."""
    strength = known_strength(project, patch)
    return round(strength.score, 4) if strength else None
