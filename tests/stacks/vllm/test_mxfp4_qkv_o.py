"""--mxfp4-layers=qkv,o: attention's projections are quantized after loading and run by Marlin.

vLLM's own layers, of gpt-oss's shapes; Marlin's compiled operators are torch in float64, and the
quantizer's oracle is the product with the dequantized weight.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm_kit import MXFP4, mxfp4_layers

Load = Callable[[str], ModuleType]
SHAPES = {"qkv_proj": (5120, 2880), "o_proj": (2880, 4096), "tp2_o_proj": (2880, 2048), "tp8_qkv_proj": (640, 2880)}


@pytest.fixture
def linear(upstream_import: Load, config: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """vLLM's linear layers for one process without a group of them."""
    module = upstream_import("vllm.model_executor.layers.linear")
    monkeypatch.setattr(module, "get_tensor_model_parallel_rank", lambda: 0)
    monkeypatch.setattr(module, "get_tensor_model_parallel_world_size", lambda: 1)
    parameter = upstream_import("vllm.model_executor.parameter")
    monkeypatch.setattr(parameter, "get_tensor_model_parallel_rank", lambda: 0)
    monkeypatch.setattr(parameter, "get_tensor_model_parallel_world_size", lambda: 1)
    return module


@pytest.fixture
def make(
    upstream_import: Load, linear: ModuleType, parse: Callable[..., Any], marlin: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Any]:  # fmt: skip
    """A layer of a model loaded with ``--mxfp4-layers``, with random weights, loaded and processed."""
    module = upstream_import(MXFP4)

    def layer(
        prefix: str, n: int, k: int, layers: str = "qkv,o", lora: bool = False, bias: bool = True, skip: bool = False
    ) -> Any:
        config = mxfp4_layers(parse, layers, lora)
        monkeypatch.setattr(module, "get_current_vllm_config", lambda: config)
        made = linear.ReplicatedLinear(
            k, n, bias=bias, skip_bias_add=skip, params_dtype=torch.bfloat16, quant_config=module.Mxfp4Config(),
            prefix=prefix,
        )  # fmt: skip
        generator = torch.Generator().manual_seed(n)
        made.weight.data.copy_(torch.randn(n, k, generator=generator) / k**0.5)
        if bias:
            made.bias.data.copy_(torch.randn(n, generator=generator))
        before, bias_before = made.weight.data.clone(), made.bias.data.clone() if bias else None
        made.quant_method.process_weights_after_loading(made)
        made.original, made.original_bias = before, bias_before
        return made

    return layer


def kind(layer: Any) -> str:
    return type(layer.quant_method).__name__


@pytest.mark.parametrize("name", SHAPES)
def test_the_product_is_the_dequantized_weights(
    make: Callable[..., Any], marlin: list[dict[str, Any]], name: str
) -> None:
    n, k = SHAPES[name]
    layer = make(f"model.layers.0.attn.{name.split('_', 1)[1] if name.startswith('tp') else name}", n, k)
    assert kind(layer) == "Mxfp4LinearMethod"
    x = torch.randn(3, k, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    output, _ = layer(x)
    (product,) = marlin
    assert output.shape == (3, n)
    weight = product["weight"][:n]
    assert torch.equal(output, (x.double() @ weight.T + layer.bias[:n].double()).to(torch.bfloat16))
    # The weight itself: each value within half a step of its block's, which is a sixth of the largest.
    error = (weight - layer.original.double()).abs().unflatten(1, (-1, 32))
    largest = layer.original.double().abs().unflatten(1, (-1, 32)).amax(-1, keepdim=True)
    assert (error <= largest / 3).all()
    assert float(error.norm() / layer.original.double().norm()) < 0.12


def test_packed_weights_are_a_quarter(make: Callable[..., Any]) -> None:
    layer = make("model.layers.0.attn.qkv_proj", 5120, 2880)
    assert kind(layer) == "Mxfp4LinearMethod"
    assert layer.weight.numel() * layer.weight.element_size() == 5120 * 2880 // 2
    assert layer.weight_scale.numel() == 5120 * 2880 // 32
    assert not layer.weight.requires_grad


def test_a_shard_that_needs_padding_is_padded(make: Callable[..., Any], marlin: list[dict[str, Any]]) -> None:
    layer = make("model.layers.0.attn.qkv_proj", 320, 2880)
    assert kind(layer) == "Mxfp4LinearMethod"
    output, _ = layer(torch.ones(1, 2880, dtype=torch.bfloat16))
    assert (marlin[0]["n"], output.shape) == (384, (1, 320))
    weight = marlin[0]["weight"]
    assert (weight[320:] == 0).all()
    product = torch.ones(1, 2880, dtype=torch.float64) @ weight.T
    assert torch.equal(output, (product[:, :320] + layer.original_bias.double()).bfloat16()), "the first 320"
    assert float((weight[:320] - layer.original.double()).norm() / layer.original.double().norm()) < 0.12
    assert (layer.bias[320:] == 0).all()
    assert layer.bias.shape == (384,)


@pytest.mark.parametrize(
    ("n", "k", "padded"),
    [(192, 128, 192), (64, 256, 64), (192, 64, 256), (128, 64, 128), (96, 128, 128), (96, 64, 128), (130, 192, 256)],
)
@pytest.mark.parametrize("bias", [False, True])
def test_only_what_fits_no_tile_is_padded(
    make: Callable[..., Any], marlin: list[dict[str, Any]], n: int, k: int, padded: int, bias: bool
) -> None:
    """Marlin's tiles are 128 x 64 or 64 x 128."""
    layer = make("model.layers.0.attn.qkv_proj", n, k, bias=bias)
    assert kind(layer) == "Mxfp4LinearMethod"
    x = torch.randn(2, 3, k, generator=torch.Generator().manual_seed(1)).bfloat16()
    output, _ = layer(x)
    assert (marlin[0]["n"], marlin[0]["k"], output.shape) == (padded, k, (2, 3, n))
    assert layer.weight.numel() * 8 == padded * k
    expected = x.double() @ marlin[0]["weight"][:n].T
    if bias:
        expected = expected + layer.original_bias.double()
    assert torch.equal(output, expected.bfloat16())


def test_marlin_gets_the_workspace_that_it_was_packed_with(
    make: Callable[..., Any], marlin: list[dict[str, Any]]
) -> None:
    layer = make("model.layers.0.attn.qkv_proj", 128, 128)
    assert kind(layer) == "Mxfp4LinearMethod"
    layer(torch.ones(1, 128, dtype=torch.bfloat16))
    assert isinstance(layer.workspace, torch.Tensor)
    assert marlin[0]["workspace"] is layer.workspace


def test_an_input_size_that_marlin_cannot_run_is_an_error(make: Callable[..., Any]) -> None:
    try:
        layer = make("model.layers.0.attn.o_proj", 128, 96)
    except ValueError as error:
        assert "96" in str(error)
        assert "--mxfp4-layers" in str(error)
    else:
        pytest.fail(f"96 columns by {kind(layer)}")


@pytest.mark.parametrize(
    ("prefix", "layers"),
    [
        ("model.layers.0.attn.qkv_proj", "moe"),
        ("model.layers.0.attn.qkv_proj", "o"),
        ("model.layers.0.attn.o_proj", "qkv"),
        ("model.layers.0.mlp.router", "all"),
        ("model.layers.0.attn.kv_b_proj", "all"),
    ],
)
def test_other_layers_stay(make: Callable[..., Any], prefix: str, layers: str) -> None:
    assert kind(make(prefix, 128, 128, layers)) == "UnquantizedLinearMethod"


@pytest.mark.parametrize(("prefix", "layers"), [("a.qkv_proj", "qkv"), ("a.o_proj", "o"), ("a.o_proj", "all")])
def test_each_choice(make: Callable[..., Any], prefix: str, layers: str) -> None:
    assert kind(make(prefix, 128, 128, layers)) == "Mxfp4LinearMethod"


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_every_gpu_with_marlin(
    make: Callable[..., Any], device: Callable[..., Any], capability: tuple[int, int]
) -> None:
    device(*capability, MXFP4, "vllm.model_executor.layers.quantization.utils.marlin_utils_fp4")
    assert kind(make("model.layers.0.attn.qkv_proj", 128, 128)) == "Mxfp4LinearMethod"


@pytest.mark.parametrize(
    "prefix",
    [
        "a.qkv_proj.more",
        "qkv_proj.a",
        "a.my_qkv_proj",
        "a.o_proj_2",
        "mlp.router",
        "mlp.gate",
        "a.q_proj",
        "a.out_proj",
    ],
)
def test_only_by_the_last_part_of_the_name(make: Callable[..., Any], prefix: str) -> None:
    assert kind(make("qkv_proj", 128, 128, "all")) == "Mxfp4LinearMethod"
    assert kind(make(prefix, 128, 128, "all")) == "UnquantizedLinearMethod"


def test_without_a_model_nothing_is_quantized(
    upstream_import: Load, make: Callable[..., Any], linear: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("model.layers.0.attn.qkv_proj", 128, 128)
    module = upstream_import(MXFP4)
    none = SimpleNamespace(model_config=None, lora_config=None)
    monkeypatch.setattr(module, "get_current_vllm_config", lambda: none)
    try:
        made = linear.ReplicatedLinear(128, 128, quant_config=module.Mxfp4Config(), prefix="a.qkv_proj")
    except AttributeError as error:
        pytest.fail(f"a model is asked that isn't there: {error}")
    assert kind(made) == "UnquantizedLinearMethod"


def test_layers_that_are_skipped_stay(upstream_import: Load, make: Callable[..., Any], linear: ModuleType) -> None:
    make("model.layers.0.attn.qkv_proj", 128, 128)
    config = upstream_import(MXFP4).Mxfp4Config(ignored_layers=["a.o_proj"])
    made = [
        linear.ReplicatedLinear(128, 128, quant_config=config, prefix=prefix) for prefix in ("a.o_proj", "b.o_proj")
    ]
    assert [kind(one) for one in made] == ["UnquantizedLinearMethod", "Mxfp4LinearMethod"]


def test_lora_keeps_the_weights_and_says_so(make: Callable[..., Any], log: list[str]) -> None:
    layer = make("model.layers.0.attn.qkv_proj", 128, 128, lora=True)
    assert kind(layer) == "UnquantizedLinearMethod"
    assert torch.equal(layer.weight, layer.original)
    assert [line for line in log if "LoRA" in line and "--mxfp4-layers" in line]


def test_a_bias_that_is_not_added_here_is_not_packed(make: Callable[..., Any]) -> None:
    layer = make("model.layers.0.attn.o_proj", 128, 128, skip=True)
    assert kind(layer) == "UnquantizedLinearMethod"


def test_the_bias_is_the_callers(make: Callable[..., Any], marlin: list[dict[str, Any]]) -> None:
    """Row-parallel layers hand it over on one rank: on the others it would be added once more each."""
    layer = make("model.layers.0.attn.o_proj", 128, 128)
    assert kind(layer) == "Mxfp4LinearMethod"
    x = torch.ones(1, 128, dtype=torch.bfloat16)
    without = layer.quant_method.apply(layer, x)
    with_bias = layer.quant_method.apply(layer, x, layer.bias)
    assert [product["bias"] is None for product in marlin] == [True, False]
    weight = marlin[0]["weight"]
    assert torch.equal(without, (x.double() @ weight.T).bfloat16())
    assert torch.equal(with_bias, (x.double() @ weight.T + layer.bias.double()).bfloat16())


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_of_a_row_parallel_layer_add_it_once(
    make: Callable[..., Any], linear: ModuleType, upstream_import: Load, marlin: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch, rank: int,
) -> None:  # fmt: skip
    make("model.layers.0.attn.o_proj", 128, 128)  # for its configuration
    monkeypatch.setattr(linear, "get_tensor_model_parallel_rank", lambda: rank)
    monkeypatch.setattr(linear, "get_tensor_model_parallel_world_size", lambda: 2)
    monkeypatch.setattr(linear, "tensor_model_parallel_all_reduce", lambda output: output)
    made = linear.RowParallelLinear(
        256, 128, params_dtype=torch.bfloat16, quant_config=upstream_import(MXFP4).Mxfp4Config(), prefix="a.o_proj"
    )
    assert kind(made) == "Mxfp4LinearMethod"
    made.weight.data.fill_(0)
    made.bias.data.fill_(1)
    made.quant_method.process_weights_after_loading(made)
    output, _ = made(torch.ones(1, 128, dtype=torch.bfloat16))
    assert torch.equal(output, torch.full((1, 128), 1.0 - rank, dtype=torch.bfloat16))


@pytest.mark.parametrize("kinds", [("CUDA", 7, 0), ("ROCM", 12, 0), ("CPU", 12, 1)])
def test_a_device_without_marlin_is_an_error(
    make: Callable[..., Any], device: Callable[..., Any], kinds: tuple[str, int, int]
) -> None:
    platform, *capability = kinds
    device(*capability, MXFP4, "vllm.model_executor.layers.quantization.utils.marlin_utils_fp4", kind=platform)
    assert kind(make("model.layers.0.attn.qkv_proj", 128, 128, "moe")) == "UnquantizedLinearMethod", "nobody asked"
    try:
        layer = make("model.layers.0.attn.qkv_proj", 128, 128)
    except ValueError as error:
        assert "needs Marlin" in str(error)
    else:
        pytest.fail(f"an old device got {kind(layer)}")


def test_sm75_is_supported_if_the_releases_marlin_supports_it(
    upstream_import: Load, make: Callable[..., Any], device: Callable[..., Any]
) -> None:
    """Marlin runs FP4 weights on SM75 from vLLM 0.14."""
    marlin = "vllm.model_executor.layers.quantization.utils.marlin_utils_fp4"
    device(7, 5, MXFP4, marlin)
    if upstream_import(marlin).is_fp4_marlin_supported():
        assert kind(make("model.layers.0.attn.qkv_proj", 128, 128)) == "Mxfp4LinearMethod"
        return
    try:
        layer = make("model.layers.0.attn.qkv_proj", 128, 128)
    except ValueError as error:
        assert "needs Marlin" in str(error)
    else:
        pytest.fail(f"SM75 got {kind(layer)}")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("moe", "moe"), ("qkv", "moe,qkv"), ("o, qkv", "moe,qkv,o"), ("qkv,o,moe", "moe,qkv,o"), (" o ", "moe,o"),
        ("o,o,o", "moe,o"),
    ],
)  # fmt: skip
def test_one_spelling(parse: Callable[..., Any], given: str, kept: str) -> None:
    assert mxfp4_layers(parse, given).model_config.mxfp4_layers == kept


def test_the_default_is_the_experts_alone(parse: Callable[..., Any]) -> None:
    given = mxfp4_layers(parse, "moe").model_config
    assert parse().mxfp4_layers == given.mxfp4_layers == "moe"
    assert parse().compute_hash() == given.compute_hash()


@pytest.mark.parametrize("given", ["all", "all,moe", "qkv, all"])
def test_all_is_everything(parse: Callable[..., Any], given: str) -> None:
    kept = mxfp4_layers(parse, given).model_config.mxfp4_layers.split(",")
    assert kept[:3] == ["moe", "qkv", "o"]
    assert "all" not in kept


@pytest.mark.parametrize("given", ["", "qvk", "moe,embed", "QKV"])
def test_unknown_names_are_an_error_that_lists_what_is_known(parse: Callable[..., Any], given: str) -> None:
    mxfp4_layers(parse, "qkv")
    said = parse("--mxfp4-layers", given)
    assert isinstance(said, str)
    assert "--mxfp4-layers takes moe, qkv, o" in said


def test_it_is_in_the_hash(parse: Callable[..., Any]) -> None:
    hashes = [mxfp4_layers(parse, given).model_config.compute_hash() for given in ("moe", "qkv", "o,qkv", "qkv,o")]
    assert len(set(hashes)) == 3
    assert hashes[2] == hashes[3]
