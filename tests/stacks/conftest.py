"""The proofs import the applied trees, and nothing else may stand in for them.

Under `patchq test` the trees, the import path and the fixtures come from its plugin. Under a plain
pytest this file applies the project's stacks and loads the same plugin.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from patchq.proofs.plugin import arrange

ROOT = Path(__file__).resolve().parents[2]

if "PATCHQ_TREES" not in os.environ:
    from patchq.project.project import Project
    from patchq.stacks.apply import apply

    _project = Project.find(ROOT, wait=600)
    apply(_project)
    os.environ["PATCHQ_TREES"] = str(_project.layout.private / "trees")
    os.environ["PATCHQ_IMPORTS"] = json.dumps(
        {u.build.package: str(_project.layout.tree(u.name)) for u in _project.lock.upstreams.values() if u.build}
    )
    arrange()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """vLLM and torch warn at import of what is theirs; our own warnings stay errors elsewhere."""
    for item in items:
        if "stacks" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(scope="session")
def cutlass_includes(trees: Path) -> list[str]:
    """nvcc's options for CUTLASS's headers."""
    return [f"-I{trees / 'cutlass' / folder}" for folder in ("include", "tools/util/include")]
