"""Merge patches onto another tree in memory: what each of them becomes there."""

__all__ = [
    "blocks",
    "patches",
    "rerere",
    "target",
    "threeway",
    "upstream_lines",
]
