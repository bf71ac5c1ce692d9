"""Print the decoding speed that memory bandwidth allows, as the tables of ``measurements/targets.toml``.

    python benchmarks/bounds.py >> measurements/targets.toml

Decoding one token reads every active weight and the KV cache once, so no batch of one request is faster than the
bandwidth divided by these bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Bits per value.
MXFP4, BF16, FP8 = 4.25, 16.0, 8.0
#: Bytes per second.
BANDWIDTH = {"GB10": 273e9}
#: Tokens of context.
DEPTHS = (0, 4096, 32768)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of a mixture-of-experts model that decoding one token depends on.

    Every second layer attends to at most ``window`` tokens.
    """

    name: str
    layers: int
    hidden: int
    intermediate: int
    experts: int
    active: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bits per value outside the experts, which are MXFP4."""

    attention: float = BF16
    head: float = BF16
    cache: float = BF16


#: From the model's published configuration.
GPT_OSS_120B = Shape(
    name="gpt-oss-120b",
    layers=36,
    hidden=2880,
    intermediate=2880,
    experts=128,
    active=4,
    heads=64,
    kv_heads=8,
    head_dim=64,
    vocabulary=201088,
    window=128,
)
#: Each configuration adds to the one before it.
CONFIGS = {
    "MXFP4 experts": Precision(),
    "QKV/O too": Precision(attention=MXFP4),
    "lm_head too": Precision(attention=MXFP4, head=MXFP4),
    "FP8 KV too": Precision(attention=MXFP4, head=MXFP4, cache=FP8),
}


def bytes_per_token(shape: Shape, precision: Precision, depth: int = 0) -> float:
    """Return the least bytes to read for decoding one token after ``depth`` others: active weights and KV cache."""
    experts = shape.active * 3 * shape.hidden * shape.intermediate * MXFP4
    router = shape.hidden * shape.experts * BF16
    width = shape.heads * shape.head_dim
    attention = shape.hidden * (2 * width + 2 * shape.kv_heads * shape.head_dim) * precision.attention
    head = shape.vocabulary * shape.hidden * precision.head
    windowed = shape.layers // 2
    tokens = depth * (shape.layers - windowed) + min(depth, shape.window) * windowed
    cache = 2 * shape.kv_heads * shape.head_dim * tokens * precision.cache
    return (shape.layers * (experts + router + attention) + head + cache) / 8


def bound(shape: Shape, precision: Precision, bandwidth: float, depth: int = 0) -> float:
    """Return the most tokens per second for one request; ``bandwidth`` is in bytes per second."""
    return bandwidth / bytes_per_token(shape, precision, depth)


def main() -> None:
    """Print a table for each machine, configuration and depth."""
    for machine, bandwidth in BANDWIDTH.items():
        for config, precision in CONFIGS.items():
            for depth in DEPTHS:
                print("[[bound]]")
                print(f'machine = "{machine}"')
                print(f'config = "{GPT_OSS_120B.name}, {config}"')
                print(f"depth = {depth}")
                print(f"value = {bound(GPT_OSS_120B, precision, bandwidth, depth):.2f}")
                print(f'why = "{bandwidth / 1e9:g} GB/s"\n')


if __name__ == "__main__":
    main()
