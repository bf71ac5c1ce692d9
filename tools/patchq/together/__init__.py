"""Stacks of several branches or forks together: one project merged, and two projects compared."""

__all__ = ["compare", "concurrent"]
