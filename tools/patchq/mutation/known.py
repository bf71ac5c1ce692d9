"""What ``test --mutate`` last found of each patch, as files under ``.patchq/strength``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from patchq.project.project import Project
from patchq.system import fsio

_VERSION = 1


def _file(project: Project, patch: str) -> Path:
    return project.layout.private / "strength" / f"{patch.replace('/', '@')}.json"


def remember(project: Project, patch: str, found: dict[str, Any]) -> None:
    """Keep a patch's strength; ``patch`` is ``upstream/name``."""
    fsio.write_atomic(_file(project, patch), fsio.dump_json({"version": _VERSION, **found}))


def known_score(project: Project, patch: str) -> float | None:
    """The share of a patch's mutants that its proof killed when it was last asked; None if it wasn't."""
    path = _file(project, patch)
    data = fsio.read_or_none(path)
    score = fsio.load_state(data, path, _VERSION).get("score") if data else None
    return float(score) if isinstance(score, (int, float)) else None
