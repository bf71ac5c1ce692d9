"""Text to frozen data and back, and nothing else: series, patches, diffs, lock, ledger, measurements, templates."""

__all__ = [
    "checkrules",
    "diff",
    "diffheader",
    "distinfo",
    "header",
    "jsonlines",
    "ledger",
    "leftovers",
    "lock",
    "lockedit",
    "manifest",
    "measurements",
    "mergers",
    "relock",
    "render",
    "series",
    "signing",
    "toml",
    "treepath",
    "verification",
]
