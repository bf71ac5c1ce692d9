"""Patches onto other refs: what would become of them, and what did."""

__all__ = [
    "absorbed",
    "blame",
    "column",
    "forecast",
    "landing",
    "linemap",
    "looking",
    "merging",
    "overlap",
    "rebase",
    "rerere",
    "state",
    "stops",
    "successor",
]
