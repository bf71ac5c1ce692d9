"""Compare kernels of the vLLM stack with vLLM's own and with others, on a GPU, in one run. Prints JSON.

    PYTHONPATH=<vllm tree>:<flashinfer> python benchmarks/gpu_kernels.py <vllm tree>/csrc

All times are medians of CUDA graph replays:

- `quantize`: the stack's Triton MXFP8 quantizer and FlashInfer's CUDA kernel. That kernel is empty below SM100, so its
  guards are lowered to 900 in a copy of its source.
- `routing`: choice of 4 of 128 experts by vLLM's fused topk_softmax, by torch, and by the stack's Triton kernel.
- `verification`: check of a chain of drafts by the V2 runner's Triton kernel and by torch.
- `drafts`: the k largest of 201088 logits by torch.topk, which vLLM's Eagle uses for trees, by FlashInfer's top_k, and
  by argmax, which Eagle uses for chains.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
from lowered import lowered

REPEATS, INNER = 25, 20
BINDINGS = """
#include <torch/extension.h>
void topk_softmax(torch::Tensor& w, torch::Tensor& i, torch::Tensor& t, torch::Tensor& g, bool renormalize);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("topk_softmax", &topk_softmax); }
"""


def measure(functions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the median microseconds of each function. The functions take turns."""
    graphs = {}
    for name, function in functions.items():
        for _ in range(3):
            function()
        torch.cuda.synchronize()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for _ in range(INNER):
                function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(REPEATS):
        for name, graph in graphs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end) * 1000 / INNER)
    return {name: round(sorted(found)[REPEATS // 2], 2) for name, found in times.items()}


def lowered_flashinfer(work: Path) -> Callable[..., Any]:
    """Return FlashInfer's mxfp8_quantize with the guards of its MXFP8 kernel lowered to SM90."""
    import flashinfer
    from flashinfer.jit import env

    shutil.copytree(env.FLASHINFER_CSRC_DIR, work / "csrc")
    path = work / "csrc/nv_internal/tensorrt_llm/kernels/quantization.cuh"
    wanted = ("cvt_warp_fp16_to_mxfp8", "quantize_with_block_size", "cvt_quant_get_sf_out_offset")
    path.write_text(lowered(path.read_text(), wanted))
    env.FLASHINFER_CSRC_DIR = work / "csrc"
    quantize: Callable[..., Any] = flashinfer.mxfp8_quantize
    return quantize


def quantize(work: Path) -> dict[str, Any]:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/stacks/vllm"))
    from mxfp8_reference import cases, reference
    from vllm.model_executor.layers.quantization.utils.mxfp8_triton import mxfp8_quantize_swizzled

    peer = lowered_flashinfer(work)
    equal = {}
    for name, x in cases("cuda"):
        ours, theirs, exact = mxfp8_quantize_swizzled(x), peer(x, True, 32), reference(x)
        same = [
            bool(torch.equal(a.view(torch.uint8).flatten(), b.view(torch.uint8).flatten()))
            for other in (exact, theirs)
            for a, b in zip(ours, other, strict=True)
        ]
        equal[name] = dict(zip(("reference values", "reference scales", "FlashInfer values", "FlashInfer scales"), same,
                               strict=True))  # fmt: skip
    rows = []
    for m in (1, 2, 4, 8, 32, 128, 512, 2048, 8192):
        x = torch.randn(m, 2944, device="cuda").bfloat16()
        rows.append({"rows": m, "us": measure({
            "triton": lambda x=x: mxfp8_quantize_swizzled(x), "flashinfer": lambda x=x: peer(x, True, 32),
        })})  # fmt: skip
    return {"equal": equal, "times": rows}


def routing(csrc: Path, work: Path) -> list[dict[str, Any]]:
    from torch.utils.cpp_extension import load
    from vllm.model_executor.layers.fused_moe.triton_topk import triton_topk_softmax

    (work / "bindings.cpp").write_text(BINDINGS)
    vllm = load(
        name="vllm_topk", sources=[str(csrc / "moe/topk_softmax_kernels.cu"), str(work / "bindings.cpp")],
        extra_include_paths=[str(csrc)], extra_cuda_cflags=["-O3"], build_directory=str(work),
    )  # fmt: skip
    rows = []
    for m in (1, 2, 4, 8, 32, 128, 512, 2048, 8192):
        logits = torch.randn(m, 128, device="cuda").bfloat16()
        weights, ids = torch.empty(m, 4, device="cuda"), torch.empty(m, 4, device="cuda", dtype=torch.int32)
        source, source2, weights2, ids2 = (torch.empty_like(t) for t in (ids, ids, weights, ids))

        def in_torch(logits: torch.Tensor = logits) -> tuple[torch.Tensor, torch.Tensor]:
            values, chosen = torch.topk(logits.float(), 4, dim=-1)
            return torch.softmax(values, -1), chosen.int()

        def fused(w: Any = weights, i: Any = ids, s: Any = source, g: Any = logits) -> None:
            vllm.topk_softmax(w, i, s, g, True)

        def in_triton(w: Any = weights2, i: Any = ids2, s: Any = source2, g: Any = logits) -> None:
            triton_topk_softmax(w, i, s, g, True)

        fused()
        in_triton()
        expected, _ = in_torch()
        errors = {n: float((w - expected).abs().max()) for n, w in (("vllm", weights), ("triton", weights2))}
        rows.append({"tokens": m, "us": measure({"vllm": fused, "triton": in_triton, "torch": in_torch}),
                     "largest difference to torch": errors, "same experts": bool(torch.equal(ids, ids2)),
                     "same source rows": bool(torch.equal(source, source2))})  # fmt: skip
    return rows


def verification() -> list[dict[str, Any]]:
    from vllm.v1.worker.gpu.spec_decode.rejection_sample import rejection_sample

    rows, steps = [], 4
    for m in (1, 4, 16, 64):
        target = torch.randint(0, 3, (m * (steps + 1),), device="cuda")
        drafted = torch.randint(0, 3, (m * (steps + 1),), device="cuda")
        ends = torch.arange(0, (m + 1) * (steps + 1), steps + 1, device="cuda", dtype=torch.int32)

        def in_triton(t: Any = target, d: Any = drafted, e: Any = ends) -> Any:
            return rejection_sample(t, d, e, steps)

        def in_torch(t: Any = target, d: Any = drafted, m: int = m) -> Any:
            t, d = t.view(m, steps + 1), d.view(m, steps + 1)
            return t, (t[:, :-1] == d[:, 1:]).int().cumprod(1).sum(1, dtype=torch.int32) + 1

        same = torch.equal(in_triton()[1], in_torch()[1])
        rows.append({"requests": m, "drafts": steps, "same": bool(same),
                     "us": measure({"vllm": in_triton, "torch": in_torch})})  # fmt: skip
    return rows


def drafts() -> list[dict[str, Any]]:
    import flashinfer

    rows = []
    for m in (1, 2, 4, 16):
        logits = torch.randn(m, 201088, device="cuda")
        for k in (1, 4, 8):
            functions: dict[str, Callable[[], object]] = {
                "torch.topk": lambda x=logits, k=k: torch.topk(x, k, dim=-1),
                "flashinfer.top_k": lambda x=logits, k=k: flashinfer.top_k(x, k, sorted=True),
            }
            if k == 1:
                functions["argmax"] = lambda x=logits: x.argmax(-1)
            same = torch.equal(torch.topk(logits, k, dim=-1)[1], flashinfer.top_k(logits, k, sorted=True)[1])
            rows.append({"rows": m, "k": k, "us": measure(functions), "same": bool(same)})
    return rows


def main() -> None:
    csrc = Path(sys.argv[1]).resolve()
    sys.modules.setdefault("vllm._C", ModuleType("vllm._C"))
    import vllm.platforms
    from vllm.platforms.interface import UnspecifiedPlatform

    vllm.platforms._current_platform = UnspecifiedPlatform()
    found: dict[str, Any] = {"machine": {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                                         "cuda": torch.version.cuda, "triton": triton.__version__}}  # fmt: skip
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        for name, part in (("routing", lambda: routing(csrc, Path(two))), ("verification", verification), ("drafts", drafts),
                           ("quantize", lambda: quantize(Path(one)))):  # fmt: skip
            try:
                found[name] = part()
            except Exception as error:  # one that can't be had says so beside the others
                found[name] = {"error": f"{type(error).__name__}: {error}"[:1500]}
    print(json.dumps(found))
    failed = [name for name, part in found.items() if "error" in part]
    sys.exit(f"not measured: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
