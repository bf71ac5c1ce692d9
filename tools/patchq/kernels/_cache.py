"""Cache of compiled units, shared by all projects.

The key of a unit is a hash of its compilers, flags and source. The headers of a unit are known only after the unit was
compiled. A unit can therefore have several cache entries, each with the hashes of its headers and the resulting object
file.
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
#: Most entries of one unit. Several are useful when branches alternate.
_MOST = 20


class Hashes:
    """Cache of SHA-256 hashes of files. Each file is read once."""

    def __init__(self) -> None:
        self._known: dict[Path, str] = {}

    def of(self, path: Path) -> str:
        """Return the hash of a file, or an empty string if it doesn't exist."""
        if path not in self._known:
            if path.is_file():
                self._known[path] = fsio.sha256_file(path)
            else:
                self._known[path] = ""
        return self._known[path]


class UnitCache:
    """Compiled units below ``folder``.

    :param places: placeholders that replace this machine's folders in keys and header names, so that other machines can
        use the entries.
    """

    def __init__(self, folder: Path, root: Path, places: Mapping[str, Path]) -> None:
        self.folder = folder
        self.root = root
        self.places = places
        self.hashes = Hashes()

    def key(self, *parts: object) -> str:
        """Return the cache key of a unit. The key is the same on every machine."""
        return hashlib.sha256(self._name(json.dumps([_FORMAT, *parts])).encode()).hexdigest()

    def find(self, key: str) -> Path | None:
        """Return the object that was compiled from the same inputs; None if there is no undamaged object."""
        for entry in self._entries(key):
            if self._has_headers(entry["headers"]):
                path = self._object(entry["object"])
                if path.is_file() and fsio.sha256_file(path) == entry["object"]:
                    return path
        return None

    def _has_headers(self, headers: Mapping[str, str]) -> bool:
        """Return whether the header files now have these hashes."""
        return all(self.hashes.of(self._path(name)) == headers[name] for name in headers)

    def keep(self, key: str, headers: list[str], made: Path) -> Path:
        """Add a compiled unit with its headers; return the path of the object in the cache."""
        digest = fsio.sha256_file(made)
        path = self._object(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        fsio.write_atomic(path, made.read_bytes())
        hashes = {}
        for header in sorted(headers):
            hashes[self._name(header)] = self.hashes.of(self._path(header))
        entries = [{"headers": hashes, "object": digest}, *self._entries(key)][:_MOST]
        place = self._place(key)
        place.parent.mkdir(parents=True, exist_ok=True)
        fsio.write_atomic(place, fsio.dump_json({"version": _FORMAT, "entries": entries}))
        return path

    def _entries(self, key: str) -> list[dict[str, Any]]:
        data = fsio.read_or_none(self._place(key))
        try:
            if data:
                return list(json.loads(data)["entries"])
            return []
        except (ValueError, KeyError, TypeError):
            return []

    def _place(self, key: str) -> Path:
        return self.folder / "units" / key[:2] / f"{key}.json"

    def _object(self, digest: str) -> Path:
        return self.folder / "objects" / digest[:2] / f"{digest}.o"

    def _name(self, text: str) -> str:
        """Replace folders of this machine with their placeholders."""
        for name, place in self.places.items():
            text = text.replace(str(place), name)
        return text

    def _path(self, name: str) -> Path:
        for placeholder, place in self.places.items():
            name = name.replace(placeholder, str(place))
        return self.root / name


def headers_in(text: str) -> list[str]:
    """Return the files that a compiler's dependency file (in make's format) names.

    >>> headers_in("a.o: b.cu \\\\\\n c\\\\ d.h\\n")
    ['b.cu', 'c d.h']
    """
    _, _, rest = text.replace("\\\n", " ").partition(":")
    words = re.findall(r"(?:\\.|\S)+", rest)
    return [re.sub(r"\\(.)", r"\1", word) for word in words]
