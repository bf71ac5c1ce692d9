"""mxfp4_e2m1_quantize is the nearest MXFP4 value, bit for bit, with its scales in row order."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from vllm_kit import need

Load = Callable[[str], ModuleType]
GRID = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float64)


@pytest.fixture
def quantize(upstream_import: Load) -> Callable[..., Any]:
    module = upstream_import("vllm.model_executor.layers.quantization.utils.mxfp4_utils")
    return lambda x: need(module, "mxfp4_e2m1_quantize")(x)


def reference(x: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Codes and biased exponents, by search over the grid in float64; ties go to the even code."""
    blocks = x.double().numpy().reshape(x.shape[0], -1, 32)
    largest = np.abs(blocks).max(-1)
    exponents = np.full(largest.shape, -127)
    for exponent in range(-127, 128):
        exponents = np.where((largest > 6 * 2.0**exponent) & (largest > 0), exponent + 1, exponents)
    scaled = np.abs(blocks) / 2.0 ** exponents[..., None]
    distance = np.abs(scaled[..., None] - GRID)
    distance[..., 1::2] += 1e-12  # the even one of two that are as near
    codes = distance.argmin(-1) | (np.signbit(blocks) << 3)
    return codes.reshape(x.shape), (exponents + 127).reshape(x.shape[0], -1)


def codes_of(values: torch.Tensor) -> np.ndarray:
    return torch.stack([values & 15, values >> 4], -1).flatten(1).numpy()


def same(quantize: Callable[..., Any], x: torch.Tensor) -> None:
    values, scales = quantize(x)
    codes, exponents = reference(x)
    assert values.dtype is scales.dtype is torch.uint8
    assert values.shape == (x.shape[0], x.shape[1] // 2)
    assert scales.shape == (x.shape[0], x.shape[1] // 32)
    np.testing.assert_array_equal(scales.numpy(), exponents)
    np.testing.assert_array_equal(codes_of(values), codes)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e4])
def test_random_weights(quantize: Callable[..., Any], dtype: torch.dtype, spread: float) -> None:
    generator = torch.Generator().manual_seed(7)
    same(quantize, (torch.randn(40, 2880, generator=generator) * spread).to(dtype))


def test_every_midpoint_goes_to_the_even_neighbour(quantize: Callable[..., Any]) -> None:
    row = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 0.0, 0.5, 1, 1.5, 2, 3, 4, 6.0])
    same(quantize, torch.cat([row, -row]).unsqueeze(0))


def test_every_bfloat16_near_a_power_of_two_edge(quantize: Callable[..., Any]) -> None:
    """Largest values just at, below and above six times a power of two: the scale must not saturate."""
    edges = [6 * 2.0**e * f for e in (-20, -1, 0, 1, 30) for f in (1, 1 - 2**-8, 1 + 2**-7)]
    x = torch.zeros(len(edges), 32)
    x[:, 3] = torch.tensor(edges)
    x[:, 5] = -x[:, 3] / 3
    same(quantize, x.to(torch.bfloat16))


def test_zeros_and_the_least_values(quantize: Callable[..., Any]) -> None:
    x = torch.zeros(3, 64)
    x[1, 0], x[2, 40] = 1e-40, -(2.0**-126)
    same(quantize, x)


def test_a_matrix_of_more_rows_than_are_done_at_once(
    upstream_import: Load, quantize: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = upstream_import("vllm.model_executor.layers.quantization.utils.mxfp4_utils")
    need(module, "_MXFP4_QUANT_CHUNK")
    # Rows that divide the matrix or not, one at a time, and rows that are longer than a chunk.
    for chunk in (64 * 7, 64 * 23, 64, 32):
        monkeypatch.setattr(module, "_MXFP4_QUANT_CHUNK", chunk)
        try:
            same(quantize, torch.randn(23, 64, generator=torch.Generator().manual_seed(1)))
        except ValueError as error:
            pytest.fail(f"no rows at a time: {error}")


def test_a_chunk_of_float32_is_bounded(
    upstream_import: Load, quantize: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = upstream_import("vllm.model_executor.layers.quantization.utils.mxfp4_utils")
    rows = need(module, "_mxfp4_e2m1_quantize_rows")
    sizes: list[int] = []
    monkeypatch.setattr(module, "_MXFP4_QUANT_CHUNK", 64 * 7)
    monkeypatch.setattr(module, "_mxfp4_e2m1_quantize_rows", lambda x: (sizes.append(len(x)), rows(x))[1])
    quantize(torch.zeros(23, 64))
    assert sizes == [7, 7, 7, 2]


def test_all_of_it_is_where_the_weight_is(quantize: Callable[..., Any]) -> None:
    values, scales = quantize(torch.zeros(4, 64, dtype=torch.bfloat16, device="meta"))
    assert (values.device.type, scales.device.type) == ("meta", "meta")


@pytest.mark.parametrize("shape", [(1, 32), (3, 32), (3, 96)])
def test_any_count_of_rows_and_blocks(quantize: Callable[..., Any], shape: tuple[int, int]) -> None:
    same(quantize, torch.randn(shape, generator=torch.Generator().manual_seed(2)))


def test_the_largest_scale(quantize: Callable[..., Any]) -> None:
    same(quantize, torch.tensor([[3.0e38, -1.0e38] * 16, [-3.4e38, 2.0] * 16]))


@pytest.mark.parametrize("shape", [(4, 48), (4, 16), (32,), (2, 4, 32)])
def test_other_shapes_are_an_error(quantize: Callable[..., Any], shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="blocks of 32"):
        quantize(torch.zeros(shape))
