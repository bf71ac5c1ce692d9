"""vLLM's patched FlashInfer builder and layers on a GPU, against a float32 reference. Prints JSON.

    VLLM_KV_CACHE_LAYOUT=HND PYTHONPATH=<vllm tree>:<flashinfer tree> python tests/stacks/vllm/sm90_flashinfer.py

Needs a GPU of compute capability 8.0 or newer and nvcc. vLLM is made to take it for SM121, and FlashInfer to
choose what it chooses there, FA2; the kernels are compiled for the GPU that is there. Three layers of one KV cache group: two of the target with sinks,
one of them with a window, and one of a draft without sinks and with another scale, so three plans a step.
"""

from __future__ import annotations

import json
import math
import sys
from types import ModuleType
from typing import Any

import torch

HEADS, KV_HEADS, DIM, PAGE, PAGES = 64, 8, 64, 16, 512
LIMIT = 1e-2
BATCHES = {
    "prefill": ([300, 17, 128], [300, 417, 128]),
    "decode": ([1, 1, 1, 1], [5, 400, 16, 1000]),
    "mixed": ([1, 1, 200], [333, 64, 500]),
}


def patched_vllm() -> ModuleType:
    """Import vLLM without its compiled operators, then let it take the GPU for SM121."""
    sys.modules.setdefault("vllm._C", ModuleType("vllm._C"))
    import vllm.platforms
    from vllm.platforms.interface import DeviceCapability, Platform, PlatformEnum, UnspecifiedPlatform

    vllm.platforms._current_platform = UnspecifiedPlatform()
    import vllm.utils.flashinfer as utils
    import vllm.v1.attention.backends.flashinfer as backend

    class Sm121(Platform):
        _enum = PlatformEnum.CUDA
        device_type = "cuda"

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:
            return DeviceCapability(12, 1)

    utils.current_platform = backend.current_platform = Sm121()
    # FA3 is what FlashInfer chooses on SM90 alone.
    import flashinfer.decode
    import flashinfer.prefill

    flashinfer.decode.determine_attention_backend = lambda *args: "fa2"
    flashinfer.prefill.determine_attention_backend = lambda *args: "fa2"
    module: ModuleType = backend
    return module


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, sinks: torch.Tensor | None, window: int | None
) -> torch.Tensor:
    """Causal attention of the last queries; q is [new, heads, dim], k and v [length, kv heads, dim], float32."""
    new, length = q.shape[0], k.shape[0]
    k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    at, seen = torch.arange(length - new, length, device=q.device)[:, None], torch.arange(length, device=q.device)
    mask = seen <= at
    if window is not None:
        mask &= seen > at - window
    scores = scores.masked_fill(~mask, -math.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(-1, new, 1)], -1)
    weights = torch.softmax(scores, -1)[..., :length]
    return torch.einsum("hqk,khd->qhd", weights, v)


class Setup:
    """Builder, layers, and a KV cache in HND with random contents, in one KV cache dtype."""

    def __init__(self, backend: ModuleType, setup: ModuleType, kv_cache_dtype: str, graphs: bool = False) -> None:
        generator = torch.Generator("cuda").manual_seed(11)
        self.generator, self.setup = generator, setup
        sinks = [torch.randn(HEADS, device="cuda", generator=generator) * 3 for _ in range(2)]
        self.specs = [
            setup.Spec("model.layers.0.attn", sinks=sinks[0]),
            setup.Spec("model.layers.1.attn", sinks=sinks[1], window=128),
            setup.Spec("draft.layers.0.attn", scale=0.2, is_draft=True),
        ]
        self.layers = setup.make_layers(backend, self.specs, HEADS, KV_HEADS, DIM, kv_cache_dtype)
        self.builder = setup.make_builder(
            backend, self.layers, HEADS, KV_HEADS, DIM, kv_cache_dtype=kv_cache_dtype, device="cuda", graphs=graphs
        )
        self.scales = (0.6, 1.7) if kv_cache_dtype == "fp8" else (1.0, 1.0)
        for layer in self.layers.values():
            layer._k_scale_float, layer._v_scale_float = self.scales
        stored = torch.randn(PAGES, 2, KV_HEADS, PAGE, DIM, device="cuda", generator=generator)
        dtype = torch.float8_e4m3fn if kv_cache_dtype == "fp8" else torch.bfloat16
        # [pages, 2, heads, page, dim] in memory, seen as [pages, 2, page, heads, dim]: the layout HND.
        self.cache = stored.to(dtype).permute(0, 1, 3, 2, 4)

    def batch(self, query_lens: list[int], seq_lens: list[int]) -> tuple[Any, torch.Tensor, torch.Tensor]:
        """Metadata of a step on random pages, its block table, and its queries."""
        order = torch.randperm(PAGES, device="cuda", generator=self.generator).int()
        table = order[: len(seq_lens) * 64].view(len(seq_lens), 64)
        common = self.setup.batch(query_lens, seq_lens, table, "cuda")
        query = torch.randn(sum(query_lens), HEADS, DIM, device="cuda", generator=self.generator).bfloat16()
        return self.builder.build(0, common), table, query

    def forward(self, name: str, query: torch.Tensor, metadata: Any, output: torch.Tensor) -> None:
        new = torch.empty(query.shape[0], KV_HEADS, DIM, device="cuda", dtype=torch.bfloat16)
        self.layers[name].impl.forward(self.layers[name], query, new, new, self.cache, metadata, output=output)

    def error(
        self, spec: Any, query: torch.Tensor, table: torch.Tensor, output: torch.Tensor, query_lens: list[int],
        seq_lens: list[int],
    ) -> float:  # fmt: skip
        """Relative error over the whole batch; a request of length 0 is padding."""
        want, got, start = [], [], 0
        for request, (new, length) in enumerate(zip(query_lens, seq_lens, strict=True)):
            rows = slice(start, start + new)
            start += new
            if length == 0:
                continue
            pages = self.cache[table[request, : -(-length // PAGE)].long()].float()
            k, v = (pages[:, i].flatten(0, 1)[:length] * self.scales[i] for i in (0, 1))
            want.append(reference(query[rows].float(), k, v, spec.scale, spec.sinks, spec.window))
            got.append(output[rows].float())
        expected, actual = torch.cat(want), torch.cat(got)
        return float((actual - expected).norm() / expected.norm())


def eager(setup: Setup) -> list[dict[str, Any]]:
    rows = []
    for batch, (query_lens, seq_lens) in BATCHES.items():
        metadata, table, query = setup.batch(query_lens, seq_lens)
        for spec in setup.specs:
            output = torch.empty_like(query)
            setup.forward(spec.name, query, metadata, output)
            error = setup.error(spec, query, table, output, query_lens, seq_lens)
            rows.append({"batch": batch, "layer": spec.name, "window": spec.window, "sinks": spec.sinks is not None,
                         "relative_error": error})  # fmt: skip
    return rows


def graph(setup: Setup) -> list[dict[str, Any]]:
    """Capture a decode of four requests; replay it for other lengths and pages, the last of them padding."""
    first, lens, ones = [64, 64, 64, 64], [777, 31, 256, 0], [1, 1, 1, 1]
    metadata, _, query = setup.batch(ones, first)
    outputs = {spec.name: torch.zeros_like(query) for spec in setup.specs}

    def run() -> None:
        for name, output in outputs.items():
            setup.forward(name, query, metadata, output)

    run()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        run()
    _, table, other = setup.batch(ones, lens)
    query.copy_(other)
    captured.replay()
    torch.cuda.synchronize()
    return [
        {"batch": "decode, CUDA graph", "layer": spec.name, "window": spec.window, "sinks": spec.sinks is not None,
         "relative_error": setup.error(spec, query, table, outputs[spec.name], ones, lens)}
        for spec in setup.specs
    ]  # fmt: skip


def main() -> None:
    backend = patched_vllm()
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parent))
    import flashinfer
    import flashinfer_setup
    from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
    from vllm.v1.attention.backends.utils import get_kv_cache_layout

    results = []
    with set_current_vllm_config(VllmConfig(device_config=DeviceConfig(device="cuda"))):
        assert get_kv_cache_layout() == "HND", "set VLLM_KV_CACHE_LAYOUT=HND"
        for kv_cache_dtype in ("auto", "fp8"):
            rows = eager(Setup(backend, flashinfer_setup, kv_cache_dtype))
            rows += graph(Setup(backend, flashinfer_setup, kv_cache_dtype, graphs=True))
            results += [{"kv_cache_dtype": "bf16" if kv_cache_dtype == "auto" else "fp8_e4m3", **row} for row in rows]
    machine = {
        "gpu": torch.cuda.get_device_name(), "capability": torch.cuda.get_device_capability(),
        "torch": torch.__version__, "cuda": torch.version.cuda, "flashinfer": flashinfer.__version__,
    }  # fmt: skip
    print(json.dumps({"machine": machine, "results": results}))
    wrong = [row for row in results if not row["relative_error"] < LIMIT]
    sys.exit(f"off by more than {LIMIT}: {wrong}" if wrong else 0)


if __name__ == "__main__":
    main()
