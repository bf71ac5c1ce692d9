"""Patches of a BSD port: files ``patch-*`` in ``files`` or ``patches``, and patches named in the port's Makefile.

The Makefile names downloads (``PATCHFILES``), further files (``EXTRA_PATCHES``) and the strip level of the ``patch-*``
files (``PATCH_STRIP``). The default level is 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from patchq.recipes.entries import Entry, EntryState, RecipeFile, number_in

_BACKUP = re.compile(r".*(?:\.orig|\.rej|~|,v|\.core)")
_ASSIGN = re.compile(r"^(?P<comment>#?)\s*(?P<name>PATCHFILES|EXTRA_PATCHES|PATCH_STRIP)\s*[+?]?=\s*(?P<value>.*)")


def port_folder(path: Path) -> Path | None:
    """Return the folder of a port's ``patch-*`` files (``path`` or a subfolder); None if ``path`` isn't a port."""
    for folder in (path / "files", path / "patches", path):
        if any(_patches(folder)):
            return folder
    return None


def _patches(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    patches: list[Path] = []
    for path in folder.glob("patch-*"):
        if path.is_file() and not _BACKUP.fullmatch(path.name):
            patches.append(path)
    return sorted(patches)


def port_entries(folder: Path) -> Iterator[Entry]:
    """Yield the entries of a port, sorted by their names.

    :param folder: folder of the ``patch-*`` files.
    """
    level = 0
    named: list[Entry] = []
    makefile = folder.parent / "Makefile"
    if makefile.is_file():
        recipe = RecipeFile(makefile)
        conditions: list[str] = []
        for number, line in enumerate(recipe.text.replace("\\\n", " \n").splitlines(), 1):
            if branch := re.match(r"\.\s*(if\w*|el\w+|endif)\b\s*(.*)", line):
                _follow(conditions, branch[1], branch[2])
            elif match := _ASSIGN.match(line):
                strip = re.fullmatch(r"-p(\d+)", match["value"].strip())
                if strip and match["name"] == "PATCH_STRIP" and not match["comment"]:
                    level = number_in(strip[1])
                elif match["name"] in ("PATCHFILES", "EXTRA_PATCHES"):
                    named += _listed(recipe, match, number, " and ".join(conditions))
    # bsd.port.mk applies downloads first, then EXTRA_PATCHES, then the folder.
    yield from sorted(named, key=lambda entry: entry.state is not EntryState.REMOTE)
    for path in _patches(folder):
        yield Entry(where=str(path), text=path.name, data=path, strip=level)


def _follow(conditions: list[str], word: str, rest: str) -> None:
    if word.startswith("if"):
        conditions.append(rest if word == "if" else f"{word} {rest}")
    elif word == "endif" and conditions:
        conditions.pop()
    elif conditions:
        conditions[-1] = rest or f"not {conditions[-1]}"


def _listed(recipe: RecipeFile, match: re.Match[str], line: int, condition: str) -> list[Entry]:
    """Return the entries for a Makefile variable: downloads (``PATCHFILES``) or files (``EXTRA_PATCHES``)."""
    found = []
    for word in match["value"].split():
        if match["comment"]:
            found.append(Entry(where=recipe.at(line), text=word, state=EntryState.COMMENTED))
        elif match["name"] == "PATCHFILES":
            found.append(Entry(where=recipe.at(line), text=word, state=EntryState.REMOTE).only_if(condition))
        elif match["name"] == "EXTRA_PATCHES":
            name = re.sub(r"^\$\{(?:FILESDIR|PATCHDIR)\}/|^\$\{\.CURDIR\}/", "", word).partition(":")[0]
            strip = re.search(r":-p(\d+)$", word)
            entry = recipe.entry(name, line, "files", "patches", "", strip=number_in(strip[1]) if strip else 0)
            found.append(entry.only_if(condition))
    return found
