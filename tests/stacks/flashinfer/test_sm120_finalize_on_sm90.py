"""NVFP4's two large tiles with the finalize step start, and compute what float64 does, on an SM90 GPU by emulation.

A block of SM120 may have 101376 bytes of shared memory, which is what the program is told there and held to.
"""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sm120_launchers import need_sm90, wrong_cases

TILES = ((128, 256), (256, 128))


@pytest.mark.sm90
def test_both_tiles_start_and_compute(trees: Path, tmp_path: Path) -> None:
    """Six shapes each: ragged and empty experts, 128 of them, each count of tokens to 300, gpt-oss's size."""
    need_sm90()

    def ask(tile: tuple[int, int]) -> list[object]:
        folder = tmp_path / "x".join(map(str, tile))
        try:
            return wrong_cases(trees, folder, "generic", False, tile, nvfp4=True, fusions=("FINALIZE",))
        except subprocess.CalledProcessError as error:
            # Where the stack has CUTLASS's check of that, too large a tile isn't compiled; elsewhere it doesn't start.
            assert "SMEM usage exceeded" not in error.stderr, f"{tile} takes more shared memory than a block may have"
            raise

    with ThreadPoolExecutor(len(TILES)) as pool:
        assert list(pool.map(ask, TILES)) == [[], []]
