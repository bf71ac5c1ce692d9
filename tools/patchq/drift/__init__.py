"""Detection of patches that apply but changed meaning: calls and changed definitions."""

__all__ = ["alarms", "between", "bodies", "drift", "inside", "sets", "shared"]
