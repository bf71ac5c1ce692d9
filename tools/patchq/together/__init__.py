"""Several branches or forks of a project: merge branches and check the result, or compare the stacks of two forks."""

__all__ = ["compare", "concurrent"]
