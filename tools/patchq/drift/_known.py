"""What was found in the stacks of a set, kept until one of them, or what reads them, is another."""

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
#: Modules beside this one that say what is shared: a checkout's version stays the same while they change.
_READERS = ("bodies", "_outline", "shared")
#: What else than this patchq and Python says where definitions are.
_PARSERS = ("tree-sitter", "tree-sitter-cuda")


class KnownDrift:
    """What is kept of sets, as rows of texts by a set's name, in ``.patchq/check``.

    A set's are of no use once what decides them is something else, and so are those that are damaged.
    """

    def __init__(self, layout: Layout) -> None:
        from importlib import metadata  # it brings the email package

        def version(name: str) -> str:
            """Return a parser's version; nothing is found in its languages without it."""
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

    def find(self, set_name: str, said: object) -> list[tuple[str, ...]] | None:
        """What was found in a set; None where that isn't known.

        :param said: all that decides it; JSON.
        """
        key = self._keys[set_name] = _digest([_VERSION, self._by, said])
        with suppress(KeyError, TypeError, ValueError):
            kept = self._sets[set_name]
            if kept["key"] == key and kept["sum"] == _digest([key, kept["found"]]):
                return [tuple(row) for row in kept["found"]]
        return None

    def add(self, set_name: str, found: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Take in what was found in a set, after it was asked for; returns it."""
        key = self._keys[set_name]
        self._sets[set_name] = {"key": key, "sum": _digest([key, found]), "found": found}
        self._new = True
        return found

    def keep(self) -> None:
        """Write what is new, of the sets that were asked for; where that can't be, it is looked for again."""
        if self._new:
            sets = {name: self._sets[name] for name in self._keys}
            with suppress(OSError):
                fsio.write_atomic(self._path, fsio.dump_json({"version": _VERSION, "sets": sets}))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
