"""Comparison of an installed release with the wheel for which a thin wheel was made.

This module is a part of thin wheels, and needs the standard library only.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
#: Maximum number of file names in a message.
_MOST_NAMES = 3


class Refused(ImportError):
    """Error for installed files that differ from the release for which the patches were made."""


class Thin:
    """Contents of this thin wheel.

    :ivar about: contents of ``thin.json``: distribution, package, version, modules and data.
    :ivar rows: SHA-256 and size of each file in the release's RECORD, by path.
    :ivar patched: SHA-256 of each patched file by its path below site-packages.
    """

    def __init__(self, about: dict[str, Any], rows: dict[str, tuple[str, int]]) -> None:
        self.about = about
        self.rows = rows
        self.patched: dict[str, str] = about["files"]

    @property
    def release(self) -> str:
        return f"{self.about['distribution']} {self.about['version']}"


def own_file(name: str) -> bytes:
    """Return the content of a file in this folder. The folder may be in a zip file."""
    loader = globals().get("__loader__")
    path = os.path.join(HERE, *name.split("/"))
    if loader is None:
        with open(path, "rb") as file:
            return file.read()
    data: bytes = loader.get_data(path)
    return data


def load() -> Thin:
    """Return the contents of the thin wheel that contains this module."""
    about = json.loads(own_file("thin.json"))
    return Thin(about, read_rows(own_file("base.csv").decode()))


def read_rows(text: str) -> dict[str, tuple[str, int]]:
    """Return the SHA-256 and size of each file in a RECORD, by path. Rows without a SHA-256 are omitted."""
    rows = {}
    for row in csv.reader(text.splitlines()):
        if len(row) == 3 and row[1].startswith("sha256="):
            rows[row[0]] = (row[1], int(row[2]) if row[2].isdigit() else -1)
    return rows


def record_hash(data: bytes) -> str:
    """Return the SHA-256 of data as RECORD spells it: ``sha256=BASE64``."""
    return encoded(hashlib.sha256(data))


def encoded(digest: Any) -> str:
    return "sha256=" + base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def check(thin: Thin, root: str, either: dict[str, str] | None = None) -> None:
    """Compare each file of the installed release with the hashes of its wheel.

    If the sizes, times and inodes of all files are the same as in an earlier comparison, no file is read
    again.

    :param root: folder in which the release is installed.
    :param either: second accepted hash of each patched file, by path.
    :raises Refused: if another version is installed, or a file differs.
    """
    _check_version(thin, root)
    _check_record(thin, root, either or {})
    stats = _stats(thin, root)
    # One file for each thin wheel: several may be installed over releases in the same folder.
    place = hashlib.sha256(f"{root}\n{HERE}".encode()).hexdigest()[:32]
    memory = os.path.join(cache_folder(), f"{place}.checked")
    key = hashlib.sha256("\n".join(stats).encode()).hexdigest()
    if either is None and _recall(memory) == key:
        return
    _check_contents(thin, root, either or {})
    if either is None:
        _remember(memory, key)


def _check_version(thin: Thin, root: str) -> None:
    info = thin.about["dist_info"]
    if os.path.isdir(os.path.join(root, info)):
        return
    prefix = info.split("-")[0].lower() + "-"
    others = []
    for name in _listed(root):
        if name.lower().startswith(prefix) and name.endswith(".dist-info"):
            others.append(name)
    found = ", ".join(name[: -len(".dist-info")] for name in others) or "no metadata"
    raise Refused(f"the patches are for {thin.release}, and {root} has {found}")


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _check_record(thin: Thin, root: str, either: dict[str, str]) -> None:
    path = os.path.join(root, thin.about["dist_info"], "RECORD")
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = read_rows(file.read())
    except (OSError, ValueError) as error:
        raise Refused(f"{path} can't be read: {error}") from None
    wrong = []
    for name, (digest, _) in thin.rows.items():
        found = rows.get(name, ("", 0))[0]
        if found not in (digest, either.get(name, digest)):
            wrong.append(name)
    if wrong:
        raise Refused(
            f"the installed {thin.release} is not the build that was patched: "
            f"{path} has other hashes for {_some(wrong)}"
        )


def _stats(thin: Thin, root: str) -> list[str]:
    """Return one line for each file, with its path, size, times and inode."""
    lines = []
    missing = []
    paths = [os.path.join(root, *name.split("/")) for name in thin.rows]
    for path in [*paths, *_own_paths(thin)]:
        try:
            found = os.stat(path)
        except OSError:
            missing.append(path)
            continue
        times = f"{found.st_mtime_ns} {found.st_ctime_ns}"
        lines.append(f"{path} {found.st_size} {times} {found.st_ino} {found.st_dev}")
    if missing:
        raise Refused(f"{thin.release}: {_some(missing)}: missing")
    return lines


def _own_paths(thin: Thin) -> dict[str, str]:
    """Return the SHA-256 of each patched file by its path; an empty dict if this wheel isn't installed."""
    if not os.path.isdir(HERE):
        return {}
    return {os.path.join(HERE, "files", *name.split("/")): digest for name, digest in thin.patched.items()}


def _check_contents(thin: Thin, root: str, either: dict[str, str]) -> None:
    wanted = []
    for name, (digest, _) in thin.rows.items():
        wanted.append((os.path.join(root, *name.split("/")), {digest, either.get(name, digest)}))
    for path, digest in _own_paths(thin).items():
        wanted.append((path, {digest}))
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = list(pool.map(_digest, [path for path, _ in wanted]))
    wrong = [path for (path, right), digest in zip(wanted, found) if digest not in right]
    if wrong:
        raise Refused(f"{thin.release}: {_some(wrong)}: changed since the release")


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError:
        return ""
    return encoded(digest)


def _some(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    if more > 0:
        return f"{shown} and {more} more"
    return shown


# Cache


def cache_folder() -> str:
    """Return the folder for results of comparisons, and for data trees."""
    own = os.environ.get("PATCHQ_THIN_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return own or os.path.join(base, "patchq-thin")


def _recall(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, ValueError):
        return ""


def _remember(path: str, key: str) -> None:
    """Write a file to the cache. If the cache isn't writable, each process compares all files again."""
    temporary = ""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(key)
        os.replace(temporary, path)
    except OSError:
        # The rest of a failed write is removed if possible; an import must not fail because of it.
        try:
            os.unlink(temporary)
        except OSError:
            pass


def say(error: Exception) -> None:
    """Print the reason why an import fails, because a caller may catch the ImportError and hide it."""
    if sys.stderr is not None:
        sys.stderr.write(f"patchq: {error}\n")
