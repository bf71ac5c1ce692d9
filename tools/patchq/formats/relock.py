"""Changes to ``upstream.lock``: remove or rename tables. The comments and the order of the lock are kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

from patchq.errors import FormatError
from patchq.formats import toml

_HEADER = re.compile(rb"^[ \t]*\[[^\[\]\n]+\][ \t]*(#[^\n]*)?$")
_REMARK = re.compile(rb"^[ \t]*(#[^\n]*)?$")
Path = tuple[str, ...]


def with_default(data: bytes, set_name: str) -> bytes:
    """Return the lock with another default set."""
    import tomlkit

    doc = tomlkit.parse(data.decode())
    doc["default-set"] = set_name
    return tomlkit.dumps(doc).encode()


def without(data: bytes, tables: Sequence[Path]) -> bytes:
    """Return the lock without some tables and their subtables.

    Comments after the last key of a removed table are kept.

    :param tables: key path of each table to remove, such as ``("sets", "old")``.
    :raises FormatError: if a table has no header line of its own.
    """
    kept: list[bytes] = []
    for header, body in _sections(data):
        if not any(header[: len(path)] == path for path in tables):
            kept += body
            continue
        while body and not _REMARK.match(body[0]):
            last = max(n for n, line in enumerate(body) if not _REMARK.match(line))
            body = body[last + 1 :]
        if body and not body[0].strip():
            kept += body[1:]
        else:
            kept += body
    return _checked(data, b"\n".join(kept), lambda raw: [_take_out(raw, path) for path in tables])


def renamed(data: bytes, table: Path, name: str) -> bytes:
    """Return the lock with a table renamed, together with its subtables.

    :raises FormatError: if the table has no header line of its own.
    """
    lines: list[bytes] = []
    for header, body in _sections(data):
        if header[: len(table)] == table:
            path = (*table[:-1], name, *header[len(table) :])
            comment = body[0].partition(b"]")[2]
            body = [b"[" + ".".join(_key(part) for part in path).encode() + b"]" + comment, *body[1:]]
        lines += body

    def change(raw: dict[str, Any]) -> None:
        value = _take_out(raw, table)
        inner = raw
        for part in table[:-1]:
            inner = inner[part]
        inner[name] = value

    return _checked(data, b"\n".join(lines), change)


def _sections(data: bytes) -> list[tuple[Path, list[bytes]]]:
    """Return the path and the lines of each table. Lines before the first header have the path ``()``."""
    found: list[tuple[Path, list[bytes]]] = [((), [])]
    for line in data.split(b"\n"):
        if _HEADER.match(line):
            with suppress(ValueError):  # within a multi-line string: the result is checked
                found.append((_path(toml.loads(line)), []))
        found[-1][1].append(line)
    return found


def _path(raw: Mapping[str, Any]) -> Path:
    path: list[str] = []
    while raw:
        ((key, raw),) = raw.items()
        path.append(key)
    return tuple(path)


def _key(text: str) -> str:
    """Return a key in TOML syntax. Names and refs in a lock contain no quotes."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", text):
        return text
    return f'"{text}"'


def _take_out(raw: dict[str, Any], path: Path) -> Any:
    for part in path[:-1]:
        raw = raw.get(part, {})
    return raw.pop(path[-1], None)


def _checked(before: bytes, after: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Check that the lock ``after`` differs from the lock ``before`` only by ``change``, and return ``after``.

    :raises FormatError: if there is any other difference.
    """
    wanted = deepcopy(toml.loads(before))
    change(wanted)
    try:
        same = _full(toml.loads(after)) == _full(wanted)
    except ValueError:
        same = False
    if not same:
        raise FormatError("upstream.lock: each set and pin must be a separate table", hint="edit upstream.lock by hand")
    return after


def _full(raw: Any) -> Any:
    """Return data without empty tables.

    If the only subtable of a table is removed from the text, the table disappears, too.
    """
    if not isinstance(raw, dict):
        return raw
    found = {key: _full(value) for key, value in raw.items()}
    return {key: value for key, value in found.items() if value != {}}
