"""Merge several branches of a project and check the result, or compare the stacks of two forks."""

__all__ = ["compare", "concurrent"]
