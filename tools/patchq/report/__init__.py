"""A project's state and measurements as one model, to look at."""

__all__ = ["ahead", "bench", "evidence", "graph", "page", "story"]
