"""Detection of patches that apply but changed meaning: calls and changed definitions."""

__all__ = ["alarms", "bodies", "drift", "sets", "shared"]
