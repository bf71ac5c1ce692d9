"""Patches written as rules: text to find, its replacement, the number of matches, and the files."""

__all__ = [
    "regenerate",
    "rules",
    "sed",
    "trees",
]
