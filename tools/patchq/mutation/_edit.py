"""An edit of a file's bytes, as each parser proposes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Bytes ``start`` to ``end`` of a file become ``new``; ``operator`` says what that breaks."""

    start: int
    end: int
    new: bytes
    operator: str
