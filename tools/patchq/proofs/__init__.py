"""Is a patch needed, and does it work: proofs run with and without it, and judged."""

__all__ = ["cluster", "plugin", "prove", "upstream_tests", "verdicts"]
