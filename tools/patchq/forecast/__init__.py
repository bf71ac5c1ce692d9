"""Forecast what carrying a stack onto other refs costs, patch by ref, in memory."""

__all__ = [
    "blame",
    "forecast",
    "overlap",
    "plan",
    "summary",
]
