"""Ledgers as files: one JSON object a line, only ever added, so that two branches' ledgers merge by union.

A line that can't be read stays where it is and is reported by its number; the others are used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from patchq.errors import FormatError

_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that can't be used; ``number`` counts from 1."""

    number: int
    said: str


def read(data: bytes, entry: Callable[[Any], _Entry]) -> tuple[tuple[_Entry, ...], tuple[Problem, ...]]:
    """The entries of a ledger, oldest first, and what is damaged; a line twice counts once.

    :param entry: a line's JSON as an entry that can be hashed; a ValueError or FormatError says what is wrong with it.
    """
    found: dict[_Entry, None] = {}
    problems = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            found[entry(json.loads(line.decode()))] = None
        except (ValueError, FormatError) as error:
            problems.append(Problem(number, str(error) or type(error).__name__))
        except (TypeError, KeyError, RecursionError, OverflowError) as error:
            problems.append(Problem(number, f"is malformed: {str(error) or type(error).__name__}"))
    return tuple(found), tuple(problems)


def add(data: bytes, lines: Iterable[bytes]) -> bytes:
    """A ledger's bytes with more lines; a last line that lacks its end gets it."""
    gap = b"" if not data or data.endswith(b"\n") else b"\n"
    new = b"".join(lines)
    return data + (gap + new if new else b"")
