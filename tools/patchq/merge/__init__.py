"""Merges of patches onto other trees, in memory."""

__all__ = [
    "blocks",
    "patches",
    "rerere",
    "target",
    "threeway",
    "upstream_lines",
]
