"""All that FlashInfer is told for a group, and which groups a draft step plans: its own.

The real builder; the wrappers bind as FlashInfer's and note what they get.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import flashinfer_setup as setup
import pytest
import torch
from groups_kit import DRAFT, TABLE, TARGET, WINDOW, build, forward, pages, set_batch_invariant, step
from vllm_kit import need


def test_a_draft_step_plans_the_drafts_groups_alone(backend: Any) -> None:
    layers, builder, _ = build(backend, [TARGET, WINDOW, DRAFT], [1, 20], [5, 40])
    for query, lens in (([1, 20], [5, 40]), ([1, 1], [6, 41])):
        before = [len(w.plans) for w in backend.made]
        metadata = builder.build_for_drafting(setup.batch(query, lens, TABLE), 0)
        again = [w for w, n in zip(backend.made, before, strict=True) if len(w.plans) > n]
        assert {w.plans[-1]["sm_scale"] for w in again} == {0.5}, "the target's groups are planned in vain"
        written = forward(layers[DRAFT.name], metadata, sum(query))
        assert written == {w.number for w in again}


def test_a_draft_that_has_the_targets_parameters_uses_its_plan(backend: Any) -> None:
    draft = setup.Spec("draft.layers.0.attn", is_draft=True)
    layers, builder, _ = build(backend, [TARGET, WINDOW, draft], [5], [5])
    metadata = builder.build_for_drafting(setup.batch([5], [5], TABLE), 0)
    assert forward(layers[draft.name], metadata, 5) == {0}
    assert [len(w.plans) for w in backend.made] == [2, 1]


@pytest.mark.parametrize("trtllm", [None, False])
def test_the_builder_decides_and_not_the_gpu(
    upstream_import: Callable[[str], ModuleType], backend: Any, device: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch, trtllm: bool | None,
) -> None:  # fmt: skip
    """SM100 plans nothing, unless the option turns trtllm-gen off: then each group."""
    utils = upstream_import("vllm.utils.flashinfer")
    monkeypatch.setattr(utils, "has_nvidia_artifactory", lambda: True)
    device(10, 0, utils.__name__, backend.module.__name__)
    layers = setup.make_layers(backend.module, [TARGET, WINDOW, DRAFT], 8, 2, 64)
    builder = setup.make_builder(backend.module, layers, 8, 2, 64)
    builder.attention_config.use_trtllm_attention = trtllm
    step(builder, [5, 20], [5, 40])
    assert [p["window_left"] for w in backend.made for p in w.plans] == ([] if trtllm is None else [-1, 127, -1])


@pytest.mark.parametrize("invariant", [False, True])
def test_everything_that_is_planned(backend: Any, monkeypatch: pytest.MonkeyPatch, invariant: bool) -> None:
    set_batch_invariant(backend, monkeypatch, invariant)
    _, builder, _ = build(backend, [setup.Spec("a", window=9, soft_cap=30.0)], [5, 20], [5, 40])
    common = {
        "num_qo_heads": 8, "num_kv_heads": 2, "page_size": 16, "pos_encoding_mode": "NONE", "sm_scale": 0.125,
        "window_left": 8, "logits_soft_cap": 30.0, "q_data_type": torch.bfloat16, "kv_data_type": torch.bfloat16,
        "o_data_type": torch.bfloat16, "disable_split_kv": invariant,
    }  # fmt: skip
    prefill = setup.plain(backend.made[0].plans[0])
    assert prefill.items() >= {
        **common, "head_dim_qk": 64, "causal": True, "qo_indptr": [0, 5, 25], "paged_kv_indptr": [0, 1, 4],
        "paged_kv_indices": [0, 16, 17, 18], "paged_kv_last_page_len": [5, 8],
        "fixed_split_size": 4096 if invariant else -1,
    }.items()  # fmt: skip
    step(builder, [1, 1], [5, 40])
    decode = setup.plain(backend.made[1].plans[0])
    assert decode.items() >= {
        **common, "head_dim": 64, "indptr": [0, 1, 4], "indices": [0, 16, 17, 18], "last_page_len": [5, 8],
        "fixed_split_size": 2048 if invariant else -1,
    }.items()  # fmt: skip
    step(builder, [1, 20], [5, 40])
    mixed, decoded = setup.plain(backend.made[0].plans[1]), setup.plain(backend.made[1].plans[1])
    assert (mixed["qo_indptr"], mixed["paged_kv_last_page_len"]) == ([0, 20], [8])
    assert (decoded["indptr"], decoded["last_page_len"]) == ([0, 1], [5])


@pytest.mark.parametrize("invariant", [False, True])
def test_everything_that_is_planned_under_context_parallel(
    backend: Any, monkeypatch: pytest.MonkeyPatch, invariant: bool
) -> None:
    set_batch_invariant(backend, monkeypatch, invariant)
    monkeypatch.setattr(backend.module, "get_dcp_group", lambda: SimpleNamespace(world_size=2, rank_in_group=0))
    _, builder, _ = build(backend, [setup.Spec("a", window=9, soft_cap=30.0)], [5, 20], [5, 72])
    context, new = (setup.plain(w.plans[0]) for w in backend.made)
    both = {
        "num_kv_heads": 2, "sm_scale": 0.125, "window_left": 8, "logits_soft_cap": 30.0,
        "q_data_type": torch.bfloat16, "o_data_type": torch.bfloat16, "qo_indptr": [0, 5, 25], "head_dim_qk": 64,
    }  # fmt: skip
    assert context.items() >= {
        **both, "page_size": 16, "causal": False, "kv_data_type": torch.bfloat16, "disable_split_kv": invariant,
        "fixed_split_size": 4096 if invariant else -1, "num_qo_heads": 16, **pages(builder, 2),
    }.items()  # fmt: skip
    assert new.items() >= {**both, "causal": True, "num_qo_heads": 8}.items()


def test_the_one_groups_parameters_are_the_cascades(backend: Any) -> None:
    layers = setup.make_layers(backend.module, [setup.Spec("a", window=9, soft_cap=30.0)], 8, 2, 64)
    builder = setup.make_builder(backend.module, layers, 8, 2, 64)
    metadata = builder.build(16, setup.batch([5, 20], [21, 40], TABLE))
    (plan,) = metadata.cascade_wrapper.plans
    assert (plan["sm_scale"], plan["window_left"], plan["logits_soft_cap"]) == (0.125, 8, 30.0)
    assert need(metadata, "layer_to_group") is None


def test_parameters_are_a_targets_unless_it_is_said(backend: Any) -> None:
    utils = sys.modules[backend.module.get_per_layer_parameters.__module__]
    made = utils.PerLayerParameters(-1, None, 0.125)
    assert need(made, "is_draft") is False
    assert made == utils.PerLayerParameters(-1, None, 0.125, is_draft=True), "a plan is the same for both"
