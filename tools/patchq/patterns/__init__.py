"""Patches as rules: a pattern, its replacement, how many times it matches, and in which files."""

__all__ = [
    "regenerate",
    "rules",
    "sed",
    "trees",
]
