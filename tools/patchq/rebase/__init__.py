"""Carry a stack onto another ref: state, conflicts and their resolutions, and the end of it."""

__all__ = [
    "candidates",
    "checks",
    "conflict",
    "drop",
    "resolve",
    "run",
    "state",
    "stops",
    "switch",
]
