"""Git, and nothing but git: objects, refs, bulk doors, worktrees, merges."""

__all__ = ["fastimport", "merges", "replay", "repository", "worktree"]
