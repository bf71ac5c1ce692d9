"""Patches onto other refs: what would become of them, and what did."""

__all__ = [
    "absorbed",
    "blame",
    "column",
    "forecast",
    "landing",
    "looking",
    "merging",
    "overlap",
    "rebase",
    "rerere",
    "state",
    "stops",
]
