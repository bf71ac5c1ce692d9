"""New version of a file in which functions that do the same as before have their old bodies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestoredLines:
    """Lines of the new file, from 1 and with the last one, that are replaced."""

    first: int
    last: int
    lines: tuple[bytes, ...]


def replaced(new: bytes, replacements: Sequence[RestoredLines]) -> tuple[bytes, list[tuple[int, int]]]:
    """Return a text with lines replaced, and where line numbers shift: each line and the sum of the shifts from it."""
    lines = new.split(b"\n")
    shifts = []
    total = 0
    for one in sorted(replacements, key=lambda one: one.first):
        total += len(one.lines) - (one.last - one.first + 1)
        shifts.append((one.last + 1 + total, total))
    for one in sorted(replacements, key=lambda one: -one.first):
        lines[one.first - 1 : one.last] = one.lines
    return b"\n".join(lines), shifts
