"""Import of existing changes: patches in any tool's format, edited files, scripts, pull requests."""

__all__ = [
    "adopt",
    "fit",
    "found",
    "gather",
]
