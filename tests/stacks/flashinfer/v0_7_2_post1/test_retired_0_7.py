"""What FlashInfer 0.7.2.post1 does by itself, so that patches for v0.6.1 aren't carried to it: each by its name.

It passes on the bare release, and with the patches that are carried.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from moe_rows import lay_out
from packaging.version import Version
from test_aot_sm121 import OWN, SHARED, asked_of
from test_sm120_mixed_candidates import build_heuristic, offered
from topk_group import SCHEDULES
from topk_group import build as build_topk
from topk_group import run as run_topk

Load = Callable[[str], ModuleType]
Make = Callable[..., Any]
Nvcc = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(("archs", "made"), [("12.1", "121"), ("12.0", "120"), ("12.1a", "121"), ("12.0f", "120")])
@pytest.mark.parametrize("version", ["12.9", "13.0"])
def test_arch_suffix(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, archs: str, made: str, version: str
) -> None:
    """A bare 12.0 or 12.1 gets a suffix, with which the block-scaled instructions are compiled."""
    context = upstream_import("flashinfer.compilation_context")
    for module in ("flashinfer.jit.cpp_ext", "flashinfer.compilation_context"):
        loaded = upstream_import(module)
        if hasattr(loaded, "get_cuda_version"):
            monkeypatch.setattr(loaded, "get_cuda_version", lambda: Version(version))
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", archs)
    flags = [f for f in context.CompilationContext().get_nvcc_flags_list() if f.startswith("-gencode")]
    assert len(flags) == 1
    assert re.fullmatch(rf"-gencode=arch=compute_{made}[af],code=sm_{made}[af]", flags[0])


def test_grouped_gemm_pdl(moe_module: Make, trees: Path) -> None:
    """The module is compiled with the wait for the grid ahead, and its CUTLASS has one in both grouped kernels."""
    assert "-DCUTLASS_ENABLE_GDC_FOR_SM100=1" in moe_module().extra_cuda_cflags
    kernels = trees / "cutlass/include/cutlass/gemm/kernel"
    for schedule in ("cooperative", "pingpong"):
        text = (kernels / f"sm90_gemm_array_tma_warpspecialized_{schedule}.hpp").read_text()
        assert "arch::wait_on_dependent_grids()" in text
    control = (trees / "cutlass/include/cutlass/arch/grid_dependency_control.h").read_text()
    assert "CUTLASS_ENABLE_GDC_FOR_SM100" in control


def test_grouped_gemm_waits(moe_module: Make, upstream_import: Load) -> None:
    """So is SM90's module."""
    moe_module()
    spec = upstream_import("flashinfer.jit.fused_moe").gen_cutlass_fused_moe_sm90_module()
    assert "-DCUTLASS_ENABLE_GDC_FOR_SM90=1" in spec.extra_cuda_cflags


def test_aot_sm121(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Built ahead of time, SM121 alone gets the MoE and FP4 GEMM modules."""
    assert {*SHARED, OWN["sm121"]} <= set(asked_of(upstream_import, monkeypatch, "sm121"))


@pytest.mark.nvcc
def test_sm120_mixed_candidates(
    trees: Path, upstream_import: Load, nvcc: Nvcc, cpp_objects: list[str], tmp_path: Path
) -> None:
    """Each tile that FP8 x FP4 is offered has a kernel; the small ones are among them."""
    tiles = offered(build_heuristic(trees, nvcc, tmp_path, cpp_objects), True, 121)
    assert set(tiles) == {(128, 128, 128), (128, 64, 128), (128, 32, 128)}
    assert set(tiles) <= generated(trees, upstream_import)


def test_sm120_small_n_tiles(trees: Path, upstream_import: Load) -> None:
    """Tiles with N of 32 and 64 are generated, standard and swapped. Which is taken untuned: moe-untuned-tiles."""
    assert {(128, n, 128) for n in (32, 64, 128)} <= generated(trees, upstream_import)


def generated(trees: Path, upstream_import: Load) -> set[tuple[int, int, int]]:
    """Tiles for which the generator emits an FP8 x FP4 kernel both ways round."""
    with pytest.MonkeyPatch.context() as context:
        context.syspath_prepend(str(trees / "cutlass" / "python"))
        module = upstream_import("flashinfer.jit.gemm.cutlass.generate_kernels")
        operations: list[Any] = module.generate_sm120_grouped_gemm_operations(True)
    mixed = [op for op in operations if op.act_type == module.DataType.e4m3 and op.weight_type == module.e2m1]
    both = [{tuple(op.cta_shape) for op in mixed if op.swap_ab is swapped} for swapped in (False, True)]
    return both[0] & both[1]


def test_moe_gemm2_tactic_ids(moe_choice: Callable[..., list[str]]) -> None:
    """The tactic that was tuned for the second GEMM is the one that runs."""
    first, second = "128x128,128x64", "128x128,128x64,128x32,128x256,128x128s"
    cases = [f"{first} {second} 4096 4 8 1 {number}" for number in range(2, 7)]
    assert moe_choice(cases) == [f"128x64 {tactic}" for tactic in second.split(",")]


@pytest.mark.parametrize("kernel", ["expand", "activate"])
def test_moe_padding_rows(trees: Path, tmp_path: Path, kernel: str) -> None:
    """Of the scales none is written but those of the rows, by as many blocks as there are rows."""
    (said,) = lay_out(trees, tmp_path, [f"{kernel} 1 4 128 2944"])
    assert said == {"blocks": 4, "wrong": 0, "beside": 0}


def test_topk_group_reset(trees: Path, tmp_path: Path) -> None:
    """The blocks that share a row of top_k_mask_logits all come to their end, whichever of them is ahead."""
    program = build_topk(trees, tmp_path)
    for schedule in SCHEDULES:
        assert run_topk(program, "mask", schedule) == {"wrong": 0, "unclean": 0}


def test_topk_barrier_sync(trees: Path, tmp_path: Path) -> None:
    """A block announces its histogram once all of its threads have written it."""
    program = build_topk(trees, tmp_path)
    for kernel in ("renorm", "rounds"):
        for schedule in SCHEDULES:
            assert run_topk(program, kernel, schedule) == {"wrong": 0, "unclean": 0}
