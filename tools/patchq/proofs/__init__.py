"""Is a patch needed, and does it work: proofs run with and without it, and judged."""

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
