"""Kinds of recipes: which files are recipes, and which entries they contain."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from patchq.errors import UserError
from patchq.names import sh
from patchq.recipes._conda import conda_entries
from patchq.recipes._homebrew import homebrew_entries
from patchq.recipes._nix import nix_entries
from patchq.recipes._packages import arch_entries, gentoo_entries
from patchq.recipes._ports import port_entries, port_folder
from patchq.recipes._rpm import rpm_entries
from patchq.recipes._vcpkg import vcpkg_entries
from patchq.recipes._yocto import yocto_entries
from patchq.recipes.entries import LEFT, Entry, RecipeFile

_KINDS: dict[str, Callable[[RecipeFile], Iterator[Entry]]] = {
    r".*\.(?:bb|bbappend|inc)": yocto_entries,
    r".*\.spec": rpm_entries,
    r".*\.nix": nix_entries,
    r"(?:meta|recipe)\.yaml": conda_entries,
    r"PKGBUILD": arch_entries,
    r".*\.ebuild": gentoo_entries,
    r".*\.rb": homebrew_entries,
    r"portfile\.cmake": vcpkg_entries,
}
#: Names of recipes that :func:`recipe_in` finds in a folder.
_IN_FOLDER = re.compile(
    r".*\.(?:bb|spec|ebuild)|(?:meta|recipe)\.yaml|PKGBUILD|portfile\.cmake|(?:default|package)\.nix"
)


def is_recipe(path: Path) -> bool:
    """Return True if a file has the name of a recipe."""
    return any(re.fullmatch(kind, path.name) for kind in _KINDS)


def recipe_in(folder: Path) -> Path | None:
    """Return the recipe in a folder, or the folder of a port's patches; None if there is neither.

    :raises UserError: if the folder has several recipes.
    """
    found = []
    for path in sorted(folder.iterdir()):
        if not _IN_FOLDER.fullmatch(path.name) or not path.is_file():
            continue
        if path.suffix != ".nix" or "patches" in RecipeFile(path).text:
            found.append(path)
    if len(found) > 1:
        raise UserError(f"{folder} has {len(found)} recipes", hint=f"name one: {sh(found[0])}")
    if found:
        return found[0]
    return port_folder(folder)


def recipe_entries(path: Path, upstream: str) -> list[Entry]:
    """Return the entries of a recipe, or of a port's folder of patches, in order.

    :raises UserError: if the recipe applies no patches, or can't be read.
    :raises FormatError: if the recipe is too large, or can't be parsed.
    """
    if path.is_dir():
        return list(port_entries(path))
    read = next(read for kind, read in _KINDS.items() if re.fullmatch(kind, path.name))
    found = list(read(RecipeFile(path)))
    if all(entry.state in LEFT for entry in found):
        lines = [f"{path} applies no patches", *(entry.words(upstream) for entry in found)]
        raise UserError("\n".join(lines), hint="import the patch files instead of the recipe, in order")
    return found
