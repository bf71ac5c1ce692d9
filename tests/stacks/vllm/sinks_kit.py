"""Layers with and without sinks, built, planned and run: what the proofs of FA2's sinks share."""

from __future__ import annotations

from typing import Any

import flashinfer_setup as setup
import pytest
import torch

TABLE = torch.arange(64, dtype=torch.int32).view(4, 16)
SINKS = torch.arange(8, dtype=torch.float32)
WITH = setup.Spec("model.layers.0.attn", sinks=SINKS)
WINDOW = setup.Spec("model.layers.1.attn", sinks=SINKS, window=128)
WITHOUT = setup.Spec("draft.layers.0.attn", is_draft=True)
SINK_WRAPPER = "BatchAttentionWithAttentionSinkWrapper"


def build(backend: Any, specs: list[setup.Spec], query: list[int], lens: list[int], **options: Any) -> tuple[Any, Any]:
    dtype = options.get("kv_cache_dtype", "auto")
    layers = setup.make_layers(backend.module, specs, 8, 2, 64, dtype)
    try:
        builder = setup.make_builder(backend.module, layers, 8, 2, 64, **options)
        metadata = builder.build(0, setup.batch(query, lens, TABLE))
    except NotImplementedError as error:
        pytest.fail(f"refused: {error}")
    return layers, metadata


def builder_of(backend: Any, specs: list[setup.Spec], **options: Any) -> Any:
    """A builder; one that refuses sinks fails the test as such."""
    layers = setup.make_layers(backend.module, specs, 8, 2, 64)
    try:
        return setup.make_builder(backend.module, layers, 8, 2, 64, **options)
    except NotImplementedError as error:
        pytest.fail(f"refused: {error}")


def forward(layer: Any, metadata: Any, tokens: int) -> torch.Tensor:
    query = torch.zeros(tokens, 8, 64, dtype=torch.bfloat16)
    kv = torch.zeros(tokens, 2, 64, dtype=torch.bfloat16)
    output = torch.full_like(query, -1)
    cache = torch.zeros(64, 2, setup.PAGE, 2, 64).to(
        torch.float8_e4m3fn if layer.impl.kv_cache_dtype.startswith("fp8") else torch.bfloat16
    )
    layer.impl.forward(layer, query, kv, kv, cache, metadata, output=output)
    return output


def names(backend: Any) -> list[str]:
    return [type(w).__name__ for w in backend.made]
