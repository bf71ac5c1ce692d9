"""Callback type for the progress of long work."""

from __future__ import annotations

from typing import Protocol

BYTES = "bytes"


class Progress(Protocol):
    """Progress callback: current work, amount done, total (0: unknown), and unit."""

    def __call__(self, what: str, done: int, total: int, unit: str = BYTES, /) -> None: ...
