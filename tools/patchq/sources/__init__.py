"""Sources of upstreams (git hosts, the package index), their signatures, and their contribution rules."""

__all__ = ["archive", "bases", "folders", "forge", "index", "packages", "pins", "rules", "simple", "versions"]
