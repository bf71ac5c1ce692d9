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
from moe_choice import FIRST, SECOND, SMALLEST, as_line, smallest, some_cases, told
from moe_unit import Nvcc, host_options, host_program
from test_sm120_mixed_candidates import build_heuristic, offered

Make = Callable[..., Any]
TILES = "SM120_MOE_TILES"
EQUIVALENT_MUTANTS = {
    "209d066a27": "no tile has an N of 127: all are multiples of 8",
    "882c397faa": "of the tiles of 128 rows and a K of 128 that are dispatched, N is 32, 64, 128 or 256: all are allowed",
}


def kernels(spec: Any) -> list[str]:
    """All kernels that a specification compiles."""
    text = "".join(p.read_text() for p in spec.sources if p.name.endswith(".generated.cu"))
    return [" ".join(call.split()) for call in re.findall(r"INSTANTIATE_TMA_WARP_SPECIALIZED_MOE_GEMM\([^;]*;", text)]


def generated_files(spec: Any) -> set[Path]:
    """Return the generated sources of a module."""
    return {path for path in spec.sources if path.name.endswith(".generated.cu")}


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
    assert not generated_files(newer) & generated_files(older), "the two modules share sources"
    assert not [f for f in older.extra_cuda_cflags + older.extra_cflags if "SM120_MOE_TILE" in f]
    for flags in (newer.extra_cflags, newer.extra_cuda_cflags):
        assert {f for f in flags if "SM120_MOE_TILE" in f} == {f"-DFLASHINFER_SM120_MOE_TILE_N{n}" for n in (32, 64)}


def test_each_tile_has_all_kernels_and_nvfp4_those_that_it_had(moe_module: Make) -> None:
    """By each output, fusion and orientation; and each once."""
    older, newer = (kernels(moe_module(cutlass=cutlass)) for cutlass in ("4.2", "4.5"))
    assert len(set(newer)) == len(newer)
    mixed = [kernel for kernel in older if "__nv_fp8_e4m3, SafeFP4" in kernel]
    small = [kernel.replace("128, 128, 128", f"128, {n}, 128") for kernel in mixed for n in (32, 64)]
    assert len(mixed) == 8
    assert sorted(newer) == sorted([*older, *small])


@pytest.mark.parametrize("cutlass", ["4.0", "4.4"])
def test_a_cutlass_just_too_old_has_none(moe_module: Make, cutlass: str) -> None:
    assert generated_tiles(moe_module(cutlass=cutlass)) == with_n(128)


@pytest.mark.parametrize("cutlass", ["4.6", "4.10", "5.0"])
def test_a_newer_one_has_all(moe_module: Make, cutlass: str) -> None:
    assert generated_tiles(moe_module(cutlass=cutlass)) == with_n(32, 64, 128)


def test_the_first_cutlass_among_the_headers_counts(
    moe_module: Make, upstream_import: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is the one that the compiler takes, whichever folders come before and after it."""
    moe_module(cutlass="4.5")
    older = tmp_path / "older" / "cutlass" / "version.h"
    older.parent.mkdir(parents=True)
    older.write_text("#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 2\n#define CUTLASS_PATCH 1\n")
    folders = [tmp_path / "none", tmp_path / "cutlass", tmp_path / "older"]
    monkeypatch.setattr(upstream_import("flashinfer.jit.env"), "CUTLASS_INCLUDE_DIRS", folders)
    generate = upstream_import("flashinfer.jit.fused_moe").gen_cutlass_fused_moe_sm120_module
    assert generated_tiles(generate()) == with_n(32, 64, 128)
    folders.reverse()
    assert generated_tiles(generate()) == with_n(128)


def test_without_cutlass_nothing_is_generated(
    moe_module: Make, upstream_import: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    moe_module()
    monkeypatch.setattr(upstream_import("flashinfer.jit.env"), "CUTLASS_INCLUDE_DIRS", [tmp_path / "none"])
    generate = upstream_import("flashinfer.jit.fused_moe").gen_cutlass_fused_moe_sm120_module
    with pytest.raises(RuntimeError, match=r"no cutlass/version\.h"):
        generate()


@pytest.mark.parametrize(
    ("asked", "sizes", "name"),
    [
        ("128x64", (64, 128), "_n64"),
        ("128x64,128x32", (32, 64, 128), "_n32_n64"),
        (" 128x32x128 , 128x64x128 ", (32, 64, 128), "_n32_n64"),
        ("128x32,128x32,128x128", (32, 128), "_n32"),
        ("128x128", (128,), ""),
    ],
)
def test_a_module_is_named_by_its_tiles_however_they_are_asked_for(
    moe_module: Make, asked: str, sizes: tuple[int, ...], name: str
) -> None:
    spec = moe_module(cutlass="4.5", **{TILES: asked})
    assert generated_tiles(spec) == with_n(*sizes)
    assert len(set(kernels(spec))) == len(kernels(spec))
    assert spec.name == f"fused_moe_120{name}"
    small = [f"-DFLASHINFER_SM120_MOE_TILE_N{n}" for n in sizes if n < 128]
    for flags in (spec.extra_cflags, spec.extra_cuda_cflags):
        assert [f for f in flags if "SM120_MOE_TILE" in f] == small


def test_the_tiles_are_all_launchers_and_profiles(moe_module: Make) -> None:
    spec = moe_module(cutlass="4.5", FUSED_MOE_BUILD_PROFILE="mxfp4_minimal", **{TILES: "128x32"})
    assert generated_tiles(spec) == with_n(32, 128)
    assert spec.name == "fused_moe_120_mxfp4min_n32"
    spec = moe_module(SM120_MOE_LAUNCHER="namespace", cutlass="4.5")
    text = "".join(p.read_text() for p in spec.sources if p.name.endswith(".generated.cu"))
    assert re.findall(r"SM120_MIXED_CTA_N (\d+)", text).count("32") == 8


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
        ("128x64", "4.4", "needs CUTLASS >= 4.5, but this is 4.4"),
        ("128x32", "4.4", "needs CUTLASS >= 4.5, but this is 4.4"),
        ("128x32", "3.9", "needs CUTLASS >= 4.5, but this is 3.9"),
        ("127x32", "4.5", "blocks of 128 rows"),
        ("64x128x64", "4.5", "blocks of 128 rows"),
        ("128x128x256", "4.5", "blocks of 128 values"),
        ("256x64", "4.5", "two stages"),
        ("128x96", "4.5", "N is 32, 64 or 128"),
        ("128x32,128x16", "4.5", "N is 32, 64 or 128"),
        ("", "4.5", "no tile such as"),
        ("128x32,", "4.5", "no tile such as"),
        ("128x32x", "4.5", "no tile such as"),
        ("128", "4.5", "no tile such as"),
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
        word = tile.split(",")[-1]
        named = repr(word) if reason == "no tile such as" else f"tile of {word + 'x128' * (word.count('x') == 1)}"
        assert f" {named}" in str(error)
    else:
        pytest.fail(f"{tile} gave {spec.name}")


@pytest.mark.nvcc
def test_each_built_tile_is_offered(trees: Path, nvcc: Nvcc, cpp_objects: list[str], tmp_path: Path) -> None:
    for n in (32, 64):
        folder = tmp_path / str(n)
        folder.mkdir()
        program = build_heuristic(trees, nvcc, folder, cpp_objects, [f"-DFLASHINFER_SM120_MOE_TILE_N{n}"])
        assert set(offered(program, True, 121)) == {(128, 128, 128), (128, n, 128)}
        assert (128, n, 128) not in offered(program, False, 121), "NVFP4 has no such kernel"


def test_prewarm_builds_without_loading(
    moe_module: Make, upstream_import: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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
    # A package that was compiled ahead has it already.
    env = upstream_import("flashinfer.jit.env")
    monkeypatch.setattr(env, "FLASHINFER_AOT_DIR", tmp_path / "aot")
    library = tmp_path / "aot" / "fused_moe_120" / "fused_moe_120.so"
    library.parent.mkdir(parents=True)
    library.touch()
    assert prewarm() == library
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


def test_untuned_it_is_so_of_any_tactics(moe_choice: Make) -> None:
    """Those of each GEMM are its own, in any order, and another architecture's are none."""
    cases = some_cases(300)
    chosen = [f"{smallest(first, rows, n)} {smallest(second, rows, n)}" for first, second, rows, n in cases]
    assert moe_choice([as_line(case) for case in cases]) == chosen


def test_untuned_each_way_of_running_tells_its_rows_and_experts(trees: Path, tmp_path: Path) -> None:
    """A token counts once for each expert that it goes to."""
    assert told(trees, tmp_path) == [["15", "128"], ["15", "128"]]


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
    asked = [f"{m}x{n}x128{swap}" for m, n in ((128, 128), (128, 64), (128, 32)) for swap in ("", "s")]
    program = tmp_path / "dispatch"
    main = host_program(tmp_path, f'#include "{DISPATCH}"')
    for n in (32, 64):
        flag = f"-DFLASHINFER_SM120_MOE_TILE_N{n}"
        done = nvcc(flag, *host_options(trees, tmp_path), str(main), *cpp_objects, "-o", str(program))
        assert done.returncode == 0, done.stderr[-3000:]
        said = subprocess.run([program, *asked], capture_output=True, text=True, check=True).stdout.splitlines()
        assert said == [tile if int(tile.split("x")[1].rstrip("s")) in (n, 128) else "none" for tile in asked]
