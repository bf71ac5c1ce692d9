"""What applies and yet changed meaning: calls that no longer fit, bodies that a patch touches."""

__all__ = ["alarms", "bodies", "drift", "sets", "shared"]
