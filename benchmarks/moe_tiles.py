"""Print registers, spills, shared memory and stages of each tile of SM120's MXFP8 x MXFP4 grouped GEMM.

    python benchmarks/moe_tiles.py --trees .patchq/trees [--tile 128x128 --tile 128x64 --tile 128x32]

Compiles the kernels of `flashinfer/sm120-namespace-launcher` for sm_121f with nvcc, one minute each. Needs no GPU. Tiles
with N below 128 need the set `gb10-next`. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "stacks" / "flashinfer"))
from moe_unit import COMMON_SOURCES, compiler_options, write_unit

MAIN = """
#include <cstdio>
int main() {
  using Kernel = tensorrt_llm::kernels::cutlass_kernels_oss::sm120_mixed_input::kernel0::Kernel;
  std::printf("%d %d\\n", int(Kernel::CollectiveMainloop::DispatchPolicy::Stages), Kernel::GemmKernel::SharedStorageSize);
}
"""


def measure(trees: Path, tile: tuple[int, int], fusion: str, swap_ab: bool) -> str:
    """Compile one tile and return its row."""
    with tempfile.TemporaryDirectory(prefix="moe-tiles-") as text:
        folder = Path(text)
        unit = write_unit(trees, folder, "namespace", [(tile, fusion, swap_ab)])
        unit.write_text(unit.read_text() + MAIN)
        program = folder / "program"
        options = [
            "-gencode=arch=compute_121f,code=sm_121f",
            "-Xptxas",
            "-v",
            "-DNDEBUG",
            *compiler_options(trees, folder),
        ]
        sources = [unit, *(trees / "flashinfer" / s for s in COMMON_SOURCES)]
        command = ["nvcc", *options, "-x", "cu", *map(str, sources), "-o", str(program)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        # The grouped GEMM is the unit's only large kernel.
        registers = max(int(n) for n in re.findall(r"Used (\d+) registers", done.stderr))
        spills = max(int(n) for n in re.findall(r"(\d+) bytes spill stores", done.stderr))
        stages, shared = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
        swapped = "swapped" if swap_ab else "standard"
        name = f"{tile[0]}x{tile[1]}x128"
        return f"| {name} | {swapped} | {fusion.lower()} | {registers} | {spills} | {shared} | {stages} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=Path, required=True)
    parser.add_argument("--tile", action="append", help="128x128, 128x64 or 128x32")
    given = parser.parse_args()
    print(
        "| tile | operands | fused | registers | spilled bytes | shared memory | stages |\n|---|---|---|---|---|---|---|"
    )
    for text in given.tile or ["128x128"]:
        m, n = map(int, text.split("x"))
        for fusion, swap_ab in (("NONE", False), ("NONE", True), ("FINALIZE", True)):
            print(measure(given.trees.resolve(), (m, n), fusion, swap_ab), flush=True)


if __name__ == "__main__":
    main()
