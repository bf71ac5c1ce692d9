"""Replacement of lines in the new version of a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

#: Words of patches where there are none.
NOTHING: Mapping[str, Collection[str]] = {}


@dataclass(frozen=True, slots=True)
class RestoredLines:
    """Replacement of the lines ``first`` to ``last`` (counted from 1, inclusive) of the new file by ``lines``."""

    first: int
    last: int
    lines: tuple[bytes, ...]


def replaced(new: bytes, replacements: Sequence[RestoredLines]) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the text after the replacements, and the shifts of its line numbers.

    The shift ``(40, 3)`` means that from line 40 of the result on, line numbers are 3 higher than in ``new``.
    """
    lines = new.split(b"\n")
    shifts = []
    total = 0
    for one in sorted(replacements, key=lambda one: one.first):
        total += len(one.lines) - (one.last - one.first + 1)
        shifts.append((one.last + 1 + total, total))
    for one in sorted(replacements, key=lambda one: -one.first):
        lines[one.first - 1 : one.last] = one.lines
    return b"\n".join(lines), shifts
