"""Adoption of existing changes: patches of any tool, edited files, scripts, pull requests."""

__all__ = [
    "adopt",
    "fit",
    "found",
    "gather",
]
