"""The sink wrapper refuses scales of queries and keys that its module would not see; a scale of 1 is none.

The real wrapper's run(), up to the kernel's call, which is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

Load = Callable[[str], ModuleType]
Run = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def run(upstream_import: Load) -> Run:
    """Run the wrapper as planned for four tokens; returns the arguments that the kernel was given."""
    module = upstream_import("flashinfer.attention")
    prefill = upstream_import("flashinfer.prefill")
    calls: list[tuple[Any, ...]] = []
    # What a release knows more of than the last is nothing here.
    blank = {"__getattr__": lambda self, name: None}
    made = object.__new__(type("Planned", (module.BatchAttentionWithAttentionSinkWrapper,), blank))
    made.__dict__.update(
        _backend="fa2", _kv_layout="HND", _window_left=-1, _logits_soft_cap=None, _sm_scale=0.125, _causal=True,
        _cached_q_data_type=torch.bfloat16, _cached_kv_data_type=torch.float8_e4m3fn, _cached_o_data_type=torch.bfloat16, _plan_info=[], _jit_module=1, _qo_indptr_last=4,
        _jit_additional_tensor_names=["sink"], _jit_additional_scalar_names=["sm_scale"],
        _cached_module=SimpleNamespace(paged_run=lambda *args: calls.append(args)),
    )  # fmt: skip
    assert isinstance(made, prefill.BatchPrefillWithPagedKVCacheWrapper)

    def go(*args: Any, **scales: Any) -> list[tuple[Any, ...]]:
        query = torch.zeros(4, 8, 64, dtype=torch.bfloat16)
        cache = torch.zeros(1, 2, 2, 16, 64).to(torch.float8_e4m3fn)
        made.run(query, cache, *args, enable_pdl=False, **scales)
        return calls

    return go


@pytest.mark.parametrize("name", ["k_scale", "q_scale"])
@pytest.mark.parametrize("scale", [0.5, torch.tensor(0.5)])
def test_a_scale_that_would_be_left_out_is_refused(run: Run, name: str, scale: Any) -> None:
    try:
        calls = run(torch.zeros(8), 0.125, **{name: scale})
    except ValueError as error:
        assert "Fold q_scale and k_scale" in str(error)
    else:
        pytest.fail(f"the kernel was given {calls[0][-2:]}, without the {name}")


def test_the_modules_own_arguments_are_handed_on(run: Run) -> None:
    sink = torch.arange(8.0)
    ((*_, its_sink, its_scale),) = run(sink, 0.0625, k_scale=1.0)
    assert its_sink is sink
    assert its_scale == 0.0625
