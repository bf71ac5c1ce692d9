"""Installed files of a package, and the files of the source tree from which they were installed."""

from __future__ import annotations

import copy
import os
import re
import stat
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from patchq.formats.diff import GITLINK
from patchq.git.objects import blob_id
from patchq.git.repository import Git, copy_tree
from patchq.names import CommitId, TreeId, show_path
from patchq.replay.limits import read_edited, walk_edited

#: Folders and modules of a source tree that wheels don't contain.
_NOT_INSTALLED = frozenset(
    "tests test testing docs doc examples example benchmarks benchmark scripts tools setup.py conftest.py noxfile.py "  # noqa: SIM905
    "tasks.py".split()
)
#: Folders that may contain a package's folder, in order of preference.
_PREFIXES = ("", "src", "python", "lib")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """Files that the release's wheel installs in site-packages: contents by path."""

    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Location of a package in its source tree and in site-packages.

    :ivar distribution: canonical name of the distribution.
    :ivar version: installed version; empty if unknown.
    :ivar prefix: folder of the tree that contains ``tops``; empty for the root.
    :ivar tops: names of the package's folders and modules in site-packages.
    :ivar wheel: release's wheel, if it is available.
    """

    distribution: str
    version: str
    prefix: str
    tops: frozenset[str]
    wheel: Wheel | None = None

    def tree_path(self, name: str) -> str:
        """Return the path that a file in site-packages has in the source tree."""
        if self.prefix:
            return f"{self.prefix}/{name}"
        return name

    def owns(self, name: str) -> bool:
        """Return True if a file in site-packages belongs to the package."""
        return name.split("/", 1)[0] in self.tops


def find_package(
    files: Mapping[bytes, object], *, name: str, distribution: str, version: str, wheel: Wheel | None = None
) -> Package:
    """Return the location of a package, given the files of its source tree.

    :param files: files of the tree, by path.
    :param name: import name of the package.
    """
    paths = [path.decode("utf-8", "surrogateescape") for path in files]
    if wheel:
        tops = frozenset(path.split("/", 1)[0] for path in wheel.files)
        prefix = _most_common_prefix(wheel.files, set(paths))
    else:
        prefix, tops = _guess(paths, name.split(".")[0])
    return Package(distribution=distribution, version=version, prefix=prefix, tops=tops, wheel=wheel)


def _most_common_prefix(names: Iterable[str], paths: Collection[str]) -> str:
    ends: dict[str, list[str]] = {}
    for path in paths:
        ends.setdefault(path.rsplit("/", 1)[-1], []).append(path)
    votes: dict[str, int] = {}
    for name in names:
        for path in ends.get(name.rsplit("/", 1)[-1], []):
            if path == name or path.endswith("/" + name):
                prefix = path[: -len(name)].rstrip("/")
                votes[prefix] = votes.get(prefix, 0) + 1
    return max(sorted(votes), key=lambda prefix: votes[prefix], default="")


def _guess(paths: Collection[str], name: str) -> tuple[str, frozenset[str]]:
    """Return the prefix and tops of a package, guessed from the layouts that projects commonly use."""
    below = {prefix: _tops_below(paths, prefix) for prefix in _PREFIXES}
    for prefix, tops in below.items():
        if name in tops or f"{name}.py" in tops:
            return prefix, frozenset(tops)
    prefix = ""
    if below["src"]:
        prefix = "src"
    return prefix, frozenset(below[prefix])


def _tops_below(paths: Collection[str], prefix: str) -> set[str]:
    start = ""
    if prefix:
        start = f"{prefix}/"
    found = set()
    for path in paths:
        if not path.startswith(start) or not re.search(r"\.pyi?$", path):
            continue
        top = path[len(start) :].split("/", 1)[0]
        if top not in _NOT_INSTALLED and top not in _PREFIXES and not top.startswith("."):
            found.add(top)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageChanges:
    """Changes that a step made in a site-packages folder.

    :ivar tree: source tree with the step's changes. It includes only files that come from the source tree.
    :ivar generated: changed files of the package that don't come from the source tree.
    :ivar others: added, changed or removed files that don't belong to the package.
    """

    tree: TreeId
    generated: tuple[str, ...]
    others: tuple[str, ...]


class SitePackages:
    """Site-packages folder with the installed files of a package.

    :ivar base: tree of the release, without the stack's patches.
    """

    def __init__(self, store: Git, package: Package, base: TreeId, folder: Path) -> None:
        self.store, self.package, self.folder = store, package, folder
        #: Installed files that the tree doesn't have, or has with other content.
        self.generated: set[str] = set()
        #: Files of the release's tree that its wheel doesn't have.
        self.hidden: set[str] = set()
        #: Mode and blob of the files that don't come from the tree.
        self._others: dict[str, tuple[bytes, str]] = {}
        if package.wheel:
            self._compare(base, package.wheel)

    def _compare(self, base: TreeId, wheel: Wheel) -> None:
        tree = self._below_prefix(base)
        for name, data in wheel.files.items():
            known = tree.get(name)
            if known is None or known[1] != blob_id(data):
                self.generated.add(name)
        self.hidden = {name for name in tree if name not in wheel.files}

    def copy_to(self, folder: Path) -> SitePackages:
        """Return a copy of this object for ``folder``. The caller must have copied the files already."""
        new = copy.copy(self)
        new.folder = folder
        new._others = dict(self._others)
        return new

    def fill(self, tree: CommitId | TreeId) -> None:
        """Write the files of a source tree as they would be installed. The folder must not exist."""
        with tempfile.TemporaryDirectory(prefix="patchq-", dir=self.folder.parent) as text:
            whole = Path(text) / "tree"
            copy_tree(self.store, tree, whole)
            self.folder.mkdir()
            for top in sorted(self.package.tops):
                source = whole / self.package.prefix / top
                if os.path.lexists(source):
                    source.rename(self.folder / top)
        for key in list(walk_edited(self.folder, "")):
            if os.fsdecode(key) in self.hidden:
                (self.folder / os.fsdecode(key)).unlink()
        for name in sorted(self.generated):
            assert self.package.wheel
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.package.wheel.files[name])
        self._write_metadata()
        self._others = self._seen_others()

    def _write_metadata(self) -> None:
        """Write the metadata (``.dist-info``) by which programs find the package."""
        name, version = self.package.distribution, self.package.version or "0"
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "INSTALLER").write_text("pip\n")
        rows = [f"{os.fsdecode(key)},,\n" for key in walk_edited(self.folder, "")]
        (info / "RECORD").write_text("".join(rows))

    def _is_of_tree(self, name: str) -> bool:
        return self.package.owns(name) and name not in self.generated

    def _seen_others(self, where: str = "") -> dict[str, tuple[bytes, str]]:
        found: dict[str, tuple[bytes, str]] = {}
        for key in walk_edited(self.folder, where):
            name = os.fsdecode(key)
            if not self._is_of_tree(name) and not _is_cache(name):
                mode, data = read_file(self.folder / name)
                found[name] = (mode, blob_id(data))
        return found

    def read(self, before: TreeId, where: str) -> PackageChanges:
        """Return the changes of the folder since the tree ``before``.

        :param where: location of the step that made the changes.
        :raises UserError: if folders are nested too deeply, or a file is too large.
        """
        old = {}
        for name, entry in self._below_prefix(before).items():
            if self._is_of_tree(name) and name not in self.hidden:
                old[name] = entry
        present = set()
        lines = []
        for key in walk_edited(self.folder, where):
            name = os.fsdecode(key)
            if not self._is_of_tree(name) or _is_cache(name):
                continue
            mode, data = read_file(self.folder / name)
            if not mode:
                continue
            present.add(name)
            blob = blob_id(data)
            if old.get(name) != (mode, blob):
                self.store.run("hash-object", "-w", "--stdin", data=data)
                lines.append(index_line(mode, blob, self.package.tree_path(name)))
        gone = [index_line(b"0", "0" * 40, self.package.tree_path(name)) for name in sorted(old.keys() - present)]
        tree = with_lines(self.store, before, [*gone, *lines])
        now = self._seen_others(where)
        names = sorted(name for name in now.keys() | self._others.keys() if now.get(name) != self._others.get(name))
        self._others = now
        return PackageChanges(
            tree=tree,
            generated=tuple(_shown(name) for name in names if self.package.owns(name)),
            others=tuple(_shown(name) for name in names if not self.package.owns(name)),
        )

    def _below_prefix(self, tree: TreeId) -> dict[str, tuple[bytes, str]]:
        """Return mode and blob of the tree's files that may be installed, by their paths in site-packages."""
        found = {}
        start = ""
        if self.package.prefix:
            start = f"{self.package.prefix}/"
        for path, entry in self.store.list_tree(tree).items():
            text = os.fsdecode(path)
            name = text[len(start) :]
            if text.startswith(start) and self.package.owns(name) and entry.mode != GITLINK:
                found[name] = (entry.mode, str(entry.blob))
        return found


def _is_cache(name: str) -> bool:
    return name.endswith(".pyc") or "__pycache__" in name.split("/")


def _shown(name: str) -> str:
    return show_path(os.fsencode(name))


def read_file(path: Path) -> tuple[bytes, bytes]:
    """Return the mode and content of a file or link; an empty mode for other kinds of files."""
    about = os.lstat(path).st_mode
    if stat.S_ISLNK(about):
        return b"120000", os.fsencode(os.readlink(path))
    if stat.S_ISREG(about):
        return b"100755" if about & 0o100 else b"100644", read_edited(path)
    return b"", b""


def index_line(mode: bytes, blob: str, name: str) -> bytes:
    return b"%s %s\t%s\0" % (mode, blob.encode(), os.fsencode(name))


def with_lines(store: Git, tree: TreeId, lines: list[bytes]) -> TreeId:
    """Return a tree after making changes that are given as input of ``git update-index --index-info``."""
    if not lines:
        return tree
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        env = {"GIT_INDEX_FILE": str(Path(text) / "index")}
        store.run("read-tree", tree, env=env)
        store.run("update-index", "-z", "--index-info", data=b"".join(lines), env=env)
        return TreeId(store.run("write-tree", env=env).decode().strip())
