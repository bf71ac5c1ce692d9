"""Which tactics FlashInfer's MoE binding sets: two of its methods, compiled alone; see moe_choice.cpp."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

BINDING = "csrc/fused_moe/cutlass_backend/flashinfer_cutlass_fused_moe_binding.cu"
METHODS = ("Profile untunedTactic(", "void setRunnerProfiles(")


def method(text: str, head: str) -> str:
    """A method's text, from its head to its closing brace; empty where there is none."""
    start = text.find(head)
    if start < 0:
        return ""
    depth = 0
    for end in range(text.index("{", text.index(")", start)), len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if not depth:
            return text[start : end + 1]
    raise ValueError(f"{head} has no end")


def choose(trees: Path, folder: Path, cases: Sequence[str]) -> list[str]:
    """What each case's tactics come to."""
    text = (trees / "flashinfer" / BINDING).read_text()
    source, program = folder / "choice.cpp", folder / "choice"
    methods = "\n".join(method(text, head) for head in METHODS)
    source.write_text(Path(__file__).with_suffix(".cpp").read_text().replace("  METHODS\n", methods + "\n"))
    subprocess.run(["g++", "-std=c++17", "-w", source, "-o", program], check=True)
    given = "\n".join(cases) + "\n"
    said = subprocess.run([program], input=given, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(said) == len(cases), said
    return said


#: Tactics of both GEMMs, as the program takes them.
FIRST, SECOND = "128x128,128x128s,128x32,128x32s,128x64,128x64s", "128x128,128x64s,128x32s,128x128s"
#: Rows, choices a row, experts; and the smallest tiles that the rows of an expert fit into.
SMALLEST = [
    (1, 4, 128, "128x32s 128x32s"),  # an expert has a row
    (8, 4, 1, "128x32s 128x32s"),  # 32 fit
    (33, 1, 1, "128x64s 128x64s"),
    (64, 4, 4, "128x64s 128x64s"),
    (65, 1, 1, "128x128 128x128"),
    (2048, 4, 128, "128x64s 128x64s"),
    (4096, 4, 128, "128x128 128x128"),
    (33, 4, 4, "128x64s 128x64s"),  # rounded up
]
