"""The distributions that an interpreter finds on its path: metadata, RECORD and entry points."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from patchq.environment._files import MAX_TEXT, Files, Kind
from patchq.environment._imports import Place
from patchq.formats.distinfo import EntryPoint, Row, canonical, read_entry_points, read_metadata, read_record

_SUFFIXES = (".dist-info", ".egg-info", ".egg-link")


@dataclass
class Distribution:
    """A metadata folder (or file) on the path.

    :ivar root: the folder that its RECORD's paths start from, links resolved.
    :ivar info: the metadata's path.
    """

    files: Files
    place: Place
    root: str
    info: str

    @property
    def label(self) -> str:
        """The metadata's name without its suffix."""
        return posixpath.basename(self.info).rpartition(".")[0]

    def _text(self, name: str) -> str:
        below = posixpath.relpath(self.info, self.place.path)
        return self.place.text(f"{below}/{name}")

    @cached_property
    def metadata_error(self) -> str:
        """What is wrong with METADATA, or empty."""
        if self.info.endswith(".egg-link"):
            return ""
        fields = read_metadata(self._metadata_text)
        if fields.name and fields.version and canonical(fields.name) == canonical(self.label.split("-")[0]):
            return ""
        name = "METADATA" if self.info.endswith(".dist-info") else "PKG-INFO"
        path = f"{self.info}/{name}" if self.files.is_folder(self.info) else self.info
        try:
            self.files.read(path)
        except OSError as error:
            return f"{name} {error.strerror or 'cannot be read'}"
        return f"{name} doesn't name it and its version"

    @cached_property
    def _metadata_text(self) -> str:
        if self.info.endswith(".egg-info") and self.files.is_file(self.info):
            return self.files.text(self.info)
        return self._text("METADATA" if self.info.endswith(".dist-info") else "PKG-INFO")

    @cached_property
    def name(self) -> str:
        return canonical(self.label.split("-")[0])

    @cached_property
    def version(self) -> str:
        parts = self.label.split("-")
        return read_metadata(self._metadata_text).version or (parts[1] if len(parts) > 1 else "")

    @cached_property
    def requires(self) -> tuple[str, ...]:
        """The canonical names of what it requires, markers and extras ignored."""
        return read_metadata(self._metadata_text).requires

    @cached_property
    def editable(self) -> str:
        """Where an editable install has its sources, or empty."""
        if self.info.endswith(".egg-link"):
            return self.files.text(self.info, 1 << 16).strip().partition("\n")[0] or "?"
        try:
            url = json.loads(self._text("direct_url.json") or "{}")
            return str(url["url"]) if url["dir_info"]["editable"] else ""
        except (ValueError, TypeError, KeyError, RecursionError):
            return ""

    @cached_property
    def is_link(self) -> bool:
        return self.files.kind(f"{self.files.resolve(self.place.path)}/{posixpath.basename(self.info)}") is Kind.LINK

    @cached_property
    def _record(self) -> tuple[list[Row], str]:
        rows: list[Row] = []
        try:
            text = self.files.read(f"{self.info}/RECORD", MAX_TEXT).decode("utf-8", "surrogateescape")
            for row in read_record(text):
                rows.append(row)
        except OSError as error:
            return [], error.strerror or "can't be read"
        except ValueError as error:
            return rows, str(error)
        return rows, ""

    @property
    def rows(self) -> list[Row]:
        """The rows of RECORD, up to the first damaged one."""
        return self._record[0]

    @property
    def record_error(self) -> str:
        """What is wrong with RECORD, or empty."""
        return self._record[1]

    @cached_property
    def recorded(self) -> dict[str, Row]:
        """The rows of RECORD by absolute path."""
        return {posixpath.normpath(posixpath.join(self.root, row.path)): row for row in self.rows}

    @cached_property
    def modules(self) -> set[str]:
        """The top-level modules that RECORD names."""
        tops = {row.path.split("/")[0] for row in self.rows if not row.path.startswith((".", "/"))}
        return {top.partition(".")[0] for top in tops if not top.endswith((".dist-info", ".pth"))} - {"__pycache__", ""}

    @cached_property
    def entry_points(self) -> list[EntryPoint]:
        return read_entry_points(self._text("entry_points.txt"))


def installed(places: Iterable[Place]) -> list[Distribution]:
    """Return each distribution on the path once, in its order."""
    found: dict[str, Distribution] = {}
    for place in places:
        files = place.files
        for name in place.names:
            info = f"{place.path}/{name}"
            real = files.resolve(info)
            if name.endswith(_SUFFIXES) and real not in found:
                found[real] = Distribution(files, place, files.resolve(place.path), info)
        if place.path.endswith(".egg") and "EGG-INFO" in place.names:
            found[f"{place.path}/EGG-INFO"] = Distribution(files, place, place.path, f"{place.path}/EGG-INFO")
    return list(found.values())


def intact(files: Files, distributions: Iterable[Distribution], path: str, owner: str) -> bool:
    """Return whether ``owner``'s RECORD has the file ``path`` as it is."""
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
    """Return the canonical names of distributions and all that they require."""
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
