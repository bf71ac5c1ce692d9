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


LAUNCHED = """
#include <cstdio>
#include <initializer_list>
template <int N> struct Arch { static constexpr int kMinComputeCapability = N; };
FUNCTION
struct Input { bool enable_pdl; };
template <class ArchTag> bool launched(Input tma_ws_input) { return EXPRESSION; }
int main() { for (bool asked : {false, true}) std::printf("%d %d %d %d\\n", launched<Arch<90>>({asked}),
    launched<Arch<100>>({asked}), launched<Arch<103>>({asked}), launched<Arch<120>>({asked})); }
"""


def answered(trees: Path, folder: Path, program: str, flags: list[str], version: int) -> str:
    """What a program with the launcher's function in it prints."""
    text = (trees / "flashinfer" / LAUNCHER).read_text()
    found = re.search(
        r"template <class ArchTag>\nconstexpr bool grouped_gemm_waits_for_grid\(\) \{\n.*?\n\}\n", text, re.S
    )
    assert found, "PDL is never left off"
    source, made = folder / "asked.cpp", folder / "asked"
    source.write_text(program.replace("FUNCTION", found[0]))
    subprocess.run(["g++", "-std=c++17", f"-DCUTLASS_VERSION={version}", *flags, source, "-o", made], check=True)
    return subprocess.run([made], capture_output=True, text=True, check=True).stdout.strip()


def launched(trees: Path, folder: Path, flags: list[str], version: int) -> list[str]:
    """Whether the launcher overlaps grids on each of those architectures: where it isn't asked to, and where it is."""
    text = (trees / "flashinfer" / LAUNCHER).read_text().replace("\\\n", "\n")
    (expression,) = re.findall(r"gemm\.run\(\s*stream, nullptr, (.*?)\);", text, re.S)
    program = LAUNCHED.replace("EXPRESSION", " ".join(expression.split()))
    return answered(trees, folder, program, flags, version).splitlines()


def asked(trees: Path, folder: Path, flags: list[str], version: int) -> str:
    """What the launcher's function, compiled alone, says of SM90, SM100, SM103 and SM120: by flags and CUTLASS."""
    return answered(trees, folder, ASKED, flags, version)
