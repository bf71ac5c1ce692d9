"""Trees to wheels and containers, each with what it is made of."""

__all__ = [
    "backend",
    "build",
    "compose",
    "contents",
    "dist",
    "job",
    "overlay",
    "platforms",
    "provenance",
    "reference",
    "sbom",
    "source",
    "wheel",
    "zipped",
]
