"""Layers of one FlashInfer builder that differ in what plan() fixes get a plan for each difference, over one workspace.

vLLM's builder, metadata, FlashInferImpl, attention groups and drafters; the wrappers bind as FlashInfer's and note what
they get.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import flashinfer_setup as setup
import pytest
import torch

Load = Callable[[str], ModuleType]
UTILS, BACKEND = "vllm.utils.flashinfer", "vllm.v1.attention.backends.flashinfer"
TABLE = torch.arange(64, dtype=torch.int32).view(4, 16)
SINK_WRAPPER = "BatchAttentionWithAttentionSinkWrapper"
PLAIN = setup.Spec("model.layers.0.attn")
DIFFERENT = {
    "window": setup.Spec("model.layers.1.attn", window=128),
    "soft cap": setup.Spec("model.layers.1.attn", soft_cap=30.0),
    "scale": setup.Spec("model.layers.1.attn", scale=0.25),
}
SINKS = setup.Spec("model.layers.1.attn", sinks=torch.arange(8, dtype=torch.float32))
SM121, SM120, SM100, SM90, SM80 = (12, 1), (12, 0), (10, 0), (9, 0), (8, 0)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cubins(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let vLLM find the cubins of trtllm-gen, without a network."""
    monkeypatch.setattr(upstream_import(UTILS), "has_nvidia_artifactory", lambda: True)


@pytest.fixture
def on(backend: Any, device: Callable[..., Any], config: Any) -> Callable[..., None]:
    """Choose the GPU that vLLM sees, and --attention-config.use_trtllm_attention."""

    def choose(capability: tuple[int, int], trtllm: bool | None = None) -> None:
        device(*capability, UTILS, BACKEND)
        config.attention_config.use_trtllm_attention = trtllm

    return choose


def make_config(layers: dict[str, Any], **options: Any) -> Any:
    """Make a configuration with the option that `on` chose."""
    from vllm.config import get_current_vllm_config

    made = setup.make_config(layers, 8, **options)
    made.attention_config.use_trtllm_attention = get_current_vllm_config().attention_config.use_trtllm_attention
    made.attention_config.use_non_causal = False
    made.parallel_config.use_ubatching = False
    made.parallel_config.num_ubatches = 1
    if made.speculative_config is not None:
        made.speculative_config.enable_adaptive_verification = False
        made.speculative_config.parallel_drafting = False
    return made


def make_builder(backend: Any, specs: Iterable[setup.Spec], kv: str = "auto", **options: Any) -> tuple[Any, Any]:
    """Make layers and their builder; a refusal fails the test as such."""
    layers = setup.make_layers(backend.module, list(specs), 8, 2, 64, kv)
    config = make_config(layers, kv_cache_dtype=kv, **options)
    return layers, backend.module.FlashInferMetadataBuilder(
        setup.make_spec(2, 64, kv_cache_dtype=kv), list(layers), config, CPU
    )


def step(builder: Any, query: list[int], lens: list[int], causal: bool = True) -> Any:
    """Build the metadata of a step; layers that can't be planned together fail the test as such."""
    try:
        return builder.build(0, replace(setup.batch(query, lens, TABLE), causal=causal))
    except ValueError as error:
        pytest.fail(f"not planned: {error}")


def forward(layer: Any, metadata: Any, tokens: int) -> set[int]:
    """Run the layer; return the numbers of the wrappers that wrote its output."""
    query = torch.zeros(tokens, 8, 64, dtype=torch.bfloat16)
    kv = torch.zeros(tokens, 2, 64, dtype=torch.bfloat16)
    output = torch.full_like(query, -1)
    cache = torch.zeros(64, 2, setup.PAGE, 128, dtype=torch.bfloat16)
    layer._q_scale = torch.ones(())
    layer.impl.forward(layer, query, kv, kv, cache, metadata, output=output)
    return set(output.flatten().int().tolist())


def planned(wrapper: Any) -> tuple[int, float, float]:
    """Return what the wrapper's last plan fixed; no cap is 0."""
    plan = wrapper.plans[-1]
    return plan["window_left"], plan["sm_scale"], plan["logits_soft_cap"] or 0.0


def fixed(spec: setup.Spec) -> tuple[int, float, float]:
    """Return what a plan for the layer fixes."""
    return (-1 if spec.window is None else spec.window - 1), spec.scale, spec.soft_cap or 0.0


def kinds(backend: Any) -> list[str]:
    return [type(wrapper).__name__ for wrapper in backend.made]


@pytest.mark.parametrize("other", DIFFERENT.values(), ids=DIFFERENT.keys())
@pytest.mark.parametrize(("query", "lens"), [([5, 20], [5, 40]), ([1, 1], [5, 40])], ids=["prefill", "decode"])
@pytest.mark.parametrize("flip", [False, True])
def test_each_hyperparameter_has_its_plan(
    backend: Any, other: setup.Spec, query: list[int], lens: list[int], flip: bool
) -> None:
    specs = [other, PLAIN] if flip else [PLAIN, other]
    layers, builder = make_builder(backend, specs)
    metadata = step(builder, query, lens)
    assert [planned(w) for w in backend.made] == [fixed(spec) for spec in specs]
    for number, spec in enumerate(specs):
        assert forward(layers[spec.name], metadata, sum(query)) == {number}


def test_a_mixed_batch_plans_each_part(backend: Any) -> None:
    other = DIFFERENT["scale"]
    layers, builder = make_builder(backend, [PLAIN, other])
    metadata = step(builder, [1, 20], [5, 40])
    for spec in (PLAIN, other):
        numbers = forward(layers[spec.name], metadata, 21)
        assert len(numbers) == 2, "the prefill's wrapper and the decode's"
        assert {planned(backend.made[n]) for n in numbers} == {fixed(spec)}


@pytest.mark.parametrize("capability", [SM121, SM120, SM90])
@pytest.mark.parametrize("sinks_first", [False, True])
@pytest.mark.parametrize("causal", [True, False])
def test_a_draft_without_sinks_beside_a_target_with(
    backend: Any, on: Callable[..., None], capability: tuple[int, int], sinks_first: bool, causal: bool
) -> None:
    """A gpt-oss target and its EAGLE-3 draft; on these GPUs, sinks of prefills have a wrapper of their own kind."""
    on(capability)
    specs = [SINKS, PLAIN] if sinks_first else [PLAIN, SINKS]
    layers, builder = make_builder(backend, specs)
    metadata = step(builder, [5, 20], [5, 40], causal)
    assert kinds(backend) == [
        SINK_WRAPPER if spec is SINKS else "BatchPrefillWithPagedKVCacheWrapper" for spec in specs
    ]
    for number, spec in enumerate(specs):
        assert forward(layers[spec.name], metadata, 25) == {number}
        assert backend.made[number].plans[-1]["causal"] is causal
    again = step(builder, [5, 20], [5, 40], not causal)
    assert [len(w.plans) for w in backend.made] == [1] * 4, "wrappers that mask and those that don't are others"
    for number, spec in enumerate(specs, start=2):
        assert forward(layers[spec.name], again, 25) == {number}


@pytest.mark.parametrize("causal", [True, False])
def test_sinks_are_made_for_each_window(backend: Any, on: Callable[..., None], causal: bool) -> None:
    on(SM121)
    _, builder = make_builder(backend, [SINKS, replace(SINKS, name="model.layers.2.attn", window=128)])
    step(builder, [5, 20], [5, 40], causal)
    assert [w.init["window_left"] for w in backend.made] == [-1, 127], "the kernel is compiled with it"


def test_sinks_have_no_wrapper_of_their_own_elsewhere(backend: Any, on: Callable[..., None]) -> None:
    """On SM100, only what doesn't mask is prefilled by a wrapper, which is the one that layers without sinks have."""
    on(SM100)
    layers, builder = make_builder(backend, [PLAIN, SINKS])
    metadata = step(builder, [5, 20], [5, 40], causal=False)
    assert kinds(backend) == ["BatchPrefillWithPagedKVCacheWrapper"] * 2
    for number, spec in enumerate((PLAIN, SINKS)):
        assert forward(layers[spec.name], metadata, 25) == {number}


@pytest.mark.parametrize("capability", [SM121, SM90])
def test_decodes_by_xqa_are_not_planned(backend: Any, on: Callable[..., None], capability: tuple[int, int]) -> None:
    on(capability)
    _, builder = make_builder(backend, [PLAIN, SINKS])
    metadata = step(builder, [1, 1], [5, 40])
    assert metadata.decode.kernel.value == "xqa"
    assert backend.made == []


def test_trtllm_gen_takes_each_layers_own(backend: Any, on: Callable[..., None]) -> None:
    on(SM100)
    _, builder = make_builder(backend, [PLAIN, SINKS, replace(DIFFERENT["window"], name="w")])
    metadata = step(builder, [1, 20], [5, 40])
    assert isinstance(metadata.prefill, backend.module.TRTLLMPrefill)
    assert metadata.decode.kernel.value == "trtllm-gen"
    assert backend.made == [], "nothing is planned"


def test_the_builder_decides_and_not_the_gpu(backend: Any, on: Callable[..., None]) -> None:
    """SM100 has trtllm-gen, but the option says no: prefill and decode are planned."""
    on(SM100, trtllm=False)
    other = DIFFERENT["window"]
    layers, builder = make_builder(backend, [PLAIN, other])
    metadata = step(builder, [1, 20], [5, 40])
    assert sorted(planned(w) for w in backend.made) == sorted([fixed(PLAIN), fixed(other)] * 2)
    assert all(len(forward(layers[spec.name], metadata, 21)) == 2 for spec in (PLAIN, other))


@pytest.mark.parametrize("capability", [SM121, SM100, SM90])
@pytest.mark.parametrize("specs", [[PLAIN, SINKS], [SINKS, PLAIN]], ids=["last", "first"])
def test_sinks_that_cant_be_served_are_refused_whichever_layer_has_them(
    backend: Any, on: Callable[..., None], capability: tuple[int, int], specs: list[setup.Spec]
) -> None:
    on(capability, trtllm=False)
    with pytest.raises(NotImplementedError, match="sinks"):
        make_builder(backend, specs)
    make_builder(backend, [PLAIN])


@pytest.mark.parametrize("specs", [[PLAIN, SINKS], [SINKS, PLAIN]], ids=["last", "first"])
def test_sinks_over_an_fp4_cache_are_refused(backend: Any, on: Callable[..., None], specs: list[setup.Spec]) -> None:
    on(SM121)
    layers = setup.make_layers(backend.module, specs, 8, 2, 128, "nvfp4")
    config = make_config(layers, kv_cache_dtype="nvfp4")
    with pytest.raises(NotImplementedError, match="attention sinks"):
        backend.module.FlashInferMetadataBuilder(
            setup.make_spec(2, 128, kv_cache_dtype="nvfp4"), list(layers), config, CPU
        )


@pytest.mark.parametrize("specs", [[PLAIN, SINKS], [SINKS, PLAIN]], ids=["last", "first"])
def test_sinks_choose_trtllm_gen_whichever_layer_has_them(
    backend: Any, on: Callable[..., None], specs: list[setup.Spec]
) -> None:
    """An FP8 cache with a query in bfloat16 is prefilled by trtllm-gen for the sake of sinks alone."""
    on(SM100)
    for wanted, kind in ((specs, "TRTLLMPrefill"), ([PLAIN], "FIPrefill")):
        _, builder = make_builder(backend, wanted, kv="fp8")
        builder.q_data_type_prefill = torch.bfloat16
        assert type(step(builder, [5, 20], [5, 40]).prefill).__name__ == kind


def test_layers_that_agree_share_a_plan(backend: Any) -> None:
    """As without the patch: one wrapper for all, planned once a step."""
    same = setup.Spec("model.layers.2.attn", soft_cap=0.0)
    layers, builder = make_builder(backend, [PLAIN, same])
    for _ in range(2):
        metadata = step(builder, [5, 20], [5, 40])
    assert [len(w.plans) for w in backend.made] == [2], "0 and None both mean no soft cap"
    assert forward(layers[PLAIN.name], metadata, 25) == forward(layers[same.name], metadata, 25) == {0}


def test_everything_that_is_planned(backend: Any, on: Callable[..., None]) -> None:
    """The queries of prefills and of decodes, the cache and the output each have a dtype of their own."""
    on(SM121, trtllm=False)
    _, builder = make_builder(backend, [setup.Spec("a", window=9, soft_cap=30.0, scale=0.25)], kv="fp8")
    builder.q_data_type_prefill, builder.q_data_type_decode = torch.bfloat16, torch.float8_e5m2
    builder.model_config.dtype = torch.float16
    common = {
        "num_qo_heads": 8, "num_kv_heads": 2, "page_size": 16, "pos_encoding_mode": "NONE", "sm_scale": 0.25,
        "window_left": 8, "logits_soft_cap": 30.0, "kv_data_type": torch.float8_e4m3fn, "o_data_type": torch.float16,
        "disable_split_kv": False, "fixed_split_size": -1,
    }  # fmt: skip
    step(builder, [5, 20], [5, 40])
    assert setup.plain(backend.made[0].plans[0]).items() >= {
        **common, "q_data_type": torch.bfloat16, "head_dim_qk": 64, "causal": True, "qo_indptr": [0, 5, 25], "paged_kv_indptr": [0, 1, 4],
        "paged_kv_indices": [0, 16, 17, 18], "paged_kv_last_page_len": [5, 8], "seq_lens": [5, 40],
    }.items()  # fmt: skip
    step(builder, [1, 1], [5, 40])
    assert setup.plain(backend.made[1].plans[0]).items() >= {
        **common, "q_data_type": torch.float8_e5m2, "head_dim": 64, "indptr": [0, 1, 4], "indices": [0, 16, 17, 18], "last_page_len": [5, 8],
        "seq_lens": [5, 40], "q_len_per_req": 1,
    }.items()  # fmt: skip


def test_all_plans_share_the_workspace(backend: Any) -> None:
    _, builder = make_builder(backend, [PLAIN, *(replace(s, name=n) for n, s in DIFFERENT.items())], graphs=True)
    step(builder, [1, 20], [5, 40])
    step(builder, [1, 1], [5, 40])
    step(builder, [5, 20], [5, 40], causal=False)
    assert len(backend.made) == 4 * 4
    assert len({id(w.init["float_workspace_buffer"]) for w in backend.made}) == 1


def test_cuda_graphs_have_a_wrapper_for_each_plan_and_batch_size(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    other = DIFFERENT["scale"]
    _, builder = make_builder(backend, [PLAIN, other], graphs=True)
    for size in (1, 2):
        step(builder, [1] * size, [9] * size)
    assert [w.is_cuda_graph_enabled for w in backend.made] == [True] * 4
    assert [planned(w) for w in backend.made] == [fixed(PLAIN), fixed(other)] * 2
    again: list[Any] = []
    monkeypatch.setattr(backend.module, "fast_plan_decode", lambda wrapper, **rest: again.append(wrapper))
    for size in (1, 2):
        step(builder, [1] * size, [9] * size)
    assert again == backend.made, "planned again, none is made again"
    assert [len(w.init["paged_kv_indptr_buffer"]) for w in backend.made] == [2, 2, 3, 3]
    assert len({w.init["paged_kv_indptr_buffer"].data_ptr() for w in backend.made}) == 1, "the builder's buffers"


@pytest.mark.parametrize("trtllm", [True, False])
def test_context_parallel_has_a_pair_for_each_plan(
    backend: Any, on: Callable[..., None], monkeypatch: pytest.MonkeyPatch, log: list[str], trtllm: bool
) -> None:
    """The context kernel of trtllm-gen has no window and no soft cap: the plans that have neither use it."""
    on(SM100, trtllm=None if trtllm else False)
    monkeypatch.setattr(backend.module, "get_dcp_world_size_and_rank", lambda sharded: (2, 0))
    plans: list[Any] = []

    class Pair:
        def __init__(self, use_trtllm_context: bool, **rest: Any) -> None:
            self.context = use_trtllm_context

        def plan(self, window_left: int, **rest: Any) -> None:
            plans.append((window_left, rest["sm_scale"], rest["logits_soft_cap"] or 0.0, self.context))

    monkeypatch.setattr(backend.module, "BatchDCPPrefillWrapper", Pair)
    specs = [PLAIN, *(replace(s, name=n) for n, s in DIFFERENT.items())]
    _, builder = make_builder(backend, specs)
    step(builder, [5, 20], [5, 40])
    assert plans == [(*fixed(s), trtllm and s.window is None and s.soft_cap is None) for s in specs]
    assert len([line for line in log if "trtllm-gen context kernel for DCP prefill" in line]) == trtllm
    plans.clear()
    _, builder = make_builder(backend, specs, kv="fp8")
    step(builder, [5, 20], [5, 40])
    assert [p[-1] for p in plans] == [False] * 4, "nor is it for a quantized cache"


@pytest.mark.parametrize("specs", [[PLAIN, SINKS], [SINKS, PLAIN]], ids=["last", "first"])
def test_context_parallel_refuses_sinks_whichever_layer_has_them(
    backend: Any, on: Callable[..., None], monkeypatch: pytest.MonkeyPatch, specs: list[setup.Spec]
) -> None:
    on(SM121)
    monkeypatch.setattr(backend.module, "get_dcp_world_size_and_rank", lambda sharded: (2, 0))
    _, builder = make_builder(backend, specs)
    with pytest.raises(NotImplementedError, match="BatchDCPPrefillWrapper does not support attention sinks"):
        step(builder, [5, 20], [5, 40])


@pytest.mark.parametrize("invariant", [True, False])
@pytest.mark.parametrize("a2a", [True, False])
def test_everything_that_context_parallel_is_given(
    backend: Any, on: Callable[..., None], monkeypatch: pytest.MonkeyPatch, invariant: bool, a2a: bool
) -> None:
    """The pair of the prefills, and the decode, of which this rank computes all heads."""
    on(SM121, trtllm=False)
    monkeypatch.setattr(backend.module, "get_dcp_world_size_and_rank", lambda sharded: (2, 0))
    monkeypatch.setattr(backend.module.envs, "VLLM_BATCH_INVARIANT", invariant)
    made: list[dict[str, Any]] = []
    plans: list[dict[str, Any]] = []

    class Pair:
        def __init__(self, **given: Any) -> None:
            made.append(given)

        def plan(self, **given: Any) -> None:
            plans.append(given)

    monkeypatch.setattr(backend.module, "BatchDCPPrefillWrapper", Pair)
    layers = setup.make_layers(backend.module, [setup.Spec("a", window=9, soft_cap=30.0)], 8, 2, 64, "fp8")
    config = make_config(layers, kv_cache_dtype="fp8")
    config.parallel_config.dcp_comm_backend = "a2a" if a2a else "ag_rs"
    builder = backend.module.FlashInferMetadataBuilder(
        setup.make_spec(2, 64, kv_cache_dtype="fp8"), list(layers), config, CPU
    )
    builder.q_data_type_prefill = torch.float8_e5m2
    builder.model_config.dtype = torch.float16
    step(builder, [1, 5, 20], [3, 7, 40])
    (given,) = made
    assert given == {
        "kv_layout": "HND", "workspace_buffer": builder._get_workspace_buffer(), "dcp_a2a": a2a,
        "use_trtllm_context": False,
    }  # fmt: skip
    (given,) = plans
    # Of the 2 and the 20 tokens before the new ones this rank has the half. The first page is the decode's.
    assert setup.plain(given) == {
        "qo_indptr_cpu": [0, 5, 25], "paged_kv_indptr_cpu": [1, 2, 3], "paged_kv_indices": [0, 16, 32],
        "paged_kv_last_page_len_cpu": [1, 10], "kv_lens_cpu": [1, 10], "page_size": 16, "num_qo_heads": 8,
        "dcp_world_size": 2, "num_kv_heads": 2, "head_dim": 64, "sm_scale": 0.125, "window_left": 8,
        "logits_soft_cap": 30.0, "q_data_type": torch.float8_e5m2, "kv_cache_dtype": torch.float8_e4m3fn,
        "o_data_type": torch.float16, "prefill_fixed_split_size": 4096 if invariant else -1,
        "disable_split_kv": invariant, "block_tables": TABLE[1:].tolist(),
    }  # fmt: skip
    (decode,) = backend.made
    assert (decode.plans[0]["num_qo_heads"], decode.plans[0]["num_kv_heads"]) == (16, 2)
    assert decode.plans[0]["o_data_type"] is torch.float16


@pytest.mark.parametrize("invariant", [True, False])
def test_splits_are_those_of_the_part(backend: Any, monkeypatch: pytest.MonkeyPatch, invariant: bool) -> None:
    monkeypatch.setattr(backend.module.envs, "VLLM_BATCH_INVARIANT", invariant)
    _, builder = make_builder(backend, [PLAIN, DIFFERENT["scale"]])
    step(builder, [5, 20], [5, 40])
    step(builder, [1, 1], [5, 40])
    sizes = [(w.plans[0]["fixed_split_size"], w.plans[0]["disable_split_kv"]) for w in backend.made]
    assert sizes == ([(4096, True)] * 2 + [(2048, True)] * 2 if invariant else [(-1, False)] * 4)


@pytest.mark.parametrize("causal", [True, False])
def test_what_a_wrapper_with_sinks_is_made_of(backend: Any, on: Callable[..., None], causal: bool) -> None:
    """Its kernel is compiled for the dtypes of query and cache, which differ."""
    on(SM121)
    _, builder = make_builder(backend, [SINKS], kv="fp8")
    builder.q_data_type_prefill = torch.float16
    step(builder, [5, 20], [5, 40], causal)
    (wrapper,) = backend.made
    expected = {
        "kv_layout": "HND", "backend": "auto", "q_data_type": torch.float16, "kv_data_type": torch.float8_e4m3fn,
        "head_dim_qk": 64, "head_dim_vo": 64, "window_left": -1,
    }  # fmt: skip
    assert {name: wrapper.init[name] for name in expected} == expected
    assert wrapper.init["float_workspace_buffer"] is builder._get_workspace_buffer()


@pytest.mark.parametrize("trtllm", [True, False])
def test_other_wrappers_choose_their_backend(backend: Any, on: Callable[..., None], trtllm: bool) -> None:
    """trtllm-gen where it alone reads the cache; its output is FP8 then."""
    on(SM90, trtllm=False)
    _, builder = make_builder(backend, [PLAIN])
    builder.nvfp4_trtllm = trtllm
    step(builder, [1, 20], [5, 40])
    assert [w.init["kv_layout"] for w in backend.made] == ["HND"] * 2
    assert [w.init["backend"] for w in backend.made] == ["trtllm-gen" if trtllm else "auto"] * 2
    output = torch.float8_e4m3fn if trtllm else torch.bfloat16
    assert [w.plans[0]["o_data_type"] for w in backend.made] == [output] * 2


def test_graphs_have_a_wrapper_for_each_length_of_queries(
    backend: Any, on: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests with a draft of one token, and those without, in batches of the same size."""
    on(SM80)
    specs = [PLAIN, DIFFERENT["scale"]]
    _, builder = make_builder(backend, specs, graphs=True, drafts=1)
    for query in (2, 1):
        step(builder, [query] * 2, [9] * 2)
    assert [w.plans[0]["q_len_per_req"] for w in backend.made] == [2, 2, 1, 1]
    assert [planned(w) for w in backend.made] == [fixed(spec) for spec in specs] * 2
    again: list[Any] = []
    monkeypatch.setattr(backend.module, "fast_plan_decode", lambda wrapper, **rest: again.append(wrapper))
    for query in (2, 1):
        step(builder, [query] * 2, [9] * 2)
    assert again == backend.made, "planned again, none is made again"


def test_layers_are_read_again_only_where_there_are_more(
    backend: Any, on: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    on(SM121, trtllm=False)
    _, builder = make_builder(backend, [PLAIN, DIFFERENT["scale"]])
    builder.vllm_config.compilation_config.static_forward_context["sinks"] = setup.make_layers(
        backend.module, [SINKS], 8, 2, 64
    )[SINKS.name]
    read: list[int] = []
    original = backend.module.get_per_layer_parameters
    monkeypatch.setattr(
        backend.module, "get_per_layer_parameters", lambda *given: read.append(len(given[1])) or original(*given)
    )
    for _ in range(2):
        step(builder, [5, 20], [5, 40])
    assert read == []
    builder.layer_names.append("sinks")
    with pytest.raises(NotImplementedError, match="sinks"):
        step(builder, [5, 20], [5, 40])
    assert read == [len(builder.layer_names)]


def test_no_layers_are_an_error(backend: Any) -> None:
    make_builder(backend, [PLAIN, DIFFERENT["scale"]])
    with pytest.raises(AssertionError, match="No attention layers found in the model"):
        make_builder(backend, [])


def test_context_parallel_serves_sinks_where_trtllm_gen_does_all(
    backend: Any, on: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    on(SM100)
    monkeypatch.setattr(backend.module, "get_dcp_world_size_and_rank", lambda sharded: (2, 0))
    _, builder = make_builder(backend, [PLAIN, SINKS])
    batch = replace(setup.batch([1, 1], [5, 40], TABLE), dcp_local_seq_lens=torch.tensor([3, 20], dtype=torch.int32))
    assert builder.build(0, batch).decode.kernel.value == "trtllm-gen"
    with pytest.raises(NotImplementedError, match="BatchDCPPrefillWrapper does not support attention sinks"):
        step(builder, [5, 20], [5, 40])


def test_no_step_reads_the_configuration(
    backend: Any, on: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's configuration is current only while the builder is made; a drafter's layers come later."""
    on(SM121)
    layers, builder = make_builder(backend, [PLAIN, SINKS])
    del builder.layer_names[1:]
    step(builder, [5, 20], [5, 40])

    def asked(*args: Any, **given: Any) -> None:
        pytest.fail("a step asks for the configuration")

    for name in ("can_use_trtllm_attention", "force_use_trtllm_attention"):
        monkeypatch.setattr(backend.module, name, asked)
    monkeypatch.setattr(backend.module.FlashInferBackend, "supports_sink", asked)
    builder.layer_names.append(SINKS.name)
    metadata = step(builder, [5, 20], [5, 40])
    assert len(forward(layers[SINKS.name], metadata, 25)) == 1


#: Where groups of layers that have a KV cache are made, by the file in vllm/v1.
MAKERS = {
    "worker/gpu_model_runner.py": "vllm.v1.worker.gpu_model_runner",
    "worker/gpu/attn_utils.py": "vllm.v1.worker.gpu.attn_utils",
    "spec_decode/llm_base_proposer.py": "vllm.v1.spec_decode.llm_base_proposer",
    "spec_decode/gemma4.py": "vllm.v1.spec_decode.gemma4",
    "spec_decode/step3p5.py": "vllm.v1.spec_decode.step3p5",
}


def test_there_are_no_other_places_where_groups_are_made(trees: Path) -> None:
    found = {
        str(path.relative_to(trees / "vllm/vllm/v1"))
        for path in (trees / "vllm/vllm/v1").rglob("*.py")
        if re.search(r"def (initialize|init)_attn_backend\(|= AttentionGroup\(", path.read_text())
    }
    # FlashInfer has no encoder attention.
    assert found - {"worker/gpu/model_states/encoder_only.py"} == MAKERS.keys()


def groups_of(maker: str, module: ModuleType, config: Any, cache: Any, layers: dict[str, Any]) -> list[Any]:
    """Return the groups that vLLM makes there, with their builders."""
    if maker == "worker/gpu/attn_utils.py":
        return list(module.init_attn_backend(cache, config, CPU)[0][0])
    if maker == "worker/gpu_model_runner.py":
        modes: list[Any] = []
        runner = SimpleNamespace(
            attn_groups=[], vllm_config=config, device=CPU, parallel_config=config.parallel_config,
            speculative_config=None, kv_sharing_fast_prefill_eligible_layers=set(),
            calculate_reorder_batch_threshold=lambda: None,
            _check_and_update_cudagraph_mode=lambda backends, *rest, **given: modes.extend(backends),
        )  # fmt: skip
        module.GPUModelRunner.initialize_attn_backend(runner, cache)
        module.GPUModelRunner.initialize_metadata_builders(runner, cache, [setup.PAGE])
        assert [{b.get_name() for b in backends} for backends in modes] == [{"FLASHINFER"}], "as upstream's"
        return list(runner.attn_groups[0])
    (proposer,) = (
        value for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and "initialize_attn_backend" in vars(value)
    )  # fmt: skip
    drafter = SimpleNamespace(
        vllm_config=config, device=CPU, _draft_attn_layer_names=set(layers), validate_same_kv_cache_group=id
    )
    proposer.initialize_attn_backend(drafter, cache, [setup.PAGE])
    return list(drafter.draft_attn_groups)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(
    "specs", [[PLAIN, SINKS], [PLAIN, DIFFERENT["window"]], [PLAIN]], ids=["sinks", "window", "one"]
)
def test_whoever_makes_the_groups(
    upstream_import: Load, backend: Any, on: Callable[..., None], monkeypatch: pytest.MonkeyPatch, maker: str,
    specs: list[setup.Spec],
) -> None:  # fmt: skip
    """Each runner and each drafter has the one group that it had, whose layers each have their plan."""
    on(SM121)
    module, interface = upstream_import(MAKERS[maker]), upstream_import("vllm.v1.kv_cache_interface")
    specs = [*specs, replace(PLAIN, name="model.layers.2.attn")]
    layers = setup.make_layers(backend.module, specs, 8, 2, 64)
    config = make_config(layers)
    cache = interface.KVCacheConfig(64, [], [interface.KVCacheGroupSpec(list(layers), setup.make_spec(2, 64))])
    for name, answer in {
        "check_attention_cp_compatibility": None,
        "get_shared_kv_cache_layers": {},
        "get_kv_sharing_fast_prefill_eligible_layers": set(),
        "prepare_kernel_block_sizes": [setup.PAGE],
    }.items():
        if hasattr(module, name):
            monkeypatch.setattr(module, name, lambda *args, answer=answer: answer)
    (group,) = groups_of(maker, module, config, cache, layers)
    assert sorted(group.layer_names) == sorted(layers)
    metadata = step(group.get_metadata_builder(), [5, 20], [5, 40])
    assert len(backend.made) == len({(fixed(s), s.sinks is None) for s in specs})
    assert len({id(w.init["float_workspace_buffer"]) for w in backend.made}) == 1
    for spec in specs:
        (number,) = forward(layers[spec.name], metadata, 25)
        assert planned(backend.made[number]) == fixed(spec)
        assert (kinds(backend)[number] == SINK_WRAPPER) is (spec.sinks is not None)


def test_mla_still_asserts(upstream_import: Load) -> None:
    """MLA's prefills by FlashInfer are planned once for all layers, as they were."""
    utils = upstream_import("vllm.v1.attention.backends.utils")
    one = utils.PerLayerParameters(-1, None, 0.125)
    assert utils.infer_global_hyperparameters({"a": one, "b": utils.PerLayerParameters(-1, None, 0.125)})
    assert one.has_same_all_params
    utils.infer_global_hyperparameters({"a": one, "b": utils.PerLayerParameters(-1, None, 0.25)})
    assert not one.has_same_all_params
