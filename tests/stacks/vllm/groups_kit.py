"""A KV cache group of layers that differ, built, planned and run: what the proofs of attention's groups share."""

from __future__ import annotations

from typing import Any

import flashinfer_setup as setup
import pytest
import torch

TABLE = torch.arange(64, dtype=torch.int32).view(4, 16)
TARGET = setup.Spec("model.layers.0.attn")
WINDOW = setup.Spec("model.layers.1.attn", window=128)
DRAFT = setup.Spec("draft.layers.0.attn", scale=0.5, is_draft=True)


def build(backend: Any, specs: list[setup.Spec], query: list[int], lens: list[int], **options: Any) -> tuple[Any, ...]:
    """Layers, builder and metadata; a builder that asserts that all layers are alike fails the test as such."""
    layers = setup.make_layers(backend.module, specs, 8, 2, 64)
    builder = setup.make_builder(backend.module, layers, 8, 2, 64, **options)
    return layers, builder, step(builder, query, lens)


def step(builder: Any, query: list[int], lens: list[int]) -> Any:
    """Build the metadata of a step; layers that it can't plan together fail the test as such."""
    try:
        return builder.build(0, setup.batch(query, lens, TABLE))
    except ValueError as error:
        pytest.fail(f"not planned: {error}")


def forward(layer: Any, metadata: Any, tokens: int) -> set[int]:
    """Run the layer; returns the numbers of the wrappers that wrote its output."""
    query = torch.zeros(tokens, 8, 64, dtype=torch.bfloat16)
    kv = torch.zeros(tokens, 2, 64, dtype=torch.bfloat16)
    output = torch.full_like(query, -1)
    layer.impl.forward(layer, query, kv, kv, torch.zeros(64, 2, setup.PAGE, 2, 64), metadata, output=output)
    return set(output.flatten().int().tolist())


def planned(wrapper: Any) -> tuple[int, float, float | None]:
    (plan,) = wrapper.plans
    return plan["window_left"], plan["sm_scale"], plan["logits_soft_cap"]


def set_batch_invariant(backend: Any, monkeypatch: pytest.MonkeyPatch, invariant: bool) -> None:
    """Turn vLLM's batch-invariant mode on or off."""
    if hasattr(backend.module, "vllm_is_batch_invariant"):
        monkeypatch.setattr(backend.module, "vllm_is_batch_invariant", lambda: invariant)
    else:  # from v0.20.0
        monkeypatch.setenv("VLLM_BATCH_INVARIANT", str(int(invariant)))


def pages(builder: Any, requests: int) -> dict[str, list[int]]:
    """Return the builder's pages of the requests. The releases divide them among DCP ranks in different ways."""
    if hasattr(builder, "paged_kv_indptr_cpu"):
        indptr, last = builder.paged_kv_indptr_cpu, builder.paged_kv_last_page_len_cpu
    else:  # from v0.14.0
        indptr, last = builder.paged_kv_indptr.cpu, builder.paged_kv_last_page_len.cpu
    return {
        "paged_kv_indptr": indptr[: requests + 1].tolist(),
        "paged_kv_last_page_len": last[:requests].tolist(),
    }
