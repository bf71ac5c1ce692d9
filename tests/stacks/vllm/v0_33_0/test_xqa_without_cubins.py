"""SM12x decodes by XQA, with sinks, whether or not the host of trtllm-gen's cubins answers; others are as they were."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

Load = Callable[[str], ModuleType]
UTILS, BACKEND = "vllm.utils.flashinfer", "vllm.v1.attention.backends.flashinfer"
ALL = [(8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1), (13, 0)]


@pytest.fixture
def on(
    upstream_import: Load, device: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, config: Any
) -> Callable[..., Any]:
    """vLLM's module on a GPU whose network reaches the host, or doesn't; the requests that were made."""
    module = upstream_import(UTILS)
    upstream_import(BACKEND)

    def fake(capability: tuple[int, int], reachable: bool) -> tuple[ModuleType, list[str]]:
        asked: list[str] = []

        def get(url: str, timeout: float) -> Any:
            asked.append(url)
            if not reachable:
                raise OSError("no route to host")
            return SimpleNamespace(status_code=200)

        monkeypatch.setattr(module, "has_flashinfer_cubin", lambda: False)
        monkeypatch.setattr(module.requests, "get", get)
        device(*capability, UTILS, BACKEND)
        return module, asked

    return fake


@pytest.mark.parametrize("capability", [(12, 0), (12, 1)])
@pytest.mark.parametrize("reachable", [True, False])
def test_sm12x_has_xqa(
    upstream_import: Load, on: Callable[..., Any], capability: tuple[int, int], reachable: bool
) -> None:
    module, asked = on(capability, reachable)
    assert module.supports_trtllm_attention(is_prefill=False) is True
    assert module.supports_trtllm_attention(is_prefill=True) is False
    assert module.can_use_trtllm_attention(64, 8) is True
    backend = upstream_import(BACKEND).FlashInferBackend
    assert backend.supports_sink() is True
    assert asked == [], "nobody waits five seconds for a host that isn't needed"


def test_the_switches_count_before(on: Callable[..., Any], config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module, _ = on((12, 1), False)
    assert module.supports_trtllm_attention() is True
    config.attention_config.use_trtllm_attention = False
    assert module.can_use_trtllm_attention(64, 8) is False
    module.supports_trtllm_attention.cache_clear()
    monkeypatch.setattr(module.envs, "VLLM_BATCH_INVARIANT", True)
    assert module.supports_trtllm_attention() is False


@pytest.mark.parametrize("capability", [c for c in ALL if c[0] != 12])
@pytest.mark.parametrize("reachable", [True, False])
def test_others_are_as_they_were(on: Callable[..., Any], capability: tuple[int, int], reachable: bool) -> None:
    module, asked = on(capability, reachable)
    decode = reachable and capability[0] in (9, 10)
    assert module.supports_trtllm_attention(is_prefill=False) is decode
    assert module.supports_trtllm_attention(is_prefill=True) is (reachable and capability[0] == 10)
    assert len(asked) == 1
