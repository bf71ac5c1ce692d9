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
    "outcomes",
    "relock",
    "render",
    "series",
    "tar",
    "toml",
    "treepath",
    "verification",
]
