"""How far long work has come, for whoever shows it."""

from __future__ import annotations

from typing import Protocol

BYTES = "bytes"


class Progress(Protocol):
    """Gets what is at work, how much of it is done, of how much (0: unknown), and in what that is counted."""

    def __call__(self, what: str, done: int, total: int, unit: str = BYTES, /) -> None: ...
