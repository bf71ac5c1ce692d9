"""CUTLASS's array kernels refuse, when compiled for SM120, what no SM120 thread block can hold.

Compiled with nvcc for sm_120f and sm_121f; nothing is run.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.nvcc
SOURCE = Path(__file__).with_name("array_smem_capacity.cu")
SCHEDULES = ["KernelPtrArrayTmaWarpSpecializedCooperative", "KernelPtrArrayTmaWarpSpecializedPingpong"]
Nvcc = Callable[..., subprocess.CompletedProcess[str]]


def compile_with(
    nvcc: Nvcc, includes: list[str], tmp_path: Path, arch: str, schedule: str, stages: int
) -> subprocess.CompletedProcess[str]:
    """Compile the kernel's type with so many stages of a 128 x 128 x 128 tile."""
    out = tmp_path / "out.ptx"
    return nvcc(
        *includes, f"-arch={arch}", f"-DSTAGES={stages}", f"-DSCHEDULE={schedule}", "-ptx", "-o", str(out), str(SOURCE)
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arch", ["sm_120f", "sm_121f"])
def test_too_many_stages_are_refused_with_the_sizes(
    nvcc: Nvcc, cutlass_includes: list[str], tmp_path: Path, arch: str, schedule: str
) -> None:
    done = compile_with(nvcc, cutlass_includes, tmp_path, arch, schedule, 4)
    assert done.returncode != 0, "four stages need 150528 bytes, and SM120 has 101376"
    assert "SMEM usage exceeded" in done.stderr
    assert "101376" in done.stderr
    assert "SharedStorageSize=150528" in done.stderr


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_fits_compiles_as_before(nvcc: Nvcc, cutlass_includes: list[str], tmp_path: Path, schedule: str) -> None:
    done = compile_with(nvcc, cutlass_includes, tmp_path, "sm_120f", schedule, 2)
    assert done.returncode == 0, done.stderr


CHECK = """
#include "cutlass/cutlass.h"
#include "cutlass/arch/arch.h"
using namespace cutlass::arch;
static_assert(CheckSmemCapacity<Sm120, CAPACITY + OVER, int>::value);
static_assert(CheckSmemCapacity<Sm90, 232448 + OVER, int>::value);
static_assert(CheckSmemCapacity<Sm100, 232448 + OVER, int>::value);
static_assert(CheckSmemCapacity<Sm103, 232448 + OVER, int>::value);
"""


@pytest.mark.parametrize(("over", "refused"), [(0, 0), (1, 1)])
def test_a_kernel_may_use_every_byte_of_an_sm120_block_and_other_architectures_are_not_asked(
    nvcc: Nvcc, cutlass_includes: list[str], tmp_path: Path, over: int, refused: int
) -> None:
    source = tmp_path / "check.cu"
    source.write_text(CHECK)
    done = nvcc(
        *cutlass_includes, "-DCAPACITY=101376", f"-DOVER={over}", "-arch=sm_120f", "-ptx", "-o", str(tmp_path / "out"),
        str(source),
    )  # fmt: skip
    refusals = [line for line in done.stderr.splitlines() if "SMEM usage exceeded" in line]
    assert (len(refusals), done.returncode != 0) == (refused, bool(refused)), done.stderr[-2000:]
    assert "has no member" not in done.stderr
