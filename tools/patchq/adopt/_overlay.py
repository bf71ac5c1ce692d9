"""Import edited files into a stack, from a container's overlay folder or an installed package."""

from __future__ import annotations

import base64
import csv
import os
import stat
import tempfile
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

from patchq.adopt.found import FoundPatch
from patchq.errors import UserError
from patchq.formats.treepath import is_tree_path
from patchq.git.repository import Git
from patchq.names import TreeId, show_path
from patchq.replay.limits import read_edited, walk_edited
from patchq.stacks.export import slug
from patchq.system import fsio

#: Names of files and folders that tools create. They are never imported.
_NOT = {".git", "__pycache__", ".DS_Store"}


def from_overlay(store: Git, base: TreeId, folder: Path, under: str = "") -> FoundPatch:
    """Return the change that a folder's files make when they replace files of the pinned tree.

    Other files of the tree stay unchanged.

    :param under: folder of the tree to which the files belong. If empty, patchq finds it by matching file names.
    :raises UserError: if no folder or several folders of the tree fit, or if the files change nothing.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder", hint="--overlay DIR names the folder of your changed files")
    files = {}
    for name in walk_edited(folder, str(folder)):
        path = folder / os.fsdecode(name)
        if _is_file(path, folder):
            files[name] = path
    if not files:
        raise UserError(f"{folder} holds no files", hint="--overlay DIR names the folder of your changed files")
    known = store.list_tree(base)
    if under:
        cut, prefix = (0, under.strip("/").encode())
    else:
        cut, prefix = _place(folder, files, known)
    placed: dict[bytes, Path] = {}
    outside = []
    for name, path in files.items():
        if name.count(b"/") >= cut:
            placed[_moved(name, cut, prefix)] = path
        else:
            outside.append(show_path(name))
    after = put_over(store, base, placed)
    notes = []
    if prefix or cut:
        notes = [f"the files of {folder} replace those of {prefix.decode() or 'the whole tree'}"]
    if outside:
        notes += [f"left out, because the tree has no such folder: {', '.join(outside[:5])}"]
    if after == base:
        raise UserError(
            f"{folder} changes nothing: its files are the same as in the pinned release",
            hint="are the files from another release?",
        )
    return FoundPatch(
        name=slug(folder.resolve().name),
        where=str(folder),
        author=None,
        message="",
        trees=(base, after),
        origin=f"files of {folder.name}",
        notes=tuple(notes),
    )


def _is_file(path: Path, folder: Path) -> bool:
    if _NOT.intersection(path.relative_to(folder).parts) or path.suffix == ".pyc":
        return False
    mode = path.lstat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _moved(name: bytes, cut: int, prefix: bytes) -> bytes:
    rest = b"/".join(name.split(b"/")[cut:])
    if prefix:
        return prefix + b"/" + rest
    return rest


def _place(folder: Path, files: Collection[bytes], known: Collection[bytes]) -> tuple[int, bytes]:
    """Return how many folders to strip, and which prefix to add, so that most files exist in the tree.

    :raises UserError: if no location fits, or several fit equally well.
    """
    tails: dict[bytes, list[bytes]] = {}
    for path in known:
        tails.setdefault(path.rsplit(b"/", 1)[-1], []).append(path)
    votes: dict[tuple[int, bytes], int] = {}
    for name in files:
        for path in tails.get(name.rsplit(b"/", 1)[-1], []):
            ours, theirs = name.split(b"/"), path.split(b"/")
            same = 0
            while same < min(len(ours), len(theirs)) and ours[-same - 1] == theirs[-same - 1]:
                same += 1
            place = (len(ours) - same, b"/".join(theirs[: len(theirs) - same]))
            votes[place] = votes.get(place, 0) + 1
    best = sorted(votes, key=lambda p: (-votes[p], p[0], len(p[1])))
    if not best:
        raise UserError(
            f"the tree has none of the files in {folder}",
            hint="set the tree's folder for these files with --directory DIR",
        )
    if len(best) > 1 and votes[best[0]] == votes[best[1]] and best[0] != (0, b""):
        names = ", ".join(show_path(p[1]) or "the tree itself" for p in best[:3])
        raise UserError(
            f"the files of {folder} may belong to several folders of the tree: {names}",
            hint="choose a folder with --directory DIR",
        )
    return best[0]


def put_over(store: Git, base: TreeId, files: Mapping[bytes, Path]) -> TreeId:
    """Return the tree ``base`` with the given files added or replaced. A replaced file keeps its mode."""
    known = store.list_tree(base)
    placed: dict[bytes, tuple[bytes, bytes]] = {}
    for path, file in files.items():
        if not is_tree_path(path):
            raise UserError(f"{show_path(path)} can't be stored in a git tree", hint="remove it from the folder")
        if file.is_symlink():
            placed[path] = b"120000", os.fsencode(os.readlink(file))
            continue
        old = known.get(path)
        new = b"100644"
        if file.stat().st_mode & 0o100:
            new = b"100755"
        # Copying files to or from a container may change their modes.
        placed[path] = old.mode if old and old.mode in (b"100644", b"100755") else new, read_edited(file)
    return tree_with(store, base, placed)


def tree_with(store: Git, base: TreeId, files: Mapping[bytes, tuple[bytes, bytes]]) -> TreeId:
    """Return the tree ``base`` with the given files, each with its mode and content."""
    lines = []
    for path, (mode, data) in files.items():
        blob = store.run("hash-object", "-w", "--stdin", data=data).strip()
        lines.append(b"%s %s\t%s\0" % (mode, blob, path))
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        env = {"GIT_INDEX_FILE": str(Path(text) / "index")}
        store.run("read-tree", base, env=env)
        store.run("update-index", "-z", "--index-info", data=b"".join(lines), env=env)
        return TreeId(store.run("write-tree", env=env).decode().strip())


def from_site_packages(store: Git, base: TreeId, folder: Path, package: str) -> FoundPatch:
    """Return the edits of an installed package: files that differ from its RECORD, and added modules.

    :param folder: ``site-packages`` or ``dist-packages`` folder that the package is installed in.
    :raises UserError: if the package isn't installed, or has no edits.
    """
    found = _installed(folder, package)
    listed = _recorded(found, folder, package)
    names = _edited_names(listed, folder, package)
    if not names:
        raise UserError(
            f"{package} in {folder} matches its installed files", hint="is it the environment that was edited?"
        )
    _refuse_outside(names, folder)
    edited = {os.fsencode(name): folder / name for name in names}
    if edited.keys().isdisjoint(store.list_tree(base)):
        edited = {b"src/" + name: path for name, path in edited.items()}
    after = put_over(store, base, edited)
    notes = [f"edited files of {package} {found.version}: {', '.join(names[:8])}"]
    if gone := _missing_modules(listed, folder):
        notes += [f"not installed, but kept in the tree: {', '.join(gone[:5])}"]
    if after == base:
        raise UserError(f"the pinned tree already has the edits of {package} in {folder}", hint="nothing to adopt")
    origin = f"{package} {found.version}, as installed and edited"
    return FoundPatch(
        name=f"{slug(package)}-as-edited",
        where=str(folder),
        author=None,
        message="",
        trees=(base, after),
        origin=origin,
        notes=tuple(notes),
    )


def _recorded(found: Distribution, folder: Path, package: str) -> dict[str, str]:
    """Return the digest of each file in an installed package's RECORD.

    :raises UserError: if RECORD is missing or malformed.
    """
    record = found.read_text("RECORD") or ""
    try:
        listed = {}
        for row in csv.reader(record.splitlines()):
            if len(row) > 1:
                listed[row[0]] = row[1]
    except csv.Error as error:
        raise UserError(f"{package} in {folder} has an invalid RECORD: {error}", hint="--overlay DIR") from None
    if not listed:
        raise UserError(f"{package} in {folder} has no RECORD", hint="--overlay DIR imports whole files without RECORD")
    return listed


def _edited_names(listed: Mapping[str, str], folder: Path, package: str) -> list[str]:
    """Return the names of a package's edited files and added modules, without metadata files."""
    edited = set()
    for name, digest in listed.items():
        if digest and _differs(folder / name, digest):
            edited.add(name)
    names = []
    for name in sorted(edited | _added_modules(listed, folder, package)):
        if not name.split("/", 1)[0].endswith(".dist-info"):
            names.append(name)
    return names


def _added_modules(listed: Mapping[str, str], folder: Path, package: str) -> set[str]:
    """Return the modules in the package's folders that RECORD doesn't list."""
    tops = set()
    for name in listed:
        if name.endswith(".py") and "/" in name:
            tops.add(name.split("/", 1)[0])
    added = set()
    for top in tops:
        if not (folder / top).is_dir():
            continue
        for name in map(os.fsdecode, walk_edited(folder / top, package)):
            if name.endswith(".py") and f"{top}/{name}" not in listed and _is_file(folder / top / name, folder):
                added.add(f"{top}/{name}")
    return added


def _missing_modules(listed: Mapping[str, str], folder: Path) -> list[str]:
    gone = []
    for name in listed:
        if name.endswith(".py") and not (folder / name).exists():
            gone.append(name)
    return gone


def _refuse_outside(names: Sequence[str], folder: Path) -> None:
    """Raise UserError if a symlink to a folder leads out of ``folder``.

    A symlink to a file is imported as a symlink, but a symlink to a folder is followed.
    """
    real = folder.resolve()
    for name in names:
        there = (folder / name).parent.resolve()
        if there != real and real not in there.parents:
            raise UserError(
                f"{show_path(os.fsencode(name))} is in a folder that is a link to a place outside of {folder}",
                hint="copy the edited files into a folder, and import it with --overlay",
            )


def _installed(folder: Path, package: str) -> Distribution:
    wanted = slug(package)
    for found in distributions(path=[str(folder)]):
        if slug(found.metadata["Name"] or "") == wanted:
            return found
    raise UserError(
        f"{folder} has no {package}", hint="name its site-packages folder, which `python -m pip show NAME` prints"
    )


def _differs(path: Path, digest: str) -> bool:
    """Return True if a file's SHA-256 differs from the hash in RECORD.

    Return False if the file is missing, or if RECORD uses another hash algorithm.
    """
    kind, _, value = digest.partition("=")
    if kind != "sha256" or not path.is_file():
        return False
    there = base64.urlsafe_b64encode(bytes.fromhex(fsio.sha256_file(path))).rstrip(b"=").decode()
    return there != value
