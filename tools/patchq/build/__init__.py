"""Trees to wheels and containers, each with what it is made of."""

__all__ = ["backend", "build", "compose", "dist", "job", "overlay", "provenance", "sbom", "source", "wheel"]
