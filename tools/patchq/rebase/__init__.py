"""Rebase a stack onto another ref: state, conflicts, resolutions and the switch of sets."""

__all__ = [
    "conflict",
    "drop",
    "resolve",
    "run",
    "state",
    "stops",
    "switch",
]
