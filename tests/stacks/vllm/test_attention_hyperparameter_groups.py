"""Layers of one KV cache group that differ in what FlashInfer's plan() fixes get a plan for each difference.

The real builder, metadata and FlashInferImpl.forward; the wrappers bind as FlashInfer's and note what they get.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import flashinfer_setup as setup
import pytest
import torch
from groups_kit import DRAFT, TABLE, TARGET, WINDOW, build, forward, planned, step
from vllm_kit import first_of, need

Load = Callable[[str], ModuleType]


def test_each_group_has_its_plan(backend: Any) -> None:
    layers, _, metadata = build(backend, [TARGET, WINDOW], [5, 20], [5, 40])
    assert [planned(w) for w in backend.made] == [(-1, 0.125, None), (127, 0.125, None)]
    assert forward(layers[TARGET.name], metadata, 25) == {0}
    assert forward(layers[WINDOW.name], metadata, 25) == {1}


def test_decode(backend: Any) -> None:
    layers, _, metadata = build(backend, [TARGET, DRAFT], [1, 1], [5, 40])
    assert [planned(w) for w in backend.made] == [(-1, 0.125, None), (-1, 0.5, None)]
    assert forward(layers[DRAFT.name], metadata, 2) == {1}


def test_a_mixed_batch_plans_each_part_once(backend: Any) -> None:
    layers, _, metadata = build(backend, [TARGET, DRAFT], [1, 20], [5, 40])
    assert sorted(planned(w)[1] for w in backend.made) == [0.125, 0.125, 0.5, 0.5]
    assert len(forward(layers[DRAFT.name], metadata, 21)) == 2


def test_equal_layers_share_one_plan(backend: Any) -> None:
    same = setup.Spec("model.layers.2.attn", soft_cap=0.0)
    layers, _, metadata = build(backend, [TARGET, same], [5], [5])
    assert len(backend.made) == 1, "0 and None both mean no soft cap"
    assert need(metadata, "layer_to_group") is None, "nothing to look up"
    assert forward(layers[same.name], metadata, 5) == {0}


def test_the_targets_groups_come_first_by_their_tag(backend: Any) -> None:
    drafts = [setup.Spec(f"a.draft.{i}", scale=0.5, is_draft=True) for i in range(3)]
    _, builder, _ = build(backend, [*drafts, TARGET, WINDOW], [5], [5])
    groups = need(builder, "groups")
    assert [g.sm_scale for g in groups] == [0.125, 0.125, 0.5]
    assert builder.layer_to_group[drafts[0].name] == 2


def test_the_tag_is_the_one_that_models_are_loaded_under(upstream_import: Load) -> None:
    backends = upstream_import("vllm.compilation.backends")
    tags = need(backends, "DRAFT_MODEL_TAGS")
    assert backends.model_tag not in tags
    with backends.set_model_tag("eagle_head"):
        assert backends.model_tag in tags


def test_a_layer_knows_whether_it_is_a_drafts(
    upstream_import: Load, backend: Any, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real layer, made under the tags that models are loaded under."""
    layer = first_of(upstream_import, "vllm.model_executor.layers.attention.attention", "vllm.attention.layer")
    tags = upstream_import("vllm.compilation.backends")
    monkeypatch.setattr(layer, "get_attn_backend", lambda *a, **k: backend.module.FlashInferBackend)
    made = {}
    for tag in ("backbone", "eagle_head", "medusa_head", "encoder"):
        with nullcontext() if tag == tags.model_tag else tags.set_model_tag(tag):
            made[tag] = layer.Attention(8, 64, 0.125, num_kv_heads=2, prefix=f"{tag}.attn")
    assert {tag: need(one, "is_draft") for tag, one in made.items()} == {
        "backbone": False, "eagle_head": True, "medusa_head": True, "encoder": False,
    }  # fmt: skip
    utils = upstream_import("vllm.v1.attention.backends.utils")
    names = [f"{tag}.attn" for tag in made]
    found = utils.get_per_layer_parameters(config, names, backend.module.FlashInferImpl)
    assert [found[name].is_draft for name in names] == [False, True, True, False]


def test_a_layer_that_says_nothing_is_the_targets(backend: Any) -> None:
    """Not every kind of attention layer has the tag."""
    layers = setup.make_layers(backend.module, [TARGET, DRAFT], 8, 2, 64)
    del layers[TARGET.name].is_draft
    builder = setup.make_builder(backend.module, layers, 8, 2, 64)
    assert need(builder, "draft_groups") == {1}
    assert [group.is_draft for group in builder.groups] == [False, True]


def test_a_builder_without_drafts_plans_all_in_a_draft_step(backend: Any) -> None:
    """A draft that carries no tag."""
    _, builder, _ = build(backend, [TARGET, WINDOW], [5], [5])
    builder.build_for_drafting(setup.batch([5], [5], TABLE), 0)
    assert [len(w.plans) for w in backend.made] == [2, 2]


def test_all_groups_share_the_workspace(backend: Any) -> None:
    build(backend, [TARGET, WINDOW, DRAFT], [1, 20], [5, 40])
    buffers = {id(w.init["float_workspace_buffer"]) for w in backend.made}
    assert len(backend.made) == 6
    assert len(buffers) == 1


def test_the_next_step_plans_the_same_wrappers_again(backend: Any) -> None:
    _, builder, _ = build(backend, [TARGET, DRAFT], [5], [5])
    step(builder, [7], [7])
    assert [len(w.plans) for w in backend.made] == [2, 2]


def test_cuda_graphs_have_a_wrapper_for_each_group_and_batch_size(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = setup.make_layers(backend.module, [TARGET, DRAFT], 8, 2, 64)
    builder = setup.make_builder(backend.module, layers, 8, 2, 64, graphs=True)
    for size in (1, 2):
        step(builder, [1] * size, [9] * size)
    assert [w.is_cuda_graph_enabled for w in backend.made] == [True] * 4
    again: list[Any] = []
    monkeypatch.setattr(backend.module, "fast_plan_decode", lambda wrapper, *a, **k: again.append(wrapper))
    for size in (1, 2):
        step(builder, [1] * size, [9] * size)
    assert again == backend.made, "planned again, none made anew"
    assert [planned(w)[1] for w in backend.made] == [0.125, 0.5] * 2
    assert [len(w.init["paged_kv_indptr_buffer"]) for w in backend.made] == [2, 2, 3, 3]
    starts = {w.init["paged_kv_indptr_buffer"].data_ptr() for w in backend.made}
    assert len(starts) == 1, "the graphs' buffers are the builder's"


def test_decode_context_parallel_has_a_pair_for_each_group(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend.module, "get_dcp_group", lambda: SimpleNamespace(world_size=2, rank_in_group=0))
    build(backend, [TARGET, DRAFT], [5, 20], [5, 40])
    assert [w.plans[0]["sm_scale"] for w in backend.made] == [0.125, 0.125, 0.5, 0.5]
    assert [w.plans[0]["num_qo_heads"] for w in backend.made] == [16, 8, 16, 8], "the context is of all ranks' heads"


def test_decode_under_context_parallel_is_planned_for_all_ranks_heads(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend.module, "get_dcp_group", lambda: SimpleNamespace(world_size=2, rank_in_group=0))
    build(backend, [TARGET], [1, 1], [5, 40])
    (plan,) = backend.made[0].plans
    assert plan["num_qo_heads"] == 16


def test_a_name_that_no_layer_has_fails_when_the_builder_is_made(backend: Any) -> None:
    layers = setup.make_layers(backend.module, [TARGET, DRAFT], 8, 2, 64)
    layers[DRAFT.name].layer_name = "another name"
    try:
        setup.make_builder(backend.module, layers, 8, 2, 64)
    except ValueError as error:
        assert DRAFT.name in str(error)
    else:
        pytest.fail("made a builder that can't find the plan of a layer")


def test_a_name_that_is_no_attention_layers_fails_too(backend: Any) -> None:
    layers = setup.make_layers(backend.module, [TARGET, DRAFT], 8, 2, 64)
    layers["model.layers.9.mixer"] = SimpleNamespace(layer_name="model.layers.9.mixer")
    try:
        setup.make_builder(backend.module, layers, 8, 2, 64)
    except ValueError as error:
        assert "model.layers.9.mixer" in str(error)
        assert TARGET.name not in str(error)
    else:
        pytest.fail("made a builder that can't find the plan of a layer")


def test_one_groups_names_are_not_looked_up(backend: Any) -> None:
    same = setup.Spec("model.layers.2.attn")
    layers = setup.make_layers(backend.module, [TARGET, same], 8, 2, 64)
    layers[same.name].layer_name = "another name"
    try:
        builder = setup.make_builder(backend.module, layers, 8, 2, 64)
    except ValueError as error:
        pytest.fail(f"a name is looked up for nothing: {error}")
    assert len(need(builder, "groups")) == 1
    assert forward(layers[same.name], step(builder, [5], [5]), 5) == {0}


def parameters(upstream_import: Load, *given: dict[str, Any]) -> tuple[Any, Any]:
    """The groups of layers with these parameters, and each layer's; what isn't given is the same for all."""
    utils = upstream_import("vllm.v1.attention.backends.utils")
    group = need(utils, "group_layers_by_hyperparameters")
    common = {"window_left": -1, "logits_soft_cap": None, "sm_scale": 0.125, "has_sinks": False}
    layers = {f"layer{i}": utils.PerLayerParameters(**{**common, **one}) for i, one in enumerate(given)}
    found, by_layer = group(layers)
    return found, [by_layer[name] for name in layers]


@pytest.mark.parametrize(
    "other", [{"window_left": 127}, {"logits_soft_cap": 30.0}, {"sm_scale": 0.5}, {"has_sinks": True}]
)
def test_each_difference_makes_a_group(upstream_import: Load, other: dict[str, Any]) -> None:
    found, by_layer = parameters(upstream_import, {}, other, {}, other)
    assert by_layer == [0, 1, 0, 1]
    [(name, value)] = other.items()
    assert getattr(found[1], name) == value
    assert getattr(found[0], name) != value


def test_a_tag_makes_none(upstream_import: Load) -> None:
    found, by_layer = parameters(upstream_import, {"is_draft": True}, {}, {"sm_scale": 0.5, "is_draft": True})
    assert by_layer == [0, 0, 1]
    found, by_layer = parameters(
        upstream_import,
        {"sm_scale": 0.5, "is_draft": True},
        {"window_left": 9, "is_draft": True},
        {},
        {"window_left": 8},
    )
    assert by_layer == [2, 3, 0, 1], "the target's first, otherwise as they come"
    assert [(g.sm_scale, g.window_left) for g in found] == [(0.125, -1), (0.125, 8), (0.5, -1), (0.125, 9)]


def test_no_layers_are_an_error(upstream_import: Load) -> None:
    utils = upstream_import("vllm.v1.attention.backends.utils")
    group = need(utils, "group_layers_by_hyperparameters")
    with pytest.raises(AssertionError, match="No attention layers"):
        group({})


@pytest.mark.parametrize("first", [0, 1])
def test_sinks_of_any_layer_are_refused_where_they_were(backend: Any, first: int) -> None:
    """On a GPU without TRT-LLM and without FA2's sinks."""
    sinks = setup.Spec("model.layers.3.attn", sinks=torch.zeros(8))
    layers = setup.make_layers(backend.module, [[TARGET, sinks], [sinks, TARGET]][first], 8, 2, 64)
    try:
        setup.make_builder(backend.module, layers, 8, 2, 64)
    except NotImplementedError as error:
        assert "sinks" in str(error)
    else:
        pytest.fail("sinks would be left out")


def test_cascade_is_refused_for_more_than_one_group(backend: Any) -> None:
    layers = setup.make_layers(backend.module, [TARGET, DRAFT], 8, 2, 64)
    builder = setup.make_builder(backend.module, layers, 8, 2, 64)
    try:
        builder.build(16, setup.batch([5, 20], [21, 40], TABLE))
    except NotImplementedError as error:
        assert "cascade" in str(error)
    else:
        pytest.fail("one plan for layers that differ")
