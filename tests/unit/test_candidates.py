"""docs/upstream/candidates.md has each patch of the newest stacks, and says of each what its header says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from patchq.contribute._selection import PROPOSABLE
from patchq.project.project import Project
from patchq.system.paths import Layout

ROOT = Path(__file__).resolve().parents[2]
ROWS = {
    name: row
    for row in (ROOT / "docs/upstream/candidates.md").read_text().splitlines()
    for name in re.findall(r"\b(?:vllm|flashinfer|cutlass)/[a-z0-9-]+", row.partition(" | ")[0])
}
HEADERS = {
    f"{stack.pin.upstream}/{name}": (stack.pin.ref, header)
    for stack in Project(layout=Layout(ROOT)).stacks("gb10-newest")
    for name, header in stack.headers()
}


@pytest.mark.parametrize("patch", HEADERS)
def test_a_patch_of_the_newest_stacks(patch: str) -> None:
    ref, header = HEADERS[patch]
    row = ROWS[patch]
    assert f" | {ref[:8] if len(ref) == 40 else ref} | " in row
    proposable = header.value("Upstream-Status").partition(" ")[0] in PROPOSABLE
    assert ("Inappropriate" in row) != proposable
    assert ("ready; " in row) == proposable
    for test in header.values("Upstream-Test"):
        assert f"`{test}`" in row


def test_what_is_said_to_be_proposed_is_tried() -> None:
    text = (ROOT / "tests/index/test_real_pr.py").read_text()
    assert sorted(name for name in {*ROWS, *HEADERS} if f'"{name}"' not in text) == []
