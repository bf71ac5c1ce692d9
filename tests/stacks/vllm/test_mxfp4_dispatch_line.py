"""One line at the call says what runs the experts of an MXFP4 model; known mistakes are warned of."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm_kit import MXFP4, apply_moe, moe_method

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

    def run(capability: tuple[int, int], backend: str, quantized: torch.dtype = torch.float8_e4m3fn) -> list[str]:
        device(*capability, MXFP4)
        monkeypatch.setattr(upstream_import("vllm.utils.flashinfer"), "flashinfer_cutlass_fused_moe", reach)
        monkeypatch.setattr(flashinfer, "trtllm_fp4_block_scale_moe", reach, raising=False)
        monkeypatch.setattr(module, "fused_marlin_moe", reach)
        monkeypatch.setattr(triton, "triton_kernel_moe_forward", reach)
        scale = torch.zeros(64, dtype=torch.uint8)
        monkeypatch.setattr(flashinfer, "mxfp8_quantize", lambda x, *args: (x.to(quantized), scale))
        made = moe_method(module, 512, 8192, backend)
        del log[:]
        with pytest.raises(Reached):
            apply_moe(made, torch.zeros(16, 64, dtype=torch.bfloat16), torch.zeros(16, 8))
        return list(log)

    return run


@pytest.mark.parametrize(
    ("capability", "backend", "function", "activations"),
    [
        ((12, 1), CUTLASS, "flashinfer.cutlass_fused_moe", "float8_e4m3fn"),
        ((9, 0), "SM90_FI_MXFP4_BF16", "flashinfer.cutlass_fused_moe", "bfloat16"),
        ((10, 0), "SM100_FI_MXFP4_BF16", "flashinfer.trtllm_fp4_block_scale_moe", "bfloat16"),
        ((8, 0), "MARLIN", "fused_marlin_moe", "bfloat16"),
        ((9, 0), "TRITON", "triton_kernel_moe_forward", "bfloat16"),
    ],
)
def test_the_line(
    apply: Callable[..., list[str]], capability: tuple[int, int], backend: str, function: str, activations: str
) -> None:
    said = [line for line in apply(capability, backend) if "experts run by" in line]
    assert len(said) == 1, "nothing says what runs the experts"
    assert said[0].startswith(f"INFO MXFP4 experts run by {function} (")
    assert f"activations torch.{activations}, w13 torch.uint8 (8, 4, 8), w2 torch.uint8 (8, 4, 8)" in said[0]


def warnings(said: list[str]) -> list[str]:
    return [line for line in said if line.startswith("WARNING") and "experts" in line.lower()]


def test_no_warning_where_all_is_well(apply: Callable[..., list[str]]) -> None:
    assert warnings(apply((12, 1), CUTLASS)) == []
    assert warnings(apply((9, 0), "TRITON")) == []
    assert warnings(apply((8, 0), "MARLIN")) == [], "a GPU without FP4"


def test_weights_that_are_dequantized_on_sm12x(apply: Callable[..., list[str]]) -> None:
    said = warnings(apply((12, 1), "MARLIN"))
    assert len(said) == 1, "Marlin on a GPU with FP4, without a word"
    assert "--mxfp4-backend" in said[0]


def test_activations_that_are_not_mxfp8(apply: Callable[..., list[str]]) -> None:
    said = warnings(apply((12, 1), CUTLASS, torch.bfloat16))
    assert len(said) == 1, "BF16 in an MXFP8 kernel, without a word"
    assert "torch.bfloat16 instead of MXFP8" in said[0]


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
