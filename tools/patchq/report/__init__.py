"""A project's state and measurements as one model, to look at."""

__all__ = ["bench", "evidence", "page"]
