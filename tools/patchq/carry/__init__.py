"""Patches onto other refs: what would become of them, and what did."""

__all__ = ["absorbed", "blame", "carry", "forecast", "overlap", "rebase", "rerere", "state", "stops"]
