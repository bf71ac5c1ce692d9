"""--mxfp4-layers=lm_head: gpt-oss's head is quantized after loading, unless it is shared with something else.

vLLM's own ParallelLMHead and LogitsProcessor; Marlin's compiled operators are torch in float64.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm_kit import MXFP4, mxfp4_layers

Load = Callable[[str], ModuleType]
EQUIVALENT_MUTANTS = {"0f817c5346": "0 added to logits leaves them, and the logits processor gives a bias or None"}
VOCABULARY, HIDDEN = 1280, 2880


@pytest.fixture
def heads(
    upstream_import: Load, config: Any, parse: Callable[..., Any], marlin: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Any]:  # fmt: skip
    """Make a ParallelLMHead of a model loaded with ``--mxfp4-layers``, its weights loaded, not yet processed."""
    module, mxfp4 = upstream_import("vllm.model_executor.layers.vocab_parallel_embedding"), upstream_import(MXFP4)
    monkeypatch.setattr(module, "get_tensor_model_parallel_rank", lambda: 0)
    monkeypatch.setattr(module, "get_tensor_model_parallel_world_size", lambda: 1)

    def make(
        layers: str = "lm_head", prefix: str = "lm_head", vocabulary: int = VOCABULARY, lora: bool = False,
        **changes: Any,
    ) -> Any:  # fmt: skip
        current = mxfp4_layers(parse, layers, lora, **changes)
        monkeypatch.setattr(mxfp4, "get_current_vllm_config", lambda: current)
        head = module.ParallelLMHead(
            vocabulary, HIDDEN, params_dtype=torch.bfloat16, quant_config=mxfp4.Mxfp4Config(), prefix=prefix
        )
        generator = torch.Generator().manual_seed(3)
        head.weight.weight_loader(head.weight, torch.randn(vocabulary, HIDDEN, generator=generator).bfloat16() / 50)
        return head

    return make


def process(head: Any) -> Any:
    head.quant_method.process_weights_after_loading(head)
    return head


def kind(head: Any) -> str:
    return type(head.quant_method).__name__


def logits_of(upstream_import: Load, head: Any, hidden: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    processors = upstream_import("vllm.model_executor.layers.logits_processor")
    processor = processors.LogitsProcessor(head.org_vocab_size)
    with pytest.MonkeyPatch.context() as context:
        context.setattr(processors, "tensor_model_parallel_gather", lambda logits: logits)
        context.setattr(processor, "use_all_gather", False)
        logits: torch.Tensor = processor(head, hidden, bias)
    return logits


@pytest.mark.parametrize("vocabulary", [VOCABULARY, 1216, 1000])
def test_the_logits(
    upstream_import: Load, heads: Callable[..., Any], marlin: list[dict[str, Any]], vocabulary: int
) -> None:
    head = heads(vocabulary=vocabulary)
    original = head.weight.data[:vocabulary].double()
    assert kind(head) == "Mxfp4LMHeadMethod"
    process(head)
    hidden = torch.randn(2, HIDDEN, generator=torch.Generator().manual_seed(1)).bfloat16()
    logits = logits_of(upstream_import, head, hidden)
    weight = marlin[0]["weight"]
    assert (marlin[0]["n"] % 128, logits.shape) == (0, (2, vocabulary))
    assert torch.equal(logits, (hidden.double() @ weight.T).bfloat16()[:, :vocabulary])
    assert float((weight[:vocabulary] - original).norm() / original.norm()) < 0.12
    assert (weight[vocabulary:] == 0).all()


def test_a_bias_of_the_processors_is_added_as_it_is(
    upstream_import: Load, heads: Callable[..., Any], marlin: list[dict[str, Any]]
) -> None:
    head = process(heads())
    assert kind(head) == "Mxfp4LMHeadMethod"
    hidden, bias = torch.ones(1, HIDDEN).bfloat16(), torch.arange(VOCABULARY).bfloat16()
    logits_of(upstream_import, head, hidden, bias)
    assert [product["bias"] for product in marlin] == [None], "Marlin's bias is packed, and this one isn't"
    assert torch.equal(logits_of(upstream_import, head, hidden, bias), logits_of(upstream_import, head, hidden) + bias)


def test_rows_are_not_looked_up(heads: Callable[..., Any]) -> None:
    head = process(heads())
    assert kind(head) == "Mxfp4LMHeadMethod"
    with pytest.raises(NotImplementedError):
        head.quant_method.embedding(head, torch.tensor([0]))


@pytest.mark.parametrize(
    ("layers", "prefix", "options"),
    [
        ("moe,qkv,o", "lm_head", {}),
        ("lm_head", "draft_lm_head", {}),
        ("lm_head", "lm_head.more", {}),
        ("lm_head", "lm_head", {"lora": True}),
        ("lm_head", "lm_head", {"tie_word_embeddings": True}),
    ],
    ids=["not asked for", "another name", "another module", "LoRA", "tied"],
)
def test_a_head_stays(
    heads: Callable[..., Any], log: list[str], layers: str, prefix: str, options: dict[str, bool]
) -> None:
    heads("lm_head")
    head = heads(layers, prefix, **options)
    before = head.weight
    assert kind(process(head)) == "UnquantizedEmbeddingMethod"
    assert head.weight is before
    assert bool([line for line in log if "--mxfp4-layers" in line]) is bool(options), "said, if it was asked for"


def test_only_a_head_is_one(upstream_import: Load, heads: Callable[..., Any]) -> None:
    assert kind(heads()) == "Mxfp4LMHeadMethod"
    assert upstream_import(MXFP4).Mxfp4Config().get_quant_method(torch.nn.Module(), "lm_head") is None


@pytest.mark.parametrize("prefix", ["lm_head", "language_model.lm_head"])
@pytest.mark.parametrize("layers", ["lm_head", "all", "qkv,lm_head"])
def test_a_head_by_its_name(heads: Callable[..., Any], layers: str, prefix: str) -> None:
    assert kind(heads(layers, prefix)) == "Mxfp4LMHeadMethod"


def test_other_layers_stay_as_they_are_asked_for(upstream_import: Load, heads: Callable[..., Any]) -> None:
    """An embedding of that name, and the head's choice for a projection."""
    assert kind(heads("lm_head")) == "Mxfp4LMHeadMethod"
    module, mxfp4 = upstream_import("vllm.model_executor.layers.vocab_parallel_embedding"), upstream_import(MXFP4)
    embedding = object.__new__(module.VocabParallelEmbedding)
    assert mxfp4.Mxfp4Config().get_quant_method(embedding, "lm_head") is None


def test_all_is_lm_head_too(parse: Callable[..., Any]) -> None:
    assert mxfp4_layers(parse, "lm_head").model_config.mxfp4_layers == "moe,lm_head"
    assert mxfp4_layers(parse, "all").model_config.mxfp4_layers == "moe,qkv,o,lm_head"
    assert mxfp4_layers(parse, "lm_head,qkv").model_config.mxfp4_layers == "moe,qkv,lm_head"


@pytest.mark.parametrize("kept", [False, True])
def test_a_head_that_got_anothers_weight_stays(
    upstream_import: Load, heads: Callable[..., Any], log: list[str], kept: bool
) -> None:
    """Also one that is equal, and whether or not its own weight is still there."""
    head = heads()
    assert kind(head) == "Mxfp4LMHeadMethod"
    own = head.weight if kept else None
    shared = torch.nn.Parameter(head.weight.data.clone(), requires_grad=False)
    head.tie_weights(SimpleNamespace(weight=shared))
    process(head)
    assert kind(head) == "UnquantizedEmbeddingMethod"
    assert head.weight is shared
    assert head.weight is not own
    assert [line for line in log if "another module" in line]
    hidden = torch.ones(1, HIDDEN).bfloat16()
    assert logits_of(upstream_import, head, hidden).shape == (1, VOCABULARY)


def test_a_weight_that_was_given_away_is_left_alone(heads: Callable[..., Any]) -> None:
    head = heads()
    assert kind(head) == "Mxfp4LMHeadMethod"
    taken, before = head.weight, head.weight.data.clone()
    process(head)
    assert head.weight is not taken
    assert torch.equal(taken, before)


def test_the_weight_it_was_loaded_with_is_freed(heads: Callable[..., Any]) -> None:
    """A gigabyte of BF16 beside the packed rows would be for nothing."""
    head = heads()
    assert kind(head) == "Mxfp4LMHeadMethod"
    loaded = weakref.ref(head.weight), weakref.ref(head.weight.untyped_storage())
    process(head)
    gc.collect()
    assert [alive() for alive in loaded] == [None, None]
    assert all(p.dtype is not torch.bfloat16 for p in head.parameters())


def test_a_draft_that_shares_the_module_gets_the_same_logits(upstream_import: Load, heads: Callable[..., Any]) -> None:
    target = SimpleNamespace(lm_head=process(heads()))
    assert kind(target.lm_head) == "Mxfp4LMHeadMethod"
    draft = SimpleNamespace(lm_head=target.lm_head)
    hidden = torch.ones(1, HIDDEN).bfloat16()
    assert torch.equal(
        logits_of(upstream_import, draft.lm_head, hidden), logits_of(upstream_import, target.lm_head, hidden)
    )


def test_a_draft_with_its_own_finds_them_unequal(heads: Callable[..., Any]) -> None:
    """The comparison by which Eagle decides, of packed weights with BF16 ones of the same head."""
    own = heads("moe").weight
    packed = process(heads()).weight
    assert packed.dtype is torch.int32
    assert not torch.equal(packed.cpu(), own.cpu())


def test_gpt_oss_gives_its_head_the_configuration(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    module = upstream_import("vllm.model_executor.models.gpt_oss")
    given: dict[str, Any] = {}

    class Part(torch.nn.Module):
        make_empty_intermediate_tensors = None

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__()
            given.update(kwargs)

    for name in ("GptOssModel", "ParallelLMHead", "LogitsProcessor"):
        monkeypatch.setattr(module, name, Part)
    quantization = object()
    hf_config = SimpleNamespace(vocab_size=VOCABULARY, hidden_size=HIDDEN)
    module.GptOssForCausalLM(
        vllm_config=SimpleNamespace(model_config=SimpleNamespace(hf_config=hf_config), quant_config=quantization)
    )
    assert given["prefix"] == "lm_head"
    assert given.get("quant_config") is quantization
