"""A target of --quantization-config may name gpt-oss's lm_head, of a checkpoint that is quantized otherwise.

vLLM's own command line, gpt-oss configuration, ParallelLMHead, layerwise loading and LogitsProcessor; Marlin's
operators are torch in float64.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[4]
Load = Callable[[str], ModuleType]
HIDDEN = 2880
LAYERS = "vllm.model_executor.layers"
TARGET = {"lm_head": "mxfp4"}
EQUIVALENT_MUTANTS = {
    "77c8592689": "it stands where the checkpoint's method was found to be there; a type checker is told"
}


@pytest.fixture
def one_rank(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of ParallelLMHead, on one rank."""
    groups = upstream_import("vllm.distributed.parallel_state")
    alone = SimpleNamespace(rank_in_group=0, world_size=1, is_first_rank=True, is_last_rank=True)
    monkeypatch.setattr(groups, "_TP", alone)
    monkeypatch.setattr(groups, "_PP", alone)
    return upstream_import(f"{LAYERS}.vocab_parallel_embedding")


def head_of(module: ModuleType, quant_config: Any, vocabulary: int = 1280, prefix: str = "lm_head") -> Any:
    try:
        return module.ParallelLMHead(
            vocabulary, HIDDEN, params_dtype=torch.bfloat16, quant_config=quant_config, prefix=prefix
        )
    except ValueError as error:
        pytest.fail(f"the head is refused: {error}")


def weight_of(vocabulary: int) -> torch.Tensor:
    return torch.randn(vocabulary, HIDDEN, generator=torch.Generator().manual_seed(3)).bfloat16() / 50


def logits_of(upstream_import: Load, head: Any, hidden: torch.Tensor) -> torch.Tensor:
    processors = upstream_import(f"{LAYERS}.logits_processor")
    logits: torch.Tensor = processors.LogitsProcessor(head.org_vocab_size)(head, hidden)
    return logits


@pytest.mark.parametrize("vocabulary", [1280, 1000])
@pytest.mark.parametrize("pattern", ["lm_head", "re:.*lm_head"])
def test_a_head_that_a_target_names(
    upstream_import: Load, one_rank: ModuleType, quant_config: Callable[..., Any], marlin: list[dict[str, Any]],
    vocabulary: int, pattern: str,
) -> None:  # fmt: skip
    head = head_of(one_rank, quant_config(targets={pattern: "mxfp4"}), vocabulary)
    assert type(head.quant_method).__name__ == "Mxfp4OnlineLinearMethod"
    weight = weight_of(vocabulary)
    head.weight.weight_loader(head.weight, weight)
    upstream_import("vllm.model_executor.model_loader.reload.layerwise").finalize_layerwise_processing(head, None)
    hidden = torch.randn(2, HIDDEN, generator=torch.Generator().manual_seed(1)).bfloat16()
    logits = logits_of(upstream_import, head, hidden)
    [product] = marlin
    assert logits.shape == (2, vocabulary)
    assert torch.equal(logits, (hidden.double() @ product["weight"].T).bfloat16()[:, :vocabulary])
    assert float((product["weight"][:vocabulary] - weight.double()).norm() / weight.double().norm()) < 0.15
    assert (product["weight"][vocabulary:] == 0).all()
    held = sum(p.numel() * p.element_size() for p in head.parameters())
    assert held < weight.numel() * 2 / 3, "the BF16 weight isn't kept beside it"


@pytest.mark.parametrize(
    "given",
    [{}, {"targets": {"re:.*qkv_proj": "mxfp4"}}, {"linear": "mxfp4"}, {"linear": "mxfp4", "moe": "mxfp4"}],
    ids=["none", "another layer's", "linear", "linear and moe"],
)
def test_no_other_option_reaches_it(
    one_rank: ModuleType, quant_config: Callable[..., Any], marlin: list[dict[str, Any]], given: dict[str, Any]
) -> None:
    assert type(head_of(one_rank, quant_config(**given)).quant_method).__name__ == "UnquantizedEmbeddingMethod"
    assert type(head_of(one_rank, quant_config(targets=TARGET), prefix="draft").quant_method).__name__ == (
        "UnquantizedEmbeddingMethod"
    )
    named = head_of(one_rank, quant_config(targets=TARGET))
    assert type(named.quant_method).__name__ == "Mxfp4OnlineLinearMethod"


def test_a_head_that_the_checkpoint_has_quantized_is_quantized_again(
    upstream_import: Load, one_rank: ModuleType, quant_config: Callable[..., Any], marlin: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """From what the checkpoint's own method makes of it, as linear layers are; without a target it keeps that."""
    head = head_of(one_rank, quant_config(targets=TARGET))
    resolve = upstream_import(f"{LAYERS}.quantization.base_config").resolve_quant_method
    base = upstream_import(f"{LAYERS}.linear").LinearMethodBase
    theirs = type("Quantized", (base,), {"create_weights": None, "apply": None})()
    for given, again in ((TARGET, True), ({"re:.*qkv_proj": "mxfp4"}, False)):
        online = quant_config(targets=given)
        monkeypatch.setattr(online, "get_quant_method", lambda layer, prefix: theirs)
        made = resolve(online, head, "lm_head")
        assert getattr(made, "requantization_source", None) is (theirs if again else None)
        assert (made is theirs) is not again


def test_a_tied_head_is_refused(
    one_rank: ModuleType, quant_config: Callable[..., Any], marlin: list[dict[str, Any]]
) -> None:
    head = head_of(one_rank, quant_config(targets=TARGET))
    embedding = one_rank.VocabParallelEmbedding(1280, HIDDEN, params_dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="tied to the input embedding"):
        head.tie_weights(embedding)


def test_an_embedding_stays_refused(
    upstream_import: Load, one_rank: ModuleType, quant_config: Callable[..., Any], marlin: list[dict[str, Any]]
) -> None:
    head_of(one_rank, quant_config(targets=TARGET))
    online = quant_config(targets={"embed": "mxfp4"})
    plain = one_rank.VocabParallelEmbedding(1280, HIDDEN, quant_config=online, prefix="embed")
    assert type(plain.quant_method).__name__ == "UnquantizedEmbeddingMethod"
    with pytest.raises(ValueError, match="not supported for VocabParallelEmbedding"):
        online.online_quantization_config.get_quant_method(plain, "embed")


def test_the_recipe_quantizes_attention_and_head_by_marlin(
    upstream_import: Load, one_rank: ModuleType, quant_config: Callable[..., Any], marlin: list[dict[str, Any]]
) -> None:
    """What upstream.lock serves gpt-oss by, on its modules' names."""
    serve = tomllib.loads((ROOT / "upstream.lock").read_text())["environments"]["gb10-newest"]["serve"]
    options = dict(zip(serve[3::2], serve[4::2], strict=True))
    online = quant_config(options["--linear-backend"], **json.loads(options["--quantization-config"]))
    model = upstream_import("vllm.model_executor.models.gpt_oss").GptOssForCausalLM
    online.packed_modules_mapping = model.packed_modules_mapping
    linear = upstream_import(f"{LAYERS}.linear")
    layers = {
        "qkv_proj": linear.QKVParallelLinear(
            HIDDEN, 64, 64, 8, params_dtype=torch.bfloat16, quant_config=online, prefix="model.layers.3.attn.qkv_proj"
        ),
        "o_proj": linear.RowParallelLinear(
            4096, HIDDEN, params_dtype=torch.bfloat16, quant_config=online, prefix="model.layers.3.attn.o_proj"
        ),
        "lm_head": head_of(one_rank, online),
    }
    for layer in layers.values():
        assert type(layer.quant_method).__name__ == "Mxfp4OnlineLinearMethod"
        assert type(layer.quant_method.kernel).__name__ == "MarlinMxFp4LinearKernel"
    router = linear.ReplicatedLinear(HIDDEN, 128, quant_config=online, prefix="model.layers.3.mlp.router")
    assert type(router.quant_method).__name__ == "UnquantizedLinearMethod"


def test_gpt_oss_gives_its_head_the_configuration(
    upstream_import: Load, one_rank: ModuleType, quant_config: Callable[..., Any], config: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    module = upstream_import("vllm.model_executor.models.gpt_oss")
    config.quant_config = quant_config(targets=TARGET)
    made: list[dict[str, Any]] = []

    class Part(torch.nn.Module):
        def __init__(self, *args: Any, **given: Any) -> None:
            super().__init__()
            made.append(given)
            self.make_empty_intermediate_tensors = None

    for name in ("GptOssModel", "ParallelLMHead"):
        monkeypatch.setattr(module, name, Part)
    module.GptOssForCausalLM(vllm_config=config)
    assert made[1].get("quant_config") is config.quant_config
    assert made[1]["prefix"] == "lm_head"
