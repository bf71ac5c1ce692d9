"""Wheels and containers built from patched trees, with records of their contents."""

__all__ = [
    "build",
    "compose",
    "contents",
    "dist",
    "image",
    "installs",
    "job",
    "platforms",
    "provenance",
    "reference",
    "wheel",
    "zipped",
]
