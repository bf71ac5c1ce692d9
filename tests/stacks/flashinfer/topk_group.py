"""FlashInfer's radix top-k kernels, run on a CPU by a schedule: their own source; see topk_group.cpp."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

HEADERS = "include/flashinfer/topk_common.cuh", "include/flashinfer/topk.cuh"
#: In the order of the file; what a release lacks is left out.
NEEDED = (
    "struct RadixTopKTraits<float>", "ld_acquire", "red_release", "st_release", "atom_add_release", "wait_ge",
    "struct RadixRowState", "struct RadixDeterministicCollectScratch", "AdvanceRadixGroupBarrier", "RadixLeaveGroup",
    "RadixGroupResetStateLastCTA", "RadixSuffixSum", "RadixFindThresholdBucket", "RadixBuildLocalHistogram",
    "RadixSelectOneRound", "RadixSelectFromSharedMemory", "LoadToSharedOrdered", "RadixSelectFindPivot",
    "RadixCollectIndices", "enum class RadixTopKMode", "struct DirectPageTableKernelPolicy", "RadixTopKKernel_Unified", "RadixTopKMaskLogitsKernel_MultiCTA",
    "RadixTopKRenormProbKernel_MultiCTA",
)  # fmt: skip
#: What the primitives are on a CPU where the header has PTX for all GPUs.
LOAD = re.compile(r'asm volatile\("ld\.cg\.global\.b32 %0, \[%1\];\\n" : "=r"\(state\) : "l"\(ptr\)\);')
#: ``single`` is ``indices`` by one block a row, ``rounds`` is masked by a function that no kernel calls.
KERNELS = ("mask", "renorm", "indices", "single", "pages", "ragged", "rounds")
#: Blocks of each group of three, by rank or by a seed: a seed changes the order after some 4, 64 or 1024 steps.
SCHEDULES = ("0,1,2,3,4,5", "5,4,3,2,1,0", "1,2,0,4,5,3", "1", "2", "3")


def definition(text: str, name: str) -> str:
    """All definitions of a name at the top level, each from the end of what stands before it to its last brace."""
    return "\n".join(
        whole(text, found.start(), name)
        for found in re.finditer(rf"^(?!//|#|\s).*\b{re.escape(name)}(?!\w)[^;]*?\{{", text, re.MULTILINE)
    )


def whole(text: str, head: int, name: str) -> str:
    """The definition whose name is in the line at ``head``, with its template's parameters."""
    ends = ("\n}\n", "*/\n", "\n};\n", "\n\n")
    last = max(text.rfind(end, 0, head + 1) + len(end) for end in ends)
    depth = 0
    for end in range(text.index("{", head), len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if not depth:
            return text[last : end + 1] + (";" if name.startswith(("struct", "enum")) else "")
    raise ValueError(f"{name} has no end")


def build(trees: Path, folder: Path) -> Path:
    """Build the program over the kernels of v0.6.1 or of v0.7.2.post1."""
    headers = [trees / "flashinfer" / header for header in HEADERS]
    text = "\n".join(header.read_text() for header in headers if header.exists())
    text, loads = LOAD.subn("state = load_counter(ptr);", text)
    if loads != 1:
        raise ValueError(f"ld_acquire has {loads} loads for a CPU")
    needed = "\n".join(definition(text, name) for name in NEEDED)
    source, program = folder / "topk.cpp", folder / "topk"
    source.write_text(Path(__file__).with_suffix(".cpp").read_text().replace("KERNELS\n", needed + "\n", 1))
    flags = ["-std=c++17", "-w", "-O1", "-pthread", "-fno-extern-tls-init", f"-I{Path(__file__).parent}"]
    flags += ["-DV0_7"] if "RadixDeterministicCollectScratch" in text else []
    subprocess.run(["g++", *flags, source, "-o", program], check=True)
    return program


def run(program: Path, kernel: str, schedule: str, rows: str = "all") -> dict[str, Any]:
    """Run two launches of a kernel over one state: of rows that ``all`` are selected from, or ``some``."""
    given = f"{kernel} {rows} {schedule}\n"
    said = subprocess.run([program], input=given, capture_output=True, text=True, check=True, timeout=120)
    answer: dict[str, Any] = json.loads(said.stdout)
    return answer
