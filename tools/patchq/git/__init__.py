"""Access to git: commands, refs, objects, diffs, merges, transport, worktrees.

This package depends on nothing above it.
"""

__all__ = [
    "borrow",
    "command",
    "diffs",
    "fastimport",
    "gitlinks",
    "merges",
    "mergetree",
    "objects",
    "owners",
    "person",
    "replay",
    "repository",
    "transport",
    "worktree",
]
