"""vLLM's MXFP4 linear layers with the real Marlin kernels, on a GPU, against the dequantized weight. Prints JSON.

    PYTHONPATH=<vllm tree> python tests/stacks/vllm/sm90_marlin.py <vllm tree>/csrc

Needs a GPU of compute capability 8.0 or newer, nvcc, ninja, jinja2. Builds Marlin's MXFP4 kernels and repacking from
the tree's csrc and registers them as vLLM does; quantizer, layout, padding and call are the patched tree's.
"""

from __future__ import annotations

import json
import runpy
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

SHAPES = {"qkv": (5120, 2880), "o": (2880, 4096), "lm_head": (201088, 2880), "lm_head, 2 ranks": (100544, 2880)}
ROWS = (1, 2, 4, 16, 64)
BINDINGS = """
#include <torch/library.h>
TORCH_LIBRARY(_C, ops) {
  ops.def(
      "gptq_marlin_gemm(Tensor a, Tensor? c_or_none, Tensor b_q_weight, Tensor? b_bias_or_none, Tensor b_scales, "
      "Tensor? a_scales, Tensor? global_scale, Tensor? b_zeros_or_none, Tensor? g_idx_or_none, Tensor? perm_or_none, "
      "Tensor workspace, int b_type_id, SymInt size_m, SymInt size_n, SymInt size_k, bool is_k_full, "
      "bool use_atomic_add, bool use_fp32_reduce, bool is_zp_float) -> Tensor");
  ops.def(
      "gptq_marlin_repack(Tensor b_q_weight, Tensor perm, SymInt size_k, SymInt size_n, int num_bits, "
      "bool is_a_8bit) -> Tensor");
}
"""


def build(csrc: Path, work: Path) -> None:
    """Compile the MXFP4 kernels that take BF16, of Marlin's, and load them as torch.ops._C."""
    from torch.utils.cpp_extension import load

    shutil.copytree(csrc, work / "csrc", dirs_exist_ok=True)
    folder = work / "csrc" / "quantization" / "gptq_marlin"
    sys.argv[1:] = ["9.0"]
    generator = runpy.run_path(str(folder / "generate_kernels.py"), run_name="generator")
    mxfp4 = [
        c for c in generator["QUANT_CONFIGS"] if c.get("s_type") == "kFE8M0fnu" and c.get("a_type") == ["kBFloat16"]
    ]
    generator["generate_new_kernels"].__globals__["QUANT_CONFIGS"] = mxfp4
    generator["generate_new_kernels"]()
    (folder / "bindings.cpp").write_text(BINDINGS)
    names = ["gptq_marlin.cu", "gptq_marlin_repack.cu", "bindings.cpp"]
    load(
        name="_C", sources=[*(str(folder / n) for n in names), *map(str, folder.glob("sm80_kernel_*.cu"))],
        extra_include_paths=[str(work / "csrc")],
        extra_cuda_cflags=["-static-global-template-stub=false", "-O3"],
        is_python_module=False, build_directory=str(work),
    )  # fmt: skip


def dequantized(mxfp4: ModuleType, weight: torch.Tensor) -> torch.Tensor:
    values, scales = mxfp4.mxfp4_e2m1_quantize(weight)
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device="cuda")
    codes = torch.stack([values & 15, values >> 4], -1).flatten(1)
    factors = torch.exp2(scales.float() - 127).repeat_interleave(32, 1)
    return torch.cat([grid, -grid])[codes.int()] * factors


def time_of(function: Any) -> float:
    """Median microseconds, by CUDA graph replay."""
    for _ in range(3):
        function()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            function()
    times = []
    for _ in range(15):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 100)
    return sorted(times)[len(times) // 2]


def shape_of(mxfp4: ModuleType, name: str, n: int, k: int) -> list[dict[str, Any]]:
    generator = torch.Generator("cuda").manual_seed(n)
    weight = (torch.randn(n, k, device="cuda", generator=generator) / k**0.5).bfloat16()
    bias = torch.randn(n, device="cuda", generator=generator).bfloat16()
    layer = torch.nn.Module()
    layer.weight, layer.bias = (torch.nn.Parameter(t.clone(), requires_grad=False) for t in (weight, bias))
    mxfp4._quantize_for_marlin(layer, layer.weight.data, layer.bias)
    plain = dequantized(mxfp4, weight)
    rows = []
    for m in ROWS:
        x = torch.randn(m, k, device="cuda", generator=generator).bfloat16()
        got = mxfp4._apply_marlin(layer, x, layer.bias)
        assert got.shape == (m, n)
        want = x.float() @ plain.T + bias.float()
        # Of whole numbers the sums are exact in float32, and the result is rounded once.
        whole = torch.randint(-2, 3, (m, k), device="cuda", generator=generator).bfloat16()
        rows.append({
            "layer": name, "n": n, "k": k, "rows": m,
            "relative_error": float((got.float() - want).norm() / want.norm()),
            "us_marlin": time_of(lambda x=x: mxfp4._apply_marlin(layer, x, layer.bias)),
            "us_bf16": time_of(lambda x=x: torch.nn.functional.linear(x, weight, bias)),
            "bit_for_bit": exact(mxfp4, n, k, whole),
        })  # fmt: skip
    return rows


def exact(mxfp4: ModuleType, n: int, k: int, x: torch.Tensor) -> bool:
    """Weights on the grid of one scale, activations whole: every partial sum is exact, the result is rounded once."""
    n = min(n, 5120)
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -1, -1.5, -2, -3, -4, -6], device="cuda").bfloat16()
    generator = torch.Generator("cuda").manual_seed(k)
    weight = grid[torch.randint(0, len(grid), (n, k), device="cuda", generator=generator)]
    weight[:, ::32] = 6
    layer = torch.nn.Module()
    mxfp4._quantize_for_marlin(layer, weight, None)
    want = (x.double() @ weight.double().T).bfloat16()
    return bool(torch.equal(mxfp4._apply_marlin(layer, x, None), want))


def main() -> None:
    csrc = Path(sys.argv[1]).resolve()
    sys.modules.setdefault("vllm._C", ModuleType("vllm._C"))
    import vllm.platforms
    from vllm.platforms.interface import DeviceCapability, Platform, PlatformEnum, UnspecifiedPlatform

    vllm.platforms._current_platform = UnspecifiedPlatform()
    with tempfile.TemporaryDirectory() as work:
        build(csrc, Path(work))
        import vllm.model_executor.layers.quantization.mxfp4 as mxfp4
        from vllm.model_executor.layers.quantization.utils import marlin_utils, marlin_utils_fp4

        class Cuda(Platform):
            _enum = PlatformEnum.CUDA
            device_type = "cuda"

            @classmethod
            def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:
                return DeviceCapability(*torch.cuda.get_device_capability())

        for module in (mxfp4, marlin_utils, marlin_utils_fp4):
            module.current_platform = Cuda()
        results = [row for name, (n, k) in SHAPES.items() for row in shape_of(mxfp4, name, n, k)]
    machine = {
        "gpu": torch.cuda.get_device_name(), "capability": torch.cuda.get_device_capability(),
        "torch": torch.__version__, "cuda": torch.version.cuda,
    }  # fmt: skip
    print(json.dumps({"machine": machine, "results": results}))
    wrong = [r for r in results if not (r["relative_error"] < 1e-2 and r["bit_for_bit"])]
    sys.exit(f"wrong: {wrong}" if wrong else 0)


if __name__ == "__main__":
    main()
