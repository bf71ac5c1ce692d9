"""FlashInfer tunes MXFP4 experts for batches up to the scheduler's size, with one number for all calls."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from vllm_kit import MXFP4, apply_moe, moe_method

Load = Callable[[str], ModuleType]


def tuned(upstream_import: Load, monkeypatch: pytest.MonkeyPatch, made: Any, sizes: list[int]) -> list[int]:
    """Apply to batches of these sizes; returns what FlashInfer was told to tune up to."""
    told: list[int] = []

    def note(*args: Any, tune_max_num_tokens: int, **kwargs: Any) -> list[None]:
        told.append(tune_max_num_tokens)
        return [None]

    flashinfer = upstream_import("flashinfer")
    monkeypatch.setattr(upstream_import("vllm.utils.flashinfer"), "flashinfer_cutlass_fused_moe", note)
    monkeypatch.setattr(flashinfer, "trtllm_fp4_block_scale_moe", note, raising=False)
    monkeypatch.setattr(flashinfer, "mxfp8_quantize", lambda x, *args: (x, torch.zeros(1, dtype=torch.uint8)))
    for size in sizes:
        apply_moe(made, torch.zeros(size, 64, dtype=torch.bfloat16), torch.zeros(size, 8))
    return told


@pytest.mark.parametrize("backend", ["SM100_FI_MXFP4_MXFP8_CUTLASS", "SM90_FI_MXFP4_BF16", "SM100_FI_MXFP4_BF16"])
def test_it_is_the_schedulers_and_the_same_in_each_call(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    made = moe_method(upstream_import(MXFP4), 512, 8192, backend)
    assert tuned(upstream_import, monkeypatch, made, [1, 600, 8192]) == [8192] * 3


@pytest.mark.parametrize(("capture", "scheduled", "expected"), [(512, 256, 512), (0, 0, 1)])
def test_it_is_never_below_the_graphs_nor_zero(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, capture: int, scheduled: int, expected: int
) -> None:
    made = moe_method(upstream_import(MXFP4), capture, scheduled, "SM90_FI_MXFP4_BF16")
    assert tuned(upstream_import, monkeypatch, made, [1]) == [expected]
