"""Layers that FlashInfer can't plan together get builders of their own, in both runners and for a draft's layers.

vLLM's own grouping and FlashInferImpl; the builders, which need a GPU, are noted and not made.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

Load = Callable[[str], ModuleType]
UTILS, BACKEND = "vllm.utils.flashinfer", "vllm.v1.attention.backends.flashinfer"
RUNNERS = ["one", "two"]
SINKS = torch.zeros(64)
#: A target's full-attention layers, and an EAGLE-3 draft's: the same heads and cache, and no sinks.
EAGLE = {"t.1": {"sinks": SINKS}, "t.3": {"sinks": SINKS}, "draft.0": {}}


@pytest.fixture
def grouped(
    upstream_import: Load, device: Callable[..., Any], config: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """The groups that a runner makes of layers in one KV cache group, as names, on a GPU."""
    backend, utils = upstream_import(BACKEND), upstream_import("vllm.v1.attention.backends.utils")
    interface = upstream_import("vllm.v1.kv_cache_interface")
    layer_base = upstream_import("vllm.model_executor.layers.attention_layer_base").AttentionLayerBase
    groups_of = upstream_import("vllm.v1.worker.utils").AttentionGroup
    runner_one = upstream_import("vllm.v1.worker.gpu_model_runner")
    runner_two = upstream_import("vllm.v1.worker.gpu.attn_utils")
    proposer = upstream_import("vllm.v1.spec_decode.llm_base_proposer")

    monkeypatch.setattr(backend, "get_device_sm_count", lambda device: 48)
    monkeypatch.setattr(backend, "_get_multi_ctas_kv_counter_buffer", lambda size, device: None)

    class Layer(layer_base):  # type: ignore[misc, valid-type]
        def __init__(self, scale: float = 0.125, **given: Any) -> None:
            self.num_heads = 64
            self.impl = backend.FlashInferImpl(64, 64, scale, 8, None, given.pop("window", None), "auto", **given)

        def get_attn_backend(self) -> Any:
            return backend.FlashInferBackend

        def get_kv_cache_spec(self, vllm_config: Any) -> Any:
            return None

    def check(found: list[Any]) -> list[list[str]]:
        for group in found:
            assert group.backend is backend.FlashInferBackend
            assert isinstance(group.kv_cache_spec, interface.FullAttentionSpec)
            shared = utils.infer_global_hyperparameters(
                utils.get_per_layer_parameters(config, group.layer_names, backend.FlashInferImpl)
            )
            assert shared.has_same_all_params, "FlashInfer's builder would refuse to plan these together"
            assert shared.has_same_window_lefts
        return sorted(sorted(g.layer_names) for g in found)

    def make(runner: str, layers: dict[str, Any], capability: tuple[int, int] = (12, 1)) -> list[list[str]]:
        monkeypatch.setattr(upstream_import(UTILS), "has_nvidia_artifactory", lambda: True)
        device(*capability, UTILS, BACKEND)
        made = {name: Layer(**given) for name, given in layers.items()}
        config.compilation_config.static_forward_context = made
        spec = interface.FullAttentionSpec(block_size=16, num_kv_heads=8, head_size=64, dtype=torch.bfloat16)
        cache = interface.KVCacheConfig(64, [], [interface.KVCacheGroupSpec(list(made), spec)])
        monkeypatch.setattr(groups_of, "create_metadata_builders", lambda *args, **given: None)
        if runner == "one":
            this = SimpleNamespace(
                attn_groups=[], vllm_config=config, kv_sharing_fast_prefill_eligible_layers=set(),
                _check_and_update_cudagraph_mode=lambda *args, **given: None,
            )  # fmt: skip
            monkeypatch.setattr(runner_one, "check_attention_cp_compatibility", lambda config: None)
            runner_one.GPUModelRunner.initialize_attn_backend(this, cache)
            return check(this.attn_groups[0])
        if runner == "two":
            monkeypatch.setattr(runner_two, "prepare_kernel_block_sizes", lambda cache, groups: [16])
            monkeypatch.setattr(groups_of, "get_metadata_builder", lambda *args: SimpleNamespace(
                get_cudagraph_support=lambda *given: upstream_import("vllm.v1.attention.backend").AttentionCGSupport.ALWAYS,
            ))  # fmt: skip
            groups, *_ = runner_two.init_attn_backend(cache, config, torch.device("cpu"))
            return check(groups[0])
        this = SimpleNamespace(
            vllm_config=config, device="cpu", _draft_attn_layer_names=set(made), validate_same_kv_cache_group=id,
        )  # fmt: skip
        proposer.SpecDecodeBaseProposer.initialize_attn_backend(this, cache)
        return check(this.draft_attn_groups)

    return make


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_draft_without_sinks(grouped: Callable[..., Any], runner: str) -> None:
    assert grouped(runner, EAGLE) == [["draft.0"], ["t.1", "t.3"]]


@pytest.mark.parametrize("runner", [*RUNNERS, "draft"])
@pytest.mark.parametrize(
    "other", [{"window": 128}, {"logits_soft_cap": 30.0}, {"scale": 0.25}, {"sinks": SINKS}],
    ids=["window", "soft cap", "scale", "sinks"],
)  # fmt: skip
def test_each_hyperparameter_splits(grouped: Callable[..., Any], runner: str, other: dict[str, Any]) -> None:
    assert grouped(runner, {"a": {}, "b": dict(other), "c": {}}) == [["a", "c"], ["b"]]


@pytest.mark.parametrize("runner", [*RUNNERS, "draft"])
def test_layers_that_agree_share_a_builder(grouped: Callable[..., Any], runner: str) -> None:
    assert grouped(runner, {"a": {"window": 128}, "b": {"window": 128}, "c": {}}) == [["a", "b"], ["c"]]
    assert grouped(runner, {"a": {}, "b": {}}) == [["a", "b"]]
    assert grouped(runner, {"a": {"window": 128}, "b": {"window": 256}}) == [["a"], ["b"]], "they share no window"


@pytest.mark.parametrize("runner", [*RUNNERS, "draft"])
def test_trtllm_gen_takes_each_layers_own(
    upstream_import: Load, grouped: Callable[..., Any], runner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert grouped(runner, {"a": {}, "b": {"window": 128}}) == [["a"], ["b"]]
    utils = upstream_import("vllm.v1.attention.backends.utils")
    monkeypatch.setattr(utils, "infer_global_hyperparameters", lambda params: SimpleNamespace(
        has_same_all_params=True, has_same_window_lefts=True,
    ))  # fmt: skip
    assert grouped(runner, EAGLE, (10, 0)) == [["draft.0", "t.1", "t.3"]], "one builder, as without the patch"


@pytest.mark.parametrize("runner", RUNNERS)
def test_other_backends_are_as_they_were(upstream_import: Load, grouped: Callable[..., Any], runner: str) -> None:
    assert grouped(runner, EAGLE) == [["draft.0"], ["t.1", "t.3"]]
    base = upstream_import("vllm.v1.attention.backend").AttentionBackend
    assert base.get_plan_key(SimpleNamespace()) is None


@pytest.mark.parametrize(("window", "left"), [((127, 0), 127), ((-1, -1), -1), (None, -1)])
def test_a_layers_window_is_what_it_was(upstream_import: Load, config: Any, window: Any, left: int) -> None:
    """Read as before, of an implementation too that has none."""
    utils, backend = upstream_import("vllm.v1.attention.backends.utils"), upstream_import(BACKEND)
    base = upstream_import("vllm.model_executor.layers.attention_layer_base").AttentionLayerBase
    layer = type("Layer", (base,), dict.fromkeys(base.__abstractmethods__))()
    layer.impl = object.__new__(backend.FlashInferImpl)
    vars(layer.impl).update(sliding_window=window, scale=0.125)
    config.compilation_config.static_forward_context = {"a": layer}
    (found,) = utils.get_per_layer_parameters(config, ["a"], backend.FlashInferImpl).values()
    assert found == utils.PerLayerParameters(left, None, 0.125, has_sinks=False)
