"""Each tile that the autotuner is offered on SM120 has a kernel, for FP8 x FP4 and for NVFP4.

FlashInfer's real heuristic, compiled for the host, against its real generator of kernels.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from moe_unit import Nvcc, compiler_options

Load = Callable[[str], ModuleType]


def build_heuristic(trees: Path, nvcc: Nvcc, folder: Path, objects: Sequence[str], flags: Sequence[str] = ()) -> Path:
    """The program that asks the heuristic, which is compiled with these flags; as C++, as FlashInfer's build does."""
    program, source = folder / "candidates", Path(__file__).with_name("sm120_candidates.cpp")
    done = nvcc(*flags, *compiler_options(trees, folder), str(source), *objects, "-o", str(program))
    assert done.returncode == 0, done.stderr[-3000:]
    return program


@pytest.fixture(scope="module")
def heuristic(trees: Path, nvcc: Nvcc, cpp_objects: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that asks the heuristic."""
    return build_heuristic(trees, nvcc, tmp_path_factory.mktemp("heuristic"), cpp_objects)


def offered(program: Path, mixed: bool, sm: int, *, weight_only: bool | None = None) -> list[tuple[int, int, int]]:
    """Tiles as (M, N, bytes of K); ``weight_only`` as ``mixed`` unless it is told."""
    weight_only = mixed if weight_only is None else weight_only
    out = subprocess.run(
        [program, str(int(mixed)), str(int(weight_only)), str(sm)], check=True, capture_output=True, text=True
    ).stdout
    return [(int(m), int(n), int(k)) for m, n, k in re.findall(r"tile shape ID: (\d+)x(\d+)x(\d+)", out)]


def generated(trees: Path, upstream_import: Load, mixed: bool) -> set[tuple[int, int, int]]:
    """Tiles for which the generator emits a kernel, as (M, N, values of K)."""
    with pytest.MonkeyPatch.context() as context:
        context.syspath_prepend(str(trees / "cutlass" / "python"))
        module = upstream_import("flashinfer.jit.gemm.cutlass.generate_kernels")
        operations: list[Any] = module.generate_sm120_grouped_gemm_operations(True)
    return {tuple(op.cta_shape) for op in operations if (op.act_type == module.DataType.e4m3) is mixed}  # type: ignore[misc]


@pytest.mark.parametrize("sm", [120, 121])
def test_mixed(trees: Path, upstream_import: Load, heuristic: Path, sm: int) -> None:
    tiles = offered(heuristic, True, sm)
    assert tiles == [(128, 128, 128)]
    assert offered(heuristic, True, sm, weight_only=False) == tiles, "it goes by what is weight-only"
    values = {(m, n, k) for m, n, k in tiles}  # a byte is a value of FP8
    assert values <= generated(trees, upstream_import, True), "a tile without a kernel"


@pytest.mark.parametrize("sm", [120, 121])
def test_nvfp4_is_offered_what_it_was(trees: Path, upstream_import: Load, heuristic: Path, sm: int) -> None:
    tiles = offered(heuristic, False, sm)
    assert tiles == [(128, 128, 128), (128, 128, 64), (128, 256, 64), (256, 128, 64)]
    assert offered(heuristic, False, sm, weight_only=True) == tiles, "it goes by what is weight-only"
    assert {(m, n, k * 2) for m, n, k in tiles} <= generated(trees, upstream_import, False)
