"""Patches of a Yocto recipe: the entries of ``SRC_URI``, in order, with their parameters.

The recipe is read as text, not run. Entries that Python code or classes add are missing, and
assignments for some machines or classes only are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.adopt.limits import MOST_INCLUDED, read_list, too_large
from patchq.errors import UserError

_ASSIGN = re.compile(
    r"^SRC_URI(?P<over>(?:[:_][\w-]+(?::[\w-]+)*)?)\s*(?P<how>\?\?=|\?=|:=|\+=|=\+|\.=|=\.|=)\s*\"(?P<value>[^\"]*)\"",
    re.MULTILINE,
)
_INCLUDE = re.compile(r"^(?:require|include)\s+(\S+\.inc)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RecipePatch:
    """Patch of a recipe, with its ``striplevel`` and ``patchdir``."""

    path: Path
    strip: int
    folder: str


def recipe_patches(recipe: Path) -> list[RecipePatch]:
    """Return the patches that a recipe's ``SRC_URI`` applies.

    :raises UserError: if a patch isn't next to the recipe, or the recipe applies none.
    """
    name, _, version = recipe.stem.partition("_")
    words = {"PN": name, "BPN": name, "PV": version, "BP": f"{name}-{version}", "P": f"{name}-{version}"}
    found = []
    for entry in _uris(_text(recipe, words, [])):
        scheme, _, rest = entry.partition("://")
        path, *parameters = rest.split(";")
        given = dict(p.partition("=")[::2] for p in parameters)
        if scheme != "file" or given.get("apply") in ("no", "0"):
            continue
        if not path.endswith((".patch", ".diff")) and given.get("apply") not in ("yes", "1"):
            continue
        folder = re.sub(r"^\$\{S\}/?|^\$\{(?:WORKDIR|UNPACKDIR)\}/git/?", "", given.get("patchdir", "")).strip("/")
        if "$" in folder or ".." in folder.split("/"):
            raise UserError(f"{recipe}: patchdir={folder} of {path} can't be read", hint="--directory, patch by patch")
        level = given.get("striplevel", "1")
        if not re.fullmatch(r"\d{1,2}", level):
            raise UserError(f"{recipe}: striplevel={level} of {path} is no number", hint="-p N, patch by patch")
        found.append(RecipePatch(_find(recipe, _expand(path, words), words), int(level), folder))
    if not found:
        raise UserError(f"{recipe} applies no patches", hint="name the .bbappend or the patches themselves")
    return found


def _text(recipe: Path, words: dict[str, str], above: Sequence[Path], count: list[Path] | None = None) -> str:
    """Return the text of a recipe with its includes expanded.

    :param above: recipes that include this one.
    :param count: all files read so far.
    """
    count = [] if count is None else count
    count.append(recipe)
    if len(count) > MOST_INCLUDED:
        raise too_large(str(count[0]), f"more than {MOST_INCLUDED} includes", MOST_INCLUDED)
    text = re.sub(r"^#.*\n", "", read_list(recipe), flags=re.MULTILINE)

    def included(match: re.Match[str]) -> str:
        path = recipe.parent / Path(_expand(match[1], words)).name
        return _text(path, words, [*above, recipe], count) if path not in (*above, recipe) and path.is_file() else ""

    return _INCLUDE.sub(included, text)


def _uris(text: str) -> list[str]:
    """Return the entries of all assignments that every build makes, in BitBake's order."""
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
    """Return a file from BitBake's ``FILESPATH``, or the only file of its name below the recipe."""
    for folder in (words["BP"], words["BPN"], "files", "."):
        path = recipe.parent / folder / name
        if path.is_file() and recipe.parent.resolve() in path.resolve().parents:
            return path
    near = [p for p in recipe.parent.rglob(Path(name).name) if p.is_file()]
    if len(near) == 1:
        return near[0]
    raise UserError(f"{recipe} applies {name}, which is not beside it", hint=f"put it into {recipe.parent / 'files'}")
