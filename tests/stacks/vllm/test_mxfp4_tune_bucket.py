"""FlashInfer tunes MXFP4 experts for batches up to the scheduler's size, with one number for all calls."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from conftest import MXFP4

Load = Callable[[str], ModuleType]


def method(module: ModuleType, capture: int | None, scheduled: int, backend: str) -> Any:
    config = SimpleNamespace(
        compilation_config=SimpleNamespace(max_cudagraph_capture_size=capture),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=scheduled),
    )
    with pytest.MonkeyPatch.context() as context:
        context.setattr(module, "get_current_vllm_config", lambda: config)
        context.setattr(module, "get_mxfp4_backend", lambda lora: module.Mxfp4Backend[backend])
        made = module.Mxfp4MoEMethod(SimpleNamespace(is_lora_enabled=False, tp_size=1, tp_rank=0, ep_size=1, ep_rank=0))
    made.num_experts, made.intermediate_size = 8, 64
    return made


def layer() -> SimpleNamespace:
    weights = {n: torch.zeros(8, 4, 8, dtype=torch.uint8) for n in ("w13_weight", "w2_weight")}
    scales = {f"{n}_scale": torch.zeros(8, 4, 4, dtype=torch.uint8) for n in ("w13_weight", "w2_weight")}
    others = dict.fromkeys(("w13_bias", "w2_bias", "gemm1_alpha", "gemm1_beta", "gemm1_clamp_limit"))
    routing: dict[str, Any] = dict.fromkeys(
        ("topk_group", "num_expert_group", "expert_map", "custom_routing_function", "e_score_correction_bias",
         "expert_load_view", "logical_to_physical_map", "logical_replica_count")
    )  # fmt: skip
    return SimpleNamespace(
        **weights, **scales, **others, **routing, enable_eplb=False, use_grouped_topk=False, scoring_func="softmax",
        apply_router_weight_on_input=False, activation="swigluoai", global_num_experts=8, local_num_experts=8,
        top_k=4, ep_rank=0, renormalize=True,
        select_experts=lambda hidden_states, router_logits: (
            torch.ones(len(hidden_states), 4), torch.zeros(len(hidden_states), 4, dtype=torch.int64), None
        ),
    )  # fmt: skip


def tuned(upstream_import: Load, monkeypatch: pytest.MonkeyPatch, made: Any, sizes: list[int]) -> list[int]:
    """Apply to batches of these sizes; returns what FlashInfer was told to tune up to."""
    told: list[int] = []

    def note(*args: Any, tune_max_num_tokens: int, **kwargs: Any) -> list[None]:
        told.append(tune_max_num_tokens)
        return [None]

    flashinfer = upstream_import("flashinfer")
    monkeypatch.setattr(upstream_import("vllm.utils.flashinfer"), "flashinfer_cutlass_fused_moe", note)
    monkeypatch.setattr(flashinfer, "trtllm_fp4_block_scale_moe", note, raising=False)
    monkeypatch.setattr(flashinfer, "mxfp8_quantize", lambda x, *args: (x, torch.zeros(1, dtype=torch.uint8)))
    for size in sizes:
        made.apply(layer(), torch.zeros(size, 64, dtype=torch.bfloat16), torch.zeros(size, 8))
    return told


@pytest.mark.parametrize("backend", ["SM100_FI_MXFP4_MXFP8_CUTLASS", "SM90_FI_MXFP4_BF16", "SM100_FI_MXFP4_BF16"])
def test_it_is_the_schedulers_and_the_same_in_each_call(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    made = method(upstream_import(MXFP4), 512, 8192, backend)
    assert tuned(upstream_import, monkeypatch, made, [1, 600, 8192]) == [8192] * 3


@pytest.mark.parametrize(("capture", "scheduled", "expected"), [(512, 256, 512), (0, 0, 1)])
def test_it_is_never_below_the_graphs_nor_zero(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, capture: int, scheduled: int, expected: int
) -> None:
    made = method(upstream_import(MXFP4), capture, scheduled, "SM90_FI_MXFP4_BF16")
    assert tuned(upstream_import, monkeypatch, made, [1]) == [expected]
