"""What FlashInfer's launcher says of whether a grouped kernel waits for the grid ahead: its function, compiled alone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

LAUNCHER = "csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels/moe_gemm/launchers/moe_gemm_tma_ws_launcher.inl"
ASKED = """
#include <cstdio>
template <int N> struct Arch { static constexpr int kMinComputeCapability = N; };
FUNCTION
int main() { std::printf("%d %d %d %d\\n", grouped_gemm_waits_for_grid<Arch<90>>(), grouped_gemm_waits_for_grid<Arch<100>>(),
                         grouped_gemm_waits_for_grid<Arch<103>>(), grouped_gemm_waits_for_grid<Arch<120>>()); }
"""


def asked(trees: Path, folder: Path, flags: list[str], version: int) -> str:
    """What the launcher's function, compiled alone, says of SM90, SM100, SM103 and SM120: by flags and CUTLASS."""
    text = (trees / "flashinfer" / LAUNCHER).read_text()
    found = re.search(
        r"template <class ArchTag>\nconstexpr bool grouped_gemm_waits_for_grid\(\) \{\n.*?\n\}\n", text, re.S
    )
    assert found, "PDL is never left off"
    source, program = folder / "asked.cpp", folder / "asked"
    source.write_text(ASKED.replace("FUNCTION", found[0]))
    subprocess.run(["g++", "-std=c++17", f"-DCUTLASS_VERSION={version}", *flags, source, "-o", program], check=True)
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip()
