"""The Triton kernel chooses the experts that softmax and top-k choose, with their weights, if it is asked for.

The real kernel in Triton's interpreter. What it computes on a GPU beside vLLM's CUDA kernel, and how fast,
is in docs/evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import interpreted
import pytest
import torch
from vllm_kit import first_of, need

Load = Callable[[str], ModuleType]
FOLDER = "vllm.model_executor.layers.fused_moe"
EQUIVALENT_MUTANTS = {
    "e6b15375f6": "what stands under TYPE_CHECKING is not run",
    "64ffed937b": "the weights have one dimension: the sum of all is that along it",
}
SCRIPT = """
import inspect

def expected(logits, k, renormalize):
    weights = torch.softmax(logits.double(), -1)
    # The lower of two equal ones first.
    order = torch.sort(weights, dim=-1, descending=True, stable=True)[1][:, :k]
    chosen = weights.gather(1, order)
    return (chosen / chosen.sum(-1, keepdim=True) if renormalize else chosen), order

wrong = []
masks = "is_padding" in inspect.signature(module.triton_topk_softmax).parameters
generator = torch.Generator().manual_seed(9)
for tokens, experts, k in ((1, 128, 4), (7, 128, 4), (3, 32, 1), (5, 100, 6), (2, 8, 8), (0, 128, 4)):
    for dtype in (torch.bfloat16, torch.float32):
        for renormalize in (True, False):
            for ties in (False, True):
                logits = torch.randn(tokens, experts, generator=generator).to(dtype) * 4
                # The exponentials overflow or vanish, and 0 is less or more than any logit.
                logits += 200 if renormalize else -200
                if ties:
                    logits = logits.round()
                # Rows of a wider tensor: the best expert of each isn't one of its own.
                wider = torch.full((tokens + 1, experts + 3), 999.0, dtype=dtype)
                wider[:tokens, :experts] = logits
                logits = wider[:tokens, :experts]
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
                if not masks or not tokens:
                    continue
                padded = [torch.full((tokens, k), -2, dtype=d) for d in dtypes]
                mask = torch.arange(tokens) % 3 == 1
                module.triton_topk_softmax(*padded, logits, renormalize, is_padding=mask)
                marked = torch.where(mask[:, None], torch.full_like(ids, -1), ids)
                if not torch.equal(padded[0], weights) or not torch.equal(padded[2], rows):
                    wrong.append(f"{name}: padding changes weights or source rows")
                if not torch.equal(padded[1], marked):
                    wrong.append(f"{name}: ids of padding")
near = torch.randn(3, 32, generator=generator).bfloat16()
found = []
for logits in (near, far_apart(near)):
    found.append([torch.zeros(3, 4, dtype=d) for d in (torch.float32, torch.int32, torch.int32)])
    module.triton_topk_softmax(*found[-1], logits, True)
if not all(torch.equal(*both) for both in zip(*found)):
    wrong.append("rows far apart")
refused = []
for name, logits, k in (("columns apart", torch.zeros(8, 4).T, 2), ("too many", torch.zeros(4, 8), 9)):
    try:
        buffers = [torch.zeros(4, k), torch.zeros(4, k, dtype=torch.int32), torch.zeros(4, k, dtype=torch.int32)]
        module.triton_topk_softmax(*buffers, logits, True)
    except AssertionError:
        refused.append(name)
print(json.dumps({"wrong": wrong, "masks": masks, "refused": refused}))
"""


def test_the_kernel(upstream_import: Load, trees: Path) -> None:
    upstream_import("vllm")
    moved = (trees / "vllm" / f"{FOLDER}.router.triton_topk".replace(".", "/")).with_suffix(".py").exists()
    where = f"{FOLDER}.router" if moved else FOLDER  # from v0.20.0
    found = interpreted.run(f"{where}.triton_topk", SCRIPT)
    assert found["wrong"] == []
    assert found["refused"] == ["columns apart", "too many"]
    router = first_of(upstream_import, f"{FOLDER}.router.fused_topk_router", f"{FOLDER}.fused_moe")
    assert found["masks"] is hasattr(router, "_get_padding_mask"), "it marks padding where topk_softmax does"


def test_padding(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mask of the forward pass's padding reaches the kernel, where upstream's own gets one."""
    module = first_of(upstream_import, f"{FOLDER}.router.fused_topk_router", f"{FOLDER}.fused_moe")
    need(module, "triton_topk_softmax")
    if not hasattr(module, "_get_padding_mask"):  # before v0.33.0
        return
    mask, given = torch.tensor([False, True, False]), []
    monkeypatch.setattr(module, "is_forward_context_available", lambda: True)
    monkeypatch.setattr(module, "get_forward_context", lambda: SimpleNamespace(is_padding=mask))
    monkeypatch.setattr(module, "triton_topk_softmax", lambda *a, is_padding: given.append((a, is_padding)))
    monkeypatch.setenv("VLLM_MOE_TRITON_TOPK", "1")
    weights, ids, rows = torch.zeros(2, 4), torch.zeros(2, 4), torch.zeros(2, 4)
    # A caller that asks for no renormalization, or leaves it out, gets none.
    for renormalize in ([], [False]):
        module.dispatch_topk_softmax_func()(weights, ids, rows, torch.zeros(2, 8), *renormalize)
        [(taken, _)] = given
        given.clear()
        assert taken[4] is False
    for skip in ("1", "0"):
        monkeypatch.setenv("VLLM_MOE_SKIP_PADDING", skip)
        logits = torch.zeros(2, 8)
        answer = module.dispatch_topk_softmax_func()(weights, ids, rows, logits, True)
        assert answer[0] is weights
        assert answer[1] is ids
        [(taken, padding)] = given
        given.clear()
        assert all(a is b for a, b in zip(taken[:4], (weights, ids, rows, logits), strict=True))
        assert taken[4] is True
        assert (padding is None) if skip == "0" else torch.equal(padding, mask[:2])


@pytest.mark.parametrize("switch", [None, "0", "1"])
def test_the_switch(upstream_import: Load, monkeypatch: pytest.MonkeyPatch, switch: str | None) -> None:
    module = first_of(upstream_import, f"{FOLDER}.router.fused_topk_router", f"{FOLDER}.fused_moe")
    ours = need(module, "triton_topk_softmax")
    ours = getattr(module, "vllm_triton_topk_softmax", ours)  # from v0.33.0
    if switch is None:
        monkeypatch.delenv("VLLM_MOE_TRITON_TOPK", raising=False)
    else:
        monkeypatch.setenv("VLLM_MOE_TRITON_TOPK", switch)
    dispatch = getattr(module, "dispatch_topk_softmax_func", None) or module.dispatch_topk_func
    assert dispatch() is (ours if switch == "1" else module.vllm_topk_softmax)


@pytest.mark.parametrize("switch", ["0", "1"])
def test_rocms_own_function_stays(upstream_import: Load, monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    module = first_of(upstream_import, f"{FOLDER}.router.fused_topk_router", f"{FOLDER}.fused_moe")
    need(module, "triton_topk_softmax")
    own = SimpleNamespace(topk_softmax=object(), is_topk_gating_enabled=lambda: False)
    monkeypatch.setattr(module, "rocm_aiter_ops", own)
    monkeypatch.setenv("VLLM_MOE_TRITON_TOPK", switch)
    dispatch = getattr(module, "dispatch_topk_softmax_func", None) or module.dispatch_topk_func
    assert dispatch(use_rocm_aiter=True) is own.topk_softmax
