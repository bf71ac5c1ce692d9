"""Distributions on an interpreter's path: metadata, RECORD and entry points."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from patchq.environment._files import MAX_TEXT, FileKind, FileTree
from patchq.environment._imports import ImportPlace
from patchq.formats.distinfo import (
    EntryPoint,
    Metadata,
    RecordRow,
    canonical,
    read_entry_points,
    read_metadata,
    read_record,
)

_SUFFIXES = (".dist-info", ".egg-info", ".egg-link")


@dataclass(kw_only=True)
class Distribution:
    """Installed distribution.

    :ivar root: Folder to which the paths in RECORD are relative, with symbolic links resolved.
    :ivar info: Path of the metadata folder or file.
    """

    files: FileTree
    place: ImportPlace
    root: str
    info: str

    @property
    def label(self) -> str:
        """Name of the metadata folder or file, without its suffix."""
        return posixpath.basename(self.info).rpartition(".")[0]

    def _text(self, name: str) -> str:
        below = posixpath.relpath(self.info, self.place.path)
        return self.place.text(f"{below}/{name}")

    @property
    def _metadata_name(self) -> str:
        if self.info.endswith(".dist-info"):
            return "METADATA"
        return "PKG-INFO"

    @cached_property
    def _metadata(self) -> Metadata:
        if self.info.endswith(".egg-info") and self.files.is_file(self.info):
            return read_metadata(self.files.text(self.info))
        return read_metadata(self._text(self._metadata_name))

    @cached_property
    def metadata_error(self) -> str:
        """Error in METADATA; empty if there is none."""
        if self.info.endswith(".egg-link"):
            return ""
        found = self._metadata
        if found.name and found.version and canonical(found.name) == self.name:
            return ""
        path = self.info
        if self.files.is_folder(self.info):
            path = f"{self.info}/{self._metadata_name}"
        try:
            self.files.read(path)
        except OSError as error:
            return f"{self._metadata_name} {error.strerror or 'cannot be read'}"
        return f"{self._metadata_name} doesn't name it and its version"

    @cached_property
    def name(self) -> str:
        """Canonical name of the distribution."""
        return canonical(self.label.split("-")[0])

    @cached_property
    def version(self) -> str:
        if self._metadata.version:
            return self._metadata.version
        parts = self.label.split("-")
        if len(parts) > 1:
            return parts[1]
        return ""

    @cached_property
    def requires(self) -> tuple[str, ...]:
        """Canonical names of all distributions in the requirements; markers and extras are ignored."""
        return self._metadata.requires

    @cached_property
    def editable(self) -> str:
        """Source folder of an editable install; empty if the install isn't editable."""
        if self.info.endswith(".egg-link"):
            return self.files.text(self.info, 1 << 16).strip().partition("\n")[0] or "?"
        try:
            url = json.loads(self._text("direct_url.json") or "{}")
            if url["dir_info"]["editable"]:
                return str(url["url"])
            return ""
        except (ValueError, TypeError, KeyError, RecursionError):
            return ""

    @cached_property
    def is_link(self) -> bool:
        folder = self.files.resolve(self.place.path)
        return self.files.kind(f"{folder}/{posixpath.basename(self.info)}") is FileKind.LINK

    @cached_property
    def _record(self) -> tuple[list[RecordRow], OSError | ValueError | None]:
        rows: list[RecordRow] = []
        try:
            data = self.files.read(f"{self.info}/RECORD", MAX_TEXT)
            for row in read_record(data.decode("utf-8", "surrogateescape")):
                rows.append(row)
        except OSError as error:
            return [], error
        except ValueError as error:
            return rows, error
        return rows, None

    @property
    def rows(self) -> list[RecordRow]:
        """Rows of RECORD, up to the first damaged row."""
        return self._record[0]

    @property
    def record_error(self) -> OSError | ValueError | None:
        """Error in RECORD; None if there is none."""
        return self._record[1]

    @cached_property
    def recorded(self) -> dict[str, RecordRow]:
        """Rows of RECORD by the absolute path of their file."""
        return {posixpath.normpath(posixpath.join(self.root, row.path)): row for row in self.rows}

    @cached_property
    def modules(self) -> set[str]:
        """Top-level modules that RECORD names."""
        found = set()
        for row in self.rows:
            top = row.path.split("/")[0]
            if not top.startswith(".") and not top.endswith((".dist-info", ".pth")):
                found.add(top.partition(".")[0])
        return found - {"__pycache__", ""}

    @cached_property
    def entry_points(self) -> list[EntryPoint]:
        return read_entry_points(self._text("entry_points.txt"))


def installed(places: Iterable[ImportPlace]) -> list[Distribution]:
    """Return the distributions on the path without duplicates, in the order of the path's entries."""
    found: dict[str, Distribution] = {}
    for place in places:
        files = place.files
        root = files.resolve(place.path)
        for name in place.names:
            info = f"{place.path}/{name}"
            real = files.resolve(info)
            if name.endswith(_SUFFIXES) and real not in found:
                found[real] = Distribution(files=files, place=place, root=root, info=info)
        if place.path.endswith(".egg") and "EGG-INFO" in place.names:
            info = f"{place.path}/EGG-INFO"
            found[info] = Distribution(files=files, place=place, root=place.path, info=info)
    return list(found.values())


def intact(files: FileTree, distributions: Iterable[Distribution], path: str, owner: str) -> bool:
    """Return whether the file ``path`` matches its hash in the RECORD of the distribution ``owner``."""
    real = files.resolve(path)
    for distribution in distributions:
        row = distribution.recorded.get(real)
        if row and distribution.name == owner and row.kind in ("sha256", "sha384", "sha512"):
            try:
                return files.digest(real, {row.kind})[row.kind] == row.digest
            except OSError:
                return False
    return False


def closure(distributions: Iterable[Distribution], names: Iterable[str]) -> set[str]:
    """Return the canonical names of the named distributions and of all distributions that they require."""
    requires: dict[str, set[str]] = {}
    for distribution in distributions:
        requires.setdefault(distribution.name, set()).update(distribution.requires)
    todo = [canonical(name) for name in names]
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += requires.get(name, ())
    return found
