"""A project on disk: its lock, its stacks, and one change at a time that survives a kill."""

__all__ = ["cached", "journal", "log", "own", "project", "refs", "scaffold", "stack"]
