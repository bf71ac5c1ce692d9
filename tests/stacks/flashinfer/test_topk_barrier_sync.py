"""A block announces its histogram to its group once all of its threads have written it.

FlashInfer's own kernels, compiled for the host and run by a schedule of their blocks, whose threads run in random orders
between two barriers. A block whose thread 0 is ahead of the others must not let its group read or change a histogram.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from topk_group import SCHEDULES, build, run


@pytest.fixture(scope="module")
def program(trees: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(trees, tmp_path_factory.mktemp("topk"))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kernel", ["mask", "renorm", "rounds"])
def test_each_row_has_its_pivot(program: Path, kernel: str, schedule: str) -> None:
    """The kernels use RadixSelectFromSharedMemory; ``rounds`` calls RadixSelectOneRound, which no kernel does."""
    assert run(program, kernel, schedule) == {"wrong": 0, "unclean": 0}
