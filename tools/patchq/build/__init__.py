"""Trees to wheels and containers, each with what it is made of."""

__all__ = [
    "build",
    "compose",
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
