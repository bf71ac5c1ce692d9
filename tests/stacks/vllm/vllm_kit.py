"""What vLLM's proofs call; what they are given is in conftest.py.

Without its patch a proof must fail by an assertion: `need` asks for what a patch adds in that way.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

MXFP4 = "vllm.model_executor.layers.quantization.mxfp4"
MXFP4_LEGACY = (
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS",
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8",
    "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16",
    "VLLM_MXFP4_USE_MARLIN",
)


def need(owner: Any, name: str) -> Any:
    """An attribute that a patch adds; its absence is a failed assertion."""
    assert hasattr(owner, name), f"{getattr(owner, '__name__', owner)} has no {name}"
    return getattr(owner, name)


def needed_module(name: str) -> ModuleType:
    """A module that a patch adds; its absence is a failed assertion."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name != name, f"no module {name}"
        raise


def apply_moe(method: Any, x: torch.Tensor, router_logits: torch.Tensor, layer: Any = None) -> Any:
    """Apply an MoE method to a layer, `moe_layer` unless given; since vLLM 0.14 it takes the router apart."""
    layer = layer or moe_layer()
    if "router" not in inspect.signature(method.apply).parameters:
        return method.apply(layer=layer, x=x, router_logits=router_logits)
    router = SimpleNamespace(select_experts=lambda **given: layer.select_experts(**given)[:2])
    return method.apply(layer=layer, router=router, x=x, router_logits=router_logits)


def first_of(load: Callable[[str], ModuleType], *names: str) -> ModuleType:
    """The first of these modules that there is: where a release moved one, its new name comes first."""
    for name in names[:-1]:
        try:
            return load(name)
        except ModuleNotFoundError as error:
            if not (error.name and name.startswith(error.name)):
                raise
    return load(names[-1])


def forget(module: ModuleType) -> None:
    """Empty the caches of a module's functions: they hold answers for another device."""
    for value in list(vars(module).values()):
        if isinstance(value, functools._lru_cache_wrapper):
            value.cache_clear()


def mxfp4_layers(parse: Callable[..., Any], layers: str, lora: bool = False, **changes: Any) -> Any:
    """What a model is loaded under with ``--mxfp4-layers``: a configuration with the parsed ModelConfig."""
    made = parse("--mxfp4-layers", layers, **changes)
    assert not isinstance(made, str), made
    return SimpleNamespace(model_config=made, lora_config=object() if lora else None)


def moe_method(module: ModuleType, capture: int | None, scheduled: int, backend: str, ranks: int = 1) -> Any:
    """A Mxfp4MoEMethod of a backend, under a configuration with these sizes and ranks of DP."""
    config = SimpleNamespace(
        compilation_config=SimpleNamespace(max_cudagraph_capture_size=capture),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=scheduled),
    )
    with pytest.MonkeyPatch.context() as context:
        context.setattr(module, "get_current_vllm_config", lambda: config)
        context.setattr(module, "get_mxfp4_backend", lambda lora: module.Mxfp4Backend[backend])
        # A patch later in the stack compiles FlashInfer's kernels here.
        context.setattr(module, "build_flashinfer_sm12x_cutlass_moe", lambda: None, raising=False)
        made = module.Mxfp4MoEMethod(
            SimpleNamespace(is_lora_enabled=False, tp_size=1, tp_rank=0, ep_size=1, ep_rank=0, dp_size=ranks)
        )
    made.num_experts, made.intermediate_size = 8, 64
    return made


def moe_layer() -> SimpleNamespace:
    """What Mxfp4MoEMethod.apply reads of a layer of 8 experts; all tokens are routed to the first."""
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
