"""SM12x runs MXFP4 experts on FlashInfer's CUTLASS MoE if it has the functions and a toolchain for it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm_kit import need

Load = Callable[[str], ModuleType]
SM12X = [(12, 0), (12, 1)]


@pytest.fixture
def toolchain(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """The CUDA version that FlashInfer would compile with; no precompiled kernels."""
    cpp_ext = upstream_import("flashinfer.jit.cpp_ext")
    version = upstream_import("packaging.version").Version

    def fake(cuda: str) -> None:
        monkeypatch.setattr(cpp_ext, "get_cuda_version", lambda: version(cuda))

    return fake


@pytest.mark.parametrize("capability", SM12X)
def test_auto(
    select: Callable[..., Any], mxfp4_backend: Any, toolchain: Callable[[str], None], capability: tuple[int, int]
) -> None:
    toolchain("13.0")
    assert select(capability).name == "CUTLASS_BLACKWELL_MXFP4_MXFP8"
    assert select(capability, triton=True).name == "CUTLASS_BLACKWELL_MXFP4_MXFP8"


@pytest.mark.parametrize("capability", SM12X)
def test_asked_for(
    select: Callable[..., Any], mxfp4_backend: Any, toolchain: Callable[[str], None], capability: tuple[int, int]
) -> None:
    toolchain("12.9")
    backend = mxfp4_backend["SM100_FI_MXFP4_MXFP8_CUTLASS"]
    assert select(capability, "cutlass") is backend
    assert select(capability, VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS="1") is backend
    assert select(capability, "marlin") is mxfp4_backend.MARLIN


@pytest.mark.parametrize("capability", SM12X)
def test_an_older_toolchain_keeps_marlin(
    select: Callable[..., Any], mxfp4_backend: Any, toolchain: Callable[[str], None], capability: tuple[int, int],
    log: list[str],
) -> None:  # fmt: skip
    toolchain("12.8")
    assert select(capability) is mxfp4_backend.MARLIN
    assert [line for line in log if "CUDA 12.9" in line], "Marlin without a word of what is missing"
    said = select(capability, "cutlass")
    assert isinstance(said, str)
    assert "Available: auto, marlin." in said


@pytest.mark.parametrize("name", ["mxfp8_quantize", "block_scale_interleave"])
def test_a_flashinfer_without_the_functions_keeps_marlin(
    upstream_import: Load, select: Callable[..., Any], mxfp4_backend: Any, toolchain: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch, name: str,
) -> None:  # fmt: skip
    toolchain("13.0")
    need(upstream_import("vllm.utils.flashinfer"), "has_flashinfer_sm12x_cutlass_moe")
    assert select((12, 1)) is not mxfp4_backend.MARLIN
    monkeypatch.delattr(upstream_import("flashinfer"), name)
    assert select((12, 1)) is mxfp4_backend.MARLIN


def test_lora_keeps_marlin(select: Callable[..., Any], mxfp4_backend: Any, toolchain: Callable[[str], None]) -> None:
    toolchain("13.0")
    assert select((12, 1), lora=True) is mxfp4_backend.MARLIN


@pytest.mark.parametrize("capability", [(9, 0), (10, 0), (11, 0)])
def test_other_gpus_are_not_asked(
    upstream_import: Load, device: Callable[..., Any], toolchain: Callable[[str], None], capability: tuple[int, int]
) -> None:
    toolchain("13.0")
    module = upstream_import("vllm.utils.flashinfer")
    device(*capability, module.__name__)
    assert not need(module, "has_flashinfer_sm12x_cutlass_moe")()


def test_the_names(mxfp4_backend: Any) -> None:
    """Engine, architecture, weights, activations; the older names still work."""
    assert [b.name for b in mxfp4_backend] == [
        "NONE",
        "TRTLLM_SM100_MXFP4_MXFP8",
        "CUTLASS_BLACKWELL_MXFP4_MXFP8",
        "TRTLLM_SM100_MXFP4_BF16",
        "CUTLASS_SM90_MXFP4_BF16",
        "MARLIN",
        "TRITON",
    ]
    assert mxfp4_backend["SM90_FI_MXFP4_BF16"].name == "CUTLASS_SM90_MXFP4_BF16"


def test_hidden_sizes_are_rounded_as_for_sm100(
    upstream_import: Load, select: Callable[..., Any], toolchain: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain("13.0")
    layer = upstream_import("vllm.model_executor.layers.fused_moe.layer")
    select((12, 1))
    config = SimpleNamespace(get_name=lambda: "mxfp4")
    parallel = SimpleNamespace(use_deepep_ht_kernels=False, use_deepep_ll_kernels=False)
    assert layer.maybe_roundup_hidden_size(2880, torch.bfloat16, config, parallel, False) == 2944
