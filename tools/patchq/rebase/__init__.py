"""Rebase of a stack onto another ref: state, conflicts, resolutions, and the change to the new set."""

__all__ = [
    "conflict",
    "drop",
    "resolve",
    "run",
    "state",
    "stops",
    "switch",
]
