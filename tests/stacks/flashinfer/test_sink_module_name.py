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
    {"head_dim_vo": 128},
    {"window_left": 127},
    {"pos_encoding_mode": "ROPE_LLAMA"},
    {"pos_encoding_mode": "ALIBI"},
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


@pytest.mark.parametrize("changes", [*VARIANTS, {"window_left": 0}], ids=str)
def test_the_name_and_the_module_are_of_the_same(
    jit_of: Callable[..., Any], upstream_import: Callable[[str], ModuleType], changes: dict[str, Any]
) -> None:
    """The name is the one that the ahead-of-time build gives to what the wrapper compiles."""
    uri = upstream_import("flashinfer.jit.attention").get_batch_prefill_attention_sink_uri
    (name, *compiled), options = jit_of(**changes)
    rotary = {"NONE": 0, "ROPE_LLAMA": 1, "ALIBI": 2}[changes.get("pos_encoding_mode", "NONE")]
    window = changes.get("window_left", -1) >= 0
    half = changes.get("use_fp16_qk_reduction", False)
    given = (changes.get("backend", "fa2"), *compiled[:6], rotary, window)
    try:
        expected = uri(*given, half)
    except TypeError:  # as it was, which knows no such reduction
        expected = uri(*given)
    assert name == expected
    assert ("_sm90" in name) is (changes.get("backend") == "fa3"), "the suffix of Hopper's own kernels"
    assert options.get("use_fp16_qk_reduction", False) == half
    query = {**BASE, **changes}
    assert compiled[:6] == [
        query["q_data_type"], query["kv_data_type"], query["q_data_type"], torch.int32, query["head_dim_qk"],
        query["head_dim_vo"],
    ]  # fmt: skip


PARAMETERS: list[tuple[Any, Any]] = [
    ("fa2", "fa3"), *[(torch.bfloat16, torch.float16)] * 3, (torch.int32, torch.int64), (64, 128), (64, 128), (0, 1),
    (False, True), (False, True),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(PARAMETERS)))
def test_each_parameter_is_in_the_name(upstream_import: Callable[[str], ModuleType], number: int) -> None:
    uri = upstream_import("flashinfer.jit.attention").get_batch_prefill_attention_sink_uri
    count = len(inspect.signature(uri).parameters)
    assert count == len(PARAMETERS), "a parameter that the module is compiled for isn't named"
    given = [one for one, _ in PARAMETERS]
    given[number] = PARAMETERS[number][1]
    assert uri(*given) != uri(*(one for one, _ in PARAMETERS))
    assert uri(*(one for one, _ in PARAMETERS)) == uri(*(one for one, _ in PARAMETERS[:-1]))
