"""Git, and nothing but git: commands, refs, objects, diffs, merges, transport, worktrees."""

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
