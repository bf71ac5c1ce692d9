"""v0.7.2: before tuning, MXFP4 on SM120 takes the smallest tile that the rows of an expert fit into; others the first.

The real binding's own choice, compiled alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from moe_choice import FIRST, SECOND, SMALLEST, as_line, smallest, some_cases, told


@pytest.mark.parametrize(
    ("rows", "top_k", "experts", "chosen"),
    SMALLEST,
)
def test_the_smallest_tile_that_the_rows_of_an_expert_fit_into_is_taken(
    moe_choice: Callable[..., list[str]], rows: int, top_k: int, experts: int, chosen: str
) -> None:
    (said,) = moe_choice([f"{FIRST} {SECOND} {rows} {top_k} {experts} -1 -1"])
    assert said == chosen


def test_it_is_so_of_any_tactics(moe_choice: Callable[..., list[str]]) -> None:
    """Those of each GEMM are its own, in any order, and another architecture's are none."""
    cases = some_cases(300)
    chosen = [f"{smallest(first, rows, n)} {smallest(second, rows, n)}" for first, second, rows, n in cases]
    assert moe_choice([as_line(case) for case in cases]) == chosen


def test_each_way_of_running_tells_its_rows_and_experts(trees: Path, tmp_path: Path) -> None:
    """A token counts once for each expert that it goes to."""
    assert told(trees, tmp_path) == [["15", "128"], ["15", "128"]]


def test_tuned_tactics_and_modules_without_small_tiles_are_as_they_were(moe_choice: Callable[..., list[str]]) -> None:
    assert moe_choice(
        [
            "128x128,128x128s 128x128s,128x128 1 4 128 -1 -1",
            "128x128,128x64 128x128s,128x32 1 4 128 -1 -1",
            f"{FIRST} {SECOND} 1 4 128 0 -1",
            f"{FIRST} {SECOND} 1 4 128 4 9",
        ]
    ) == ["128x128 128x128s", "128x128 128x128s", "128x128 128x32s", "128x64 128x128s"]


def test_other_dtypes_take_the_first(moe_choice: Callable[..., list[str]]) -> None:
    assert moe_choice([f"{FIRST} {SECOND} 1 4 128 -1 -1 nvfp4"]) == ["128x128 128x128"]
    assert moe_choice([f"{FIRST} 128x64,128x32s 1 4 128 -1 -1 nvfp4"]) == ["128x128 128x64"]


def test_fp8_activations_without_scales_are_as_those_with(moe_choice: Callable[..., list[str]]) -> None:
    assert moe_choice([f"{FIRST} {SECOND} 1 4 128 -1 -1 fp8"]) == ["128x32s 128x32s"]
