"""The Triton kernel chooses the experts that softmax and top-k choose, with their weights, if it is asked for.

The real kernel in Triton's interpreter. What it computes on a GPU beside vLLM's CUDA kernel, and how fast,
is in docs/evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import interpreted
import pytest
from vllm_kit import first_of, need

Load = Callable[[str], ModuleType]
FOLDER = "vllm.model_executor.layers.fused_moe"
EQUIVALENT_MUTANTS = {
    "e6b15375f6": "what stands under TYPE_CHECKING is not run",
    "64ffed937b": "the weights have one dimension: the sum of all is that along it",
}
SCRIPT = """
def expected(logits, k, renormalize):
    weights = torch.softmax(logits.double(), -1)
    # The lower of two equal ones first.
    order = torch.sort(weights, dim=-1, descending=True, stable=True)[1][:, :k]
    chosen = weights.gather(1, order)
    return (chosen / chosen.sum(-1, keepdim=True) if renormalize else chosen), order

wrong = []
generator = torch.Generator().manual_seed(9)
for tokens, experts, k in ((1, 128, 4), (7, 128, 4), (3, 32, 1), (5, 100, 6), (2, 8, 8), (0, 128, 4)):
    for dtype in (torch.bfloat16, torch.float32):
        for renormalize in (True, False):
            for ties in (False, True):
                logits = torch.randn(tokens, experts, generator=generator).to(dtype) * 4
                if ties:
                    logits = logits.round()
                # Behind what is written lie two rows that are another's.
                dtypes = (torch.float32, torch.int32 if ties else torch.int64, torch.int32)
                buffers = [torch.full((tokens + 2, k), -1, dtype=d) for d in dtypes]
                weights, ids, rows = (buffer[:tokens] for buffer in buffers)
                module.triton_topk_softmax(weights, ids, rows, logits, renormalize)
                want, order = expected(logits, k, renormalize)
                name = f"{tokens} x {experts}, {k}, {dtype}, renormalize {renormalize}, ties {ties}"
                if not torch.allclose(weights.double(), want, rtol=1e-5, atol=1e-7):
                    wrong.append(f"{name}: weights")
                if not torch.equal(ids.long(), order):
                    wrong.append(f"{name}: ids")
                if not torch.equal(rows, (torch.arange(k) * tokens)[None] + torch.arange(tokens)[:, None]):
                    wrong.append(f"{name}: source rows")
                wrong += [f"{name}: written behind the end" for buffer in buffers if (buffer[tokens:] != -1).any()]
print(json.dumps({"wrong": wrong}))
"""


def test_the_kernel(upstream_import: Load, trees: Path) -> None:
    upstream_import("vllm")
    moved = (trees / "vllm" / f"{FOLDER}.router.triton_topk".replace(".", "/")).with_suffix(".py").exists()
    where = f"{FOLDER}.router" if moved else FOLDER  # from v0.20.0
    assert interpreted.run(f"{where}.triton_topk", SCRIPT)["wrong"] == []


@pytest.mark.parametrize("switch", [None, "0", "1"])
def test_the_switch(upstream_import: Load, monkeypatch: pytest.MonkeyPatch, switch: str | None) -> None:
    module = first_of(upstream_import, f"{FOLDER}.router.fused_topk_router", f"{FOLDER}.fused_moe")
    ours = need(module, "triton_topk_softmax")
    if switch is None:
        monkeypatch.delenv("VLLM_MOE_TRITON_TOPK", raising=False)
    else:
        monkeypatch.setenv("VLLM_MOE_TRITON_TOPK", switch)
    dispatch = getattr(module, "dispatch_topk_softmax_func", None) or module.dispatch_topk_func
    assert dispatch() is (ours if switch == "1" else module.vllm_topk_softmax)
