"""Patches onto other refs: what would become of them, and what did."""

__all__ = [
    "absorbed",
    "blame",
    "brief",
    "candidates",
    "column",
    "forecast",
    "landing",
    "linemap",
    "looking",
    "merging",
    "overlap",
    "rebase",
    "rerere",
    "resolving",
    "state",
    "stops",
    "successor",
]
