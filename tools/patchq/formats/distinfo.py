"""Readers for the files of an installed distribution's metadata folder: RECORD, METADATA and entry_points.txt.

Specification: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

#: Hashes that RECORD may use, with their sizes in bytes.
HASHES = {"sha256": 32, "sha384": 48, "sha512": 64}


class RecordRow(NamedTuple):
    """Row of RECORD: path as written, name of the hash, hexadecimal digest, and size (-1 if not given)."""

    path: str
    kind: str
    digest: str
    size: int


class EntryPoint(NamedTuple):
    """Entry point of a distribution. ``value`` is ``module:attribute``, without extras."""

    group: str
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Fields of METADATA that patchq uses. ``name`` and ``version`` are empty if METADATA lacks them."""

    name: str
    version: str
    requires: tuple[str, ...]


def canonical(name: str) -> str:
    """Return a distribution's name in its normal form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_record(text: str) -> Iterator[RecordRow]:
    """Yield the rows of RECORD.

    :raises ValueError: for an invalid row; the message contains the line number.
    """
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for fields in reader:
            if not fields:
                continue
            path, digest, size = fields
            kind, _, coded = digest.partition("=")
            if "\0" in path or (size and not re.fullmatch(r"[0-9]{1,18}", size)):
                raise ValueError("an invalid path or size")
            decoded = base64.urlsafe_b64decode(coded.encode("ascii") + b"=" * (-len(coded) % 4))
            yield RecordRow(path, kind, decoded.hex(), int(size) if size else -1)
    except (ValueError, csv.Error) as error:  # binascii.Error and UnicodeError are ValueErrors
        raise ValueError(f"line {reader.line_num}: {error}") from None


def read_entry_points(text: str) -> list[EntryPoint]:
    """Return the entry points in a file, as :mod:`importlib.metadata` reads them. Ignore invalid lines."""
    found = []
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1]
        elif "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.append(EntryPoint(group, name.strip(), value.partition("[")[0].strip()))
    return found


def read_metadata(text: str) -> Metadata:
    """Return the fields of METADATA or PKG-INFO."""
    head = re.split(r"\r?\n\r?\n", text, maxsplit=1)[0]
    fields: dict[str, list[str]] = {"Name": [], "Version": [], "Requires-Dist": []}
    for line in head.split("\n"):
        name, _, value = line.partition(":")
        if name in fields:
            fields[name].append(value.strip(" \r"))
    requires = [re.match(r"[A-Za-z0-9._-]*", value) for value in fields["Requires-Dist"]]
    return Metadata(
        name=fields["Name"][-1] if fields["Name"] else "",
        version=fields["Version"][-1] if fields["Version"] else "",
        requires=tuple(canonical(match[0]) for match in requires if match and match[0]),
    )
