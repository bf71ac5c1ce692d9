"""Compiled units by what they are made of: the same inputs are compiled once, whichever project asks.

A unit's key holds the compilers, the flags and the source. Which headers it reads is known when it was compiled;
so under a key there are the sets of headers, each with its hashes, that it was compiled with, and what came out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patchq.system import fsio

_FORMAT = 1
#: Sets of headers that are kept of one unit: branches that people go to and fro between.
_MOST = 20


class Hashes:
    """SHA-256 of files, each read once."""

    def __init__(self) -> None:
        self._known: dict[Path, str] = {}

    def of(self, path: Path) -> str:
        """Of a file; empty where it isn't there."""
        if path not in self._known:
            self._known[path] = fsio.sha256_file(path) if path.is_file() else ""
        return self._known[path]


class Cache:
    """Compiled units below ``folder``. ``places`` are texts that stand for this machine's own folders."""

    def __init__(self, folder: Path, root: Path, places: Mapping[str, Path]) -> None:
        self.folder, self.root, self.places, self.hashes = folder, root, places, Hashes()

    def key(self, *parts: object) -> str:
        """A unit's key, the same on every machine."""
        text = json.dumps([_FORMAT, *parts])
        for name, place in self.places.items():
            text = text.replace(str(place), name)
        return hashlib.sha256(text.encode()).hexdigest()

    def find(self, key: str) -> Path | None:
        """What was compiled of these very inputs; None where nothing was, or it was damaged since."""
        for entry in self._entries(key):
            if all(self.hashes.of(self._path(name)) == digest for name, digest in entry["headers"].items()):
                path = self._object(entry["object"])
                if path.is_file() and fsio.sha256_file(path) == entry["object"]:
                    return path
        return None

    def keep(self, key: str, headers: list[str], made: Path) -> Path:
        """Take in a compiled unit, and which headers it read; returns where it lies now."""
        digest = fsio.sha256_file(made)
        path = self._object(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        fsio.write_atomic(path, made.read_bytes())
        hashes = {self._name(h): self.hashes.of(self._path(h)) for h in sorted(headers)}
        entries = [{"headers": hashes, "object": digest}, *self._entries(key)][:_MOST]
        place = self._place(key)
        place.parent.mkdir(parents=True, exist_ok=True)
        fsio.write_atomic(place, fsio.dump_json({"version": _FORMAT, "entries": entries}))
        return path

    def _entries(self, key: str) -> list[dict[str, Any]]:
        data = fsio.read_or_none(self._place(key))
        try:
            return list(json.loads(data)["entries"]) if data else []
        except (ValueError, KeyError, TypeError):
            return []

    def _place(self, key: str) -> Path:
        return self.folder / "units" / key[:2] / f"{key}.json"

    def _object(self, digest: str) -> Path:
        return self.folder / "objects" / digest[:2] / f"{digest}.o"

    def _name(self, path: str) -> str:
        for name, place in self.places.items():
            path = path.replace(str(place), name)
        return path

    def _path(self, name: str) -> Path:
        for short, place in self.places.items():
            name = name.replace(short, str(place))
        return self.root / name


def headers_in(text: str) -> list[str]:
    """The files that a depfile, as compilers write them for make, names.

    >>> headers_in("a.o: b.cu \\\\\\n c\\\\ d.h\\n")
    ['b.cu', 'c d.h']
    """
    _, _, rest = text.replace("\\\n", " ").partition(":")
    words = re.findall(r"(?:\\.|\S)+", rest)
    return [re.sub(r"\\(.)", r"\1", word) for word in words]
