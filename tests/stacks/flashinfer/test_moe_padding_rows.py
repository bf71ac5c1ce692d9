"""What lays out the rows of experts writes those rows and their scales, and none of the room between experts.

FlashInfer's own kernels and launchers, compiled for the host and run on the GB10's 48 processors' worth of blocks. The
room to the next multiple of 128 rows is no operand of any result: a row's scales scale that row.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from moe_rows import lay_out

EQUIVALENT_MUTANTS = {"39d71b8fa3": "the smaller of two is that in either order"}
#: Eight blocks for each of a GB10's processors, at most.
MOST = 8 * 48


@pytest.mark.parametrize("width", [2944, 2880])
@pytest.mark.parametrize("kernel", ["expand", "activate"])
def test_only_the_rows_are_written_by_as_many_blocks(trees: Path, tmp_path: Path, kernel: str, width: int) -> None:
    """gpt-oss-120b at decode, more users, a prefill, and experts with more than 128 rows."""
    shapes = [(1, 4, 128), (8, 4, 128), (300, 4, 128), (300, 2, 3)]
    said = lay_out(trees, tmp_path, [f"{kernel} {t} {k} {e} {width}" for t, k, e in shapes])
    rows = [{"blocks": min(MOST, tokens * k), "wrong": 0, "beside": 0} for tokens, k, _ in shapes]
    assert said == rows


@pytest.mark.parametrize("kernel", ["expand", "activate"])
def test_no_tokens_are_a_grid_too(trees: Path, tmp_path: Path, kernel: str) -> None:
    """CUDA refuses a grid without a block."""
    assert lay_out(trees, tmp_path, [f"{kernel} 0 4 8 2944"]) == [{"blocks": 1, "wrong": 0, "beside": 0}]
