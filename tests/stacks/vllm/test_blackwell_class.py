"""The Blackwell class is majors 10, 11 and 12, and it decides at the audited sites only."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from vllm_kit import first_of, need

Load = Callable[[str], ModuleType]
CLASS = [(10, 0), (10, 3), (11, 0), (12, 0), (12, 1)]
OTHERS = [(7, 5), (8, 0), (8, 9), (9, 0), (13, 0)]


@pytest.mark.parametrize("capability", CLASS + OTHERS)
def test_the_class(upstream_import: Load, device: Callable[..., Any], capability: tuple[int, int]) -> None:
    interface = upstream_import("vllm.platforms.interface")
    assert need(interface.DeviceCapability(*capability), "is_blackwell_class") is (capability in CLASS)
    assert need(type(device(*capability)), "is_blackwell_class")() is (capability in CLASS)


def test_no_device_is_in_no_class(upstream_import: Load) -> None:
    interface = upstream_import("vllm.platforms.interface")

    class Nothing(interface.Platform):  # type: ignore[name-defined, misc]
        device_type = "cuda"

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> None:
            return None

    assert need(Nothing, "is_blackwell_class")() is False


def test_each_device_is_asked_for_its_own(upstream_import: Load) -> None:
    interface = upstream_import("vllm.platforms.interface")

    class Two(interface.Platform):  # type: ignore[name-defined, misc]
        device_type = "cuda"

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> object:
            return interface.DeviceCapability(*[(9, 0), (12, 1)][device_id])

    asked = need(Two, "is_blackwell_class")
    assert [asked(0), asked(1), asked()] == [False, True, False]


@pytest.mark.parametrize("asked", [None, 2, 3])
@pytest.mark.parametrize("capability", [*CLASS, (8, 0), (8, 9), (9, 0)])
def test_flash_attention_3_is_hoppers(
    upstream_import: Load, device: Callable[..., Any], config: Any, monkeypatch: pytest.MonkeyPatch, log: list[str],
    capability: tuple[int, int], asked: int | None,
) -> None:  # fmt: skip
    """Asked for on Blackwell it is refused, with a warning; every other answer is as before."""
    import sys

    utils = first_of(upstream_import, "vllm.v1.attention.backends.fa_utils", "vllm.attention.utils.fa_utils")
    device(*capability, "vllm.platforms", *([utils.__name__] if hasattr(utils, "current_platform") else []))
    kernels = ModuleType("vllm.vllm_flash_attn.flash_attn_interface")
    kernels.is_fa_version_supported = lambda version: version < 4  # type: ignore[attr-defined]
    kernels.fa_version_unsupported_reason = lambda version: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm.vllm_flash_attn", ModuleType("vllm.vllm_flash_attn"))
    monkeypatch.setitem(sys.modules, kernels.__name__, kernels)
    monkeypatch.setattr(config.attention_config, "flash_attn_version", asked)
    refused = asked == 3 and capability in CLASS
    if asked is None:
        asked = 3 if capability == (9, 0) else 2
    assert utils.get_flash_attn_version() == (2 if refused else asked)
    assert bool([line for line in log if "Blackwell" in line]) is refused


@pytest.mark.parametrize("capability", CLASS)
def test_flashinfer_comes_first(upstream_import: Load, cuda_platform: ModuleType, capability: tuple[int, int]) -> None:
    interface = upstream_import("vllm.platforms.interface")
    order = [b.name for b in cuda_platform._get_backend_priorities(False, interface.DeviceCapability(*capability))]
    assert order[:2] == ["FLASHINFER", "FLASH_ATTN"]


@pytest.mark.parametrize("capability", CLASS)
def test_not_where_a_draft_attends_to_what_comes_after(
    upstream_import: Load, cuda_platform: ModuleType, capability: tuple[int, int]
) -> None:
    """Where a release asks: FlashInfer's kernels for that are another's, and it has FlashAttention first."""
    interface, ask = upstream_import("vllm.platforms.interface"), cuda_platform._get_backend_priorities
    asks = "use_non_causal" in inspect.signature(ask).parameters
    given = {"use_non_causal": True} if asks else {}
    order = [b.name for b in ask(False, interface.DeviceCapability(*capability), **given)]
    first = ["FLASHINFER", "FLASH_ATTN"]
    assert order[:2] == (first[::-1] if asks else first)


@pytest.mark.parametrize("capability", OTHERS)
def test_and_only_there(upstream_import: Load, cuda_platform: ModuleType, capability: tuple[int, int]) -> None:
    interface = upstream_import("vllm.platforms.interface")
    order = [b.name for b in cuda_platform._get_backend_priorities(False, interface.DeviceCapability(*capability))]
    assert order[:2] == ["FLASH_ATTN", "FLASHINFER"]


@pytest.mark.parametrize("capability", [(11, 0), (12, 0), (12, 1)])
def test_sm100s_own_kernels_stay_its_own(
    upstream_import: Load, device: Callable[..., Any], cuda_platform: ModuleType, config: Any,
    capability: tuple[int, int],
) -> None:  # fmt: skip
    """Sites that were left at family 100: MLA, DeepGEMM, FlashInfer's prefill for MLA, TRT-LLM."""
    interface = upstream_import("vllm.platforms.interface")
    mla = cuda_platform._get_backend_priorities(True, interface.DeviceCapability(*capability))
    assert "CUTLASS_MLA" not in [b.name for b in mla]
    # From v0.20.0 a layer of its own.
    layer = "vllm.model_executor.layers.attention.mla_attention"
    mla_module = first_of(upstream_import, layer, "vllm.v1.attention.backends.mla.common").__name__
    sites = {
        mla_module: (
            "use_flashinfer_prefill",
            "use_cudnn_prefill",
            "use_trtllm_ragged_deepseek_prefill",
        ),
        "vllm.utils.deep_gemm": ("is_deep_gemm_supported",),
        "vllm.utils.flashinfer": ("supports_trtllm_attention",),
    }
    asked = []
    for name, functions in sites.items():
        module = upstream_import(name)
        device(*capability, name)
        for function in functions:
            # v0.33.0 asks MLA's prefill backends themselves, and TRT-LLM's functions for prefill or decode.
            if not hasattr(module, function) or inspect.signature(getattr(module, function)).parameters:
                continue
            asked.append(function)
            assert not getattr(module, function)(), f"{name}.{function}"
    assert "is_deep_gemm_supported" in asked
