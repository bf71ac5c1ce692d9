"""The SM120 grouped GEMM of FP8 x FP4 is not launched with PDL, as it holds no wait for the grid ahead.

FlashInfer's real launcher, for the kernel that its generator emits, compiled to PTX for sm_121a with the flags
of its module, which has no CUTLASS wait for the grid ahead, whatever its version. The launcher's own expression
is evaluated by the compiler. A race itself is not shown: that takes a GPU and luck.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from moe_unit import compiler_options
from waits_for_grid import asked, launched

Load = Callable[[str], ModuleType]
LAUNCHER = "tensorrt_llm/kernels/cutlass_kernels/moe_gemm/launchers/moe_gemm_tma_ws_launcher.inl"
EQUIVALENT_MUTANTS = {
    "b8747036b4": "CUTLASS has no architecture between 90 and 100, so none whose number is 99",
    "11cb6063ed": "asked only where is_sm90 is false",
}
EVALUATE = """
using ArchTag = cutlass::arch::Sm120;
namespace tensorrt_llm { namespace kernels { namespace cutlass_kernels_oss {
struct Input { bool enable_pdl = true; };
constexpr Input tma_ws_input;
__device__ int launched_with_pdl = (EXPRESSION) ? 77 : 55;
}}}
"""


@pytest.fixture(scope="module")
def ptx(
    trees: Path, upstream_import: Load, nvcc: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> str:  # fmt: skip
    """PTX of the kernel, and of the launcher's third argument to run() as a number."""
    folder, tree = tmp_path_factory.mktemp("pdl"), trees / "flashinfer"
    with pytest.MonkeyPatch.context() as context:
        context.syspath_prepend(str(trees / "cutlass" / "python"))
        generator = upstream_import("flashinfer.jit.gemm.cutlass.generate_kernels")
        operations: list[Any] = generator.generate_sm120_grouped_gemm_operations(True)
    mixed = [op for op in operations if op.act_type == generator.DataType.e4m3 and not op.swap_ab]
    launcher = (tree / "csrc/nv_internal" / LAUNCHER).read_text()
    (expression,) = re.findall(r"gemm\.run\(\s*stream, nullptr, (.*?)\);", launcher.replace("\\\n", "\n"), re.S)
    kernel = generator.get_file_content([LAUNCHER], mixed[:1])
    evaluate = EVALUATE.replace("EXPRESSION", " ".join(expression.split()))
    source = folder / "kernel.cu"
    source.write_text(kernel.replace("\nnamespace tensorrt_llm", f"{evaluate}\nnamespace tensorrt_llm", 1))
    made = folder / "kernel.ptx"
    done = nvcc(
        "-arch=sm_121a", *compiler_options(trees, folder), "-ptx",
        "-o", str(made), str(source),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return made.read_text()


def test_pdl_where_the_kernel_waits_and_only_there(ptx: str) -> None:
    assert "kind::mxf8f6f4" in ptx, "the kernel was compiled to a stub"
    (value,) = re.findall(r"launched_with_pdl\w* = (\d+);", ptx)
    assert (value == "77") is ("griddepcontrol.wait" in ptx), "launched to overlap a grid that it doesn't wait for"


SM90, SM100 = "-DCUTLASS_ENABLE_GDC_FOR_SM90", "-DCUTLASS_ENABLE_GDC_FOR_SM100"


@pytest.mark.parametrize(
    ("flags", "version", "waits"),
    [
        ([], 450, "0 0 0 0"),
        ([SM90], 421, "0 0 0 0"),
        ([SM90], 429, "0 0 0 0"),
        ([SM90], 430, "1 0 0 0"),
        ([SM100], 421, "0 1 1 0"),
        ([SM100], 429, "0 1 1 0"),
        ([SM100], 430, "0 1 1 1"),
        ([SM90, SM100], 421, "0 1 1 0"),
        ([SM90, SM100], 450, "1 1 1 1"),
    ],
)
def test_which_kernels_wait(trees: Path, tmp_path: Path, flags: list[str], version: int, waits: str) -> None:
    assert asked(trees, tmp_path, flags, version) == waits


@pytest.mark.parametrize(
    ("flags", "version", "waits"),
    [([], 450, "0 0 0 0"), ([SM90, SM100], 421, "0 1 1 0"), ([SM90, SM100], 450, "1 1 1 1")],
)
def test_the_launcher_overlaps_where_it_is_asked_to_and_the_kernel_waits(
    trees: Path, tmp_path: Path, flags: list[str], version: int, waits: str
) -> None:
    assert launched(trees, tmp_path, flags, version) == ["0 0 0 0", waits]
