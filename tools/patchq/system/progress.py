"""Callback type for the progress of long work."""

from __future__ import annotations

from typing import Protocol

BYTES = "bytes"


class Progress(Protocol):
    """Progress callback: the current work, the amount done, the total (0: unknown), and the unit."""

    def __call__(self, what: str, done: int, total: int, unit: str = BYTES, /) -> None: ...
