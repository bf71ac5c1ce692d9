"""Sinks on SM12x run through FlashInfer's FA2 sink module, and nothing leaves them out silently.

The real builder, metadata and FlashInferImpl.forward, with the device capability faked. What the
module computes is not shown here: see docs/evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import flashinfer_setup as setup
import pytest
import torch
from sinks_kit import SINK_WRAPPER, SINKS, TABLE, WINDOW, WITH, WITHOUT, build, builder_of, forward, names
from vllm_kit import forget, need

Load = Callable[[str], ModuleType]
EQUIVALENT_MUTANTS = {"9038364ed5": "asked anew of the same device, it says the same"}


@pytest.fixture
def sm12x(device: Callable[..., Any], backend: Any) -> Any:
    device(12, 1, "vllm.utils.flashinfer")
    return backend


@pytest.mark.parametrize("capability", [(12, 0), (12, 1)])
def test_the_backend_is_offered_for_sinks(
    backend: Any, device: Callable[..., Any], capability: tuple[int, int]
) -> None:
    device(*capability, "vllm.utils.flashinfer")
    assert backend.module.FlashInferBackend.supports_sink()


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (11, 0), (13, 0)])
def test_and_not_where_it_was_not(
    backend: Any, device: Callable[..., Any], upstream_import: Load, capability: tuple[int, int]
) -> None:
    device(*capability, "vllm.utils.flashinfer")
    assert not backend.module.FlashInferBackend.supports_sink()
    assert not need(upstream_import("vllm.utils.flashinfer"), "supports_fa2_sinks")()


@pytest.mark.parametrize("connected", [False, True])
def test_on_sm100_trtllm_alone_has_them(
    upstream_import: Load, backend: Any, device: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, connected: bool
) -> None:
    utils = upstream_import("vllm.utils.flashinfer")
    monkeypatch.setattr(utils, "has_nvidia_artifactory", lambda: connected)
    device(10, 0, utils.__name__)
    assert not need(utils, "supports_fa2_sinks")()
    assert backend.module.FlashInferBackend.supports_sink() is connected


@pytest.mark.parametrize("trtllm", [False, True, None])
def test_they_are_no_matter_of_trtllms_option(
    upstream_import: Load, sm12x: Any, monkeypatch: pytest.MonkeyPatch, config: Any, trtllm: bool | None
) -> None:
    monkeypatch.setattr(config.attention_config, "use_trtllm_attention", trtllm)
    assert sm12x.module.FlashInferBackend.supports_sink() is True


def test_without_flashinfer_there_are_none(upstream_import: Load, sm12x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    utils = upstream_import("vllm.utils.flashinfer")
    supports = need(utils, "supports_fa2_sinks")
    monkeypatch.setattr(utils, "has_flashinfer", lambda: False)
    forget(utils)
    assert not supports()


@pytest.mark.parametrize(("query", "lens"), [([5, 20], [5, 40]), ([1, 1], [5, 40])], ids=["prefill", "decode"])
def test_the_sinks_and_the_scale_arrive(sm12x: Any, query: list[int], lens: list[int]) -> None:
    layers, metadata = build(sm12x, [WITH], query, lens)
    layer = layers[WITH.name]
    layer._k_scale_float, layer._v_scale_float = 0.5, 3.0
    forward(layer, metadata, sum(query))
    (wrapper,) = sm12x.made
    assert type(wrapper).__name__ == SINK_WRAPPER
    assert wrapper.init["backend"] == "fa2"
    assert (wrapper.init["head_dim_qk"], wrapper.init["head_dim_vo"]) == (64, 64)
    (run,) = wrapper.runs
    sinks, scale = run["args"]
    assert torch.equal(sinks, SINKS)
    assert scale == 0.125 * 0.5, "FlashInfer folds no k_scale into what the module takes by position"
    assert run["k_scale"] is None, "given twice"
    assert run["v_scale"] == 3.0
    assert (wrapper.plans[0]["causal"], wrapper.plans[0]["sm_scale"]) == (True, 0.125)


def test_decode_is_a_prefill_of_one_token_each(sm12x: Any) -> None:
    build(sm12x, [WITH], [1, 1, 1], [5, 40, 16])
    (plan,) = sm12x.made[0].plans
    assert plan["qo_indptr"].tolist() == [0, 1, 2, 3]
    assert plan["paged_kv_indptr"].tolist() == [0, 1, 4, 5]
    assert plan["paged_kv_last_page_len"].tolist() == [5, 8, 16]
    assert plan["o_data_type"] is torch.bfloat16


def test_windows_and_layers_without_sinks_have_their_own(sm12x: Any) -> None:
    layers, metadata = build(sm12x, [WITH, WINDOW, WITHOUT], [5], [5])
    assert names(sm12x) == [SINK_WRAPPER, SINK_WRAPPER, "BatchPrefillWithPagedKVCacheWrapper"]
    assert [w.init.get("window_left") for w in sm12x.made[:2]] == [-1, 127]
    for number, spec in enumerate((WITH, WINDOW, WITHOUT)):
        assert (forward(layers[spec.name], metadata, 5) == number).all()
    assert sm12x.made[2].runs[0]["args"] == ()


def test_an_fp8_cache_is_compiled_for(sm12x: Any) -> None:
    layers, metadata = build(sm12x, [WITH], [5], [5], kv_cache_dtype="fp8")
    (wrapper,) = sm12x.made
    assert wrapper.init["kv_data_type"] is wrapper.plans[0]["kv_data_type"] is torch.float8_e4m3fn
    assert wrapper.init["q_data_type"] is wrapper.plans[0]["q_data_type"] is torch.bfloat16
    forward(layers[WITH.name], metadata, 5)
    assert wrapper.runs[0]["paged_kv_cache"].dtype is torch.float8_e4m3fn


def test_without_graphs_there_are_no_buffers(sm12x: Any) -> None:
    build(sm12x, [WITH], [1, 1], [5, 40])
    (wrapper,) = sm12x.made
    names = ("qo_indptr_buf", "paged_kv_indptr_buf", "paged_kv_indices_buf", "paged_kv_last_page_len_buf")
    assert [wrapper.init[name] for name in names] == [None] * 4
    assert not wrapper.is_cuda_graph_enabled


def refused(make: Callable[[], Any], *words: str) -> None:
    try:
        made = make()
    except (NotImplementedError, RuntimeError) as error:
        for word in words:
            assert word in str(error)
    else:
        pytest.fail(f"sinks would be left out: made {made}")


def test_decode_context_parallel_is_refused(sm12x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sm12x.module, "get_dcp_group", lambda: SimpleNamespace(world_size=2, rank_in_group=0))
    layers = setup.make_layers(sm12x.module, [WITH], 8, 2, 64)
    refused(lambda: setup.make_builder(sm12x.module, layers, 8, 2, 64), "context parallelism")


def test_a_soft_cap_is_refused(sm12x: Any) -> None:
    layers = setup.make_layers(sm12x.module, [setup.Spec("a", sinks=SINKS, soft_cap=30.0)], 8, 2, 64)
    refused(lambda: setup.make_builder(sm12x.module, layers, 8, 2, 64), "soft_cap")


def test_a_soft_cap_of_layers_without_sinks_is_not(sm12x: Any) -> None:
    capped = setup.Spec("model.layers.2.attn", soft_cap=30.0)
    layers, metadata = build(sm12x, [WITH, capped], [5, 20], [5, 40])
    assert names(sm12x) == [SINK_WRAPPER, "BatchPrefillWithPagedKVCacheWrapper"]
    assert [w.plans[0]["logits_soft_cap"] for w in sm12x.made] == [None, 30.0]
    assert (forward(layers[capped.name], metadata, 25) == 1).all()


@pytest.mark.parametrize(("query", "lens"), [([5, 20], [5, 40]), ([1, 1], [5, 40])], ids=["prefill", "decode"])
def test_without_sinks_all_is_as_before(sm12x: Any, query: list[int], lens: list[int]) -> None:
    """Beside a layer that has them: the plain wrapper takes no sinks, and the cache's scale by its name."""
    layers, metadata = build(sm12x, [WITH, WITHOUT], query, lens)
    layer = layers[WITHOUT.name]
    layer._k_scale_float, layer._v_scale_float = 0.5, 3.0
    forward(layer, metadata, sum(query))
    wrapper = sm12x.made[1]
    assert "Sink" not in type(wrapper).__name__
    assert type(wrapper).__name__.startswith("BatchDecode" if query == [1, 1] else "BatchPrefill")
    (run,) = wrapper.runs
    assert run["args"] == ()
    assert (run["k_scale"], run["v_scale"]) == (0.5, 3.0)


def test_a_mixed_batch_has_sinks_in_both_parts(sm12x: Any) -> None:
    layers, metadata = build(sm12x, [WITHOUT, WITH], [1, 5, 20], [3, 7, 40])
    layer = layers[WITH.name]
    layer._k_scale_float = 0.25
    output = forward(layer, metadata, 26)
    sinks = [w for w in sm12x.made if w.runs]
    assert [type(w).__name__ for w in sinks] == [SINK_WRAPPER] * 2
    assert len(set(output.flatten().tolist())) == 2, "each writes its part"
    for wrapper in sinks:
        (run,) = wrapper.runs
        assert torch.equal(run["args"][0], SINKS)
        assert (run["args"][1], run["k_scale"]) == (0.125 * 0.25, None)
    by_tokens = {w.plans[0]["qo_indptr"].tolist()[-1]: w.plans[0] for w in sinks}
    assert by_tokens[1]["qo_indptr"].tolist() == [0, 1]
    assert by_tokens[1]["paged_kv_last_page_len"].tolist() == [3]
    assert by_tokens[25]["qo_indptr"].tolist() == [0, 5, 25]
    assert by_tokens[25]["paged_kv_last_page_len"].tolist() == [7, 8]


def test_cascade_is_refused(sm12x: Any) -> None:
    layers = setup.make_layers(sm12x.module, [WITH], 8, 2, 64)
    refused(
        lambda: setup.make_builder(sm12x.module, layers, 8, 2, 64).build(16, setup.batch([5, 20], [21, 40], TABLE)),
        "sinks",
    )


def test_nor_does_it_have_two_plans(sm12x: Any) -> None:
    """As before, of layers that have no sinks at all."""
    specs = [WITHOUT, setup.Spec("model.layers.2.attn", window=128)]
    builder = setup.make_builder(sm12x.module, setup.make_layers(sm12x.module, specs, 8, 2, 64), 8, 2, 64)
    refused(lambda: builder.build(16, setup.batch([5, 20], [21, 40], TABLE)), "one plan")


def test_other_gpus_are_refused_as_before(backend: Any, device: Callable[..., Any]) -> None:
    device(9, 0, "vllm.utils.flashinfer")
    layers = setup.make_layers(backend.module, [WITH], 8, 2, 64)
    refused(lambda: setup.make_builder(backend.module, layers, 8, 2, 64), "sinks")


def test_sm100_keeps_trtllms(
    upstream_import: Load, backend: Any, device: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is planned there; with TRT-LLM turned off sinks are refused as before."""
    utils = upstream_import("vllm.utils.flashinfer")
    monkeypatch.setattr(utils, "has_nvidia_artifactory", lambda: True)
    device(10, 0, utils.__name__, backend.module.__name__)
    builder = builder_of(backend, [WITH, WITHOUT])
    for query in ([5, 20], [1, 1], [1, 20]):
        builder.build(0, setup.batch(query, [5, 40], TABLE))
    assert backend.made == []
    builder.attention_config.use_trtllm_attention = False
    refused(lambda: builder.build(0, setup.batch([5, 20], [5, 40], TABLE)), "sinks")


def test_a_layer_and_its_plan_must_agree(sm12x: Any) -> None:
    """A layer that got its sinks after the plan was made would be run without them."""
    layers, metadata = build(sm12x, [WITHOUT], [5], [5])
    layer = layers[WITHOUT.name]
    layer.impl.sinks = SINKS
    refused(lambda: forward(layer, metadata, 5), WITHOUT.name)


@pytest.mark.parametrize("query", [[5], [1]], ids=["prefill", "decode"])
def test_nor_may_it_lose_them(sm12x: Any, query: list[int]) -> None:
    layers, metadata = build(sm12x, [WITH], query, [5])
    layer = layers[WITH.name]
    layer.impl.sinks = None
    refused(lambda: forward(layer, metadata, query[0]), WITH.name)
