"""Kernels compiled ahead: which modules a model needs, their units, and the wheel that upstream looks for."""

__all__ = ["ahead", "left", "wanted"]
