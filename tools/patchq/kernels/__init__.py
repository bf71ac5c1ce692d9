"""Ahead-of-time compilation of an upstream's kernels into a wheel."""

__all__ = [
    "ahead",
    "cache",
    "compiling",
    "left",
    "linking",
    "packing",
    "planner",
    "toolchain",
    "wanted",
]
