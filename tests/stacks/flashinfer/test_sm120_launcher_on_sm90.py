"""The kernels that the launcher at namespace scope launches compute what float64 does, on an SM90 GPU by emulation.

Which operand, which scale, which stride: what a launcher that compiles may still exchange.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from moe_unit import KERNELS
from sm120_launchers import need_sm90, wrong_cases

LAUNCHER = f"{KERNELS}/moe_gemm/launchers/moe_gemm_sm120_mixed_input_launcher.inl"


@pytest.mark.sm90
def test_its_kernels_compute_in_both_orientations(trees: Path, tmp_path: Path) -> None:
    """24 cases: ragged and empty experts, 128 of them, each count of tokens to 300, gpt-oss's size, wide scales."""
    need_sm90()
    assert (trees / "flashinfer" / LAUNCHER).is_file(), "there is no launcher at namespace scope"
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda swap: wrong_cases(trees, tmp_path / str(swap), "namespace", swap), (False, True)))
    assert found == [[], []]
