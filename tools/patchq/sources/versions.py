"""Version of a source tree, read from its metadata without running its code."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Mapping
from typing import Any

from packaging.metadata import parse_email
from packaging.version import InvalidVersion, Version

from patchq.formats import toml
from patchq.git.objects import TreeEntry
from patchq.git.repository import Git
from patchq.names import CommitId

#: Assignment that hatchling reads unless ``tool.hatch.version.pattern`` is set.
_HATCH = r"(?i)^(?:__version__|VERSION)(?:\s*:\s*str)?\s*=\s*(['\"])v?(?P<version>.+?)\1"


def version_of_tree(store: Git, commit: CommitId) -> str:
    """Return the version that a tree's files contain literally; empty if they contain none.

    The version is searched in ``PKG-INFO``, in ``project.version``, in the file or attribute to which
    ``project.dynamic`` refers, in Poetry's settings, and in ``setup.cfg``. A version that the build computes,
    for example from git's tags, is not found.
    """
    tree = _VersionFiles(store, commit)
    for found in (tree.of_pkg_info(), tree.of_pyproject(), tree.of_setup_cfg()):
        try:
            return Version(found).public
        except InvalidVersion:
            continue
    return ""


class _VersionFiles:
    """Files of a tree that may contain its version."""

    def __init__(self, store: Git, commit: CommitId) -> None:
        self._store = store
        self._entries: Mapping[bytes, TreeEntry] = store.list_tree(commit)

    def _text(self, path: str) -> str:
        """Return the content of a plain file; empty if it doesn't exist."""
        entry = self._entries.get(path.encode())
        if entry is None or entry.mode not in (b"100644", b"100755"):
            return ""
        return self._store.read_blobs([entry.blob])[entry.blob].decode("utf-8", "replace")

    def of_pkg_info(self) -> str:
        return parse_email(self._text("PKG-INFO"))[0].get("version", "")

    def of_pyproject(self) -> str:
        try:
            raw = toml.loads(self._text("pyproject.toml").encode())
        except ValueError:
            return ""
        for path in (("project", "version"), ("tool", "poetry", "version")):
            if isinstance(version := _at(raw, *path), str) and version != "0.0.0":
                return version
        return self._of_setuptools(raw) or self._of_hatch(raw) or self._of_pdm(raw) or self._of_flit(raw)

    def of_setup_cfg(self) -> str:
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read_string(self._text("setup.cfg"))
        except configparser.Error:
            return ""
        value = parser.get("metadata", "version", fallback="")
        kind, colon, what = value.partition(":")
        if not colon:
            return value
        if kind.strip() == "attr":
            return self._attribute(what.strip())
        return self._text(what.strip()).strip()

    def _of_setuptools(self, raw: dict[str, Any]) -> str:
        attribute = _at(raw, "tool", "setuptools", "dynamic", "version", "attr")
        if isinstance(attribute, str):
            return self._attribute(attribute)
        files = _at(raw, "tool", "setuptools", "dynamic", "version", "file")
        if isinstance(files, list) and files:
            files = files[0]
        if isinstance(files, str):
            return self._text(files).strip()
        return ""

    def _of_hatch(self, raw: dict[str, Any]) -> str:
        path = _at(raw, "tool", "hatch", "version", "path")
        if not isinstance(path, str) or _at(raw, "tool", "hatch", "version", "pattern"):
            return ""
        if found := re.search(_HATCH, self._text(path), re.MULTILINE):
            return found["version"]
        return ""

    def _of_pdm(self, raw: dict[str, Any]) -> str:
        path = _at(raw, "tool", "pdm", "version", "path")
        if isinstance(path, str):
            return self._assigned(path, "__version__")
        return ""

    def _of_flit(self, raw: dict[str, Any]) -> str:
        backend = _at(raw, "build-system", "build-backend")
        if not isinstance(backend, str) or not backend.startswith("flit"):
            return ""
        name = _at(raw, "tool", "flit", "module", "name") or _at(raw, "project", "name")
        if isinstance(name, str):
            return self._attribute(f"{name.replace('-', '_')}.__version__")
        return ""

    def _attribute(self, dotted: str) -> str:
        """Return the literal value of an attribute such as ``package.module.__version__``."""
        module, _, name = dotted.rpartition(".")
        return self._assigned(self._module(module.replace(".", "/")), name)

    def _module(self, stem: str) -> str:
        """Return the path of a module's file; empty if the tree doesn't contain it."""
        for path in (f"{stem}.py", f"{stem}/__init__.py", f"src/{stem}.py", f"src/{stem}/__init__.py"):
            if path.encode() in self._entries:
                return path
        return ""

    def _assigned(self, path: str, name: str, *, follow: bool = True) -> str:
        """Return the string that a file assigns to a name.

        If the file imports the name from another module of the same package, read that module.
        """
        try:
            body = ast.parse(self._text(path)).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ""
        for node in body:
            if isinstance(node, ast.Assign):
                targets, value = node.targets, node.value
            elif isinstance(node, ast.AnnAssign) and node.value:
                targets, value = [node.target], node.value
            else:
                if follow and isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
                    origin = _imported_as(node, name)
                    sibling = f"{path.rpartition('/')[0]}/{node.module.replace('.', '/')}.py"
                    if origin:
                        return self._assigned(sibling.lstrip("/"), origin, follow=False)
                continue
            named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
            if named and isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
        return ""


def _imported_as(node: ast.ImportFrom, name: str) -> str:
    """Return the original name of the object that an import binds to ``name``; empty if it doesn't bind ``name``."""
    for alias in node.names:
        if (alias.asname or alias.name) == name:
            return alias.name
    return ""


def _at(raw: object, *keys: str) -> object:
    """Return the value at a path of nested tables; None if a table or the value is missing."""
    for key in keys:
        if not isinstance(raw, dict):
            return None
        raw = raw.get(key)
    return raw
