"""What of the emulation of SM120 on SM90 can be checked without a GPU; its results: docs/evidence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sm120_launchers import need_sm90, wrong_cases

HERE = Path(__file__).parent / "sm120_on_sm90"
LEVELS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
CONVERT = """
#include <cstdio>
#include "emulation.h"
int main() {
  for (uint32_t code = 0; code < 16; ++code) std::printf("%u\\n", cute::sm120_on_sm90::e2m1_to_e4m3(code << 10) >> 8);
}
"""


def test_the_copy_of_the_collective_can_be_made(trees: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It differs from CUTLASS's in what TMA calls a byte, and in nothing else."""
    monkeypatch.syspath_prepend(str(HERE))
    emulate = __import__("emulate")
    emulate.collective(trees / "cutlass", tmp_path)
    theirs = (trees / "cutlass" / "include" / emulate.COLLECTIVE).read_text().splitlines()
    ours = (tmp_path / "include" / emulate.COLLECTIVE).read_text().splitlines()
    changed = [(a.strip(), b.strip()) for a, b in zip(theirs, ours, strict=True) if a != b]
    assert len(changed) == 4
    assert all("unpacksmem" in a or "TmaTransaction" in a or "sizeof_bits<Element" in a for a, _ in changed)
    sys.modules.pop("emulate")


@pytest.mark.nvcc
def test_fp4_to_fp8_is_exact(
    nvcc: Callable[..., subprocess.CompletedProcess[str]], cutlass_includes: list[str], tmp_path: Path
) -> None:
    codes = list(map(int, run(nvcc, CONVERT, tmp_path, cutlass_includes).split()))
    values = torch.tensor(codes, dtype=torch.uint8).view(torch.float8_e4m3fn).float().tolist()
    assert values == [*LEVELS, *(-v for v in LEVELS)]


LANES = """
#include <cstdio>
#include "emulation.h"
#include <cute/atom/mma_traits_sm120.hpp>
using namespace cute;
using namespace cute::sm120_on_sm90;
template <class Atom>
int differ() {
  using Traits = MMA_Traits<Atom>;
  auto const [m, n, k] = typename Traits::Shape_MNK{};
  int found = 0;
  for (int i = 0; i < k; ++i) {
    for (int row = 0; row < m; ++row) found += typename Traits::SFALayout{}(lane_of_sfa(row), i) != row + m * i;
    for (int column = 0; column < n; ++column)
      found += typename Traits::SFBLayout{}(lane_of_sfb(column), i) != column + n * i;
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int v = 0; v < 4; ++v)
      found += typename Traits::CLayout{}(lane, v) != row_of(lane, v) + m * column_of(lane, v);
  return found;
}
template <class A, class B>
using Mixed = SM120::BLOCKSCALED::SM120_16x8x32_TN_VS<A, B, float, float_ue8m0_t, 32>;
using Fp4 = SM120::BLOCKSCALED::SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue4m3_t, 16>;
int main() {
  std::printf("%d %d %d\\n", differ<Mixed<float_e4m3_t, float_e2m1_t>>(), differ<Mixed<float_e2m1_t, float_e4m3_t>>(),
              differ<Fp4>());
}
"""


@pytest.mark.nvcc
def test_scales_and_results_lie_in_the_lanes_that_cute_says(
    nvcc: Callable[..., subprocess.CompletedProcess[str]], cutlass_includes: list[str], tmp_path: Path
) -> None:
    """For each row, column and k of SM120's block-scaled MMA, by its MMA_Traits."""
    assert run(nvcc, LANES, tmp_path, cutlass_includes) == "0 0 0\n"


@pytest.mark.nvcc
def test_a_lane_that_is_another_one_is_seen(
    nvcc: Callable[..., subprocess.CompletedProcess[str]], cutlass_includes: list[str], tmp_path: Path
) -> None:
    other = LANES.replace("lane_of_sfa(row)", "lane_of_sfa(row) + 1")
    assert run(nvcc, other, tmp_path, cutlass_includes) != "0 0 0\n"


def test_quantizers_are_sm90s_too_but_for_fp4s_own_instructions(
    trees: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy differs in guards, and in where it emulates; with none to open it says so."""
    monkeypatch.syspath_prepend(str(HERE))
    emulate = __import__("emulate")
    emulate.quantization(trees / "flashinfer" / "csrc", tmp_path)
    emulated = 0
    for name in emulate.QUANTIZATION:
        source = trees / "flashinfer" / "csrc" / "nv_internal" / name
        if not source.exists():
            continue
        theirs, ours = source.read_text(), (tmp_path / "include" / name).read_text()
        emulated += ours.count("sm120_on_sm90::to_e2m1")
        back = ours.replace("#else\n  return cute::sm120_on_sm90::to_e2m1(array);", emulate.UNSUPPORTED)
        changed = [(a, b) for a, b in zip(theirs.splitlines(), back.splitlines(), strict=True) if a != b]
        assert changed
        assert {b for a, b in changed} == {a.replace(">= 1000", ">= 900") for a, _ in changed}
        kept = [part.split("\n#else")[0] for part in ours.split("__CUDA_ARCH__ >= 1000")[1:]]
        assert all("e2m1x2" in part for part in kept)
    assert emulated == 3
    empty = tmp_path / "csrc" / "nv_internal" / emulate.QUANTIZATION[0]
    empty.parent.mkdir(parents=True)
    empty.write_text("")
    with pytest.raises(ValueError, match="no branch for SM100"):
        emulate.quantization(tmp_path / "csrc", tmp_path)
    sys.modules.pop("emulate")


ROUND = """
#include <cstdio>
#include "emulation.h"
int main() {
  float values[8] = {0.2f, 0.26f, -0.75f, 2.5f, 3.6f, -100.f, 0.f, 5.f};
  float2 pairs[8] = {};
  for (int i = 0; i < 8; ++i) pairs[i] = {float(i), -float(i)};
  std::printf("%08x %016lx\\n", cute::sm120_on_sm90::to_e2m1(values), cute::sm120_on_sm90::to_e2m1(pairs));
}
"""


@pytest.mark.nvcc
def test_fp4_is_rounded_without_its_instructions(
    nvcc: Callable[..., subprocess.CompletedProcess[str]], cutlass_includes: list[str], tmp_path: Path
) -> None:
    """Ties to even, past 6 cut off; of arrays of floats, and of pairs of them, the first value lowest."""
    # 0 .5 -1 2 4 -6 0 4, then 0 -0 1 -1 2 -2 3 -3 4 -4 4 -4 6 -6 6 -6
    assert run(nvcc, ROUND, tmp_path, cutlass_includes) == "60f64a10 f7f7e6e6d5c4a280\n"


def run(nvcc: Callable[..., subprocess.CompletedProcess[str]], text: str, folder: Path, includes: list[str]) -> str:
    """What a program with the emulation's header says, compiled for sm_90a."""
    source, program = folder / "program.cu", folder / "program"
    source.write_text(text)
    options = ["-arch=sm_90a", "-std=c++17", "--expt-relaxed-constexpr", f"-I{HERE}", *includes]
    done = nvcc(*options, "-o", str(program), str(source))
    assert done.returncode == 0, done.stderr
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def test_fp4_that_stays_packed_is_bytes_to_tma_alone(
    trees: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the threads read of shared memory is as it was: the copy differs where TMA is told of A and B."""
    monkeypatch.syspath_prepend(str(HERE))
    emulate = __import__("emulate")
    emulate.packed_collective(trees / "cutlass", tmp_path)
    theirs = (trees / "cutlass" / "include" / emulate.COLLECTIVE).read_text().splitlines()
    ours = (tmp_path / "include" / emulate.COLLECTIVE).read_text().splitlines()
    added = [line for line in ours if "using TmaSmemLayout" in line or "using TmaTileShape" in line]
    assert len(added) == 3
    kept = [line for line in ours if line not in added]
    changed = [(a.strip(), b.strip()) for a, b in zip(theirs, kept, strict=True) if a != b]
    assert len(changed) == 2 * 10
    assert not [b for _, b in changed if "SF" in b]
    mma = next(i for i, line in enumerate(kept) if "CUTLASS_DEVICE void" in line and "mma(" in kept[i + 1])
    after = next(i for i, line in enumerate(kept) if i > mma and line.startswith("  }"))
    assert theirs[mma:after] == kept[mma:after]
    sys.modules.pop("emulate")


@pytest.mark.sm90
@pytest.mark.parametrize("swap_ab", [False, True])
def test_the_generic_launchers_kernels_compute(trees: Path, tmp_path: Path, swap_ab: bool) -> None:
    """Twelve cases against float64, on an SM90 GPU."""
    need_sm90()
    assert wrong_cases(trees, tmp_path, "generic", swap_ab) == []
