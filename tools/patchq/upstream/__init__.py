"""Search for a patch's changes in upstream's trees, history and releases."""

__all__ = [
    "commits",
    "history",
    "match",
    "releases",
    "status",
]
