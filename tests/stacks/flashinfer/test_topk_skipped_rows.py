"""Rows that are wanted whole leave the state alone that a block of the group may still read.

FlashInfer's own kernels, compiled for the host and run by a schedule of their blocks: where the leading block is ahead
of its peers by such rows, it must not clear their histogram or set their sum. The rows are in topk_group.cpp.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from topk_group import SCHEDULES, build, run


@pytest.fixture(scope="module")
def program(trees: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(trees, tmp_path_factory.mktemp("topk"))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kernel", ["mask", "renorm"])
def test_what_peers_read_stays(program: Path, kernel: str, schedule: str) -> None:
    assert run(program, kernel, schedule, "some") == {"wrong": 0, "unclean": 0}


@pytest.mark.parametrize("kernel", ["mask", "renorm"])
def test_rows_that_are_all_selected_from(program: Path, kernel: str) -> None:
    assert run(program, kernel, SCHEDULES[0]) == {"wrong": 0, "unclean": 0}
