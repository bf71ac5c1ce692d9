"""v0.6.1: ragged prefill applies no scale but by cutlass, so it refuses them; an FP8 query's are tensors.

The real run(), up to the kernel's call, which is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from planned import Planned

Load = Callable[[str], ModuleType]
WRAPPER = "BatchPrefillWithRaggedKVCacheWrapper"
SCALES = ["q_scale", "k_scale", "v_scale", "o_scale"]
EQUIVALENT_MUTANTS = {"ca07a438a4": "each of the four is asked the same, and the answer names none"}


def refused(planned: Planned, *args: Any, **options: Any) -> bool:
    try:
        planned.run(*args, **options)
    except ValueError as error:
        assert "left out" in str(error)
        return True
    return False


@pytest.mark.parametrize("backend", ["fa2", "fa3"])
@pytest.mark.parametrize("scale", SCALES)
def test_refused_with_a_module_and_without(upstream_import: Load, scale: str, backend: str) -> None:
    for module, args in ((1, (torch.zeros(8), 0.125)), (None, ()), (None, (torch.ones(8),))):
        planned = Planned(upstream_import, WRAPPER, _jit_module=module, _backend=backend)
        assert refused(planned, *args, **{scale: 0.5}), f"the kernel was given {planned.calls}, without the {scale}"
        assert not refused(planned, *args, **{scale: 1.0})


@pytest.mark.parametrize("backend", ["fa2", "fa3"])
def test_an_fp8_query_brings_its_scales_as_tensors(upstream_import: Load, backend: str) -> None:
    scales = tuple(torch.ones(8) for _ in range(3))
    fp8 = {"query": torch.float8_e4m3fn, "k_scale": 0.5}
    planned = Planned(upstream_import, WRAPPER, _backend=backend)
    assert not refused(planned, *scales, **fp8)
    if backend == "fa3":
        assert planned.calls[-1][-3:] == scales
    assert refused(planned, **fp8), "there are none"
    assert refused(Planned(upstream_import, WRAPPER, _backend=backend, _jit_module=1), *scales, **fp8)


def test_cutlass_applies_them(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    prefill = upstream_import("flashinfer.prefill")
    monkeypatch.setattr(prefill, "fmha_varlen", lambda *_, **named: (seen.append(named), None))
    assert not refused(Planned(upstream_import, WRAPPER, _backend="cutlass"), **dict.fromkeys(SCALES, 0.5))
    assert [seen[0][scale] for scale in SCALES] == [0.5] * 4
