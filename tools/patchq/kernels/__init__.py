"""Kernels that are compiled before their first use, and the wheel that contains them.

A unit is one source file of a kernel module.
"""

__all__ = ["ahead", "left", "wanted"]
