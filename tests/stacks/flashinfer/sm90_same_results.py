"""On an SM90 GPU: FA2 attention, sampling and the fused MoE give what they gave before the patches.

    python sm90_same_results.py --package SITE --out results.pt     # once for each of the two packages
    python sm90_same_results.py --compare before.pt after.pt

SITE is a folder with a flashinfer package in it. The inputs are the same each time. The fused MoE's module has
some 180 units: with NVCC_APPEND_FLAGS=-DFAST_BUILD, set for both, two builds at once had 104 and 106 of them
after 19 minutes on 16 cores. For BF16 its MoE units are 31: compiled elsewhere, linked with -Wl,-z,lazy and put at
SITE/flashinfer/data/aot/fused_moe_90/fused_moe_90.so, they are taken as they are. What came
before the MoE is saved before it begins (--without-moe ends there).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch


def attention(flashinfer: Any, rows: dict[str, torch.Tensor]) -> None:
    """FA2 over a paged cache: prefill and decode, BF16 and FP8 KV."""
    generator = torch.Generator(device="cuda").manual_seed(1)
    query_heads, kv_heads, head, page = 64, 8, 64, 16
    lens = [5, 33, 128, 1]
    pages = [(n + page - 1) // page for n in lens]
    indptr = torch.tensor([0, *torch.tensor(pages).cumsum(0).tolist()], dtype=torch.int32, device="cuda")
    indices = torch.arange(sum(pages), dtype=torch.int32, device="cuda")
    last = torch.tensor([(n - 1) % page + 1 for n in lens], dtype=torch.int32, device="cuda")
    workspace = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    cache = torch.randn(sum(pages), 2, kv_heads, page, head, device="cuda", generator=generator).bfloat16()
    for dtype in (torch.bfloat16, torch.float8_e4m3fn):
        kv = cache.to(dtype)
        query = list(lens)
        qo = torch.tensor([0, *torch.tensor(query).cumsum(0).tolist()], dtype=torch.int32, device="cuda")
        q = torch.randn(sum(query), query_heads, head, device="cuda", generator=generator).bfloat16()
        prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "HND", backend="fa2")
        prefill.plan(
            qo, indptr, indices, last, query_heads, kv_heads, head, page, causal=True,
            q_data_type=torch.bfloat16, kv_data_type=dtype,
        )  # fmt: skip
        rows[f"prefill {dtype}"] = prefill.run(q, kv)
        decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "HND", backend="fa2", use_tensor_cores=True)
        decode.plan(
            indptr, indices, last, query_heads, kv_heads, head, page, q_data_type=torch.bfloat16, kv_data_type=dtype
        )
        rows[f"decode {dtype}"] = decode.run(q[: len(lens)].contiguous(), kv)


def sampling(flashinfer: Any, rows: dict[str, torch.Tensor]) -> None:
    """Renormalisation, and samples of a fixed generator."""
    generator = torch.Generator(device="cuda").manual_seed(2)
    logits = torch.randn(33, 201088, device="cuda", generator=generator)
    probs = torch.softmax(logits, -1)
    rows["top_p renormalised"] = flashinfer.sampling.top_p_renorm_probs(probs, 0.9)
    rows["top_k renormalised"] = flashinfer.sampling.top_k_renorm_probs(probs, 50)
    draw = torch.Generator(device="cuda").manual_seed(3)
    rows["sampled"] = flashinfer.sampling.sampling_from_probs(probs, generator=draw)
    rows["top_k_top_p sampled"] = flashinfer.sampling.top_k_top_p_sampling_from_probs(probs, 50, 0.9, generator=draw)


def moe_inputs(experts: int, hidden: int, inter: int, tokens: int, top_k: int, seed: int) -> tuple[torch.Tensor, ...]:
    """Activations, choices, their weights and both weights of a BF16 layer."""
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", generator=generator)

    x = normal(tokens, hidden).bfloat16()
    chosen = torch.topk(torch.softmax(normal(tokens, experts), -1), top_k)
    w1 = (normal(experts, 2 * inter, hidden) / hidden**0.5).bfloat16()
    w2 = (normal(experts, hidden, inter) / inter**0.5).bfloat16()
    return x, chosen.indices.int(), chosen.values, w1, w2


def reference_moe(x: torch.Tensor, index: torch.Tensor, scale: torch.Tensor, w1: Any, w2: Any) -> torch.Tensor:
    """The layer in float32, expert by expert."""
    out = torch.zeros_like(x, dtype=torch.float32)
    for expert in index.unique().tolist():
        token, place = (index == expert).nonzero(as_tuple=True)
        up, gate = (x[token].float() @ w1[expert].float().T).chunk(2, -1)
        mid = (torch.nn.functional.silu(gate) * up).bfloat16().float()
        out.index_add_(0, token, scale[token, place, None] * (mid @ w2[expert].float().T))
    return out


def fused_moe(flashinfer: Any, rows: dict[str, torch.Tensor], repeats: int) -> None:
    """A BF16 layer, and a stress of the launches: graph replays with PDL, whose results must all be one."""
    from flashinfer.fused_moe import core

    for tokens in (1, 7, 64, 300):
        x, index, scale, w1, w2 = moe_inputs(32, 1024, 512, tokens, 4, tokens)
        run = lambda x=x, index=index, scale=scale, w1=w1, w2=w2: core.cutlass_fused_moe(  # noqa: E731
            x, index, scale, w1, w2, torch.bfloat16, [], enable_pdl=True
        )[0]
        want = reference_moe(x, index, scale, w1, w2)
        first = run().clone()
        error = ((first.float() - want).norm() / want.norm()).item()
        assert error < 1e-2, f"{tokens} tokens: relative error {error}"
        rows[f"fused MoE, {tokens} tokens"] = first
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = run()
        differing = 0
        for _ in range(repeats):
            graph.replay()
            differing += int(((captured.float() - want).norm() / want.norm()).item() > 1e-2)
        rows[f"stress: wrong of {repeats} replays with PDL, {tokens} tokens"] = torch.tensor(float(differing))


def compare(before: Path, after: Path) -> int:
    """Print how far apart two files' results are; 1 if further than rounding."""
    old, new = torch.load(before), torch.load(after)
    worst = 0.0
    for name in old:
        if name.startswith("stress"):
            print(json.dumps({"what": name, "before": old[name].item(), "after": new[name].item()}))
            worst = max(worst, new[name].item())
            continue
        a, b = old[name].double(), new[name].double()
        apart = ((a - b).norm() / a.norm().clamp(min=1e-30)).item()
        print(json.dumps({"what": name, "relative_difference": apart, "equal": torch.equal(old[name], new[name])}))
        worst = max(worst, apart if apart > 4e-3 else 0.0)
    return int(worst > 0 or old.keys() != new.keys())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compare", type=Path, nargs=2)
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--without-moe", action="store_true")
    given = parser.parse_args()
    if given.compare:
        return compare(*given.compare)
    sys.path.insert(0, str(given.package))
    os.environ.setdefault("FLASHINFER_CUDA_ARCH_LIST", "9.0a")
    import flashinfer

    rows: dict[str, torch.Tensor] = {}
    for part in (attention, sampling):
        part(flashinfer, rows)
    torch.save({name: value.cpu() for name, value in rows.items()}, given.out)
    if not given.without_moe:
        start = time.monotonic()
        fused_moe(flashinfer, rows, given.repeats)
        print(f"the fused MoE took {time.monotonic() - start:.0f} s, compiling included", file=sys.stderr)
        torch.save({name: value.cpu() for name, value in rows.items()}, given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
