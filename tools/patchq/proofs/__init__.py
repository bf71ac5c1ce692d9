"""Proofs: tests that run with and without each patch, to show that the patch works and is needed."""

__all__ = [
    "cluster",
    "judge",
    "plan",
    "plugin",
    "prove",
    "run",
    "upstream_tests",
    "verdicts",
    "warm",
]
