"""vLLM calls FlashInfer's TRT-LLM MoE functions with the arguments that the pinned ones take.

vLLM's real callers run up to the kernel; what they call is a stand-in that binds its arguments to
the real function's signature. Quantisation, which needs a GPU, is a stand-in too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm_kit import apply_moe

Load = Callable[[str], ModuleType]


class Reached(Exception):
    """The kernel was called; ``got`` are its arguments by name."""

    def __init__(self, got: dict[str, Any]) -> None:
        super().__init__("reached")
        self.got = got


def stand_in(real: Any) -> Callable[..., Any]:
    """Binds as ``real`` does, and reports what it got; a call that doesn't bind fails the test."""
    signature = inspect.signature(real)

    def bind(*args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            pytest.fail(f"{real.__name__}: {error}")
        raise Reached(dict(bound.arguments))

    return bind


@pytest.fixture
def kernels(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """FlashInfer's kernels replaced by stand-ins wherever vLLM looks for them."""
    flashinfer = upstream_import("flashinfer")
    fused_moe = upstream_import("flashinfer.fused_moe")
    wrappers = upstream_import("vllm.utils.flashinfer")
    made = {}
    for name in ("trtllm_fp4_block_scale_moe", "trtllm_fp4_block_scale_routed_moe"):
        made[name] = stand_in(getattr(fused_moe, name))
        monkeypatch.setattr(fused_moe, name, made[name])
        monkeypatch.setattr(flashinfer, name, made[name], raising=False)
    for name in ("trtllm_fp8_block_scale_moe", "trtllm_fp8_per_tensor_scale_moe"):
        made[name] = stand_in(getattr(fused_moe, name))
        monkeypatch.setattr(wrappers, f"flashinfer_{name}", made[name])
    monkeypatch.setattr(flashinfer, "fp4_quantize", lambda x, *a, **k: (half(x), bytes_of(x)), raising=False)
    monkeypatch.setattr(flashinfer, "mxfp8_quantize", lambda x, *a, **k: (x, bytes_of(x)), raising=False)
    return made


def half(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(x.shape[0], x.shape[1] // 2, dtype=torch.uint8)


def bytes_of(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(x.shape[0], x.shape[1] // 32, dtype=torch.uint8)


def reached(call: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Run a caller up to the kernel; returns what the kernel got."""
    with pytest.raises(Reached) as caught:
        call(*args, **kwargs)
    return caught.value.got


X, LOGITS, ONE = torch.zeros(4, 64), torch.zeros(4, 8), torch.zeros(1)


def fp4_layer() -> SimpleNamespace:
    names = (
        "gemm1_weights_fp4_shuffled",
        "gemm2_weights_fp4_shuffled",
        "gemm1_scales_fp4_shuffled",
        "gemm2_scales_fp4_shuffled",
        "w13_weight",  # vLLM 0.14's names for the same
        "w2_weight",
        "w13_weight_scale",
        "w2_weight_scale",
    )
    weights = {n: SimpleNamespace(data=torch.zeros(8, 4, dtype=torch.uint8)) for n in names}
    scales = {n: SimpleNamespace(data=ONE) for n in ("g1_scale_c", "g1_alphas", "g2_alphas")}
    return SimpleNamespace(
        **weights, **scales, w13_input_scale_quant=ONE, a1_gscale=ONE, routing_method_type=1,
        intermediate_size_per_partition=64,
        ep_rank=0, local_num_experts=8,
    )  # fmt: skip


def test_fp4(upstream_import: Load, kernels: dict[str, Any]) -> None:
    moe = upstream_import("vllm.model_executor.layers.quantization.utils.flashinfer_fp4_moe")
    got = reached(moe.flashinfer_trtllm_fp4_moe, fp4_layer(), X, LOGITS, 2, 8, None, None, None, None)
    assert got["routing_method_type"] == 1
    assert got["do_finalize"] is True


def test_fp4_routed(upstream_import: Load, kernels: dict[str, Any]) -> None:
    moe = upstream_import("vllm.model_executor.layers.quantization.utils.flashinfer_fp4_moe")
    ids, weights = torch.zeros(4, 2, dtype=torch.int32), torch.zeros(4, 2)
    got = reached(moe.flashinfer_trtllm_fp4_routed_moe, fp4_layer(), X, ids, weights, 2, 8)
    assert got["routing_method_type"] == 1


def test_fp8_block_scale(upstream_import: Load, kernels: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    moe = upstream_import("vllm.model_executor.layers.fused_moe.flashinfer_trtllm_moe")
    monkeypatch.setattr(moe, "per_token_group_quant_fp8", lambda x, *a, **k: (x, bytes_of(x)))
    weights = [torch.zeros(1)] * 4
    got = reached(
        moe.flashinfer_fused_moe_blockscale_fp8, LOGITS, ONE, X, *weights, 8, 2, 1, 1, 64, 0, 8, [128, 128], 2
    )
    assert got["routing_method_type"] == 2
    assert got["use_shuffled_weight"] is False


def test_fp8_per_tensor(upstream_import: Load, kernels: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    moe = upstream_import("vllm.model_executor.layers.fused_moe.flashinfer_trtllm_moe")
    monkeypatch.setattr(moe, "moe_kernel_quantize_input", lambda x, *a, **k: (x, None))
    names = ("fi_trtllm_fp8_per_tensor_moe", "flashinfer_fused_moe_per_tensor_scale_fp8")  # since vLLM 0.14, before
    call = next(getattr(moe, name) for name in names if hasattr(moe, name))
    got = reached(call, LOGITS, None, X, ONE, ONE, ONE, ONE, ONE, ONE, 8, 2, 1, 1, 64, 0, 8, False, 3)
    assert got["routing_method_type"] == 3


def test_mxfp4_experts(upstream_import: Load, kernels: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    experts = upstream_import("vllm.model_executor.layers.fused_moe.trtllm_moe").TrtLlmGenExperts
    me = object.__new__(experts)
    quant = SimpleNamespace(w1_scale=ONE, w2_scale=ONE, w1_bias=None, w2_bias=None)
    for name in ("w1_scale", "w2_scale", "w1_bias", "w2_bias"):
        monkeypatch.setattr(experts, name, property(lambda self, n=name: getattr(quant, n)))
    vars(me).update(
        moe=SimpleNamespace(ep_rank=0),
        gemm1_alpha=None,
        gemm1_beta=None,
        gemm1_clamp_limit=None,
        max_capture_size=512,
        tune_max_num_tokens=512,
    )
    ids, weights = torch.zeros(4, 2, dtype=torch.int32), torch.zeros(4, 2)
    w1, w2 = torch.zeros(8, 4, 4), torch.zeros(8, 64, 4)
    got = reached(experts.apply, me, X, X, w1, w2, weights, ids, "silu", 8, None, None, None, ONE, ONE, None, False)
    assert got["do_finalize"] is True
    assert got["tune_max_num_tokens"] == 512


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("backend", ["SM100_FI_MXFP4_MXFP8_TRTLLM", "SM100_FI_MXFP4_BF16"])
def test_mxfp4_method(
    upstream_import: Load, kernels: dict[str, Any], monkeypatch: pytest.MonkeyPatch, backend: str, renormalize: bool
) -> None:
    mxfp4 = upstream_import("vllm.model_executor.layers.quantization.mxfp4")
    monkeypatch.setattr(mxfp4, "_can_support_mxfp4", lambda *a: True)
    me = object.__new__(mxfp4.Mxfp4MoEMethod)
    vars(me).update(
        mxfp4_backend=mxfp4.Mxfp4Backend[backend],
        max_capture_size=512,
        tune_max_num_tokens=512,
        intermediate_size=64,
        num_experts=8,
    )
    names = (
        "w13_weight",
        "w13_weight_scale",
        "w13_bias",
        "gemm1_alpha",
        "gemm1_beta",
        "gemm1_clamp_limit",
        "w2_weight",
        "w2_weight_scale",
        "w2_bias",
    )
    blank = dict.fromkeys(
        ("use_grouped_topk", "topk_group", "num_expert_group", "expert_map", "custom_routing_function", "e_score_correction_bias",
         "apply_router_weight_on_input", "scoring_func", "activation", "expert_load_view", "logical_to_physical_map", "logical_replica_count")
    )  # fmt: skip
    layer = SimpleNamespace(
        **dict.fromkeys(names, ONE), **blank, enable_eplb=False, global_num_experts=32, local_num_experts=8, top_k=2, ep_rank=3,
        renormalize=renormalize,
    )  # fmt: skip
    got = reached(apply_moe, me, X.to(torch.bfloat16), LOGITS, layer)
    assert got["routing_method_type"] == (1 if renormalize else 0), "renormalize"
    assert got.get("do_finalize") is True
    assert got.get("enable_pdl") is None
    assert (got["num_experts"], got["top_k"], got["n_group"], got["topk_group"]) == (32, 2, None, None)
    assert (got["local_expert_offset"], got["local_num_experts"]) == (24, 8)
    assert got["intermediate_size"] == 64
    assert got["routed_scaling_factor"] is None
    assert got["tune_max_num_tokens"] == 512
