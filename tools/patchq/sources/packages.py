"""Guess the distribution and the package in a source tree, for the build settings of a new upstream."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable

from patchq.formats import toml
from patchq.formats.lock import BuildConfig
from patchq.git.repository import Git
from patchq.names import CommitId

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def guess_build(distribution: str, paths: Iterable[bytes], names: Iterable[str] = (), *, released: bool) -> BuildConfig:
    """Guess the package (or the single module) of a distribution from the files of its tree.

    :param paths: paths of all files in the tree.
    :param names: names of packages in the distribution's metadata.
    :param released: True if the release has wheels, so that overlays can be built.
    """
    tops: set[bytes] = set()
    below_src: set[bytes] = set()
    modules: set[bytes] = set()
    for path in paths:
        if path.endswith(b".py") and b"/" not in path:
            modules.add(path.removesuffix(b".py"))
        *folders, name = path.removeprefix(b"src/").split(b"/")
        if name == b"__init__.py" and len(folders) == 1:
            (below_src if path.startswith(b"src/") else tops).add(folders[0])
    wanted = distribution.replace("-", "_").replace(".", "_").lower()
    found = below_src | tops - {b"tests", b"test", b"docs"}
    known = sorted(names) or sorted(top.decode("utf-8", "replace") for top in found)
    package = next((n for n in known if n.lower() == wanted), known[0] if len(known) == 1 else "")
    package = package or next((n for n in known if wanted.startswith(n.lower())), "") or wanted
    # An overlay replaces the wheel's files by the tree's files, so both must have the same paths.
    overlay = released and package.encode() in tops | modules and not below_src
    return BuildConfig(distribution=distribution, package=package, profile="overlay" if overlay else "source")


def build_of_tree(store: Git, commit: CommitId) -> BuildConfig | None:
    """Guess how to build wheels of a tree, from ``pyproject.toml`` or ``setup.cfg``.

    :returns: the build settings; None if neither file names the distribution.
    """
    entries = store.list_tree(commit)
    wanted = []
    for path in (b"pyproject.toml", b"setup.cfg"):
        if path in entries:
            wanted.append(entries[path].blob)
    contents = store.read_blobs(wanted)
    texts = {}
    for path in (b"pyproject.toml", b"setup.cfg"):
        if path in entries:
            texts[path] = contents[entries[path].blob]
    name = _name_in_pyproject(texts.get(b"pyproject.toml", b"")) or _name_in_setup(texts.get(b"setup.cfg", b""))
    if _NAME.fullmatch(name):
        return guess_build(name, entries, released=False)
    return None


def _name_in_pyproject(data: bytes) -> str:
    try:
        raw = toml.loads(data)
    except ValueError:
        return ""
    for table in (raw.get("project"), raw.get("tool", {}).get("poetry")):
        if isinstance(table, dict) and isinstance(table.get("name"), str):
            return str(table["name"])
    return ""


def _name_in_setup(data: bytes) -> str:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(data.decode("utf-8", "replace"))
    except configparser.Error:
        return ""
    return parser.get("metadata", "name", fallback="")
