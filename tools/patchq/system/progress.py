"""Type of the callback that reports the progress of long operations."""

from __future__ import annotations

from typing import Protocol

BYTES = "bytes"


class Progress(Protocol):
    """Callback for progress: name of the current work, amount done, total (0 if unknown), and unit."""

    def __call__(self, what: str, done: int, total: int, unit: str = BYTES, /) -> None: ...
