"""What ``test --mutate`` last found of each patch, as files under ``.patchq/strength``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchq.project.project import Project
from patchq.system import fsio

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Known:
    """What became of a patch's mutants when its proof was last asked; equivalent ones are in none of the counts."""

    killed: int
    survived: int
    untried: int

    @property
    def judged(self) -> int:
        return self.killed + self.survived


def _file(project: Project, patch: str) -> Path:
    return project.layout.private / "strength" / f"{patch.replace('/', '@')}.json"


def remember(project: Project, patch: str, found: dict[str, Any]) -> None:
    """Keep a patch's strength; ``patch`` is ``upstream/name``."""
    fsio.write_atomic(_file(project, patch), fsio.dump_json({"version": _VERSION, **found}))


def known_score(project: Project, patch: str) -> float | None:
    """The share of a patch's mutants that its proof killed when it was last asked; None if it wasn't."""
    score = _read(project, patch).get("score")
    return float(score) if isinstance(score, (int, float)) else None


def known_strength(project: Project, patch: str) -> Known | None:
    """The counts behind :func:`known_score`; None if no mutant of the patch was judged."""
    found = _read(project, patch)
    counts = [found.get(state) for state in ("killed", "survived", "not_tried")]
    killed, survived, untried = (n if isinstance(n, int) else 0 for n in counts)
    return Known(killed, survived, untried) if killed + survived else None


def _read(project: Project, patch: str) -> dict[str, Any]:
    path = _file(project, patch)
    data = fsio.read_or_none(path)
    return fsio.load_state(data, path, _VERSION) if data else {}
