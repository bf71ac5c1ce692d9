"""Patches onto other refs: what would become of them, and what did."""

__all__ = [
    "absorbed",
    "blame",
    "brief",
    "candidates",
    "column",
    "forecast",
    "history",
    "landing",
    "linemap",
    "looking",
    "merging",
    "overlap",
    "rebase",
    "rerere",
    "resolving",
    "source",
    "state",
    "stops",
    "successor",
    "tally",
]
