"""Two and more sink wrappers in one process, on a GPU, against a float32 reference. Prints JSON.

    python tests/stacks/flashinfer/sm90_sink_wrappers.py

Needs a GPU of compute capability 9.0 or newer, nvcc, and FlashInfer on the import path. Run with and
without the patch `attention-sink-jit-uri`, each with an empty FLASHINFER_WORKSPACE_BASE. Wrappers that
differ in KV dtype or head size are made in turn; the first one's case is run again at the end.
"""

from __future__ import annotations

import json
import math
import sys

import flashinfer
import torch

CASES = [(torch.bfloat16, 64), (torch.bfloat16, 128), (torch.float8_e4m3fn, 64), (torch.bfloat16, 64)]
BATCH, LENGTH, QO_HEADS, KV_HEADS, PAGE = 4, 128, 16, 2, 16


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor, scale: float) -> torch.Tensor:
    """Causal attention with one sink logit a head; q, k, v are [batch, length, heads, dim], float32."""
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
    mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).tril()
    scores = scores.masked_fill(~mask, -math.inf)
    column = sink.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    weights = torch.softmax(torch.cat([scores, column], -1), -1)[..., :-1]
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


def run(kv_dtype: torch.dtype, dim: int) -> dict[str, object]:
    """One wrapper, planned and run; the relative error to the reference."""
    generator = torch.Generator("cuda").manual_seed(1)
    q = torch.randn(BATCH, LENGTH, QO_HEADS, dim, device="cuda", generator=generator).to(torch.bfloat16)
    kv = [torch.randn(BATCH, LENGTH, KV_HEADS, dim, device="cuda", generator=generator).to(kv_dtype) for _ in range(2)]
    sink = torch.randn(QO_HEADS, device="cuda", generator=generator) * 3
    scale = dim**-0.5
    pages = LENGTH // PAGE
    caches = [t.view(BATCH * pages, PAGE, KV_HEADS, dim).transpose(1, 2).contiguous() for t in kv]
    wrapper = flashinfer.BatchAttentionWithAttentionSinkWrapper(
        torch.empty(128 << 20, dtype=torch.uint8, device="cuda"), kv_layout="HND", backend="fa2",
        q_data_type=torch.bfloat16, kv_data_type=kv_dtype, head_dim_qk=dim, head_dim_vo=dim,
    )  # fmt: skip
    steps = torch.arange(BATCH + 1, dtype=torch.int32)
    wrapper.plan(
        steps * LENGTH, steps * pages, torch.arange(BATCH * pages, dtype=torch.int32),
        torch.full((BATCH,), PAGE, dtype=torch.int32), QO_HEADS, KV_HEADS, dim, PAGE, causal=True, sm_scale=scale,
        q_data_type=torch.bfloat16, kv_data_type=kv_dtype,
    )  # fmt: skip
    out = wrapper.run(q.view(-1, QO_HEADS, dim), tuple(caches), sink, scale).float().view(q.shape)
    want = reference(q.float(), kv[0].float(), kv[1].float(), sink, scale)
    return {"relative_error": float((out - want).norm() / want.norm())}


def main() -> None:
    print(json.dumps({"gpu": torch.cuda.get_device_name(), "capability": torch.cuda.get_device_capability(),
                      "torch": torch.__version__, "cuda": torch.version.cuda, "flashinfer": flashinfer.__version__}))  # fmt: skip
    for kv_dtype, dim in CASES:
        found: dict[str, object] = {"kv": str(kv_dtype), "head_dim": dim}
        try:
            found |= run(kv_dtype, dim)
        except Exception as error:
            found["error"] = f"{type(error).__name__}: {error}"[:300]
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    sys.exit(main())
