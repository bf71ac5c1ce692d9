"""Mutation operators for CMake commands. The library cmake-parser supplies the commands' positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from cmake_parser import CMakeParseError, parse_raw

from patchq.mutation._edit import Edit

_OTHER = {
    "AND": "OR",
    "OR": "AND",
    "ON": "OFF",
    "OFF": "ON",
    "TRUE": "FALSE",
    "FALSE": "TRUE",
    "STREQUAL": "STRLESS",
    "EQUAL": "LESS",
    "VERSION_GREATER_EQUAL": "VERSION_LESS",
    "VERSION_LESS": "VERSION_GREATER_EQUAL",
    "VERSION_GREATER": "VERSION_LESS_EQUAL",
    "VERSION_LESS_EQUAL": "VERSION_GREATER",
}
_TESTS, _STRUCTURE = ("if", "elseif", "while"), ("else", "endif", "endwhile", "foreach", "endforeach", "endfunction")


def edits(content: bytes) -> Iterator[Edit]:
    """Yield the edits of a CMake file; none if the file can't be parsed."""
    text = content.decode("latin-1")  # one character per byte
    try:
        commands: list[Any] = list(parse_raw(text, skip_comments=True))
    except (CMakeParseError, RecursionError):
        return
    for command in commands:
        name, args = command.identifier.lower(), command.args
        if name in _TESTS and args:
            start, end = args[0].span.start, args[-1].span.stop
            yield Edit(
                start=start, end=end, new=f"NOT ({text[start:end]})".encode("latin-1"), operator="condition negated"
            )
        elif name not in _STRUCTURE:
            yield Edit(start=command.span.start, end=command.span.stop, new=b"", operator="command left out")
            yield from _list(text, args)
        for arg in args:
            yield from _argument(arg)


def _list(text: str, args: Sequence[Any]) -> Iterator[Edit]:
    """Yield edits that swap neighbouring arguments, and one that drops the last argument."""
    for one, two in pairwise(a.span for a in args):
        new = text[two] + text[one.stop : two.start] + text[one]
        yield Edit(start=one.start, end=two.stop, new=new.encode("latin-1"), operator="argument swapped")
    if args:
        if len(args) > 1:
            start = args[-2].span.stop
        else:
            start = args[-1].span.start
        yield Edit(start=start, end=args[-1].span.stop, new=b"", operator="argument dropped")


def _argument(arg: Any) -> Iterator[Edit]:
    start, end, value = arg.span.start, arg.span.stop, arg.value
    if arg.kind == "RAW" and value in _OTHER:
        yield Edit(start=start, end=end, new=_OTHER[value].encode(), operator="condition negated")
    elif arg.kind == "RAW" and value[:1].isdigit():
        yield Edit(start=start, end=end, new=b"1" + value.encode("latin-1"), operator="constant changed")
    elif arg.kind == "QUOTED" and ";" in value:
        items = value.split(";")
        for number in range(len(items)):
            left = ";".join(items[:number] + items[number + 1 :])
            yield Edit(start=start, end=end, new=f'"{left}"'.encode("latin-1"), operator="element dropped")
