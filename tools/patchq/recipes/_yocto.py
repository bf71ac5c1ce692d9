"""Patches in a Yocto recipe: the entries of ``SRC_URI``, in order, with their parameters.

The recipe is read as text, not run. Entries that are added by Python code or by classes are not found.
Assignments that hold only for some machines or classes are ignored.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from patchq.errors import UserError
from patchq.recipes.entries import Entry, RecipeFile, is_file_below, is_usable_name, read_list

_ASSIGN = re.compile(
    r"^SRC_URI(?P<over>(?:[:_][\w-]+(?::[\w-]+)*)?)\s*(?P<how>\?\?=|\?=|:=|\+=|=\+|\.=|=\.|=)\s*\"(?P<value>[^\"]*)\"",
    re.MULTILINE,
)
_INCLUDE = re.compile(r"^(?:require|include)\s+(\S+\.inc)\s*$", re.MULTILINE)


#: Limit of files read for one recipe.
MOST_INCLUDED = 100


def yocto_entries(recipe: RecipeFile) -> Iterator[Entry]:
    """Yield the patches that a recipe's ``SRC_URI`` applies.

    :raises UserError: if a patch isn't next to the recipe, or its parameters can't be read.
    """
    path = recipe.path
    name, _, version = path.stem.partition("_")
    words = {"PN": name, "BPN": name, "PV": version, "BP": f"{name}-{version}", "P": f"{name}-{version}"}
    for uri in _uris(_text(path, words, [])):
        scheme, _, rest = uri.partition("://")
        file, *parameters = rest.split(";")
        given = dict(p.partition("=")[::2] for p in parameters)
        if scheme != "file" or given.get("apply") in ("no", "0"):
            continue
        if not file.endswith((".patch", ".diff")) and given.get("apply") not in ("yes", "1"):
            continue
        folder = re.sub(r"^\$\{S\}/?|^\$\{(?:WORKDIR|UNPACKDIR)\}/git/?", "", given.get("patchdir", "")).strip("/")
        if "$" in folder or ".." in folder.split("/"):
            raise UserError(
                f"{path}: patchdir={folder} of {file} can't be read",
                hint="import the patches one by one, each with --directory DIR",
            )
        level = given.get("striplevel", "1")
        if not re.fullmatch(r"\d{1,2}", level):
            raise UserError(
                f"{path}: striplevel={level} of {file} is not a number",
                hint="import the patches one by one, each with -p N",
            )
        found = _find(path, _expand(file, words), words)
        yield Entry(where=str(found), text=file, data=found, strip=int(level), folder=folder)


def _text(recipe: Path, words: dict[str, str], above: Sequence[Path], count: list[Path] | None = None) -> str:
    """Return the text of a recipe with its includes expanded.

    :param above: recipes that include this recipe, to detect loops.
    :param count: all files read so far.
    """
    if count is None:
        count = []
    count.append(recipe)
    if len(count) > MOST_INCLUDED:
        raise UserError(
            f"{count[0]}: more than {MOST_INCLUDED} includes",
            hint="import the patch files instead of the recipe; docs/reference/formats.md lists the limits",
        )
    text = re.sub(r"^#.*\n", "", read_list(recipe), flags=re.MULTILINE)

    def included(match: re.Match[str]) -> str:
        path = recipe.parent / Path(_expand(match[1], words)).name
        if path not in (*above, recipe) and is_usable_name(path.name) and path.is_file():
            return _text(path, words, [*above, recipe], count)
        return ""

    return _INCLUDE.sub(included, text)


def _uris(text: str) -> list[str]:
    """Return the entries of assignments that don't depend on a machine or class, in BitBake's order."""
    first: list[str] = []
    later: list[str] = []
    for match in _ASSIGN.finditer(text):
        entries = match["value"].replace("\\\n", " ").split()
        over = [w for w in re.split(r"[:_]", match["over"]) if w]
        if over and (over[0] not in ("append", "prepend") or len(over) > 1):
            continue  # for some machines or classes only
        if over == ["append"]:
            later += entries
        elif over == ["prepend"] or match["how"] in ("=+", "=."):
            first = entries + first
        elif match["how"] in ("+=", ".="):
            first += entries
        elif match["how"] in ("?=", "??="):
            first = first or entries
        else:
            first = entries
    return first + later


def _expand(text: str, words: dict[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda m: words.get(m[1], m[0]), text)


def _find(recipe: Path, name: str, words: dict[str, str]) -> Path:
    """Return the path of a file.

    Search BitBake's ``FILESPATH``; if the file isn't there, the whole folder of the recipe for the only file with this
    name.
    """
    near = []
    if is_usable_name(name):
        for folder in (words["BP"], words["BPN"], "files", "."):
            path = recipe.parent / folder / name
            if is_file_below(recipe.parent.resolve(), path):
                return path
        for path in recipe.parent.rglob("*"):
            if fnmatch.fnmatchcase(path.name, Path(name).name) and path.is_file():
                near.append(path)
    if len(near) == 1:
        return near[0]
    raise UserError(
        f"{recipe} applies {name}, which is not next to the recipe",
        hint=f"put the patch into {recipe.parent / 'files'}",
    )
