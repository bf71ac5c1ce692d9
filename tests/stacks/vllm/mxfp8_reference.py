"""MXFP8 as defined: a reference in float64, and inputs that tell it from what is nearly it."""

from __future__ import annotations

import torch


def reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Values (float8_e4m3fn, [m, k]) and scales (uint8, flat, CUTLASS's 128x4 layout, zeros in the padding).

    The scale is the smallest power of two, from 2**-127 on, by which no value of the block exceeds 448.
    """
    m, k = x.shape
    blocks = x.double().cpu().view(m, k // 32, 32)
    largest = blocks.abs().amax(-1)
    exponent = torch.full(largest.shape, -127.0, dtype=torch.float64)
    for power in range(-127, 127):
        exponent = torch.where(largest > 448 * 2.0**power, power + 1.0, exponent)
    values = (blocks / torch.exp2(exponent)[..., None]).view(m, k).to(torch.float8_e4m3fn)
    padded = torch.zeros(-(-m // 128) * 128, -(-k // 128) * 4, dtype=torch.uint8)
    padded[:m, : k // 32] = (exponent + 127).to(torch.uint8)
    tiles = padded.view(padded.shape[0] // 128, 4, 32, padded.shape[1] // 4, 4)
    return values.to(x.device), tiles.permute(0, 3, 2, 1, 4).flatten().to(x.device)


def dequantize(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The float64 numbers that values and scales of `reference` stand for."""
    m, k = values.shape
    tiles = scales.view(-(-m // 128), -(-k // 128), 32, 4, 4).permute(0, 3, 2, 1, 4)
    exponents = tiles.reshape(-(-m // 128) * 128, -1)[:m, : k // 32].double() - 127
    return values.double() * torch.exp2(exponents).repeat_interleave(32, 1)


def cases(device: str = "cpu") -> list[tuple[str, torch.Tensor]]:
    """Named inputs: shapes with and without padding, ranges, and blocks at the edge of the next scale."""
    generator = torch.Generator().manual_seed(5)
    found = [
        (f"{m} x {k}", torch.randn(m, k, generator=generator).bfloat16())
        for m, k in ((1, 2880), (5, 2880), (128, 128), (129, 32), (3, 160), (130, 160))
    ]
    found.append(("float16", torch.randn(4, 256, generator=generator).half()))
    wide = torch.randn(33, 256, generator=generator) * torch.exp2(
        torch.randint(-100, 100, (33, 256), generator=generator).float()
    )
    found.append(("wide range", wide.bfloat16()))
    edges = torch.zeros(15, 32)
    for row in range(15):
        edges[row, row] = 448 * 2.0 ** (row // 3 * 7 - 9) * (1, 1 - 2**-7, 1 + 2**-6)[row % 3]
    found.append(("edges", edges.bfloat16()))
    found.append(("zeros", torch.zeros(2, 64).bfloat16()))
    small = torch.zeros(2, 64)
    small[0, 3], small[1, 40] = 2.0**-133, 3e-39
    found.append(("subnormal", small.bfloat16()))
    return [(name, x.to(device)) for name, x in found]
