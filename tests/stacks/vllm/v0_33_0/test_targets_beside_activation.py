"""--quantization-config takes the experts' activation beside targets: all of gpt-oss in MXFP4, by two kernels."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

NAME = "model.layers.0.mlp.experts"
TARGETS = {"re:.*self_attn.qkv_proj": "mxfp4", "lm_head": "mxfp4"}


def given(parse: Callable[..., Any], **quantization: Any) -> Any:
    """The quantization arguments that vLLM makes of the line, or its refusal."""
    made = parse("--quantization", "gpt_oss_mxfp4", "--quantization-config", json.dumps(quantization))
    return made if isinstance(made, str) else made.quantization_config


def test_both(
    parse: Callable[..., Any], config: Any, quant_config: Callable[..., Any], moe_backend: Callable[..., str]
) -> None:
    found = given(parse, targets=TARGETS, moe={"activation": "mxfp8"})
    assert not isinstance(found, str), found
    assert found.targets == TARGETS
    online = quant_config(targets=TARGETS, moe={"activation": "mxfp8"}).online_quantization_config
    assert online.args.targets == TARGETS
    assert moe_backend("flashinfer_cutlass") == "FLASHINFER_CUTLASS_MXFP4_MXFP8"
    quant_config(targets=TARGETS)
    assert moe_backend("flashinfer_cutlass").startswith("refused"), "which is what the activation is for"


@pytest.mark.parametrize("composed", [False, True], ids=["online alone", "over a checkpoint"])
@pytest.mark.parametrize("target", [False, True], ids=["experts left alone", "experts by a target"])
def test_an_activation_that_nothing_takes(
    upstream_import: Callable[[str], Any], quant_config: Callable[..., Any], composed: bool, target: bool
) -> None:
    """Experts that the checkpoint left alone, and those that a target quantizes, have no use for it: refused."""
    base = upstream_import("vllm.model_executor.layers.quantization.base_config")
    experts = upstream_import("vllm.model_executor.layers.fused_moe").RoutedExperts
    unquantized = upstream_import("vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method")
    targets = {"*.experts": "mxfp8"} if target else TARGETS
    layer = object.__new__(experts)
    torch.nn.Module.__init__(layer)

    def resolve(**given: Any) -> Any:
        online = quant_config(targets=targets, **given).online_quantization_config
        online.packed_modules_mapping = {}
        if not composed:
            return online.resolve_quant_method_cls(experts, NAME) or online.get_quant_method(layer, NAME)
        left = object.__new__(unquantized.UnquantizedFusedMoEMethod)
        checkpoint = SimpleNamespace(
            get_quant_method=lambda *_: left, online_quantization_config=online, packed_modules_mapping={}
        )
        return base.resolve_quant_method(checkpoint, layer, NAME)

    with pytest.raises(ValueError, match=r"moe\.activation with targets is for experts that the checkpoint quantized"):
        resolve(moe={"activation": "mxfp8"})


def test_quantized_experts_take_it(upstream_import: Callable[[str], Any], quant_config: Callable[..., Any]) -> None:
    """Experts that the checkpoint quantized keep its method, as without an activation."""
    base = upstream_import("vllm.model_executor.layers.quantization.base_config")
    experts = upstream_import("vllm.model_executor.layers.fused_moe").RoutedExperts
    layer = object.__new__(experts)
    torch.nn.Module.__init__(layer)
    method = object()
    for given in ({}, {"moe": {"activation": "mxfp8"}}):
        online = quant_config(targets=TARGETS, **given).online_quantization_config
        checkpoint = SimpleNamespace(
            get_quant_method=lambda *_: method, online_quantization_config=online, packed_modules_mapping={}
        )
        assert base.resolve_quant_method(checkpoint, layer, NAME) is method


@pytest.mark.parametrize("given", [{"targets": TARGETS}, {"moe": "mxfp8", "ignore": ["*.experts"]}], ids=str)
def test_experts_that_are_left_alone_otherwise(
    upstream_import: Callable[[str], Any], quant_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
) -> None:  # fmt: skip
    """Without an activation beside targets nothing is refused."""
    module = upstream_import("vllm.model_executor.layers.quantization.online.base")
    experts = upstream_import("vllm.model_executor.layers.fused_moe").RoutedExperts
    monkeypatch.setattr(module, "UnquantizedFusedMoEMethod", lambda config: config)
    layer = object.__new__(experts)
    torch.nn.Module.__init__(layer)
    layer.moe_config = "left alone"
    online = quant_config(**given).online_quantization_config
    online.packed_modules_mapping = {}
    assert online.get_quant_method(layer, NAME) == "left alone"


@pytest.mark.parametrize(
    "other",
    [
        {"moe": "mxfp4"}, {"moe": {"weight": "mxfp4", "activation": "mxfp8"}}, {"moe": {}}, {"linear": "mxfp4"},
        {"linear": {"activation": "mxfp8"}}, {"moe": {"activation": "mxfp8"}, "linear": "mxfp4"},
    ],
    ids=str,
)  # fmt: skip
def test_weights_stay_exclusive(
    parse: Callable[..., Any], other: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert not isinstance(given(parse, targets=TARGETS, moe={"activation": "mxfp8"}), str)
    refused = given(parse, targets=TARGETS, **other)
    assert isinstance(refused, str), refused
    assert "mutually exclusive" in refused + capsys.readouterr().err
