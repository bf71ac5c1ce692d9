"""SM120's kernels with the finalize step fused fit into a thread block's shared memory; all others are as they were.

The real launcher's host code, compiled with an adapter that tells each kernel's stages and bytes, and the bytes that
the launcher keeps from the stages; nothing is launched.
Past the capacity cudaFuncSetAttribute fails at the first launch.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from moe_unit import LAUNCHERS, host_options, host_program

pytestmark = pytest.mark.nvcc
ADAPTER = Path(__file__).with_name("recording_adapter.h")
CAPACITY = 101376
ALIGNMENT = 1024
FP4, MIXED, BF16 = "SafeFP4, SafeFP4", "__nv_fp8_e4m3, SafeFP4", "__nv_bfloat16, __nv_bfloat16"
#: Architecture, inputs, output, fusion, tile; and the stages that it has without the patch, or, of the two tiles
#: that need more than a block has, with it.
KERNELS: dict[tuple[str, str, str, str, tuple[int, int, int]], int] = {
    ("Sm120", FP4, "float", "NONE", (128, 128, 256)): 2,  # fits to the byte
    ("Sm120", FP4, "__nv_bfloat16", "FINALIZE", (128, 256, 128)): 2,
    ("Sm120", FP4, "__nv_bfloat16", "FINALIZE", (256, 128, 128)): 2,
    ("Sm120", MIXED, "__nv_bfloat16", "FINALIZE", (128, 128, 128)): 2,
    ("Sm120", MIXED, "__nv_bfloat16", "NONE", (128, 128, 128)): 2,
    ("Sm90", BF16, "__nv_bfloat16", "NONE", (128, 128, 64)): 6,
    ("Sm90", BF16, "__nv_bfloat16", "FINALIZE", (128, 128, 64)): 6,
}
#: The launcher, a macro, names its adapter where the count of stages that it asks for has a name.
COUNTING = "#define GemmUniversalAdapter Counting<StageCountAutoCarveout>::Adapter\n"
CALL = """{{ size_t said = 0;
  tma_warp_specialized_generic_moe_gemm_kernelLauncher<cutlass::arch::{arch}, {inputs}, {output}, void,
      tensorrt_llm::cutlass_extensions::EpilogueOpDefault, EpilogueFusion::{fusion}, cute::Shape<{tile}>,
      cute::Shape<cute::_1, cute::_1, cute::_1>, {mx}, false, false, false>(
      Input{{}}, 8, 48, cudaStream_t{{}}, nullptr, &said, {{}}, {{}});
  std::printf("%zu\\n", said); }}"""


def unit(folder: Path) -> Path:
    """A source with all kernels, and a main that asks each."""
    kernels, calls = [], []
    for arch, inputs, output, fusion, tile in KERNELS:
        mx = str(inputs == MIXED).lower()
        m, n, k = tile
        kernels.append(
            f"INSTANTIATE_TMA_WARP_SPECIALIZED_MOE_GEMM({arch}, {inputs}, {output}, void, EpilogueOpDefault, {fusion}, "
            f"{m}, {n}, {k}, 1, 1, 1, {mx}, false, false, false);"
        )
        shape = ", ".join(f"cute::Int<{size}>" for size in tile)
        calls.append(CALL.format(arch=arch, inputs=inputs, output=output, fusion=fusion, tile=shape, mx=mx))
    opening = "namespace tensorrt_llm {\nnamespace kernels {\nnamespace cutlass_kernels_oss {\n"
    return host_program(
        folder,
        f'#include <cstdio>\n#include "{LAUNCHERS}/moe_gemm_tma_ws_launcher.inl"\n{COUNTING}{opening}' + "\n".join(kernels)
        + "\nusing Input = TmaWarpSpecializedGroupedGemmInput;\nvoid ask() {\n" + "\n".join(calls)
        + "\n}\n}\n}\n}\nint main() { tensorrt_llm::kernels::cutlass_kernels_oss::ask(); }\n",
    )  # fmt: skip


def test_what_didnt_fit_does_and_the_others_keep_their_stages(
    trees: Path, nvcc: Callable[..., subprocess.CompletedProcess[str]], cpp_objects: list[str], tmp_path: Path
) -> None:
    program = tmp_path / "stages"
    options = [*host_options(trees, tmp_path), "-DCOMPILE_HOPPER_TMA_GROUPED_GEMMS", "-include", str(ADAPTER)]
    done = nvcc(*options, str(unit(tmp_path)), *cpp_objects, "-o", str(program))
    needed = re.findall(r"CheckSmemCapacity<cutlass::arch::Sm120, (\d+)", done.stderr)
    wrong = [line for line in done.stderr.splitlines() if "error" in line]
    assert done.returncode == 0, f"bytes needed of {CAPACITY}: {sorted(set(needed))}; {wrong}"
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    found = {kernel: told(int(number)) for kernel, number in zip(KERNELS, said, strict=True)}
    assert {kernel: stages for kernel, (_, stages, _) in found.items()} == KERNELS
    assert all(size <= CAPACITY for (arch, *_), (_, _, size) in found.items() if arch == "Sm120")
    # All others have each byte that they had, so that none with another tile has fewer stages.
    aligned = {kernel for kernel in KERNELS if kernel[0] == "Sm120" and kernel[3] == "FINALIZE"}
    assert {kernel: kept for kernel, (kept, _, _) in found.items()} == {
        kernel: ALIGNMENT if kernel in aligned else 0 for kernel in KERNELS
    }


def told(number: int) -> tuple[int, int, int]:
    """The bytes kept from the stages beyond the epilogue's, the stages, and the kernel's bytes."""
    kept, rest = divmod(number, 100_000_000)
    return kept, *divmod(rest, 1_000_000)
