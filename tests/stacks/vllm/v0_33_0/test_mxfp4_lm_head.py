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


def refusals(log: list[str]) -> list[str]:
    """Return the logged lines that say why targets aren't applied."""
    return [line for line in log if "Not applying quantization_config.targets" in line]


def refusal(log: list[str]) -> str:
    """Return the only such line."""
    lines = refusals(log)
    assert len(lines) == 1
    return lines[0]


class Checkpoint:
    """A checkpoint's quantization method with a weight of its own; it ties as upstream's base class does."""

    def create_weights(self, layer: torch.nn.Module, *sizes: Any, **given: Any) -> None:
        layer.register_parameter("weight", torch.nn.Parameter(torch.zeros(1280, HIDDEN), requires_grad=False))

    def apply(self, *given: Any) -> None:
        raise AssertionError("not applied here")


@pytest.fixture
def checkpoint(upstream_import: Load) -> Any:
    """The quantization method that a checkpoint chose for its head."""
    base = upstream_import(f"{LAYERS}.linear").LinearMethodBase
    return type("Quantized", (Checkpoint, base), {})()


def method_of(
    one_rank: ModuleType, online: Any, monkeypatch: pytest.MonkeyPatch, checkpoint: Any, prefix: str = "lm_head"
) -> Any:
    """Return the method of a head whose checkpoint chose `checkpoint` for it."""
    monkeypatch.setattr(online, "get_quant_method", lambda layer, prefix: checkpoint)
    return head_of(one_rank, online, prefix=prefix).quant_method


NAMED = [
    ("lm_head", ["lm_head"]),
    ("lm_head", ["*lm_head"]),
    ("lm_head", ["re:.*(o_proj|lm_head)"]),
    ("language_model.lm_head", ["*lm_head"]),
    ("language_model.lm_head", ["*.lm_head"]),
    ("lm_head", ["*", "lm_head"]),
    ("lm_head", ["re:.*", "re:.*_head", "re:.*lm_head"]),
]


@pytest.mark.parametrize(("prefix", "patterns"), NAMED, ids=str)
def test_what_names_a_head(
    one_rank: ModuleType, quant_config: Callable[..., Any], marlin: list[dict[str, Any]], log: list[str],
    monkeypatch: pytest.MonkeyPatch, checkpoint: Any, prefix: str, patterns: list[str],
) -> None:  # fmt: skip
    """The last component of its name in the target; wildcards next to that don't count."""
    targets = dict.fromkeys(patterns, "fp8_per_tensor") | {patterns[-1]: "mxfp4"}
    for theirs in (None, one_rank.UnquantizedEmbeddingMethod(), checkpoint):
        online = quant_config(targets=targets)
        made = method_of(one_rank, online, monkeypatch, theirs, prefix)
        assert type(made).__name__ == "Mxfp4OnlineLinearMethod"
        assert made.requantization_source is (theirs if theirs is checkpoint else None)
        assert online.online_quantization_config.quantized_layers == {prefix: ("targets", "mxfp4", patterns[-1])}
    assert refusals(log) == []


@pytest.mark.parametrize(
    ("prefix", "targets", "ignore", "reason"),
    [
        ("lm_head", ["*"], [], "no target contains its name"),
        ("lm_head", ["re:.*"], [], "no target contains its name"),
        ("lm_head", ["re:.*_head"], [], "no target contains its name"),
        ("lm_head", ["*", "re:.*"], [], "no target contains its name"),
        ("", ["*"], [], "no target contains its name"),
        ("language_model.lm_head", ["language_model.*"], [], "no target contains its name"),
        ("lm_head", ["*"], ["lm_head"], "quantization_config.ignore matches it"),
        ("lm_head", ["*", "lm_head"], ["re:.*head"], "quantization_config.ignore matches it"),
    ],
    ids=str,
)
def test_what_does_not_name_a_head(
    one_rank: ModuleType, quant_config: Callable[..., Any], marlin: list[dict[str, Any]], log: list[str],
    monkeypatch: pytest.MonkeyPatch, checkpoint: Any, prefix: str, targets: list[str], ignore: list[str], reason: str,
) -> None:  # fmt: skip
    """The checkpoint's method stays, as upstream has it, and one line says why."""
    named = head_of(one_rank, quant_config(targets=TARGET))
    assert type(named.quant_method).__name__ == "Mxfp4OnlineLinearMethod", "the head can be quantized"
    for theirs in (None, one_rank.UnquantizedEmbeddingMethod(), checkpoint):
        online = quant_config(targets=dict.fromkeys(targets, "mxfp4"), ignore=ignore)
        made = method_of(one_rank, online, monkeypatch, theirs, prefix)
        assert made is theirs if theirs else type(made).__name__ == "UnquantizedEmbeddingMethod"
        assert online.online_quantization_config.quantized_layers == {}
    line = refusal(log)
    assert line.startswith("INFO")
    assert line.endswith(f"to {prefix}: {reason}.")
    assert str(sorted(targets)) in line


def test_a_head_that_no_target_matches_is_not_mentioned(
    one_rank: ModuleType, quant_config: Callable[..., Any], marlin: list[dict[str, Any]], log: list[str]
) -> None:
    assert type(head_of(one_rank, quant_config(targets=TARGET)).quant_method).__name__ == "Mxfp4OnlineLinearMethod"
    head_of(one_rank, quant_config(targets={"re:.*qkv_proj": "mxfp4"}, ignore=["lm_head"]))
    assert refusals(log) == []


@pytest.mark.parametrize("level", ["model", "text"])
@pytest.mark.parametrize("pattern", ["lm_head", "*"])
def test_a_head_that_the_config_ties(
    upstream_import: Load, one_rank: ModuleType, quant_config: Callable[..., Any], marlin: list[dict[str, Any]],
    log: list[str], monkeypatch: pytest.MonkeyPatch, checkpoint: Any, config: Any, level: str, pattern: str,
) -> None:  # fmt: skip
    """It keeps the checkpoint's method, unless the checkpoint ships a head, for which vLLM unties it."""
    transformers = pytest.importorskip("transformers")
    online = quant_config(targets={pattern: "mxfp4"})
    text = transformers.LlamaConfig(tie_word_embeddings=level == "text")
    tied = transformers.LlavaConfig(text_config=text)
    tied.tie_word_embeddings = level == "model"
    assert tied.get_text_config().tie_word_embeddings is (level == "text")
    monkeypatch.setattr(config.model_config, "hf_config", tied)
    assert method_of(one_rank, online, monkeypatch, checkpoint) is checkpoint
    assert online.online_quantization_config.quantized_layers == {}
    line = refusal(log)
    assert ("tied to the input embedding" in line) is (pattern == "lm_head")
    if level == "model":
        monkeypatch.setattr(upstream_import("vllm.config.model"), "checkpoint_has_lm_head", lambda *_, **__: True)
        config.model_config.maybe_untie_word_embeddings()
        assert (method_of(one_rank, online, monkeypatch, checkpoint) is checkpoint) is (pattern == "*")
        assert len(refusals(log)) == 1


@pytest.mark.parametrize("kind", ["unquantized checkpoint", "unquantized head", "quantized head"])
def test_a_head_that_is_tied_whatever_the_config_holds(
    upstream_import: Load, one_rank: ModuleType, quant_config: Callable[..., Any], marlin: list[dict[str, Any]],
    log: list[str], monkeypatch: pytest.MonkeyPatch, checkpoint: Any, kind: str,
) -> None:  # fmt: skip
    """Zamba2 and others tie without `tie_word_embeddings`: the head is as without a target."""
    given = quant_config(targets=TARGET)
    online = given.online_quantization_config
    theirs = checkpoint if kind == "quantized head" else None
    monkeypatch.setattr(given, "get_quant_method", lambda layer, prefix: theirs)
    head = head_of(one_rank, online if kind == "unquantized checkpoint" else given)
    assert type(head.quant_method).__name__ == "Mxfp4OnlineLinearMethod"
    assert list(online.quantized_layers) == ["lm_head"]
    embedding = one_rank.VocabParallelEmbedding(1280, HIDDEN, params_dtype=torch.bfloat16)
    embedding.weight.data.copy_(weight_of(1280))
    assert head.tie_weights(embedding) is head
    assert head.weight is embedding.weight
    assert online.quantized_layers == {}
    line = refusal(log)
    assert line.startswith("WARNING")
    assert "lm_head: it is tied to the input embedding" in line
    if theirs:
        assert head.quant_method is theirs
        return
    assert type(head.quant_method).__name__ == "UnquantizedEmbeddingMethod"
    layerwise = upstream_import("vllm.model_executor.model_loader.reload.layerwise")
    assert not layerwise.get_layerwise_info(head).can_load()
    layerwise.finalize_layerwise_processing(head, None)
    assert head.weight is embedding.weight, "it isn't quantized later"
    hidden = torch.randn(2, HIDDEN, generator=torch.Generator().manual_seed(1)).bfloat16()
    expected = hidden.double() @ embedding.weight.double().T
    assert torch.allclose(logits_of(upstream_import, head, hidden).double(), expected, atol=0.02, rtol=0.02)
    assert marlin == []


@pytest.mark.parametrize("pattern", ["*", "re:.*", "re:.*_head"])
def test_an_unquantized_checkpoint(
    one_rank: ModuleType, quant_config: Callable[..., Any], marlin: list[dict[str, Any]], log: list[str], pattern: str
) -> None:
    """A target that names the head quantizes it; upstream refuses one that only matches, and this does, too."""
    named = head_of(one_rank, quant_config(targets={**TARGET, pattern: "mxfp4"}).online_quantization_config)
    assert type(named.quant_method).__name__ == "Mxfp4OnlineLinearMethod"
    online = quant_config(targets={pattern: "mxfp4", "model.lm_head": "mxfp4"}).online_quantization_config
    with pytest.raises(ValueError, match="online quantization is not supported for ParallelLMHead"):
        one_rank.ParallelLMHead(1280, HIDDEN, quant_config=online, prefix="lm_head")
    assert online.quantized_layers == {}
    assert refusals(log) == []


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


@pytest.fixture
def given_to_head(
    upstream_import: Load, one_rank: ModuleType, config: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Return the configuration that gpt-oss gives its head under a model's configuration."""
    module = upstream_import("vllm.model_executor.models.gpt_oss")
    made: list[dict[str, Any]] = []

    class Part(torch.nn.Module):
        def __init__(self, *args: Any, **given: Any) -> None:
            super().__init__()
            made.append(given)
            self.make_empty_intermediate_tensors = None

    for name in ("GptOssModel", "ParallelLMHead"):
        monkeypatch.setattr(module, name, Part)

    def give(model_wide: Any, prefix: str = "") -> Any:
        made.clear()
        config.quant_config = model_wide
        module.GptOssForCausalLM(vllm_config=config, prefix=prefix)
        assert made[1]["prefix"] == (f"{prefix}.lm_head" if prefix else "lm_head")
        return made[1].get("quant_config")

    return give


def test_gpt_oss_gives_its_head_the_configuration(
    quant_config: Callable[..., Any], given_to_head: Callable[..., Any]
) -> None:
    """Online targets that name it, alone or over MXFP4; else upstream's nothing, or MXFP4's, which leaves it alone."""
    over_mxfp4 = quant_config(targets=TARGET)
    assert given_to_head(over_mxfp4) is over_mxfp4
    assert given_to_head(over_mxfp4.online_quantization_config) is over_mxfp4.online_quantization_config
    assert given_to_head(None) is None
    within = quant_config(targets={"language_model.lm_head": "mxfp4"}).online_quantization_config
    assert given_to_head(within, "language_model") is within
    assert given_to_head(within) is None, "another model's head"
    for given in ({"targets": {"re:.*_head": "mxfp4"}}, {"linear": "mxfp4"}):
        assert given_to_head(quant_config(**given).online_quantization_config) is None


PACKED = {
    "group_0": {
        "targets": ["Linear", "re:.*lm_head"],
        "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True},
    }
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ModelOptFp8Config": ("modelopt", {"quantization": {"quant_algo": "FP8"}}),
    "CompressedTensorsConfig": (
        "compressed_tensors.compressed_tensors",
        {"format": "pack-quantized", "config_groups": PACKED, "ignore": []},
    ),
    "INCConfig": ("inc", {"bits": 4, "group_size": 128, "sym": True, "extra_config": {"lm_head": {"bits": 16}}}),
    "AutoAWQConfig": ("auto_awq", {"bits": 4, "group_size": 32, "zero_point": True, "lm_head": True}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_methods_decide_as_upstream(
    upstream_import: Load, one_rank: ModuleType, quant_config: Callable[..., Any], marlin: list[dict[str, Any]],
    given_to_head: Callable[..., Any], name: str,
) -> None:  # fmt: skip
    """They would act on gpt-oss's head, which upstream doesn't give them; other models' heads they keep."""
    module, given = OTHERS[name]
    online = quant_config(targets=TARGET)
    head = head_of(one_rank, online)
    assert type(head.quant_method).__name__ == "Mxfp4OnlineLinearMethod"
    method = getattr(upstream_import(f"{LAYERS}.quantization.{module}"), name).from_config(given)
    chosen = method.get_quant_method(head, "lm_head")
    assert chosen is not None
    assert given_to_head(method) is None
    resolve = upstream_import(f"{LAYERS}.quantization.base_config").resolve_quant_method
    method.online_quantization_config = quant_config(targets={"*": "mxfp4"}).online_quantization_config
    assert type(resolve(method, head, "lm_head")) is type(chosen)
    assert method.online_quantization_config.quantized_layers == {}
