"""The proofs import the applied trees, and nothing else may stand in for them.

Under `patchq test` the trees, the import path and the fixtures come from its plugin. Under a plain
pytest this file applies the project's stacks, those of the set PATCHQ_SET or of the default one, and loads
the same plugin. What is in a folder `v0_33_0` is for that ref of the upstream whose folder it is in, and is
collected where that is the set's.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from patchq.proofs.plugin import arrange

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

if "PATCHQ_TREES" not in os.environ:
    from patchq.project.project import Project
    from patchq.stacks.apply import apply

    _project = Project.find(ROOT, wait=600)
    _set = _project.choose_set(os.environ.get("PATCHQ_SET", ""))
    apply(_project, set_name=_set)
    # Workers of pytest-xdist are started with this environment, and take the branch above for taken.
    os.environ["PATCHQ_REFS"] = json.dumps(dict(_project.lock.sets[_set]))
    os.environ["PATCHQ_TREES"] = str(_project.layout.private / "trees")
    os.environ["PATCHQ_IMPORTS"] = json.dumps(
        {u.build.package: str(_project.layout.tree(u.name)) for u in _project.lock.upstreams.values() if u.build}
    )
    arrange()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Under a plain pytest, what is for another ref than the set's is left out."""
    refs = json.loads(os.environ.get("PATCHQ_REFS", "null"))
    if refs is None or not collection_path.name.startswith("v") or collection_path.parent.parent != HERE:
        return None
    ref = refs.get(collection_path.parent.name, "").replace(".", "_")
    return True if collection_path.is_dir() and collection_path.name != ref else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """vLLM and torch warn at import of what is theirs; our own warnings stay errors elsewhere."""
    for item in items:
        if "stacks" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(scope="session")
def cutlass_includes(trees: Path) -> list[str]:
    """nvcc's options for CUTLASS's headers."""
    return [f"-I{trees / 'cutlass' / folder}" for folder in ("include", "tools/util/include")]
