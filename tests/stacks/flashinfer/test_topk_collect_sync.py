"""A block collects all indices of a row before it loads the next row, or announces them to its group.

FlashInfer's own kernels, compiled for the host and run by a schedule of their blocks, whose threads run in random orders
between two barriers: see topk_group.cpp.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from topk_group import SCHEDULES, build, run


@pytest.fixture(scope="module")
def program(trees: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(trees, tmp_path_factory.mktemp("topk"))


@pytest.mark.parametrize("rows", ["all", "some"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kernel", ["indices", "single"])
def test_the_indices_of_a_row_are_its_own(program: Path, kernel: str, schedule: str, rows: str) -> None:
    """By three blocks a row, and by one."""
    assert run(program, kernel, schedule, rows) == {"wrong": 0, "unclean": 0}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kernel", ["pages", "ragged"])
def test_indices_are_written_before_they_are_translated(program: Path, kernel: str, schedule: str) -> None:
    """Through a page table, which all blocks of a row do together, and by an offset."""
    assert run(program, kernel, schedule) == {"wrong": 0, "unclean": 0}
