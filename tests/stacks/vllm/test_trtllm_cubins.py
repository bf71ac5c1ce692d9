"""TRT-LLM's cubins exist for SM100 and SM103, and that is asked by a predicate of its own."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from vllm_kit import need

Load = Callable[[str], ModuleType]
WITH = [(10, 0), (10, 3)]
WITHOUT = [(8, 0), (8, 9), (9, 0), (10, 1), (10, 2), (11, 0), (12, 0), (12, 1), (13, 0)]


@pytest.fixture
def on(upstream_import: Load, device: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """vLLM's FlashInfer utilities on a GPU, with or without a connection to the cubins."""

    def make(capability: tuple[int, int], connected: bool = True) -> ModuleType:
        module = upstream_import("vllm.utils.flashinfer")
        device(*capability, module.__name__)
        monkeypatch.setattr(module, "has_nvidia_artifactory", lambda: connected)
        return module

    return make


@pytest.mark.parametrize("capability", WITH + WITHOUT)
def test_where_they_exist(on: Callable[..., ModuleType], capability: tuple[int, int]) -> None:
    module = on(capability)
    assert module.supports_trtllm_attention() is (capability in WITH)
    assert need(module, "has_trtllm_gen_cubins")() is (capability in WITH)


@pytest.mark.parametrize("capability", WITH + WITHOUT)
def test_they_must_be_had_too(on: Callable[..., ModuleType], capability: tuple[int, int]) -> None:
    module = on(capability, connected=False)
    assert need(module, "has_trtllm_gen_cubins")() is False
    assert module.supports_trtllm_attention() is False


def test_batch_invariance_is_no_matter_of_cubins(
    on: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = on((10, 0))
    monkeypatch.setattr(module, "vllm_is_batch_invariant", lambda: True, raising=False)
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")  # what it is from vLLM 0.20 on
    assert not module.supports_trtllm_attention()
    assert need(module, "has_trtllm_gen_cubins")()
