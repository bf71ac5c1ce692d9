"""Location and order of other tools' patch files: a single file, a folder, or another tool's project.

These orders are supported: quilt's ``series`` (Debian, gbp, StGit's export, git-pile), Electron's
``.patches``, numbered files (``git format-patch -o``, OpenWrt, Buildroot), package recipes (``recipes/``),
and the archive of a Debian source package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from patchq.errors import FormatError, UserError
from patchq.formats.lock import Pin
from patchq.names import sh
from patchq.recipes.entries import Entry, EntryState, read_list, strip_level
from patchq.recipes.recipe import is_recipe, recipe_entries, recipe_in
from patchq.replay.limits import MOST, MOST_ALL, read_edited, too_large
from patchq.sources.archive import members, opened_archive
from patchq.stacks.export import slug

_PATCH = re.compile(r".*\.(patch|diff|mbox|eml)$", re.IGNORECASE)
_DEBIAN = re.compile(r".*\.debian\.tar\.\w+$")
_NUMBERED = re.compile(r"\d+[-_.]")


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderPlace:
    """Patch file to read, and the options of the tool that applies it.

    :ivar data: contents of the patch file, or its path.
    :ivar unlisted: name of the ``series`` or recipe that doesn't list the file, so that the import skips the file.
        Empty for all other files.
    :ivar entry: entry of the recipe that names the file.
    """

    data: bytes | Path
    where: str
    name: str
    strip: int = 1
    folder: str = ""
    origin: str = ""
    unlisted: str = ""
    entry: Entry | None = None

    def read(self) -> bytes:
        """Return the contents of the file.

        :raises FormatError: if the file is too large for a patch.
        """
        if isinstance(self.data, bytes):
            return self.data
        return read_edited(self.data)


def places(path: Path, pin: Pin) -> list[FolderPlace]:
    """Return the patch files at a path, in the order in which they apply.

    :raises UserError: if the path doesn't exist, or if the order of a folder's patches is unknown.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist", hint="name a patch, an mbox, a folder of patches, or a repository")
    if path.is_dir():
        return _in_folder(path, pin)
    if _DEBIAN.match(path.name) or path.suffix == ".dsc":
        return _debian_archive(path)
    if is_recipe(path):
        return _in_recipe(path, pin)
    return [_place(path)]


def _place(path: Path, strip: int = 1) -> FolderPlace:
    return FolderPlace(data=path, where=str(path), name=slug(path.name), strip=strip, origin=origin_of(path))


def _in_recipe(path: Path, pin: Pin) -> list[FolderPlace]:
    """Return the entries of a recipe, followed by the patch files next to them that the recipe doesn't list."""
    entries = recipe_entries(path, pin.upstream)
    found = [_entry(path, entry) for entry in entries]
    files = set()
    for place in found:
        if isinstance(place.data, Path):
            files.add(place.data.resolve())
    own = path.parent.resolve()
    folders = {file.parent: None for file in files if own in file.parents}
    named = files | {own / entry.text for entry in entries}
    for folder in folders:
        for file in _patch_files(folder):
            if file not in named:
                found.append(replace(_place(file), unlisted=path.name))
    return found


def _entry(path: Path, entry: Entry) -> FolderPlace:
    """Return the patch file that a recipe's entry names. If the recipe sets no strip level, try -p1 first."""
    if isinstance(entry.data, Path):
        file = entry.data
    else:
        file = path
    name = slug(file.name if entry.data is file else _name_of(entry) or path.stem)
    return FolderPlace(
        data=entry.data if entry.data is not None else b"",
        where=str(file) if entry.data is file else entry.where,
        name=name,
        strip=1 if entry.strip is None else entry.strip,
        folder=entry.folder,
        origin=origin_of(file),
        entry=entry,
    )


def _name_of(entry: Entry) -> str:
    """Return a short name for a recipe's entry: a command's first line, or the file name of a patch.

    Return an empty string for an inline patch.
    """
    if entry.data is not None:
        return ""
    first = entry.text.strip().partition("\n")[0]
    return first if entry.state is EntryState.EDIT else first.partition("?")[0].rstrip("/").rpartition("/")[2]


def origin_of(path: Path) -> str:
    """Return a file's path for the ``Origin:`` trailer, without folders that identify the user's machine.

    >>> origin_of(Path("../debian/patches/x.patch")), origin_of(Path("/home/me/w/up/debian/patches/x.patch"))
    ('debian/patches/x.patch', 'debian/patches/x.patch')
    """
    parts = [p for p in path.parts if p not in ("..", ".", "/")]
    return "/".join(parts[-3:] if path.is_absolute() else parts)


def _in_folder(folder: Path, pin: Pin) -> list[FolderPlace]:
    for inner in ("debian/patches", "patches"):
        if (folder / inner / "series").is_file() or (inner == "patches" and _is_openwrt(folder)):
            return _in_folder(folder / inner, pin)
    if (folder / "series").exists():
        found = _series(folder, _read_list(folder, "series"))
        return [*found, *_unlisted(folder, "series", found)]
    if (folder / ".patches").exists():
        found = []
        for line in _read_list(folder, ".patches").splitlines():
            name = line.strip()
            if name and not name.startswith("#"):
                found.append(_place(_inside(folder, ".patches", name)))
        return [*found, *_unlisted(folder, ".patches", found)]
    if (folder / "config.json").is_file():
        raise UserError(
            f"{folder} has patches for several projects: {', '.join(_electron_folders(folder))}", hint="name one folder"
        )
    if recipe := recipe_in(folder):
        return _in_recipe(recipe, pin)
    if files := _patch_files(folder):
        return list(map(_place, files))
    if (folder / ".git").exists() or (folder / "objects").is_dir():
        raise UserError(
            f"{folder} is a git repository, not a folder of patches",
            hint=f"import its commits: `patchq import {pin.upstream} {sh(folder)} --range {sh(pin.ref)}..HEAD`",
        )
    raise UserError(
        f"{folder} contains neither patches, nor a series, nor a .patches file", hint="name the patch files, in order"
    )


def _read_list(folder: Path, name: str) -> str:
    """Return the text of the file that lists a folder's patches, such as ``series``.

    A symlink to a file outside the folder is refused. Otherwise, an untrusted folder could make error
    messages quote lines of any file.

    :raises FormatError: if the list is a symlink to a file outside the folder.
    """
    if folder.resolve() not in (folder / name).resolve().parents:
        raise FormatError(
            f"{folder / name} is a link to a file outside its folder", hint="replace the link by the file itself"
        )
    return read_list(folder / name)


def _is_openwrt(folder: Path) -> bool:
    """Return True for an OpenWrt package, which has a Makefile next to a folder of numbered patches."""
    if not (folder / "Makefile").is_file():
        return False
    return any(_NUMBERED.match(path.name) for path in (folder / "patches").glob("*"))


def _electron_folders(folder: Path) -> list[str]:
    try:
        found = json.loads(read_list(folder / "config.json"))
        if isinstance(found, list):
            return [str(entry["patch_dir"]) for entry in found]
        return list(map(str, found))
    except (ValueError, TypeError, KeyError):
        return [p.parent.name for p in sorted(folder.glob("*/.patches"))]


def _series(folder: Path, text: str) -> list[FolderPlace]:
    """Return the patches that a quilt ``series`` lists, each with its own strip level (``-p``)."""
    found = []
    for line in text.splitlines():
        words = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].split()
        if not words:
            continue
        if "-R" in words[1:]:
            raise FormatError(
                f"{folder / 'series'} applies {words[0]} in reverse (-R)",
                hint="import the patches listed before it, then make this change again with `patchq new`",
            )
        found.append(_place(_inside(folder, "series", words[0]), strip_level(words[1:])))
    return found


def _unlisted(folder: Path, listed_in: str, found: Sequence[FolderPlace]) -> list[FolderPlace]:
    """Return the folder's patch files that its ``series`` or ``.patches`` doesn't list."""
    listed = set()
    for place in found:
        if isinstance(place.data, Path):
            listed.add(place.data.resolve())
    unlisted = []
    for path in _patch_files(folder):
        if path.resolve() not in listed:
            unlisted.append(replace(_place(path), unlisted=listed_in))
    return unlisted


def _patch_files(folder: Path) -> list[Path]:
    files: list[Path] = []
    for path in folder.iterdir():
        if _PATCH.match(path.name) and path.is_file():
            files.append(path)
    return sorted(files)


def _inside(folder: Path, listed_in: str, name: str) -> Path:
    file = folder / name
    if folder.resolve() not in file.resolve().parents:
        raise FormatError(
            f"{folder / listed_in} names {name}, outside its folder", hint="copy the patch into the folder"
        )
    if not file.is_file():
        raise UserError(f"{folder / listed_in} names {name}, which does not exist", hint="restore it")
    return file


def _debian_archive(path: Path) -> list[FolderPlace]:
    """Return the patches in ``debian/patches`` of a source package, read from its ``.debian.tar`` or ``.dsc``."""
    if path.suffix == ".dsc":
        names = re.findall(r"^ \S+ +\d+ +(\S+\.debian\.tar\.\w+)$", read_list(path), re.MULTILINE)
        if not names or not (path.parent / PurePosixPath(names[0]).name).is_file():
            raise UserError(
                f"{path} has no .debian.tar next to it", hint="download both files with `dget` or `apt-get source`"
            )
        path = path.parent / PurePosixPath(names[0]).name
    files: dict[str, bytes] = {}
    left = MOST_ALL
    with path.open("rb") as file, opened_archive(file, path.name) as tar:
        for member in members(tar, path.name):
            name = member.path.decode("utf-8", "replace")
            if name.startswith("patches/") and not isinstance(member.data, bytes):
                left -= member.size
                if member.size > MOST:
                    raise too_large(f"{path}: debian/{name}", f"{member.size} bytes", MOST)
                if left < 0:
                    raise too_large(f"{path}: debian/patches", f"more than {MOST_ALL} bytes", MOST_ALL)
                files[name.removeprefix("patches/")] = member.data.read()
    return _listed(path, files)


def _listed(path: Path, files: dict[str, bytes]) -> list[FolderPlace]:
    if "series" not in files:
        raise UserError(f"{path} has no debian/patches/series", hint="is it a package of format 3.0 (quilt)?")
    found: list[FolderPlace] = []
    for line in files["series"].decode("utf-8", "replace").splitlines():
        words: Sequence[str] = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].split()
        if not words:
            continue
        if words[0] not in files:
            raise UserError(f"{path}: series names {words[0]}, which does not exist", hint="get the archive again")
        where = f"{path}: debian/patches/{words[0]}"
        origin = f"{path.name}: debian/patches/{words[0]}"
        found.append(
            FolderPlace(
                data=files[words[0]],
                where=where,
                name=slug(PurePosixPath(words[0]).name),
                strip=strip_level(words[1:]),
                origin=origin,
            )
        )
    listed = {place.where for place in found}
    for name in sorted(files):
        where = f"{path}: debian/patches/{name}"
        if _PATCH.match(name) and where not in listed:
            found.append(
                FolderPlace(data=files[name], where=where, name=slug(PurePosixPath(name).name), unlisted="series")
            )
    return found
