"""Forecast of a rebase onto other refs, patch by patch, in memory."""

__all__ = [
    "blame",
    "forecast",
    "meaning",
    "overlap",
    "plan",
    "summary",
]
