"""Trees to wheels and containers, each with what it is made of."""

__all__ = [
    "attest",
    "backend",
    "build",
    "compose",
    "contents",
    "dist",
    "image",
    "installs",
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
