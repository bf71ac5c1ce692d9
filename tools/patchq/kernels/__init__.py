"""Kernels compiled ahead: which modules a model needs, their units, and the wheel that upstream looks for."""

__all__ = ["ahead", "cache", "compiling", "left", "linking", "packing", "planner", "toolchain", "wanted"]
