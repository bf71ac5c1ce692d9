"""Resolutions proposed for a stopped patch: git's other strategies, smaller pieces, tools that the user names."""

__all__ = [
    "propose",
]
