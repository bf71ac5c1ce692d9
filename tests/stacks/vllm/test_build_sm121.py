"""vLLM's build knows SM121, and what is compiled for it of the SM120 GEMMs isn't empty.

CMake evaluates the project's own list of architectures and its own functions; nvcc compiles its own guard.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

EVALUATE = """
set(CMAKE_CUDA_COMPILER_VERSION {version})
{block}
include({utils})
set(WANTED "12.1")
cuda_archs_loose_intersection(SUPPORTED "${{CUDA_SUPPORTED_ARCHS}}" "${{WANTED}}")
cuda_archs_loose_intersection(FP8 "8.9;12.0" "${{WANTED}}")
message("supported=${{SUPPORTED}} all=${{CUDA_SUPPORTED_ARCHS}} marlin=${{FP8}}")
"""


def architectures(trees: Path, tmp_path: Path, version: str) -> dict[str, str]:
    """What the build takes of a wish for 12.1, by the CUDA version."""
    text = (trees / "vllm" / "CMakeLists.txt").read_text()
    (block,) = re.findall(r"^if\(DEFINED CMAKE_CUDA_COMPILER_VERSION AND\n.*?^endif\(\)", text, re.M | re.S)
    assert "CUDA_SUPPORTED_ARCHS" in block
    script = tmp_path / "script.cmake"
    utils = trees / "vllm" / "cmake" / "utils.cmake"
    script.write_text(EVALUATE.format(version=version, block=block, utils=utils))
    done = subprocess.run(["cmake", "-P", str(script)], capture_output=True, text=True)
    found = re.findall(r"^(supported=\S* all=\S* marlin=\S*)$", done.stderr, re.M)
    assert found, done.stderr
    return dict(part.split("=", 1) for part in found[0].split())


@pytest.mark.parametrize("version", ["12.9", "13.0"])
def test_the_list_has_it(trees: Path, tmp_path: Path, version: str) -> None:
    found = architectures(trees, tmp_path, version)
    assert found["supported"] == "12.1"
    assert found["marlin"] == "12.0", "whose cubins run on 12.1"


@pytest.mark.parametrize(("version", "last"), [("12.8", "12.0"), ("12.4", "9.0")])
def test_and_not_where_cuda_does_not(trees: Path, tmp_path: Path, version: str, last: str) -> None:
    assert architectures(trees, tmp_path, version)["all"].split(";")[-1] == last


@pytest.mark.parametrize("arch", ["sm_120a", "sm_121a", "sm_121f"])
def test_the_guarded_kernel_has_a_body(
    trees: Path, tmp_path: Path, nvcc: Callable[..., subprocess.CompletedProcess[str]], cutlass_includes: list[str],
    arch: str,
) -> None:  # fmt: skip
    assert has_body(trees, tmp_path, nvcc, cutlass_includes, arch)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_and_only_in_the_family(
    trees: Path, tmp_path: Path, nvcc: Callable[..., subprocess.CompletedProcess[str]], cutlass_includes: list[str],
    arch: str,
) -> None:  # fmt: skip
    assert not has_body(trees, tmp_path, nvcc, cutlass_includes, arch)


def has_body(
    trees: Path, tmp_path: Path, nvcc: Callable[..., subprocess.CompletedProcess[str]], includes: list[str], arch: str
) -> bool:
    """Whether a kernel behind the guard that the block-wise FP8 GEMM uses stores anything, by its PTX."""
    csrc = trees / "vllm" / "csrc"
    dispatch = (csrc / "quantization/w8a8/cutlass/c3x/scaled_mm_blockwise_sm120_fp8_dispatch.cuh").read_text()
    (guard,) = set(re.findall(r"KernelType = (enable_\w+)<", dispatch))
    header = (csrc / "cutlass_extensions" / "common.hpp").read_text()
    (struct,) = re.findall(rf"template <typename Kernel>\nstruct {guard} : Kernel .*?\n}};\n", header, re.S)
    source = tmp_path / "guard.cu"
    # The header as a whole needs torch; the guard is its own text.
    source.write_text(
        '#include "cutlass/cutlass.h"\n#include <utility>\n'
        f"{struct}\n"
        "struct Store { CUTLASS_DEVICE void operator()(float *x) { *x = 1.0f; } };\n"
        f"__global__ void kernel(float *x) {{ {guard}<Store>()(x); }}\n"
    )
    ptx = tmp_path / "guard.ptx"
    done = nvcc("-std=c++17", f"-arch={arch}", "-ptx", *includes, "-o", str(ptx), str(source))
    assert done.returncode == 0, done.stderr
    return "st.global" in ptx.read_text()
