"""The state of a project and its measurements as one model, shown as page, JSON and Markdown."""

__all__ = ["ahead", "bench", "evidence", "page", "story", "todo"]
