"""MXFP4 as OCP defines it, in torch: blocks of 32 values of E2M1 that share a power of two.

Written apart from the patches' quantiser, so that the two can be held against each other. A scale is the smallest
power of two that no value of its block overflows, as the patches' up to vLLM 0.20.0 choose it; or, as vLLM's own online
quantiser does in 0.33, the one by which the largest value falls in [3.5, 7), so that what is over 6 becomes 6. Values
are rounded to nearest, ties to the even code.
"""

from __future__ import annotations

from itertools import pairwise

import torch

BLOCK = 32
LEVELS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_MIDPOINTS = tuple((low + high) / 2 for low, high in pairwise(LEVELS))


def quantise(values: torch.Tensor, saturating: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks and scales of a weight.

    :param values: ``[..., k]``, k a multiple of 32.
    :param saturating: with the smaller scale where the largest is less than 7 of its steps.
    :return: uint8 ``[..., k / 32, 16]``, the even column in the low nibble, and uint8 ``[..., k / 32]``, UE8M0.
    """
    blocks = values.float().unflatten(-1, (-1, BLOCK))
    largest = blocks.abs().amax(-1).double()
    if saturating:
        mantissa, power = torch.frexp(largest)  # mantissa in [0.5, 1)
        exponent = (power - 3 + (mantissa >= 7 / 8)).double().masked_fill(largest == 0, -127).clamp(-127, 127)
    else:
        exponent = torch.ceil(torch.log2(largest / LEVELS[-1])).clamp(-127, 127)
    magnitude = blocks.abs() / torch.exp2(exponent).float()[..., None]
    midpoints = torch.tensor(_MIDPOINTS, device=values.device)
    down, up = (torch.bucketize(magnitude, midpoints, right=right) for right in (False, True))
    code = torch.where(down % 2 == 0, down, up).to(torch.uint8)
    code |= torch.signbit(blocks).to(torch.uint8) << 3
    return code[..., ::2] | (code[..., 1::2] << 4), (exponent + 127).to(torch.uint8)


def dequantise(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The values, BF16 ``[..., k]``, which holds each of them exactly."""
    levels = torch.tensor([*LEVELS, *(-level for level in LEVELS)], device=blocks.device)
    codes = torch.stack((blocks & 15, blocks >> 4), -1).flatten(-2)
    values = levels[codes.int()] * torch.exp2(scales.float() - 127)[..., None]
    return values.flatten(-2).bfloat16()
