"""Kernels compiled before their first use, and their wheel. A unit is one source of a module."""

__all__ = ["ahead", "left", "wanted"]
