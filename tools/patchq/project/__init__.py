"""A project on disk: its lock, its stacks, and a journal that finishes each change even after a crash."""

__all__ = ["cached", "journal", "log", "own", "project", "refs", "scaffold", "stack"]
