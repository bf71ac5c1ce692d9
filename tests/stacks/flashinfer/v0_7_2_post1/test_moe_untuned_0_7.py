"""v0.7.2: before tuning, MXFP4 on SM120 takes the smallest tile that the rows of an expert fit into; others the first.

The real binding's own choice, compiled alone.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from moe_choice import FIRST, SECOND, SMALLEST


@pytest.mark.parametrize(
    ("rows", "top_k", "experts", "chosen"),
    SMALLEST,
)
def test_the_smallest_tile_that_the_rows_of_an_expert_fit_into_is_taken(
    moe_choice: Callable[..., list[str]], rows: int, top_k: int, experts: int, chosen: str
) -> None:
    (said,) = moe_choice([f"{FIRST} {SECOND} {rows} {top_k} {experts} -1 -1"])
    assert said == chosen


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
