"""Import of patched modules from a thin wheel.

This module is a part of thin wheels, and needs the standard library only.

The ``__file__`` of a patched module is the path in the release, so that the module finds its data files and the modules
next to it. Its code objects name the patched file instead, so that tracebacks, ``inspect`` and just-in-time compilers
read the patched source.
"""

from __future__ import annotations

import importlib.util
import linecache
import os
import shutil
import sys
import tempfile
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from . import _base

#: Module ``_start``, which is the ``__init__`` of a thin wheel's package.
_START: Any = sys.modules[__package__ or ""]
_FILES = os.path.join(_base.HERE, "files")


class PatchedLoader(SourceFileLoader):
    """Loader for a patched file.

    :ivar released: path of the replaced file in the release. For an added file, the path that the file would have in
        the release.
    """

    def __init__(self, fullname: str, path: str, released: str) -> None:
        super().__init__(fullname, path)
        self.released = released

    def exec_module(self, module: ModuleType) -> None:
        source = self.get_source(module.__name__) or ""
        # Without a time, the entry is never compared with the file of the release.
        linecache.cache[self.released] = (len(source), None, source.splitlines(True), self.released)
        super().exec_module(module)

    def get_resource_reader(self, name: str | None = None) -> Any:
        released = SourceFileLoader(name or self.name, self.released)
        return released.get_resource_reader(name)


class Overlay:
    """Patched modules for one installed release.

    :ivar root: folder in which the release is installed.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.thin = _base.load()
        self.modules: dict[str, str] = self.thin.about["modules"]

    def find(self, fullname: str) -> ModuleSpec | None:
        if fullname == self.thin.about["data_module"] and self.thin.about["data"]:
            return self._find_in_tree(fullname)
        name = self.modules.get(fullname)
        if name is None:
            return None
        parts = name.split("/")
        path, released = os.path.join(_FILES, *parts), os.path.join(self.root, *parts)
        places = None
        if parts[-1] == "__init__.py":
            places = [os.path.dirname(released)]
        loader = PatchedLoader(fullname, path, released)
        spec = importlib.util.spec_from_file_location(
            fullname, released, loader=loader, submodule_search_locations=places
        )
        if spec is not None:
            spec.cached = importlib.util.cache_from_source(path)
        return spec

    def _find_in_tree(self, fullname: str) -> ModuleSpec | None:
        """Return the spec of the module ``data_module``, located in the data tree.

        This module computes the paths of the package's data folders from its own path.
        """
        tree = data_tree(self.thin, self.root)
        path = os.path.join(tree, *self.thin.about["data_file"].split("/"))
        return importlib.util.spec_from_file_location(fullname, path)


_overlay: Overlay | None = None


def find(fullname: str) -> ModuleSpec | None:
    """Return the spec of a patched module; None for other modules.

    :raises ImportError: if the installed release isn't the release for which the patches were made.
    """
    global _overlay
    try:
        if _START.LATE:
            raise _base.Refused(f"{_START.PACKAGE} was imported before its patches, by another .pth file")
        if _overlay is None:
            overlay = _find_release()
            if overlay is None:
                return None
            _base.check(overlay.thin, overlay.root)
            _overlay = overlay
        return _overlay.find(fullname)
    except ImportError as error:
        _base.say(error)
        raise


def _find_release() -> Overlay | None:
    """Find the installed release, and return its overlay; None if it isn't installed."""
    found = PathFinder.find_spec(_START.PACKAGE, None)
    if found is None:
        return None
    origin = os.path.realpath(found.origin or "")
    if os.path.basename(origin) != "__init__.py":
        raise _base.Refused(f"{_START.PACKAGE} is not a package with an __init__.py, but {found.origin}")
    return Overlay(os.path.dirname(os.path.dirname(origin)))


# Data files


def data_tree(thin: _base.Thin, root: str) -> str:
    """Return a folder with the release's data files and the patched data files. Create it if necessary.

    A folder that contains no patched file is a link to the same folder of the release.

    :raises Refused: if the folder can't be written.
    """
    real = [*thin.about["data"], thin.about["data_file"]]
    key = _base.record_hash("\n".join([root, _base.HERE, *(thin.patched.get(name, "") for name in real)]).encode())
    tree = os.path.join(_base.cache_folder(), "tree-" + key[7:39].replace("_", "-"))
    if _is_complete(thin, root, tree, real):
        return tree
    temporary = ""
    try:
        os.makedirs(_base.cache_folder(), exist_ok=True)
        temporary = tempfile.mkdtemp(dir=_base.cache_folder())
        new = os.path.join(temporary, "new")
        _fill(root, new, {name: _source(thin, root, name) for name in real})
        # A process that reads the data files would miss a complete tree while it is replaced.
        if not _is_complete(thin, root, tree, real):
            _put(new, tree, os.path.join(temporary, "old"))
    except OSError as error:
        # Another process may have put the tree in place between two steps of this one.
        if not _is_complete(thin, root, tree, real):
            raise _base.Refused(
                f"patched data files of {thin.release} need a writable folder: {error}; "
                "set PATCHQ_THIN_CACHE to such a folder"
            ) from None
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
    return tree


def _source(thin: _base.Thin, root: str, name: str) -> str:
    """Return the path of a file's patched content. If no patch changes the file, return its path in the release."""
    return os.path.join(_FILES if name in thin.patched else root, *name.split("/"))


def _is_complete(thin: _base.Thin, root: str, tree: str, real: list[str]) -> bool:
    for name in real:
        try:
            with open(os.path.join(tree, *name.split("/")), "rb") as file:
                found = file.read()
            with open(_source(thin, root, name), "rb") as file:
                if file.read() != found:
                    return False
        except OSError:
            return False
    return True


def _fill(root: str, tree: str, files: dict[str, str]) -> None:
    """Copy ``files`` to ``tree``. All other files and folders next to them become links.

    :param files: source of each file by its path.
    """
    folders = set()
    for name in files:
        parts = name.split("/")[:-1]
        for count in range(1, len(parts) + 1):
            folders.add("/".join(parts[:count]))
    for folder in sorted(folders):
        os.makedirs(os.path.join(tree, *folder.split("/")), exist_ok=True)
        released = os.path.join(root, *folder.split("/"))
        for entry in os.listdir(released) if os.path.isdir(released) else ():
            inner = f"{folder}/{entry}"
            if inner not in folders and inner not in files and entry != "__pycache__":
                os.symlink(os.path.join(released, entry), os.path.join(tree, *inner.split("/")))
    for name, source in files.items():
        shutil.copyfile(source, os.path.join(tree, *name.split("/")))


def _put(new: str, tree: str, old: str) -> None:
    """Rename a finished tree to its final name. A damaged tree with that name becomes ``old``."""
    try:
        os.rename(new, tree)
    except OSError:
        os.rename(tree, old)
        os.rename(new, tree)
