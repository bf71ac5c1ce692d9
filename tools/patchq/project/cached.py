"""Cache of check results. A result is valid until its inputs or the modules that compute it change."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from patchq import __version__
from patchq.errors import PatchqError
from patchq.system import fsio
from patchq.system.paths import Layout

_VERSION = 1

#: One result: rows of strings.
Rows = list[tuple[str, ...]]


class ResultCache:
    """Results of a check, stored in one file of ``.patchq/check``: rows of strings, keyed by a name.

    A result is ignored if its inputs changed or if it is damaged.

    :param name: stem of the file.
    :param modules: files of the modules that compute the results. In a checkout, they can change while the version
        stays the same.
    :param packages: other distributions whose versions affect the results.
    """

    def __init__(self, layout: Layout, name: str, *, modules: Sequence[Path], packages: Sequence[str] = ()) -> None:
        self._path = layout.private / "check" / f"{name}.json"
        by: list[Any] = [__version__, [fsio.sha256_file(path) for path in modules], sys.version_info[:3]]
        by.append(_versions(packages))
        if git := shutil.which("git"):
            by.append(fsio.stat_key(Path(git)))
        self._by = by
        self._kept: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, str] = {}
        self._new = False
        with suppress(PatchqError, OSError, ValueError, TypeError, AttributeError, RecursionError):
            self._kept = dict(json.loads(fsio.read_or_none(self._path) or b"{}").get("results", {}))

    def find(self, name: str, message: object = None) -> Rows | None:
        """Return the result with a name; None if it isn't stored or no longer valid.

        :param message: inputs of the result other than its name, as JSON data.
        """
        key = self._keys[name] = _digest([_VERSION, self._by, name, message])
        with suppress(KeyError, TypeError, ValueError):
            kept = self._kept[name]
            if kept["key"] == key and kept["sum"] == _digest([key, kept["found"]]):
                return [tuple(row) for row in kept["found"]]
        return None

    def add(self, name: str, found: Rows) -> Rows:
        """Add a result under a name, and return the result. Call :meth:`find` for the name first."""
        key = self._keys[name]
        self._kept[name] = {"key": key, "sum": _digest([key, found]), "found": found}
        self._new = True
        return found

    def keep(self, *, forget: bool) -> None:
        """Save the results if any is new. Ignore write errors.

        :param forget: remove results whose names were not passed to :meth:`find`.
        """
        if self._new:
            kept = self._kept
            if forget:
                # A name has no result if the check failed after it had called find().
                kept = {name: kept[name] for name in self._keys if name in kept}
            with suppress(OSError):
                fsio.write_atomic(self._path, fsio.dump_json({"version": _VERSION, "results": kept}))


def _versions(packages: Sequence[str]) -> list[str]:
    """Return the versions of distributions. The version of a distribution that isn't installed is empty."""
    if not packages:
        return []
    from importlib import metadata  # slow: it imports the email package

    found = []
    for name in packages:
        version = ""
        with suppress(metadata.PackageNotFoundError):
            version = metadata.version(name)
        found.append(version)
    return found


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
