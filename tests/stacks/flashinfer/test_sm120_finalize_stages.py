"""SM120's NVFP4 kernels with the finalize step fused fit into a thread block's shared memory.

Compiled for sm_121f; nothing is run. Past the capacity cudaFuncSetAttribute fails at the first launch.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from moe_unit import compiler_options, write_unit

pytestmark = pytest.mark.nvcc
SMEM_CAPACITY = Path(__file__).with_name("smem_capacity.h")


@pytest.mark.parametrize("fusion", ["NONE", "FINALIZE"])
@pytest.mark.parametrize("tile", [(256, 128), (128, 256)])
def test_the_kernel_fits(
    trees: Path,
    nvcc: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    tile: tuple[int, int],
    fusion: str,
) -> None:
    unit = write_unit(trees, tmp_path, "generic", [(tile, fusion, swap_ab) for swap_ab in (False, True)], nvfp4=True)
    options = [*compiler_options(trees, tmp_path), "-include", str(SMEM_CAPACITY), "-arch=sm_121f"]
    done = nvcc(*options, "-ptx", "-o", str(tmp_path / "out.ptx"), str(unit))
    needed = re.findall(r"(?:Needed<|SharedStorageSize=)(\d+)", done.stderr)
    wrong = [line for line in done.stderr.splitlines() if "error" in line]
    assert done.returncode == 0, f"bytes needed of 101376: {sorted(set(needed))}; {wrong}"
