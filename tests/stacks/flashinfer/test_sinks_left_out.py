"""v0.6.1: all wrappers but those of trtllm-gen, which applies sinks, refuse them (v0.7.2: v0_7_2_post1/).

The real run() of FlashInfer's wrappers, up to the kernel. What FA2 does with them without the refusal:
tests/stacks/test_claims.py, test_run_takes_sinks_and_fa2_leaves_them_out.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

Load = Callable[[str], ModuleType]
WRAPPERS = {
    "BatchPrefillWithPagedKVCacheWrapper": "flashinfer.prefill",
    "BatchDecodeWithPagedKVCacheWrapper": "flashinfer.decode",
}


class Reached(Exception):
    """run() got past its checks of what it was given."""


@pytest.fixture
def run(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    """Run a wrapper of a backend as far as the unpacking of its cache; returns what it raised."""

    def attempt(wrapper: str, backend: str, sinks: torch.Tensor | None) -> object:
        module = upstream_import(WRAPPERS[wrapper])

        def reach(*args: Any) -> None:
            raise Reached

        monkeypatch.setattr(module, "_unpack_paged_kv_cache", reach)
        made = object.__new__(getattr(module, wrapper))
        made.__dict__.update(_backend=backend, _kv_layout="HND")
        try:
            made.run(torch.zeros(1, 8, 64), torch.zeros(1), enable_pdl=False, sinks=sinks)
        except (ValueError, Reached) as error:
            return error
        return None

    return attempt


@pytest.mark.parametrize("heads", [1, 8])
@pytest.mark.parametrize("backend", ["fa2", "fa3", "auto", "cudnn", "cutlass", "xqa", "trtllm", ""])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_refused(run: Callable[..., object], wrapper: str, backend: str, heads: int) -> None:
    """A sink of zero is one, too: it takes part in the softmax."""
    error = run(wrapper, backend, torch.zeros(heads))
    assert isinstance(error, ValueError), "sinks taken and left out"
    assert f"The {backend} backend would leave sinks out" in str(error)
    assert "BatchAttentionWithAttentionSinkWrapper" in str(error)


@pytest.mark.parametrize(("backend", "sinks"), [("trtllm-gen", True), ("fa2", False), ("fa3", False)])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_all_else_goes_on(run: Callable[..., object], wrapper: str, backend: str, sinks: bool) -> None:
    assert isinstance(run(wrapper, backend, torch.zeros(8) if sinks else None), Reached)
