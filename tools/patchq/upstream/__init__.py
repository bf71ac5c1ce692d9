"""Find out whether upstream has a patch, from its trees, its history or its releases."""

__all__ = [
    "commits",
    "history",
    "match",
    "releases",
    "status",
]
