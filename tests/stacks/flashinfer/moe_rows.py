"""The MoE kernels that lay out an expert's rows, run on a CPU: their own source and launchers; see moe_rows.cpp."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from topk_group import definition

#: Where the place of a scale is computed: in the second one of newer releases.
QUANTIZATION = tuple(f"csrc/nv_internal/tensorrt_llm/kernels/quantization{part}.cuh" for part in ("", "_utils"))
KERNELS = "csrc/fused_moe/cutlass_backend/cutlass_fused_moe_kernels.cuh"
SCALES = ("get_sf_out_offset_128x4", "get_sf_out_offset_8x4", "cvt_quant_get_sf_out_offset")
NEEDED = (
    "findTotalEltsLessThanTarget", "safe_inc_ptr", "getOffsetActivationSF", "quantizePackedFPXValue", "writeSF",
    "void expandInputRowsKernel", "void expandInputRowsKernelLauncher", "void doActivationKernel", "void doActivation",
)  # fmt: skip


def lay_out(trees: Path, folder: Path, cases: Sequence[str]) -> list[dict[str, Any]]:
    """What each case comes to."""
    source, program = folder / "rows.cpp", folder / "rows"
    text = Path(__file__).with_suffix(".cpp").read_text()
    tree = trees / "flashinfer"
    newer = (tree / QUANTIZATION[1]).exists()
    for mark, path, names in (("SCALES", QUANTIZATION[newer], SCALES), ("KERNELS", KERNELS, NEEDED)):
        upstream = (tree / path).read_text()
        text = text.replace(f"\n{mark}\n", "\n" + "\n".join(definition(upstream, name) for name in names) + "\n", 1)
    source.write_text(text)
    subprocess.run(["g++", "-std=c++17", "-w", "-O1", *["-DNEWER"] * newer, source, "-o", program], check=True)
    given = "\n".join(cases) + "\n"
    said = subprocess.run([program], input=given, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(said) == len(cases), said
    return [json.loads(line) for line in said]
