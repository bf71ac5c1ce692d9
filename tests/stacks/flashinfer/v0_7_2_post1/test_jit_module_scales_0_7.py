"""v0.7.2: a JIT module's scales are left out only if its logits' scale is the caller's and it declares no others."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from planned import Planned

Load = Callable[[str], ModuleType]
PAGED, RAGGED = "BatchPrefillWithPagedKVCacheWrapper", "BatchPrefillWithRaggedKVCacheWrapper"
DECODE = "BatchDecodeWithPagedKVCacheWrapper"


def given(upstream_import: Load, wrapper: str, names: list[str], *args: Any, **scales: Any) -> list[Any] | None:
    """The scalars that a module with these was given, or None where the scales were refused."""
    planned = Planned(
        upstream_import, wrapper, _jit_module=1, _use_tensor_cores=True, _jit_additional_tensor_names=["sink"],
        _jit_additional_scalar_names=names,
    )  # fmt: skip
    try:
        planned.run(torch.zeros(8), *args, **scales)
    except ValueError:
        return None
    return list(planned.calls[0][-len(names) :])


@pytest.mark.parametrize("wrapper", [PAGED, RAGGED, DECODE])
def test_a_declared_scale_carries_its_own(upstream_import: Load, wrapper: str) -> None:
    for letter, other in (("k", "q"), ("q", "k")):
        names = ["sm_scale", f"scale_{letter}_scalar"]
        scales = {f"{letter}_scale": 0.5}
        assert given(upstream_import, wrapper, names, 0.125, 0.5, **scales) == [0.125, 0.5]
        assert given(upstream_import, wrapper, names, 0.125, 0.5, **{f"{other}_scale": 0.5}) is None, "left out"


def test_a_derived_logits_scale_holds_them(upstream_import: Load) -> None:
    assert given(upstream_import, PAGED, ["sm_scale"], q_scale=0.5, k_scale=0.5) == [0.125 * 0.25]
    assert given(upstream_import, PAGED, ["logits_soft_cap", "sm_scale"], 30.0, k_scale=0.5) == [30.0, 0.0625]
    assert given(upstream_import, PAGED, ["sm_scale", "logits_soft_cap"], 0.125, k_scale=0.5) is None, "left out"


@pytest.mark.parametrize("wrapper", [PAGED, RAGGED, DECODE])
def test_a_module_without_a_logits_scale_is_left_alone(upstream_import: Load, wrapper: str) -> None:
    assert given(upstream_import, wrapper, ["temperature"], 30.0, k_scale=0.5) == [30.0]


@pytest.mark.parametrize("wrapper", [PAGED, RAGGED, DECODE])
@pytest.mark.parametrize("jit", [True, False])
def test_the_wrapper_keeps_the_names_of_the_modules_scalars(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, wrapper: str, jit: bool
) -> None:
    """jit_args are what gen_customize_batch_prefill_module() takes: scalars are its tenth."""
    for module in ("prefill", "decode"):
        loaded = upstream_import(f"flashinfer.{module}")
        for name in ("get_customize_batch_prefill_module", "gen_customize_batch_prefill_module"):
            if hasattr(loaded, name):
                monkeypatch.setattr(loaded, name, lambda *_, **__: Module())
        monkeypatch.setattr(loaded, "get_batch_prefill_jit_module", lambda *_: 1)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, pin_memory=False, **k: empty(*a, **k))
    jit_args = ["uri", *[None] * 6, ["sink"], ["float"], ["sm_scale"], ["double"], "", ""] if jit else None
    options = {"use_tensor_cores": True} if wrapper == DECODE else {}
    made = getattr(upstream_import(f"flashinfer.{'decode' if wrapper == DECODE else 'prefill'}"), wrapper)(
        torch.zeros(16, dtype=torch.uint8), backend="fa2", jit_args=jit_args, **options
    )
    assert getattr(made, "_jit_additional_scalar_names", None) == (["sm_scale"] if jit else []), (
        "its scalars aren't known"
    )


class Module:
    """What a JIT specification makes."""

    def build_and_load(self) -> None:
        """Nothing is built."""
