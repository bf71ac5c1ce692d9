"""Ledger files: one JSON object per line. Lines are only appended, so git can merge branches with ``merge=union``.

A damaged line stays in the file and is reported by its number. The other lines are used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, TypeVar

from patchq.errors import FormatError
from patchq.records import dataclass

_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True)
class Problem:
    """Line of a ledger that can't be used. ``number`` counts from 1."""

    number: int
    message: str


def read(data: bytes, entry: Callable[[Any], _Entry]) -> tuple[tuple[_Entry, ...], tuple[Problem, ...]]:
    """Return the entries of a ledger, oldest first, and the lines that can't be used.

    :param entry: function that converts a line's JSON to a hashable entry, or raises a ValueError
        or FormatError with the reason.
    """
    found: dict[_Entry, None] = {}
    problems = []
    for _, one in _each(data.split(b"\n"), entry):
        if isinstance(one, Problem):
            problems.append(one)
        else:
            found[one] = None
    return tuple(found), tuple(problems)


def stream(lines: Callable[[], Iterable[bytes]], entry: Callable[[Any], _Entry]) -> Iterator[_Entry | Problem]:
    """Yield a ledger's entries and problems without loading the whole ledger.

    If a line occurs several times, only its first entry is yielded.

    :param lines: function that returns the lines of the ledger. It is called twice; the first pass finds
        lines that may be repeated.
    """
    # Hashes save memory. Lines with equal hashes are compared as text.
    hashes: set[int] = set()
    alike: set[int] = set()
    for line in lines():
        mark = hash(line.strip())
        (alike if mark in hashes else hashes).add(mark)
    return _once(lines(), alike, entry)


def _once(lines: Iterable[bytes], alike: Container[int], entry: Callable[[Any], _Entry]) -> Iterator[_Entry | Problem]:
    """Yield the entry of each line. If a line occurs several times, yield its entry once.

    :param alike: hashes of the lines that may be repeated.
    """
    seen: set[bytes] = set()
    for text, one in _each(lines, entry):
        if not alike or isinstance(one, Problem) or hash(text) not in alike:
            yield one
        elif text not in seen:
            seen.add(text)
            yield one


#: Like ``json.loads``, but text around the value is left to the caller.
_decode = json.JSONDecoder().raw_decode
_BLANKS = b" \t\r\n"


def _each(lines: Iterable[bytes], entry: Callable[[Any], _Entry]) -> Iterator[tuple[bytes, _Entry | Problem]]:
    """Yield each line without surrounding blanks, and its entry. This is a fast path: a million lines take seconds."""
    for number, line in enumerate(lines, 1):
        text = line.strip(_BLANKS)
        if not text:
            continue
        one: _Entry | Problem
        try:
            message = text.decode()
            if b"\\u" in line:
                raise ValueError("it may be half of a character")
            raw, end = _decode(message)
            if end == len(message):
                one = entry(raw)
            else:
                one = _slowly(number, line, entry)
        except (ValueError, FormatError, TypeError, KeyError, RecursionError, OverflowError):
            if not line.strip():
                continue  # blank, but not in JSON's sense
            one = _slowly(number, line, entry)
        yield text, one


def _slowly(number: int, line: bytes, entry: Callable[[Any], _Entry]) -> _Entry | Problem:
    """Read a line with ``json.loads``, whose errors contain the position. Return the line's entry or problem."""
    try:
        raw = json.loads(line.rstrip(b"\n").decode())
        json.dumps(raw, ensure_ascii=False).encode()  # lone surrogates fail
        return entry(raw)
    except (ValueError, FormatError) as error:
        return Problem(number, str(error) or type(error).__name__)
    except (TypeError, KeyError, RecursionError, OverflowError) as error:
        return Problem(number, f"is malformed: {str(error) or type(error).__name__}")


def add(data: bytes, lines: Iterable[bytes]) -> bytes:
    """Return a ledger's bytes with more lines. If the ledger doesn't end with a newline, add the newline first."""
    gap = b"\n"
    if not data or data.endswith(b"\n"):
        gap = b""
    new = b"".join(lines)
    return data + (gap + new if new else b"")
