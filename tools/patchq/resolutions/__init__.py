"""Proposed resolutions for a stopped patch: by options of git, merges of smaller pieces, and the user's tools."""

__all__ = [
    "propose",
]
