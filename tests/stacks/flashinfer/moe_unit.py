"""Compile units of FlashInfer's SM120 grouped GEMM, MXFP8 x MXFP4 or NVFP4, outside its JIT."""

from __future__ import annotations

import glob
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

HOST_ONLY = Path(__file__).with_name("host_only.h")
KERNELS = "csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels"
LAUNCHERS = "tensorrt_llm/kernels/cutlass_kernels/moe_gemm/launchers"
INCLUDES = (
    "include",
    "csrc/nv_internal",
    "csrc/nv_internal/include",
    "csrc/nv_internal/tensorrt_llm/cutlass_extensions/include",
    f"{KERNELS}/include",
    KERNELS,
)
#: What a unit links with.
INPUT_SOURCE = f"{KERNELS}/moe_gemm/moe_gemm_tma_warp_specialized_input.cu"
CPP_SOURCES = tuple(f"csrc/nv_internal/cpp/common/{name}.cpp" for name in ("logger", "stringUtils", "tllmException"))
COMMON_SOURCES = (INPUT_SOURCE, *CPP_SOURCES)
# What nvcc gives a .cu and FlashInfer's C++ sources take for granted.
CPP_NEEDS = ("-include", "cmath")
# The names of cuBLAS's status codes are all that the headers on the way need of it.
CUBLAS = """#pragma once
#include <cuda_runtime_api.h>
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ALLOC_FAILED,
  CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_ARCH_MISMATCH, CUBLAS_STATUS_MAPPING_ERROR,
  CUBLAS_STATUS_EXECUTION_FAILED, CUBLAS_STATUS_INTERNAL_ERROR, CUBLAS_STATUS_NOT_SUPPORTED,
  CUBLAS_STATUS_LICENSE_ERROR };
"""
Nvcc = Callable[..., subprocess.CompletedProcess[str]]
# A kernel: the tile's M and N (K is 128), NONE or FINALIZE, and whether A and B change places.
Kernel = tuple[tuple[int, int], str, bool]


def cpp_objects_of(trees: Path, nvcc: Nvcc, folder: Path) -> list[str]:
    """What any of FlashInfer's C++ links with, compiled."""
    sources = [str(trees / "flashinfer" / source) for source in CPP_SOURCES]
    done = nvcc(*compiler_options(trees, folder), "-odir", str(folder), "-c", *sources)
    assert done.returncode == 0, done.stderr[-3000:]
    return [str(folder / f"{Path(source).stem}.o") for source in CPP_SOURCES]


def host_program(folder: Path, *texts: str) -> Path:
    """The source of a program of launchers, for :func:`host_options`: CUTLASS's headers are read once for all of it."""
    source = folder / "program.cpp"
    source.write_text("\n".join([*texts, f'#include "{Path(INPUT_SOURCE).relative_to(KERNELS)}"', ""]))
    return source


def host_options(trees: Path, folder: Path) -> list[str]:
    """nvcc's options for a .cpp that includes launchers of CUTLASS's kernels, where only what the host does is asked.

    No kernel is compiled, and there is no device's half: it takes a quarter of the time. What the host's compiler
    can't read is left out of CUTLASS's headers: the launch itself. Whether nvcc takes the source isn't seen, nor are
    conversions that it refuses and GCC, told to be permissive, does not: a proof that says so compiles a unit with
    nvcc too.
    """
    headers, here = trees / "cutlass" / "include", folder / "launching_nothing"
    # `rglob` follows no links to folders, which the trees of an installed package are made of.
    for header in sorted(map(Path, glob.glob(f"{headers}/cutlass/**/*.h*", recursive=True))):
        if "<<<" in (text := header.read_text()):
            copy = here / header.relative_to(headers)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(re.sub("<<<.*?>>>", "", text, flags=re.S))
    # nvcc's own front end lets pass what GCC finds to change its meaning in some classes of CUTLASS's.
    return [f"-I{here}", *compiler_options(trees, folder), "-Xcompiler=-fpermissive", "-include", str(HOST_ONLY)]


def compiler_options(trees: Path, folder: Path) -> list[str]:
    """nvcc's options for such a unit; a stub of cuBLAS's headers goes into the folder."""
    for name in ("cublasLt.h", "cublas_v2.h"):
        (folder / name).write_text(CUBLAS)
    return [
        "-std=c++17", "--expt-relaxed-constexpr", "--expt-extended-lambda", *CPP_NEEDS, "-DENABLE_FP8", "-DENABLE_FP4",
        "-DENABLE_BF16", "-DCOMPILE_BLACKWELL_SM120_TMA_GROUPED_GEMMS", f"-I{folder}",
        *(f"-I{trees / 'flashinfer' / path}" for path in INCLUDES),
        *(f"-I{trees / 'cutlass' / path}" for path in ("include", "tools/util/include")),
    ]  # fmt: skip


def write_unit(
    trees: Path, folder: Path, launcher: str, kernels: Sequence[Kernel], *, nvfp4: bool = False,
    output: str = "__nv_bfloat16",
) -> Path:  # fmt: skip
    """Write a unit with these kernels, by the generic launcher or the one at namespace scope.

    :param nvfp4: both inputs are NVFP4, which only the generic launcher has.
    :param output: the type of the results.
    """
    inputs, is_mx = ("SafeFP4, SafeFP4", "false") if nvfp4 else ("__nv_fp8_e4m3, SafeFP4", "true")
    lines = []
    for number, ((m, n), fusion, swap_ab) in enumerate(kernels):
        swapped = str(swap_ab).lower()
        if launcher == "generic":
            lines.append(
                f"INSTANTIATE_TMA_WARP_SPECIALIZED_MOE_GEMM(Sm120, {inputs}, {output}, void, "
                f"EpilogueOpDefault, {fusion}, {m}, {n}, 128, 1, 1, 1, {is_mx}, false, false, {swapped});"
            )
        else:
            lines += [
                f"#define SM120_MIXED_NAMESPACE kernel{number}",
                f"#define SM120_MIXED_OUTPUT {output}",
                f"#define SM120_MIXED_FUSION {fusion}",
                *(f"#define SM120_MIXED_CTA_{d} {size}" for d, size in zip("MNK", (m, n, 128), strict=True)),
                f"#define SM120_MIXED_SWAP_AB {swapped}",
                f'#include "{LAUNCHERS}/moe_gemm_sm120_mixed_input_kernel.inl"',
            ]
    header = "moe_gemm_tma_ws_launcher.inl" if launcher == "generic" else "moe_gemm_sm120_mixed_input_launcher.inl"
    body = "\n".join(lines)
    opening = "namespace tensorrt_llm {\nnamespace kernels {\nnamespace cutlass_kernels_oss {\n"
    source = folder / f"{launcher}.cu"
    source.write_text(f'#include "{LAUNCHERS}/{header}"\n{opening}{body}\n}}\n}}\n}}\n')
    return source
