"""Wrappers with a JIT module refuse scales of queries and keys that it would not see; a scale of 1 is none.

The real run() of each wrapper, up to the kernel's call, which is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from planned import Planned

Load = Callable[[str], ModuleType]
#: Wrappers, as made of jit_args; decode has one kernel with tensor cores and one without.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sinks": ("BatchAttentionWithAttentionSinkWrapper", {}),
    "sinks with FA3": ("BatchAttentionWithAttentionSinkWrapper", {"_backend": "fa3"}),
    "prefill": ("BatchPrefillWithPagedKVCacheWrapper", {}),
    "prefill with FA3": ("BatchPrefillWithPagedKVCacheWrapper", {"_backend": "fa3"}),
    "prefill with a mask": (
        "BatchPrefillWithPagedKVCacheWrapper",
        {"_custom_mask_buf": torch.ones(1), "_causal": False},
    ),
    "ragged prefill": ("BatchPrefillWithRaggedKVCacheWrapper", {}),
    "ragged prefill with FA3": ("BatchPrefillWithRaggedKVCacheWrapper", {"_backend": "fa3"}),
    "decode": ("BatchDecodeWithPagedKVCacheWrapper", {"_use_tensor_cores": True}),
    "decode with FA3": ("BatchDecodeWithPagedKVCacheWrapper", {"_use_tensor_cores": True, "_backend": "fa3"}),
    "decode on CUDA cores": ("BatchDecodeWithPagedKVCacheWrapper", {"_use_tensor_cores": False}),
}

#: What a module with sinks takes beside upstream's own arguments.
NAMES = {"_jit_additional_tensor_names": ["sink"], "_jit_additional_scalar_names": ["sm_scale"]}


@pytest.fixture(params=CASES)
def planned(request: pytest.FixtureRequest, upstream_import: Load) -> Planned:
    """Each wrapper, with a module that takes sinks and the scale of its logits."""
    wrapper, state = CASES[request.param]
    return Planned(upstream_import, wrapper, _jit_module=1, **NAMES, **state)


@pytest.mark.parametrize("name", ["k_scale", "q_scale"])
@pytest.mark.parametrize(
    "scale",
    [
        0.5,
        1.5,
        2,
        0,
        0.0,
        -1.0,
        -1,
        1.001,
        1 - 2**-20,
        float("nan"),
        float("inf"),
        torch.tensor(0.5),
        torch.tensor(1.0),
        torch.tensor([1.0, 1.0]),
    ],
    ids=str,
)
def test_a_scale_that_would_be_left_out_is_refused(planned: Planned, name: str, scale: Any) -> None:
    """A tensor too, whatever is in it: what is on a device isn't looked at."""
    try:
        planned.run(torch.zeros(8), 0.125, **{name: scale})
    except ValueError as error:
        assert "Fold q_scale and k_scale" in str(error)
    else:
        pytest.fail(f"the kernel was given {planned.calls[0][-2:]}, without the {name}")


@pytest.mark.parametrize("scale", [None, 1.0, 1], ids=str)
@pytest.mark.parametrize("name", ["k_scale", "q_scale"])
def test_the_modules_own_arguments_are_handed_on(planned: Planned, name: str, scale: Any) -> None:
    sink = torch.arange(8.0)
    try:
        planned.run(sink, 0.0625, **{name: scale})
    except ValueError as error:
        pytest.fail(f"refused: {error}")
    ((*_, its_sink, its_scale),) = planned.calls
    assert its_sink is sink
    assert its_scale == 0.0625


@pytest.mark.parametrize(("one", "other"), [("k_scale", "q_scale"), ("q_scale", "k_scale")])
@pytest.mark.parametrize("harmless", [None, 1, 1.0], ids=str)
def test_one_that_is_left_out_is_refused_beside_one_that_isnt(
    planned: Planned, one: str, other: str, harmless: Any
) -> None:
    with pytest.raises(ValueError, match="Fold q_scale and k_scale"):
        planned.run(torch.zeros(8), 0.125, **{one: 0.5, other: harmless})
    assert planned.calls == []


@pytest.mark.parametrize("case", [case for case in CASES if "ragged" not in case])
def test_the_scale_of_values_is_applied_afterwards(upstream_import: Load, case: str) -> None:
    """It scales the output, whatever the module sees; only ragged prefill leaves it out."""
    wrapper, state = CASES[case]
    planned = Planned(upstream_import, wrapper, _jit_module=1, **NAMES, **state)
    try:
        planned.run(torch.zeros(8), 0.125, v_scale=0.5, q_scale=1.0)
    except ValueError as error:
        pytest.fail(f"refused: {error}")
    assert len(planned.calls) == 1
    with pytest.raises(ValueError, match="Fold q_scale and k_scale"):
        planned.run(torch.zeros(8), 0.125, v_scale=0.5, q_scale=0.5)


def test_without_a_module_the_scale_is_folded_in(upstream_import: Load) -> None:
    for wrapper in ("BatchPrefillWithPagedKVCacheWrapper", "BatchDecodeWithPagedKVCacheWrapper"):
        planned = Planned(upstream_import, wrapper, _use_tensor_cores=True)
        planned.run(q_scale=0.5, k_scale=0.25)
        ((*args,),) = planned.calls
        assert 0.125 * 0.5 * 0.25 in [value for value in args if isinstance(value, float)]
