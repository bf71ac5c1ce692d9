"""The name of FlashInfer's sink module holds everything that the module is compiled for."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

BASE: dict[str, Any] = {
    "kv_layout": "HND", "backend": "fa2", "q_data_type": torch.bfloat16, "kv_data_type": torch.bfloat16,
    "head_dim_qk": 64, "head_dim_vo": 64, "window_left": -1,
}  # fmt: skip
VARIANTS: list[dict[str, Any]] = [
    {},
    {"q_data_type": torch.float16, "kv_data_type": torch.float16},
    {"kv_data_type": torch.float8_e4m3fn},
    {"head_dim_qk": 128, "head_dim_vo": 128},
    {"head_dim_qk": 192},
    {"window_left": 127},
    {"pos_encoding_mode": "ROPE_LLAMA"},
    {"use_fp16_qk_reduction": True},
    {"backend": "fa3"},
]


@pytest.fixture
def jit_of(
    upstream_import: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[list[Any], dict[str, Any]]]:
    """The jit_args and jit_kwargs that the real wrapper hands to its base class."""
    module = upstream_import("flashinfer.attention")
    wrapper = module.BatchAttentionWithAttentionSinkWrapper
    base = wrapper.__mro__[1]
    seen: list[tuple[list[Any], dict[str, Any]]] = []
    monkeypatch.setattr(
        base, "__init__", lambda self, *a, jit_args, jit_kwargs, **k: seen.append((jit_args, jit_kwargs))
    )

    def construct(**changes: Any) -> tuple[list[Any], dict[str, Any]]:
        wrapper(torch.empty(16, dtype=torch.uint8), **{**BASE, **changes})
        return seen[-1]

    return construct


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(VARIANTS, 2)), ids=str)
def test_two_modules_never_share_a_name(jit_of: Callable[..., Any], one: dict[str, Any], other: dict[str, Any]) -> None:
    assert jit_of(**one)[0][0] != jit_of(**other)[0][0]


def test_the_same_module_keeps_its_name(jit_of: Callable[..., Any]) -> None:
    assert jit_of(window_left=127)[0][0] == jit_of(window_left=255)[0][0]


def test_the_name_is_the_one_of_the_ahead_of_time_build(
    jit_of: Callable[..., Any], upstream_import: Callable[[str], ModuleType]
) -> None:
    uri = upstream_import("flashinfer.jit.attention").get_batch_prefill_attention_sink_uri
    types = (torch.bfloat16, torch.bfloat16, torch.bfloat16, torch.int32)
    assert jit_of()[0][0] == uri("fa2", *types, 64, 64, 0, False)
    assert len(inspect.signature(uri).parameters) >= 9
