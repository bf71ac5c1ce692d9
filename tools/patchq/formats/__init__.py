"""Parsers and writers for text formats: series, patches, diffs, lock, ledger, measurements, templates."""

__all__ = [
    "diff",
    "distinfo",
    "header",
    "jsonlines",
    "ledger",
    "leftovers",
    "lock",
    "lockedit",
    "manifest",
    "measurements",
    "relock",
    "render",
    "series",
    "signing",
    "tar",
    "toml",
    "treepath",
    "verification",
]
