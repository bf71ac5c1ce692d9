"""--quantization-config takes the experts' activation beside targets: all of gpt-oss in MXFP4, by two kernels."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

Load = Callable[[str], ModuleType]
NAME = "model.layers.0.mlp.experts"
TARGETS = {"re:.*self_attn.qkv_proj": "mxfp4", "lm_head": "mxfp4"}
BESIDE = {"targets": TARGETS, "moe": {"activation": "mxfp8"}}
REFUSED = r"moe\.activation with targets is for experts that the checkpoint quantized, but "


def given_args(parse: Callable[..., Any], **quantization: Any) -> Any:
    """The quantization arguments that vLLM makes of the line, or its refusal."""
    made = parse("--quantization", "gpt_oss_mxfp4", "--quantization-config", json.dumps(quantization))
    return made if isinstance(made, str) else made.quantization_config


def test_both(
    parse: Callable[..., Any], config: Any, quant_config: Callable[..., Any], moe_backend: Callable[..., str]
) -> None:
    found = given_args(parse, targets=TARGETS, moe={"activation": "mxfp8"})
    assert not isinstance(found, str), found
    assert found.targets == TARGETS
    online = quant_config(targets=TARGETS, moe={"activation": "mxfp8"}).online_quantization_config
    assert online.args.targets == TARGETS
    assert moe_backend("flashinfer_cutlass") == "FLASHINFER_CUTLASS_MXFP4_MXFP8"
    quant_config(targets=TARGETS)
    assert moe_backend("flashinfer_cutlass").startswith("refused"), "which is what the activation is for"
    quant_config()
    assert moe_backend("flashinfer_cutlass").startswith("refused"), "nor without any option"
    assert moe_backend("marlin") == "MARLIN"


@pytest.mark.parametrize("composed", [False, True], ids=["online alone", "over a checkpoint"])
@pytest.mark.parametrize("target", [False, True], ids=["experts left alone", "experts by a target"])
def test_an_activation_that_nothing_takes(
    upstream_import: Load, quant_config: Callable[..., Any], composed: bool, target: bool
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

    why = r"is quantized by the target \*\.experts" if target else "is not quantized"
    with pytest.raises(ValueError, match=REFUSED + rf"{re.escape(NAME)} {why}\.$"):
        resolve(moe={"activation": "mxfp8"})


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.qkv_proj", "model.layers.0.mlp.router"])
def test_linear_layers_have_nothing_to_do_with_it(
    upstream_import: Load, quant_config: Callable[..., Any], marlin: list[dict[str, Any]], name: str
) -> None:
    """Of a checkpoint that left them alone, and of one that isn't quantized: a target quantizes them, or none does."""
    linear, base = (upstream_import(f"vllm.model_executor.layers.{n}") for n in ("linear", "quantization.base_config"))
    layer = object.__new__(linear.LinearBase)
    torch.nn.Module.__init__(layer)
    checkpoint = quant_config(**BESIDE)
    online = checkpoint.online_quantization_config
    online.packed_modules_mapping = {}
    left = linear.UnquantizedLinearMethod()
    theirs = SimpleNamespace(
        get_quant_method=lambda *_: left, online_quantization_config=online, packed_modules_mapping={}
    )
    expected = "Mxfp4OnlineLinearMethod" if "qkv_proj" in name else "UnquantizedLinearMethod"
    assert type(base.resolve_quant_method(theirs, layer, name)).__name__ == expected
    assert type(online.get_quant_method(layer, name)).__name__ == expected


def experts_of(upstream_import: Load, moe: Any) -> Any:
    """Make the experts' layer, without weights."""
    layer = object.__new__(upstream_import("vllm.model_executor.layers.fused_moe").RoutedExperts)
    torch.nn.Module.__init__(layer)
    layer.moe_config = moe
    return layer


@pytest.mark.parametrize("given", [BESIDE, {"targets": TARGETS}, {"moe": {"activation": "mxfp8"}}], ids=str)
def test_quantized_experts_take_it(
    upstream_import: Load, quant_config: Callable[..., Any], moe_config: Callable[..., Any], given: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """gpt-oss's experts keep the checkpoint's method, which reads the activation."""
    base = upstream_import("vllm.model_executor.layers.quantization.base_config")
    # A patch later in the stack compiles the kernels here.
    mxfp4 = upstream_import("vllm.model_executor.layers.quantization.mxfp4")
    monkeypatch.setattr(mxfp4, "build_mxfp4_moe_kernels", lambda backend: None, raising=False)
    checkpoint = quant_config(**given)
    wanted = "flashinfer_cutlass" if "moe" in given else "marlin"
    layer = experts_of(upstream_import, moe_config(wanted))
    for _ in range(2):
        method = base.resolve_quant_method(checkpoint, layer, NAME)
        assert type(method).__name__ == "GptOssMxfp4MoEMethod"
        assert (method.mxfp4_backend.name == "FLASHINFER_CUTLASS_MXFP4_MXFP8") is ("moe" in given)


def make_modelopt(upstream_import: Load, algorithm: str, args: Any) -> Any:
    """Make ModelOpt's configuration of a checkpoint, under --quantization-config."""
    assert not isinstance(args, str), args
    module = upstream_import("vllm.model_executor.layers.quantization.modelopt")
    base = upstream_import("vllm.model_executor.layers.quantization.online.base")
    described = {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": [], "_online_quantization_args": args}
    owner = module.ModelOptNvFp4Config if algorithm == "NVFP4" else module.ModelOptFp8Config
    checkpoint = owner.from_config(described)
    checkpoint.online_quantization_config = base.OnlineQuantizationConfig(args)
    return checkpoint


@pytest.mark.parametrize("given", [BESIDE, {"targets": TARGETS}, {"moe": {"activation": "mxfp8"}}], ids=str)
def test_experts_whose_method_does_not_read_it(
    upstream_import: Load, parse: Callable[..., Any], moe_config: Callable[..., Any], given: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """ModelOpt's FP8 experts have the checkpoint's activation: another one beside targets is refused."""
    base = upstream_import("vllm.model_executor.layers.quantization.base_config")
    modelopt = upstream_import("vllm.model_executor.layers.quantization.modelopt")
    monkeypatch.setattr(modelopt, "select_fp8_moe_backend", lambda **rest: (None, None))
    checkpoint = make_modelopt(upstream_import, "FP8", given_args(parse, **given))
    layer = experts_of(upstream_import, moe_config("auto"))
    if given is BESIDE:
        with pytest.raises(ValueError, match=REFUSED + f"ModelOptFp8MoEMethod of {NAME} does not use it"):
            base.resolve_quant_method(checkpoint, layer, NAME)
    else:
        assert type(base.resolve_quant_method(checkpoint, layer, NAME)).__name__ == "ModelOptFp8MoEMethod"
    linear = upstream_import("vllm.model_executor.layers.linear").LinearBase
    other = object.__new__(linear)
    torch.nn.Module.__init__(other)
    assert base.resolve_quant_method(checkpoint, other, "model.layers.0.other"), "it is about experts"


def test_modelopts_nvfp4_experts_read_it(
    upstream_import: Load, parse: Callable[..., Any], moe_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = upstream_import("vllm.model_executor.layers.quantization.base_config")
    modelopt = upstream_import("vllm.model_executor.layers.quantization.modelopt")
    trtllm = modelopt.NvFp4MoeBackend.FLASHINFER_TRTLLM
    monkeypatch.setattr(modelopt, "select_nvfp4_moe_backend", lambda **rest: (trtllm, rest["activation_key"]))
    layer = experts_of(upstream_import, moe_config("auto"))
    for activation, per_token in (("nvfp4_per_token", True), (None, False)):
        moe = {"moe": {"activation": activation}} if activation else {}
        checkpoint = make_modelopt(upstream_import, "NVFP4", given_args(parse, targets=TARGETS, **moe))
        method = base.resolve_quant_method(checkpoint, layer, NAME)
        assert type(method).__name__ == "ModelOptNvFp4FusedMoE"
        assert method.per_token_activation is per_token
        assert (checkpoint.moe_activation_override is None) is not per_token
    plain = modelopt.ModelOptNvFp4Config("NVFP4", True, None)
    assert plain.moe_activation_override is None, "and without any arguments"


@pytest.mark.parametrize("given", [{"targets": TARGETS}, {"moe": "mxfp8", "ignore": ["*.experts"]}], ids=str)
def test_experts_that_are_left_alone_otherwise(
    upstream_import: Load, quant_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch,
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
    assert not isinstance(given_args(parse, targets=TARGETS, moe={"activation": "mxfp8"}), str)
    refused = given_args(parse, targets=TARGETS, **other)
    assert isinstance(refused, str), refused
    assert "mutually exclusive" in refused + capsys.readouterr().err
