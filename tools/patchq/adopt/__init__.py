"""Command ``import``: add other tools' patches, edited files, scripts or pull requests to a stack."""

__all__ = [
    "adopt",
    "fit",
    "found",
    "gather",
]
