"""Proposed resolutions for a stopped patch: from git's other strategies, smaller merges, and the user's tools."""

__all__ = [
    "propose",
]
