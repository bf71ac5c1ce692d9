"""What the proofs for vLLM 0.33.0 are given besides ../conftest.py: its Marlin in torch, and a quantizer for a CPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

Load = Callable[[str], ModuleType]
QUANTIZATION = "vllm.model_executor.layers.quantization"
KERNELS = "vllm.model_executor.kernels.linear"
ORACLE = "vllm.model_executor.layers.fused_moe.oracle.mxfp4"
VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)


def quantize(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """MXFP4 of the last dimension: two E2M1 codes a byte, low nibble first, and a UE8M0 scale for each 32."""
    groups = weight.double().unflatten(-1, (-1, 32))
    largest = groups.abs().amax(-1, keepdim=True).clamp_min(2.0**-120)
    exponent = torch.ceil(torch.log2(largest / 6))
    scaled = groups / torch.exp2(exponent)
    codes = (scaled.abs().unsqueeze(-1) - VALUES).abs().argmin(-1) | ((scaled < 0).long() << 3)
    codes = codes.flatten(-2).to(torch.uint8)
    return codes[..., 0::2] | (codes[..., 1::2] << 4), (exponent.squeeze(-1) + 127).to(torch.uint8)


def dequantize(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The weight in float64 that codes and scales as `quantize` makes them stand for."""
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2).long()
    values = torch.cat([VALUES, -VALUES])[codes]
    return values * torch.exp2(scales.double() - 127).repeat_interleave(32, -1)


@pytest.fixture
def marlin(upstream_import: Load, device: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """An SM121 whose Marlin is torch in float64 and whose layout is plain; notes each product.

    Replaced are compiled code, the permutations that it wants, and the Triton kernel that quantizes weights.
    """
    module = upstream_import(f"{QUANTIZATION}.utils.marlin_utils_fp4")
    device(12, 1, KERNELS, module.__name__, f"{KERNELS}.mxfp4.flashinfer")
    products: list[dict[str, Any]] = []

    def repack(b_q_weight: torch.Tensor, size_k: int, size_n: int, num_bits: int, **rest: Any) -> torch.Tensor:
        assert (b_q_weight.dtype, num_bits, b_q_weight.shape) == (torch.int32, 4, (size_k // 8, size_n))
        assert (size_n % 128, size_k % 64) == (0, 0) or (size_n % 64, size_k % 128) == (0, 0), "no tile of Marlin's"
        return b_q_weight.reshape(size_k // 16, size_n * 2).clone()

    def gemm(
        *, a: torch.Tensor, b_q_weight: torch.Tensor, b_scales: torch.Tensor, b_bias: torch.Tensor | None, size_m: int,
        size_n: int, size_k: int, **rest: Any,
    ) -> torch.Tensor:  # fmt: skip
        assert a.shape == (size_m, size_k)
        words = b_q_weight.reshape(size_k // 8, size_n)
        codes = torch.stack([(words >> (4 * i)) & 15 for i in range(8)], 1).reshape(size_k, size_n)
        scales = torch.exp2(b_scales.view(torch.uint8).double() - 127).repeat_interleave(32, 0)
        weight = torch.cat([VALUES, -VALUES])[codes.long()] * scales
        products.append({"a": a, "weight": weight.T, "bias": b_bias, "n": size_n, "k": size_k})
        product = a.double() @ weight
        return (product if b_bias is None else product + b_bias.double()).to(a.dtype)

    monkeypatch.setattr(module.ops, "gptq_marlin_repack", repack)
    monkeypatch.setattr(torch.ops.vllm, "marlin_gemm", gemm)
    monkeypatch.setattr(module, "marlin_permute_scales", lambda s, **rest: s)
    monkeypatch.setattr(module, "marlin_permute_bias", lambda bias: bias)
    monkeypatch.setattr(
        module, "mxfp4_marlin_process_scales", lambda scales, input_dtype=None: scales.to(torch.float8_e8m0fnu)
    )
    monkeypatch.setattr(module, "should_use_atomic_add_reduce", lambda **rest: False)
    monkeypatch.setattr(upstream_import(f"{QUANTIZATION}.online.mxfp4"), "mxfp4_quantize", quantize)
    return products


@pytest.fixture
def quant_config(upstream_import: Load, parse: Callable[..., Any], config: Any) -> Callable[..., Any]:
    """vLLM's quantization config of a gpt-oss checkpoint under ``--quantization-config``; the backend is Marlin."""
    loading = upstream_import("vllm.model_executor.model_loader.weight_utils")

    def make(backend: str = "marlin", **given: Any) -> Any:
        line = ["--quantization-config", json.dumps(given)] if given else []
        model_config = parse("--quantization", "gpt_oss_mxfp4", *line)
        assert not isinstance(model_config, str), model_config
        config.model_config = model_config
        config.kernel_config.linear_backend = backend
        return loading.get_quant_config(model_config, SimpleNamespace())

    return make


@pytest.fixture
def moe_config(
    upstream_import: Load, device: Callable[..., Any], config: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """vLLM's configuration of gpt-oss's experts, on a GPU that it sees, with FlashInfer's CUTLASS MoE there."""
    configs = upstream_import("vllm.model_executor.layers.fused_moe.config")
    oracle = upstream_import(ORACLE)
    activation = upstream_import("vllm.model_executor.layers.fused_moe.activation").MoEActivation.SWIGLUOAI
    experts = "vllm.model_executor.layers.fused_moe.experts"
    modules = [f"{experts}.{n}" for n in ("flashinfer_cutlass_moe", "marlin_moe", "gpt_oss_triton_kernels_moe")]
    modules = [*modules, oracle.__name__, "vllm.utils.flashinfer"]
    for name in modules:
        upstream_import(name)

    def make(wanted: str, capability: tuple[int, int] = (12, 1)) -> Any:
        device(*capability, *(n for n in modules if hasattr(upstream_import(n), "current_platform")))
        monkeypatch.setattr(upstream_import(modules[0]), "has_flashinfer_cutlass_fused_moe", lambda: True)
        return configs.FusedMoEConfig(
            num_experts=128, experts_per_token=4, hidden_dim=2880, intermediate_size=2880, num_local_experts=128,
            num_logical_experts=128, moe_parallel_config=configs.FusedMoEParallelConfig.make_no_parallel(),
            activation=activation, in_dtype=torch.bfloat16, device="cpu", max_num_tokens=512, moe_backend=wanted,
            routing_method=configs.RoutingMethodType.Renormalize,
        )  # fmt: skip

    return make


@pytest.fixture
def moe_backend(upstream_import: Load, moe_config: Callable[..., Any]) -> Callable[..., str]:
    """The name of the backend that vLLM's oracle selects for gpt-oss's experts on a GPU, or why it refuses."""
    oracle = upstream_import(ORACLE)

    def select(wanted: str, capability: tuple[int, int] = (12, 1)) -> str:
        try:
            found, _ = oracle.select_mxfp4_moe_backend(moe_config(wanted, capability))
        except (ValueError, NotImplementedError) as error:
            return f"refused: {error}"
        return str(found.name)

    return select
