"""From where an upstream comes (git hosts, the package index, who signed), and what it asks of contributions."""

__all__ = ["archive", "bases", "folders", "forge", "index", "pins", "rules", "simple"]
