"""FlashInfer tunes MXFP4 experts for batches up to the scheduler's size, with one number for all calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm_kit import MXFP4, apply_moe, moe_method

Load = Callable[[str], ModuleType]


EQUIVALENT_MUTANTS = {
    "352babb8f7": "max() doesn't care for the order",
    "08fbcac736": "max() doesn't care for the order",
    "477839b57f": "the largest of it and 1 is the same for 0 and 1",
}
EXPERTS = "vllm.model_executor.layers.fused_moe.flashinfer_cutlass_moe"


def tuned(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, config: Any, capture: int, scheduled: int, backend: str,
    sizes: list[int], ranks: int = 1,
) -> list[int]:  # fmt: skip
    """Apply to batches of these sizes; returns what FlashInfer was told to tune up to."""
    told: list[int] = []

    def note(*args: Any, tune_max_num_tokens: int, **kwargs: Any) -> list[None]:
        told.append(tune_max_num_tokens)
        return [None]

    flashinfer = upstream_import("flashinfer")
    monkeypatch.setattr(upstream_import("vllm.utils.flashinfer"), "flashinfer_cutlass_fused_moe", note)
    monkeypatch.setattr(flashinfer, "trtllm_fp4_block_scale_moe", note, raising=False)
    monkeypatch.setattr(flashinfer, "mxfp8_quantize", lambda x, *args: (x, torch.zeros(1, dtype=torch.uint8)))
    module = upstream_import(MXFP4)
    if hasattr(module, "Mxfp4Backend"):
        made = moe_method(module, capture, scheduled, backend, ranks)
        for size in sizes:
            apply_moe(made, torch.zeros(size, 64, dtype=torch.bfloat16), torch.zeros(size, 8))
        return told
    # From v0.20.0 each backend has a class of its own.
    config.compilation_config.max_cudagraph_capture_size = capture
    config.scheduler_config.max_num_batched_tokens = scheduled
    config.parallel_config.data_parallel_size = ranks
    experts = experts_of(upstream_import, monkeypatch, note, backend, ranks)
    for size in sizes:
        experts(size)
    return told


def experts_of(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, note: Callable[..., Any], backend: str, ranks: int
) -> Callable[[int], None]:
    """The experts of a backend; called with a number of tokens, they run."""
    one = SimpleNamespace
    activation = upstream_import("vllm.model_executor.layers.fused_moe.activation").MoEActivation.SWIGLUOAI
    parallel = one(ep_rank=0, ep_size=1, tp_rank=0, tp_size=1, dp_size=ranks)
    moe = one(
        device="cpu", num_local_experts=8, moe_parallel_config=parallel, in_dtype=torch.bfloat16, routing_method=1,
        experts_per_token=4, intermediate_size_per_partition=64, hidden_dim=64, ep_rank=0,
        dp_size=ranks,
    )  # fmt: skip
    scale = torch.zeros(8, 4, dtype=torch.uint8)
    quant = one(
        weight_quant_dtype="mxfp4", quant_dtype="mxfp8" if "MXFP8" in backend else None, is_block_quantized=False,
        w1_scale=scale, w2_scale=scale, w1_bias=None, w2_bias=None, gemm1_alpha=None, gemm1_beta=None,
        gemm1_clamp_limit=None,
    )  # fmt: skip
    weights = torch.zeros(8, 64, 32, dtype=torch.uint8)
    if backend == "SM100_FI_MXFP4_BF16":
        trtllm = upstream_import("vllm.model_executor.layers.fused_moe.experts.trtllm_mxfp4_moe")
        monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: "cpu")
        monkeypatch.setattr(upstream_import("vllm.utils.flashinfer"), "autotune", lambda on: nullcontext())
        made = trtllm.TrtLlmMxfp4ExpertsMonolithic(moe, quant)
        return lambda size: made.apply(
            torch.zeros(size, 64, dtype=torch.bfloat16), weights, weights, torch.zeros(size, 8), activation, 8, None,
            None, False,
        )  # fmt: skip
    cutlass = upstream_import(EXPERTS)
    monkeypatch.setattr(cutlass, "flashinfer_cutlass_fused_moe", note)
    made = cutlass.FlashInferExperts(moe, quant)

    def run(size: int) -> None:
        x = torch.zeros(size, 64, dtype=torch.bfloat16)
        chosen = torch.zeros(size, 4, dtype=torch.int32)
        made.apply(
            x, x, weights, weights, chosen, chosen, activation, 8, None, None, None, None, None, None, None
        )  # fmt: skip

    return run


@pytest.mark.parametrize("backend", ["SM100_FI_MXFP4_MXFP8_CUTLASS", "SM90_FI_MXFP4_BF16", "SM100_FI_MXFP4_BF16"])
def test_it_is_the_schedulers_and_the_same_in_each_call(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, config: Any, backend: str
) -> None:
    assert tuned(upstream_import, monkeypatch, config, 512, 8192, backend, [1, 600, 8192]) == [8192] * 3


@pytest.mark.parametrize(("capture", "scheduled", "expected"), [(512, 256, 512), (0, 0, 1)])
def test_it_is_never_below_the_graphs_nor_zero(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, config: Any, capture: int, scheduled: int, expected: int
) -> None:
    assert tuned(upstream_import, monkeypatch, config, capture, scheduled, "SM90_FI_MXFP4_BF16", [1]) == [expected]


@pytest.mark.parametrize("backend", ["SM100_FI_MXFP4_MXFP8_CUTLASS", "SM90_FI_MXFP4_BF16", "SM100_FI_MXFP4_BF16"])
def test_the_tokens_of_all_data_parallel_ranks_come_together(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, config: Any, backend: str
) -> None:
    assert tuned(upstream_import, monkeypatch, config, 512, 8192, backend, [1], ranks=4) == [4 * 8192]
    assert tuned(upstream_import, monkeypatch, config, 512, 256, backend, [1], ranks=2) == [2 * 512]


def test_without_graphs_there_is_no_capture_size(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, config: Any
) -> None:
    module = upstream_import(MXFP4)
    if not hasattr(module, "Mxfp4Backend"):
        return
    try:
        told = tuned(upstream_import, monkeypatch, config, None, 256, "SM90_FI_MXFP4_BF16", [1])  # type: ignore[arg-type]
    except TypeError as error:
        pytest.fail(f"no size to tune for: {error}")
    assert told == [256]
