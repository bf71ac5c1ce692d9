"""Sinks on SM12x in full CUDA graphs, also of decodes with drafted tokens, and all that FlashInfer is told for them.

The real builder, metadata and FlashInferImpl.forward, with the device capability faked.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import flashinfer_setup as setup
import pytest
import torch
from sinks_kit import SINK_WRAPPER, TABLE, WINDOW, WITH, WITHOUT, build, builder_of, forward, names


@pytest.fixture
def sm12x(device: Callable[..., Any], backend: Any) -> Any:
    device(12, 1, "vllm.utils.flashinfer")
    return backend


def test_cuda_graphs(sm12x: Any) -> None:
    layers = setup.make_layers(sm12x.module, [WITH], 8, 2, 64)
    try:
        builder = setup.make_builder(sm12x.module, layers, 8, 2, 64, graphs=True)
    except NotImplementedError as error:
        pytest.fail(f"refused: {error}")
    for _ in range(2):
        builder.build(0, setup.batch([1, 1], [5, 40], TABLE))
    (wrapper,) = sm12x.made
    assert wrapper.is_cuda_graph_enabled
    assert wrapper.init["qo_indptr_buf"].shape == (3,)
    assert wrapper.init["qo_indptr_buf"].dtype is torch.int32
    same_memory(wrapper.init["paged_kv_indptr_buf"], builder.paged_kv_indptr[:3])
    same_memory(wrapper.init["paged_kv_indices_buf"], builder.paged_kv_indices)
    same_memory(wrapper.init["paged_kv_last_page_len_buf"], builder.paged_kv_last_page_len[:2])
    assert [plan["qo_indptr"].tolist() for plan in wrapper.plans] == [[0, 1, 2]] * 2
    builder.build(0, setup.batch([1], [40], TABLE))
    assert [len(w.plans) for w in sm12x.made] == [2, 1], "each batch size has its own"


def same_memory(one: torch.Tensor, other: torch.Tensor) -> None:
    """Graphs are replayed on the builder's own buffers."""
    assert isinstance(one, torch.Tensor)
    assert (one.data_ptr(), one.shape, one.dtype) == (other.data_ptr(), other.shape, other.dtype)


@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize("graphs", [False, True])
def test_everything_that_is_planned(sm12x: Any, monkeypatch: pytest.MonkeyPatch, invariant: bool, graphs: bool) -> None:
    monkeypatch.setattr(sm12x.module, "vllm_is_batch_invariant", lambda: invariant)
    build(sm12x, [WINDOW], [1, 1], [5, 40], kv_cache_dtype="fp8", graphs=graphs)
    (wrapper,) = sm12x.made
    (plan,) = wrapper.plans
    assert setup.plain(plan).items() >= {
        "qo_indptr": [0, 1, 2], "paged_kv_indptr": [0, 1, 4], "paged_kv_indices": [0, 16, 17, 18],
        "paged_kv_last_page_len": [5, 8], "num_qo_heads": 8, "num_kv_heads": 2, "head_dim_qk": 64, "page_size": 16,
        "causal": True, "sm_scale": 0.125, "window_left": 127, "q_data_type": torch.bfloat16,
        "kv_data_type": torch.float8_e4m3fn, "o_data_type": torch.bfloat16, "disable_split_kv": invariant,
        "fixed_split_size": 2048 if invariant else -1,
    }.items()  # fmt: skip
    assert plan["logits_soft_cap"] is None
    init = {n: wrapper.init[n] for n in ("kv_layout", "backend", "q_data_type", "kv_data_type", "window_left")}
    assert init == {
        "kv_layout": sm12x.module.get_kv_cache_layout(), "backend": "fa2", "q_data_type": torch.bfloat16,
        "kv_data_type": torch.float8_e4m3fn, "window_left": 127,
    }  # fmt: skip


@pytest.mark.parametrize("graphs", [False, True])
def test_a_decode_with_drafted_tokens_is_a_decode(sm12x: Any, graphs: bool) -> None:
    """Three requests of four tokens each, and groups with and without sinks."""
    specs = [WITH, WINDOW, WITHOUT]
    layers, metadata = build(sm12x, specs, [4, 4, 4], [9, 40, 16], graphs=graphs, drafts=3)
    assert (metadata.num_decodes, metadata.num_prefills) == (3, 0)
    assert names(sm12x) == [SINK_WRAPPER, SINK_WRAPPER, "BatchPrefillWithPagedKVCacheWrapper"]
    assert [w.is_cuda_graph_enabled for w in sm12x.made] == [graphs] * 3
    for number, (spec, wrapper) in enumerate(zip(specs, sm12x.made, strict=True)):
        (plan,) = wrapper.plans
        assert setup.plain(plan).items() >= {
            "qo_indptr": [0, 4, 8, 12], "paged_kv_indptr": [0, 1, 4, 5], "paged_kv_last_page_len": [9, 8, 16],
            "causal": True,
        }.items()  # fmt: skip
        assert (forward(layers[spec.name], metadata, 12) == number).all()
        if graphs:
            assert wrapper.init["qo_indptr_buf"].shape == (4,)


def test_padding_of_a_graph_has_as_many_tokens(sm12x: Any) -> None:
    """The last request is padding: no tokens are scheduled for it, no pages are its."""
    common = setup.batch([4, 4, 0], [9, 40, 0], TABLE)
    common.num_actual_tokens = 12
    builder = builder_of(sm12x, [WITH], graphs=True, drafts=3)
    metadata = builder.build(0, common)
    assert (metadata.num_decodes, metadata.num_decode_tokens) == (3, 12)
    (plan,) = sm12x.made[0].plans
    assert plan["qo_indptr"].tolist() == [0, 4, 8, 12]
    assert plan["paged_kv_indptr"].tolist() == [0, 1, 4, 4]


def test_wrappers_of_graphs_are_by_the_tokens_too(sm12x: Any) -> None:
    builder = builder_of(sm12x, [WITH, WITHOUT], graphs=True, drafts=1, max_reqs=4)
    for query in ([2, 2], [1, 1], [2, 2]):
        builder.build(0, setup.batch(query, [9, 40], TABLE))
    decode = "BatchDecodeWithPagedKVCacheWrapper"
    assert names(sm12x) == [SINK_WRAPPER, "BatchPrefillWithPagedKVCacheWrapper", SINK_WRAPPER, decode]
    assert [len(w.plans) for w in sm12x.made] == [2, 2, 1, 1]


def test_without_graphs_one_wrapper_serves_all_lengths(sm12x: Any) -> None:
    builder = builder_of(sm12x, [WITH, WITHOUT], drafts=2)
    for query in ([3, 3], [1, 1], [2, 2]):
        builder.build(0, setup.batch(query, [9, 40], TABLE))
    decode = "BatchDecodeWithPagedKVCacheWrapper"
    assert names(sm12x) == [SINK_WRAPPER, "BatchPrefillWithPagedKVCacheWrapper", decode]
    assert [len(w.plans) for w in sm12x.made] == [3, 2, 1]


def graph_support(backend: Any, specs: list[setup.Spec]) -> str:
    """Of a model that has another kind of layer too, which is no attention and has no ``impl``."""
    layers = setup.make_layers(backend.module, specs, 8, 2, 64)
    config, spec = setup.make_config(layers, 8), setup.make_spec(2, 64)
    config.compilation_config.static_forward_context["model.layers.0.mlp.experts"] = object()
    name: str = backend.module.FlashInferMetadataBuilder.get_cudagraph_support(config, spec).name
    return name


def test_full_graphs_are_captured_for_it(sm12x: Any) -> None:
    assert graph_support(sm12x, [WITHOUT, WITH]) == "UNIFORM_BATCH"
    assert graph_support(sm12x, [WITHOUT]) == "UNIFORM_SINGLE_TOKEN_DECODE", "its decode kernels take one"


def test_and_not_on_other_gpus(backend: Any, device: Callable[..., Any]) -> None:
    device(9, 0, "vllm.utils.flashinfer")
    assert graph_support(backend, [WITH]) == "UNIFORM_SINGLE_TOKEN_DECODE"


def test_on_sm100_it_is_trtllms(
    upstream_import: Callable[[str], ModuleType], backend: Any, device: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Full graphs and decodes with drafted tokens, as before, and with or without sinks."""
    utils = upstream_import("vllm.utils.flashinfer")
    monkeypatch.setattr(utils, "has_nvidia_artifactory", lambda: True)
    device(10, 0, utils.__name__, backend.module.__name__)
    for specs in ([WITHOUT], [WITH]):
        assert graph_support(backend, specs) == "UNIFORM_BATCH"
        builder = builder_of(backend, specs, drafts=3)
        metadata = builder.build(0, setup.batch([4, 4], [9, 40], TABLE))
        assert (metadata.num_decodes, metadata.num_prefills) == (2, 0)


def test_without_sinks_drafted_tokens_are_prefilled(sm12x: Any) -> None:
    builder = builder_of(sm12x, [WITHOUT], drafts=3)
    metadata = builder.build(0, setup.batch([4, 4], [9, 40], TABLE))
    assert (metadata.num_decodes, metadata.num_prefills) == (0, 2)
