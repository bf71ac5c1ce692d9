"""State of a project and its measurements as one data model, shown as an HTML page, JSON and Markdown."""

__all__ = ["ahead", "bench", "evidence", "page", "story", "todo"]
