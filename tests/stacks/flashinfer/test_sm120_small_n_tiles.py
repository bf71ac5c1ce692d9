"""Tiles with a small N: built, offered as tactics and chosen where CUTLASS compiles them, refused elsewhere.

The real JIT specification, generator and heuristic. That such tiles compute: sm120_on_sm90.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from moe_choice import FIRST, SECOND, SMALLEST
from moe_unit import Nvcc, host_options, host_program
from test_sm120_mixed_candidates import build_heuristic, offered

Make = Callable[..., Any]
TILES = "SM120_MOE_TILES"
EQUIVALENT_MUTANTS = {
    "209d066a27": "no tile has an N of 127: all are multiples of 8",
    "882c397faa": "of the tiles of 128 rows and a K of 128 that are dispatched, N is 32, 64, 128 or 256: all are allowed",
}


def generated_tiles(spec: Any) -> set[tuple[int, int, int, str]]:
    """M, N, K and swap_ab of the FP8 x FP4 kernels that a specification compiles."""
    text = "".join(p.read_text() for p in spec.sources if p.name.endswith(".generated.cu"))
    kernel = r"__nv_fp8_e4m3, SafeFP4,[^;]*?(\d+), (\d+), (\d+), 1, 1, 1,\s*true, false, false, (\w+)\)"
    return {(int(m), int(n), int(k), swap) for m, n, k, swap in re.findall(kernel, text)}


def with_n(*sizes: int) -> set[tuple[int, int, int, str]]:
    return {(128, n, 128, swap) for n in sizes for swap in ("true", "false")}


def test_a_cutlass_that_has_them_gets_all_and_an_older_one_none(moe_module: Make) -> None:
    newer = moe_module(cutlass="4.5")
    assert generated_tiles(newer) == with_n(32, 64, 128)
    assert newer.name == "fused_moe_120_n32_n64"
    older = moe_module(cutlass="4.2")
    assert generated_tiles(older) == with_n(128)
    assert older.name == "fused_moe_120"
    assert not [f for f in older.extra_cuda_cflags + older.extra_cflags if "SM120_MOE_TILE" in f]


def test_those_asked_for_are_built_and_128_always(moe_module: Make) -> None:
    spec = moe_module(cutlass="4.5", **{TILES: "128x32"})
    assert generated_tiles(spec) == with_n(32, 128)
    assert spec.name == "fused_moe_120_n32"
    # The heuristic is C++, what dispatches is CUDA.
    for flags in (spec.extra_cflags, spec.extra_cuda_cflags):
        assert [f for f in flags if "SM120_MOE_TILE" in f] == ["-DFLASHINFER_SM120_MOE_TILE_N32"]


@pytest.mark.parametrize(
    ("tile", "cutlass", "reason"),
    [
        ("128x64", "4.2", "needs CUTLASS >= 4.5, but this is 4.2"),
        ("128x16", "4.5", "N is 32, 64 or 128"),
        ("64x128", "4.5", "blocks of 128 rows"),
        ("128x256", "4.5", "two stages"),
        ("256x128", "4.5", "two stages"),
        ("128x128x64", "4.5", "blocks of 128 values"),
        ("small", "4.5", "no tile such as"),
    ],
)
def test_a_tile_without_a_kernel_is_refused_before_anything_is_built(
    moe_module: Make, tile: str, cutlass: str, reason: str
) -> None:
    try:
        spec = moe_module(cutlass=cutlass, **{TILES: tile})
    except ValueError as error:
        assert reason in str(error)
    else:
        pytest.fail(f"{tile} gave {spec.name}")


@pytest.mark.nvcc
def test_each_built_tile_is_offered(trees: Path, nvcc: Nvcc, cpp_objects: list[str], tmp_path: Path) -> None:
    both = ["-DFLASHINFER_SM120_MOE_TILE_N32", "-DFLASHINFER_SM120_MOE_TILE_N64"]
    program = build_heuristic(trees, nvcc, tmp_path, cpp_objects, both)
    assert set(offered(program, True, 121)) == {(128, 128, 128), (128, 64, 128), (128, 32, 128)}
    assert (128, 32, 128) not in offered(program, False, 121), "NVFP4 has no such kernel"


def test_prewarm_builds_without_loading(
    moe_module: Make, upstream_import: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    moe_module()
    module = upstream_import("flashinfer.jit.fused_moe")
    prewarm = getattr(module, "prewarm_cutlass_fused_moe_sm120", None)
    assert prewarm, "nothing builds the module ahead"
    built: list[str] = []
    spec_type = upstream_import("flashinfer.jit.core").JitSpec
    monkeypatch.setattr(spec_type, "build", lambda self, verbose, **_: built.append(self.name))
    monkeypatch.setattr(spec_type, "load", lambda *_: pytest.fail("loaded"))
    assert prewarm().name == "fused_moe_120.so"
    assert built == ["fused_moe_120"]


@pytest.mark.parametrize(
    ("rows", "top_k", "experts", "chosen"),
    SMALLEST,
)
def test_untuned_the_smallest_tile_that_the_rows_of_an_expert_fit_into_is_taken(
    moe_choice: Make, rows: int, top_k: int, experts: int, chosen: str
) -> None:
    """The real binding: what it sets without tuned tactics."""
    (said,) = moe_choice([f"{FIRST} {SECOND} {rows} {top_k} {experts} -1 -1"])
    assert said == chosen


def test_untuned_without_small_tiles_or_with_tuned_ones_it_is_as_it_was(moe_choice: Make) -> None:
    assert moe_choice(
        [
            "128x128,128x128s 128x128s,128x128 1 4 128 -1 -1",
            f"{FIRST} {SECOND} 1 4 128 0 -1",
            f"{FIRST} {SECOND} 1 4 128 4 -1",
            f"{FIRST} - 1 4 128 -1 -1",
        ]
    ) == ["128x128 128x128s", "128x128 128x32s", "128x64 128x32s", "128x32s 128x32s"]


DISPATCH = Path(__file__).with_name("sm120_dispatch.cu")


@pytest.mark.nvcc
def test_each_offered_tile_is_dispatched_to_its_kernel(
    trees: Path, nvcc: Nvcc, cpp_objects: list[str], tmp_path: Path
) -> None:
    """The real dispatch, over launchers that say which one they are."""
    both = ["-DFLASHINFER_SM120_MOE_TILE_N32", "-DFLASHINFER_SM120_MOE_TILE_N64"]
    asked = [f"{m}x{n}x128{swap}" for m, n in ((128, 128), (128, 64), (128, 32)) for swap in ("", "s")]
    program = tmp_path / "dispatch"
    main = host_program(tmp_path, f'#include "{DISPATCH}"')
    done = nvcc(*both, *host_options(trees, tmp_path), str(main), *cpp_objects, "-o", str(program))
    assert done.returncode == 0, done.stderr[-3000:]
    said = subprocess.run([program, *asked], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == asked
