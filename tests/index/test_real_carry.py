"""What a forecast says of the real stacks is what the real rebase does, patch by patch."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator

import pytest

from kit import Patchq, committed_project

pytestmark = pytest.mark.index

#: Releases beside those that have a stack, before, between and after them.
REFS = ["v0.14.1", "v0.16.0", "v0.33.0"]
if os.environ.get("PATCHQ_RELIABILITY") == "long":  # seven more: minutes
    REFS += ["v0.17.0", "v0.18.0", "v0.19.0", "v0.20.0", "v0.23.0", "v0.27.0", "v0.12.0"]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patchq]:
    root = tmp_path_factory.mktemp("carry")
    patchq = committed_project(root)
    patchq.ok("fetch", "vllm", "--source", "archive")
    yield patchq
    shutil.rmtree(root / ".patchq")


def test_the_next_release_needs_nobody(real: Patchq) -> None:
    told = json.loads(real.ok("forecast", "vllm", "--onto", "v0.14.1", "--json"))
    assert (told["from"], told["stops"]) == ("v0.14.0", {"v0.14.1": 0})


@pytest.mark.parametrize("ref", REFS)
def test_forecast_and_rebase_agree(real: Patchq, ref: str) -> None:
    before = json.loads(real.ok("forecast", "vllm", "--onto", ref, "--json"))
    done = real.run("rebase", "vllm", "--onto", ref, "--leave-out", "--json")
    assert done.exit_code == 0, done.output
    after = json.loads(done.stdout)
    if after["state"] == "nothing":
        assert all(c["known"] for c in before["cells"])
        return
    try:
        assert before["from"] == after["from_ref"]
        steps = {s["patch"]: s for s in after["steps"]}
        assert {c["patch"].partition("/")[2] for c in before["cells"]} == set(steps)
        for cell in before["cells"]:
            step = steps[cell["patch"].partition("/")[2]]
            # Its proof may not run here; then a person has to look, and --leave-out is none.
            alike = [cell["outcome"], *(["conflict"] if cell["outcome"] == "replayed" else [])]
            assert step["outcome"] in alike, cell["patch"]
            assert bool(step["commit"]) == (step["outcome"] not in ("absorbed", "conflict", "obsolete")), cell["patch"]
    finally:
        real.ok("undo")
