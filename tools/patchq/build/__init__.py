"""Trees to wheels and containers, each with what it is made of."""

__all__ = [
    "backend",
    "build",
    "compose",
    "contents",
    "dist",
    "job",
    "overlay",
    "provenance",
    "reference",
    "sbom",
    "source",
    "wheel",
    "zipped",
]
