"""Ledgers as files: one JSON object a line, only ever added, so that two branches' ledgers merge by union.

A line that can't be read stays where it is and is reported by its number; the others are used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator
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
    for _, one in _each(data.split(b"\n"), entry):
        if isinstance(one, Problem):
            problems.append(one)
        else:
            found[one] = None
    return tuple(found), tuple(problems)


def stream(lines: Callable[[], Iterable[bytes]], entry: Callable[[Any], _Entry]) -> Iterator[_Entry | Problem]:
    """What a ledger holds, one by one, without holding it; the very same line twice counts once.

    :param lines: gives the lines; called twice, the first time to find those that could be there twice.
    """
    # In place of the lines their hashes; where two are alike, the lines themselves say whether they are.
    hashes: set[int] = set()
    alike: set[int] = set()
    for line in lines():
        mark = hash(line.strip())
        (alike if mark in hashes else hashes).add(mark)
    return _once(lines(), alike, entry)


def _once(lines: Iterable[bytes], alike: Container[int], entry: Callable[[Any], _Entry]) -> Iterator[_Entry | Problem]:
    """Each line's entry, but for those of lines that were there before."""
    seen: set[bytes] = set()
    for text, one in _each(lines, entry):
        if not alike or isinstance(one, Problem) or hash(text) not in alike:
            yield one
        elif text not in seen:
            seen.add(text)
            yield one


#: As ``json.loads``, but for what stands around the value.
_decode = json.JSONDecoder().raw_decode
_BLANKS = b" \t\r\n"


def _each(lines: Iterable[bytes], entry: Callable[[Any], _Entry]) -> Iterator[tuple[bytes, _Entry | Problem]]:
    """Each line without the blanks around it, and its entry. A million of them are read in seconds."""
    for number, line in enumerate(lines, 1):
        text = line.strip(_BLANKS)
        if not text:
            continue
        one: _Entry | Problem
        try:
            said = text.decode()
            if b"\\u" in line:
                raise ValueError("maybe half of a character")
            raw, end = _decode(said)
            one = entry(raw) if end == len(said) else _slowly(number, line, entry)
        except (ValueError, FormatError, TypeError, KeyError, RecursionError, OverflowError):
            if not line.strip():
                continue  # other blanks than JSON's
            one = _slowly(number, line, entry)
        yield text, one


def _slowly(number: int, line: bytes, entry: Callable[[Any], _Entry]) -> _Entry | Problem:
    """What a line says, or what is the matter with it, as ``json`` counts its letters."""
    try:
        raw = json.loads(line.rstrip(b"\n").decode())
        json.dumps(raw, ensure_ascii=False).encode()  # an escape may be half of a character, which no output takes
        return entry(raw)
    except (ValueError, FormatError) as error:
        return Problem(number, str(error) or type(error).__name__)
    except (TypeError, KeyError, RecursionError, OverflowError) as error:
        return Problem(number, f"is malformed: {str(error) or type(error).__name__}")


def add(data: bytes, lines: Iterable[bytes]) -> bytes:
    """A ledger's bytes with more lines; a last line that lacks its end gets it."""
    gap = b"" if not data or data.endswith(b"\n") else b"\n"
    new = b"".join(lines)
    return data + (gap + new if new else b"")
