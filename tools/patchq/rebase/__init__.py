"""Carry a stack onto another ref: state, conflicts and their resolutions, and the end of it."""

__all__ = [
    "conflict",
    "drop",
    "resolve",
    "run",
    "state",
    "stops",
    "switch",
]
