"""What of the emulation of SM120 on SM90 can be checked without a GPU; its results: docs/evidence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

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
    source, program = tmp_path / "convert.cu", tmp_path / "convert"
    source.write_text(CONVERT)
    options = ["-arch=sm_90a", "-std=c++17", "--expt-relaxed-constexpr", f"-I{HERE}", *cutlass_includes]
    done = nvcc(*options, "-o", str(program), str(source))
    assert done.returncode == 0, done.stderr
    codes = list(map(int, subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()))
    values = torch.tensor(codes, dtype=torch.uint8).view(torch.float8_e4m3fn).float().tolist()
    assert values == [*LEVELS, *(-v for v in LEVELS)]


@pytest.mark.sm90
@pytest.mark.parametrize("swap_ab", [False, True])
@pytest.mark.parametrize("launcher", ["namespace", "generic"])
def test_the_emulated_kernels_compute(
    trees: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str, swap_ab: bool
) -> None:
    """Twelve cases against float64, on an SM90 GPU; exchanging the scales of A and B in the launcher makes them wrong."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("not run: needs sm90")
    monkeypatch.syspath_prepend(str(HERE))
    program = __import__("emulate").build(trees, tmp_path, launcher, (128, 128), swap_ab)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.stdout.count('"wrong": 0,') == 12, done.stdout
    assert done.returncode == 0
