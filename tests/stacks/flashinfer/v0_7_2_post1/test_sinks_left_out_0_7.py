"""v0.7.2: only what runs on FA2 or FA3 refuses sinks; every other backend is handed them, or says itself that it can't.

The real run() of FlashInfer's wrappers, up to the kernel of each backend, which notes what it was given. What FA2
does with them without the refusal: tests/stacks/test_claims.py, test_run_takes_sinks_and_fa2_leaves_them_out.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

Load = Callable[[str], ModuleType]
Run = Callable[..., list[Any]]
PREFILL, DECODE = "BatchPrefillWithPagedKVCacheWrapper", "BatchDecodeWithPagedKVCacheWrapper"
#: What a decode wrapper was made of, and what plan() made of it where it chose.
REFUSING: list[tuple[str, dict[str, Any]]] = [
    (PREFILL, {"_backend": "fa2"}),
    (PREFILL, {"_backend": "fa3"}),
    (DECODE, {"_backend": "fa2", "_use_tensor_cores": True}),
    (DECODE, {"_backend": "fa3", "_use_tensor_cores": True}),
    (DECODE, {"_backend": "auto", "_use_tensor_cores": False}),  # the kernel for CUDA cores
    (DECODE, {"_backend": "fa2", "_use_tensor_cores": False}),
]
GIVEN: list[tuple[str, dict[str, Any]]] = [
    (PREFILL, {"_backend": "trtllm-gen"}),
    (DECODE, {"_backend": "trtllm-gen", "_use_tensor_cores": True}),
    (DECODE, {"_backend": "cute-dsl", "_use_tensor_cores": True}),
    (DECODE, {"_backend": "cudnn", "_use_tensor_cores": False}),
    (DECODE, {"_backend": "auto", "_cudnn_auto": True, "_use_tensor_cores": False}),
    (DECODE, {"_backend": "fa2", "_cudnn_auto": True, "_use_tensor_cores": True}),  # left from another plan()
]
THEMSELVES = [
    (PREFILL, {"_backend": "cute-dsl"}),
    (PREFILL, {"_backend": "cute-dsl-prims"}),
    (PREFILL, {"_backend": "cudnn"}),
    (DECODE, {"_backend": "cutile", "_use_tensor_cores": False}),
]


def named(case: tuple[str, dict[str, Any]]) -> str:
    wrapper, state = case
    return "-".join([wrapper.removeprefix("Batch").split("With")[0], *map(str, state.values())])


@pytest.fixture
def run(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a wrapper, planned for one token, with sinks; returns all that its kernel was given."""
    modules = {PREFILL: upstream_import("flashinfer.prefill"), DECODE: upstream_import("flashinfer.decode")}

    def go(wrapper: str, state: dict[str, Any], sinks: torch.Tensor | None) -> list[Any]:
        given: list[Any] = []

        def note(*args: Any, **named: Any) -> None:
            given.extend([*args, *named.values()])

        # What a wrapper knows besides is nothing here.
        made = object.__new__(type("Planned", (getattr(modules[wrapper], wrapper),), {"__getattr__": lambda *_: None}))
        made.__dict__.update(
            _cudnn_auto=False, _kv_layout="HND", _window_left=-1, _pos_encoding_mode="NONE", _sm_scale=0.125,
            _cached_q_data_type=torch.bfloat16, _cached_kv_data_type=torch.bfloat16, _causal=True,
            _cached_o_data_type=torch.bfloat16, _plan_info=[], _qo_indptr_last=1, _q_len_per_req=1,
            _paged_kv_last_page_len_buf=torch.ones(1, dtype=torch.int32), _trtllm_gen_multi_ctas_kv_counter_buffer=1,
            _kv_lens_buffer=torch.ones(8, dtype=torch.int32), _cached_module=SimpleNamespace(paged_run=note, run=note),
            _cute_dsl_wrapper=SimpleNamespace(run=note, run_paged=note),
        )  # fmt: skip
        made.__dict__.update(state)
        monkeypatch.setattr(modules[DECODE], "_CUDNN_GRAPH_AVAILABLE", False)
        monkeypatch.setattr(modules[DECODE], "cudnn_batch_decode_with_kv_cache", note)
        cache = torch.zeros(1, 2, 2, 16, 64, dtype=torch.bfloat16)
        made.run(torch.zeros(1, 8, 64, dtype=torch.bfloat16), cache, enable_pdl=False, sinks=sinks)
        return given

    return go


@pytest.mark.parametrize("case", REFUSING, ids=named)
def test_what_would_leave_them_out_refuses_them(run: Run, case: tuple[str, dict[str, Any]]) -> None:
    try:
        run(*case, torch.zeros(8))
    except ValueError as error:
        assert "would leave sinks out" in str(error)
        assert "BatchAttentionWithAttentionSinkWrapper" in str(error)
        assert "The auto" not in str(error), "what auto came to is named"
    else:
        pytest.fail("sinks taken and left out")


@pytest.mark.parametrize("case", REFUSING, ids=named)
def test_without_sinks_it_runs(run: Run, case: tuple[str, dict[str, Any]]) -> None:
    assert run(*case, None)


@pytest.mark.parametrize("case", GIVEN, ids=named)
def test_what_applies_them_is_given_them(run: Run, case: tuple[str, dict[str, Any]]) -> None:
    sinks = torch.zeros(8)
    try:
        given = run(*case, sinks)
    except ValueError as error:
        pytest.fail(f"refused: {error}")
    assert any(value is sinks for value in given)


@pytest.mark.parametrize("case", THEMSELVES, ids=named)
def test_what_refuses_them_itself_says_so_itself(run: Run, case: tuple[str, dict[str, Any]]) -> None:
    try:
        run(*case, torch.zeros(8))
    except NotImplementedError as error:
        assert "sinks" in str(error)
    except ValueError as error:
        pytest.fail(f"not its own words: {error}")
    else:
        pytest.fail("sinks taken and left out")
