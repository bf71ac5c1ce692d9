"""Cache of results for the stacks of a set, valid until the stacks or the readers change."""

from __future__ import annotations

import hashlib
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from patchq import __version__
from patchq.errors import PatchqError
from patchq.system import fsio
from patchq.system.paths import Layout

_VERSION = 1
#: Modules that decide the results. In a checkout they change while the version stays the same.
_READERS = ("bodies", "shared")
#: Packages, besides patchq and Python, that decide which definitions are found.
_PARSERS = ("tree-sitter", "tree-sitter-cuda")


class KnownDrift:
    """Results by set as rows of strings, stored in ``.patchq/check``.

    A set's results are ignored if their inputs changed or if they are damaged.
    """

    def __init__(self, layout: Layout) -> None:
        from importlib import metadata  # slow: it imports the email package

        def version(name: str) -> str:
            """Return a parser's version; empty if it isn't installed."""
            try:
                return metadata.version(name)
            except metadata.PackageNotFoundError:
                return ""

        self._path = layout.private / "check" / "one-definition.json"
        readers = [fsio.sha256_file(Path(__file__).with_name(f"{name}.py")) for name in _READERS]
        self._by = [__version__, readers, sys.version_info[:3], [version(name) for name in _PARSERS]]
        self._sets: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, str] = {}
        self._new = False
        with suppress(PatchqError, OSError, ValueError, TypeError, AttributeError, RecursionError):
            self._sets = dict(json.loads(fsio.read_or_none(self._path) or b"{}").get("sets", {}))

    def find(self, set_name: str, message: object) -> list[tuple[str, ...]] | None:
        """Return the results for a set; None if they are unknown.

        :param message: all inputs of the results, as JSON data.
        """
        key = self._keys[set_name] = _digest([_VERSION, self._by, message])
        with suppress(KeyError, TypeError, ValueError):
            kept = self._sets[set_name]
            if kept["key"] == key and kept["sum"] == _digest([key, kept["found"]]):
                return [tuple(row) for row in kept["found"]]
        return None

    def add(self, set_name: str, found: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Add the results for a set and return them. Call :meth:`find` for the set first."""
        key = self._keys[set_name]
        self._sets[set_name] = {"key": key, "sum": _digest([key, found]), "found": found}
        self._new = True
        return found

    def keep(self) -> None:
        """Save the sets passed to :meth:`find`, if any result is new. Ignore write errors."""
        if self._new:
            sets = {name: self._sets[name] for name in self._keys}
            with suppress(OSError):
                fsio.write_atomic(self._path, fsio.dump_json({"version": _VERSION, "sets": sets}))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
