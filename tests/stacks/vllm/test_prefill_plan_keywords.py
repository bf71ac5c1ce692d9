"""vLLM calls every FlashInfer plan() by keyword, with the model's dtype as the output's.

The real builder plans on wrappers that bind as the pinned FlashInfer's do and take nothing by position.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import flashinfer_setup as setup
import pytest
import torch

TABLE = torch.arange(64, dtype=torch.int32).view(4, 16)


def builder_of(backend: Any, dtype: torch.dtype = torch.bfloat16, cache: str = "auto") -> Any:
    layers = setup.make_layers(backend.module, [setup.Spec("model.layers.0.attn")], 8, 2, 64, cache)
    return setup.make_builder(backend.module, layers, 8, 2, 64, dtype, cache)


def plans(backend: Any) -> list[dict[str, Any]]:
    return [plan for wrapper in backend.made for plan in wrapper.plans]


def test_prefill(backend: Any) -> None:
    builder_of(backend).build(0, setup.batch([5, 20], [5, 40], TABLE))
    (plan,) = plans(backend)
    assert plan["o_data_type"] is torch.bfloat16
    assert plan["q_data_type"] is plan["kv_data_type"] is torch.bfloat16
    assert plan["qo_indptr"].tolist() == [0, 5, 25]
    assert plan["paged_kv_indices"].tolist() == [0, 16, 17, 18]
    assert plan["paged_kv_last_page_len"].tolist() == [5, 8]
    assert (plan["num_qo_heads"], plan["num_kv_heads"], plan["head_dim_qk"], plan["page_size"]) == (8, 2, 64, 16)


def test_cascade(backend: Any) -> None:
    builder_of(backend).build(16, setup.batch([5, 20], [21, 40], TABLE))
    (plan,) = plans(backend)
    if not hasattr(backend.module, "MultiLevelCascadeAttentionWrapper"):  # from v0.33.0: a plain prefill
        assert plan["qo_indptr"].tolist() == [0, 5, 25]
        return
    assert [t.tolist() for t in plan["qo_indptr_arr"]] == [[0, 25], [0, 5, 25]]
    assert [t.tolist() for t in plan["paged_kv_indptr_arr"]] == [[0, 1], [0, 1, 3]]
    assert [t.tolist() for t in plan["paged_kv_last_page_len"]] == [[16], [5, 8]]
    assert (plan["num_qo_heads"], plan["num_kv_heads"], plan["head_dim"], plan["page_size"]) == (8, 2, 64, 16)
    if not hasattr(
        backend.module, "FIPrefill"
    ):  # from v0.14.0 the pages are listed before the shared ones are taken out
        assert [t.tolist() for t in plan["paged_kv_indices_arr"]] == [[0], [1, 17, 18]]


def test_decode_context_parallel(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    group = SimpleNamespace(world_size=2, rank_in_group=0)
    if hasattr(backend.module, "get_dcp_world_size_and_rank"):  # from v0.33.0
        monkeypatch.setattr(backend.module, "get_dcp_world_size_and_rank", lambda sharded: (2, 0))
    monkeypatch.setattr(backend.module, "get_dcp_group", lambda: group)
    builder_of(backend).build(0, setup.batch([5, 20], [5, 40], TABLE))
    context, new = plans(backend)
    assert context["o_data_type"] is new["o_data_type"] is torch.bfloat16
    assert (context["num_qo_heads"], new["num_qo_heads"]) == (16, 8)
    assert (context["causal"], new["causal"]) == (False, True)
    assert context["qo_indptr"].tolist() == new["qo_indptr"].tolist() == [0, 5, 25]
    assert (context["num_kv_heads"], new["num_kv_heads"]) == (2, 2)
    if hasattr(backend.module, "FIPrefill"):  # from v0.14.0 the lengths are another's
        return
    # Of the 20 tokens before the second request's new ones this rank has 10.
    assert context["paged_kv_indptr"].tolist() == [0, 0, 1]
    assert context["paged_kv_last_page_len"].tolist() == [0, 10]
    assert context["paged_kv_indices"].tolist() == [16]
    assert context["head_dim_qk"] == 64
    assert context["page_size"] == 16


@pytest.mark.parametrize("parallel", [False, True])
def test_the_output_has_the_models_dtype_alone(backend: Any, monkeypatch: pytest.MonkeyPatch, parallel: bool) -> None:
    """With dtypes that differ: neither the query's nor the cache's, and of a model that isn't BF16."""
    if parallel:
        if hasattr(backend.module, "get_dcp_world_size_and_rank"):  # from v0.33.0
            monkeypatch.setattr(backend.module, "get_dcp_world_size_and_rank", lambda sharded: (2, 0))
        monkeypatch.setattr(backend.module, "get_dcp_group", lambda: SimpleNamespace(world_size=2, rank_in_group=0))
    builder = builder_of(backend, torch.float16, "fp8")
    queries = torch.float16  # v0.13.0 quantizes no query of FlashInfer's own kernels
    if hasattr(builder, "q_data_type_prefill"):
        queries = builder.q_data_type_prefill = torch.float8_e5m2
    builder.build(0, setup.batch([5, 20], [5, 40], TABLE))
    planned = plans(backend)
    assert [plan["o_data_type"] for plan in planned] == [torch.float16] * (1 + parallel)
    assert [plan["q_data_type"] for plan in planned] == [queries] * (1 + parallel)
    assert planned[0]["kv_data_type"] is torch.float8_e4m3fn


def test_an_older_plan_is_called_without_the_output_dtype(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """FlashInfer 0.5.3's: the same parameters but o_data_type, which 0.6.0 inserted."""
    for name, fake in setup.recorders(backend.module, backend.made, without="o_data_type").items():
        monkeypatch.setattr(backend.module, name, fake)
    builder = builder_of(backend)
    if not hasattr(backend.module, "_accepts_o_data_type"):  # from v0.20.0 vLLM needs FlashInfer 0.6
        with pytest.raises(TypeError, match="o_data_type"):
            builder.build(0, setup.batch([5, 20], [5, 40], TABLE))
        return
    builder.build(0, setup.batch([5, 20], [5, 40], TABLE))
    builder.build(0, setup.batch([1, 1], [5, 40], TABLE))
    prefill, decode = plans(backend)
    assert "o_data_type" not in {**prefill, **decode}
    assert prefill["q_data_type"] is decode["q_data_type"] is torch.bfloat16
    assert decode["sm_scale"] == prefill["sm_scale"] == 0.125


def test_a_mixed_batch_is_planned_from_its_first_prefill(backend: Any) -> None:
    """The decodes come first: lengths of the last pages are the prefills' alone."""
    if hasattr(backend.module, "get_dcp_world_size_and_rank"):  # from v0.33.0 decodes are planned by others
        return
    builder_of(backend).build(0, setup.batch([1, 5, 20], [3, 7, 40], TABLE))
    plan = next(p for p in plans(backend) if "qo_indptr" in p)
    assert plan["qo_indptr"].tolist() == [0, 5, 25]
    assert plan["paged_kv_last_page_len"].tolist() == [7, 8]


def test_context_parallel_ranks_plan_from_the_first_prefill(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if hasattr(backend.module, "FIPrefill"):  # from v0.14.0 the lengths are another's
        return
    monkeypatch.setattr(backend.module, "get_dcp_group", lambda: SimpleNamespace(world_size=2, rank_in_group=0))
    builder_of(backend).build(0, setup.batch([1, 20], [3, 40], TABLE))
    context = next(p for p in plans(backend) if p.get("causal") is False)
    assert context["qo_indptr"].tolist() == [0, 20]
    assert context["paged_kv_last_page_len"].tolist() == [10]
