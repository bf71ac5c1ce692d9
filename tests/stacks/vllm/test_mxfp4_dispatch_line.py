"""One line at the call says what runs the experts of an MXFP4 model; known mistakes are warned of."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm_kit import MXFP4, apply_moe, forget, moe_layer, moe_method

Load = Callable[[str], ModuleType]
CUTLASS = "SM100_FI_MXFP4_MXFP8_CUTLASS"


class Reached(Exception):
    """The kernel was called, after whatever had to be said."""


def reach(*args: Any, **kwargs: Any) -> None:
    raise Reached


@pytest.fixture
def apply(
    upstream_import: Load, device: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, log: list[str]
) -> Callable[..., list[str]]:
    """Run the experts up to the kernel; returns what was logged before it."""
    module, flashinfer = upstream_import(MXFP4), upstream_import("flashinfer")
    triton = upstream_import("vllm.model_executor.layers.fused_moe.gpt_oss_triton_kernels_moe")

    def run(
        capability: tuple[int, int], backend: str, quantized: torch.dtype = torch.float8_e4m3fn, kind: str = "CUDA",
        times: int = 1,
    ) -> list[str]:  # fmt: skip
        device(*capability, MXFP4, kind=kind)
        monkeypatch.setattr(upstream_import("vllm.utils.flashinfer"), "flashinfer_cutlass_fused_moe", reach)
        monkeypatch.setattr(flashinfer, "trtllm_fp4_block_scale_moe", reach, raising=False)
        monkeypatch.setattr(module, "fused_marlin_moe", reach)
        monkeypatch.setattr(triton, "triton_kernel_moe_forward", reach)
        scale = torch.zeros(64, dtype=torch.uint8)
        monkeypatch.setattr(flashinfer, "mxfp8_quantize", lambda x, *args: (x.to(quantized), scale))
        made = moe_method(module, 512, 8192, backend)
        layer = moe_layer()
        layer.w2_weight = torch.zeros(8, 2, 16, dtype=torch.uint8)  # of another shape than the first
        forget(upstream_import("vllm.logger"))
        del log[:]
        for _ in range(times):
            with pytest.raises(Reached):
                apply_moe(made, torch.zeros(16, 64, dtype=torch.bfloat16), torch.zeros(16, 8), layer)
        return list(log)

    return run


@pytest.mark.parametrize(
    ("capability", "backend", "function", "activations"),
    [
        ((12, 1), CUTLASS, "flashinfer.cutlass_fused_moe", "float8_e4m3fn"),
        ((9, 0), "SM90_FI_MXFP4_BF16", "flashinfer.cutlass_fused_moe", "bfloat16"),
        ((10, 0), CUTLASS, "flashinfer.cutlass_fused_moe", "float8_e4m3fn"),
        ((10, 0), "SM100_FI_MXFP4_BF16", "flashinfer.trtllm_fp4_block_scale_moe", "bfloat16"),
        ((10, 3), "SM100_FI_MXFP4_MXFP8_TRTLLM", "flashinfer.trtllm_fp4_block_scale_moe", "float8_e4m3fn"),
        ((8, 0), "MARLIN", "fused_marlin_moe", "bfloat16"),
        ((9, 0), "TRITON", "triton_kernel_moe_forward", "bfloat16"),
    ],
)
def test_the_line(
    apply: Callable[..., list[str]], mxfp4_backend: Any, capability: tuple[int, int], backend: str, function: str,
    activations: str,
) -> None:  # fmt: skip
    said = [line for line in apply(capability, backend, times=2) if "experts run by" in line]
    assert len(said) == 1, "what runs the experts is said once"
    assert said[0] == (
        f"INFO MXFP4 experts run by {function} ({mxfp4_backend[backend].name}): activations torch.{activations}, "
        "w13 torch.uint8 (8, 4, 8), w2 torch.uint8 (8, 2, 16)"
    )


def warnings(said: list[str]) -> list[str]:
    return [line for line in said if line.startswith("WARNING") and "experts" in line.lower()]


def test_no_warning_where_all_is_well(apply: Callable[..., list[str]]) -> None:
    assert warnings(apply((12, 0), CUTLASS)) == []
    assert warnings(apply((12, 1), CUTLASS)) == []
    assert warnings(apply((9, 0), "TRITON")) == []
    assert warnings(apply((8, 0), "MARLIN")) == [], "a GPU without FP4"


@pytest.mark.parametrize("capability", [(8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (13, 0)])
def test_no_warning_on_other_gpus(apply: Callable[..., list[str]], capability: tuple[int, int]) -> None:
    """Whatever they run, and with whatever activations."""
    assert len(warnings(apply((12, 1), "MARLIN"))) == 1, "Marlin on a GPU with FP4, without a word"
    for backend in ("MARLIN", "TRITON", CUTLASS):
        assert warnings(apply(capability, backend, torch.bfloat16)) == []


def test_nor_on_another_makers(apply: Callable[..., list[str]]) -> None:
    """ROCm counts its architectures, too: gfx12 is 12.0."""
    assert len(warnings(apply((12, 0), "TRITON"))) == 1, "Triton on a GPU with FP4, without a word"
    assert warnings(apply((12, 0), "TRITON", kind="ROCM")) == []


@pytest.mark.parametrize("capability", [(12, 0), (12, 1)])
@pytest.mark.parametrize("backend", ["MARLIN", "TRITON", "SM90_FI_MXFP4_BF16", "SM100_FI_MXFP4_BF16"])
def test_weights_that_are_dequantized_on_sm12x(
    apply: Callable[..., list[str]], mxfp4_backend: Any, backend: str, capability: tuple[int, int]
) -> None:
    said = warnings(apply(capability, backend, times=2))
    assert len(said) == 1, "another kernel on a GPU with FP4, without a word"
    assert "--mxfp4-backend" in said[0]
    assert f"the experts run in {mxfp4_backend[backend].name}:" in said[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e5m2])
def test_activations_that_are_not_mxfp8(apply: Callable[..., list[str]], dtype: torch.dtype) -> None:
    said = warnings(apply((12, 1), CUTLASS, dtype, times=2))
    assert len(said) == 1, "another type in an MXFP8 kernel, without a word"
    assert f"{dtype} instead of MXFP8" in said[0]


@pytest.mark.parametrize(("block", "warned"), [(16, False), (32, True)])
def test_mxfp4_scales_in_the_nvfp4_path(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, log: list[str], block: int, warned: bool
) -> None:
    module = upstream_import("vllm.model_executor.layers.fused_moe.flashinfer_cutlass_moe")
    monkeypatch.setattr(module, "flashinfer_cutlass_fused_moe", reach)
    scale = torch.zeros(2, 8, 256 // block, dtype=torch.uint8)
    weight = torch.zeros(2, 8, 128, dtype=torch.uint8)
    one = torch.ones(2)
    experts = SimpleNamespace(
        quant_dtype="nvfp4", use_deepseek_fp8_block_scale=False, w1_scale=scale, w2_scale=scale, a1_gscale=one,
        a2_gscale=one, g1_alphas=one, g2_alphas=one, out_dtype=torch.bfloat16, tp_size=1, tp_rank=0, ep_size=1,
        ep_rank=0,
    )  # fmt: skip
    x, ids = torch.zeros(4, 256), torch.zeros(4, 2, dtype=torch.int64)
    with pytest.raises(Reached):
        module.FlashInferExperts.apply(
            experts, x, x, weight, weight, torch.ones(4, 2), ids, "silu", 2, None, None, None, None, None, None, False
        )
    assert bool([line for line in log if "blocks of 32" in line]) is warned
