"""Write the patched files of a thin wheel over an installed release.

Run this module from the wheel, which needs no installation: ``python WHEEL/_patchq_thin_PACKAGE``.
Afterwards, the installed files are the same as if the full wheel had been installed. An interrupted run can
be repeated.

This module is a part of thin wheels, and needs the standard library only.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import shutil
import sys
import tempfile
from typing import Any

if __package__:
    from . import _base
else:  # run as a folder or from a zip file
    import _base  # type: ignore[import-not-found, no-redef]

#: Metadata about the wheel file of the release, which doesn't apply to the patched files.
_DROPPED = {"direct_url.json", "RECORD.jws", "RECORD.p7s"}


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(description="Write patched files over an installed release.")
    parser.add_argument("--root", help="folder in which the release is installed; default: its folder on sys.path")
    parser.add_argument("--check", action="store_true", help="check the release, and write nothing")
    options = parser.parse_args()
    thin = _base.load()
    label = f"{thin.about['distribution']} {thin.about['patched_version']}"
    try:
        root = options.root or _find_root(thin)
        if os.path.isdir(os.path.join(root, thin.about["patched_info"])) and not _old_info(thin, root):
            print(f"{root}: {label} is already installed")
            return 0
        _base.check(thin, root, either=thin.patched)
        count = f"{len(thin.about['patches'])} of {len(thin.about['patches']) + len(thin.about['left_out'])} patches"
        if options.check:
            print(f"{root}: {thin.release} can take {count}")
            return 0
        place(thin, root)
        print(f"{root}: {label}, {count}")
        for name in thin.about["left_out"]:
            print(f"    not in this wheel, as it must be compiled: {name}")
    except (_base.Refused, OSError) as error:
        print(f"patchq: {error}", file=sys.stderr)
        return 1
    return 0


def _old_info(thin: _base.Thin, root: str) -> bool:
    return os.path.isdir(os.path.join(root, thin.about["dist_info"]))


def _find_root(thin: _base.Thin) -> str:
    for folder in sys.path[1:]:
        for info in (thin.about["dist_info"], thin.about["patched_info"]):
            if os.path.isdir(os.path.join(folder, info)):
                return os.path.realpath(folder)
    raise _base.Refused(f"{thin.release} isn't installed for {sys.executable}; pass its folder with --root")


def place(thin: _base.Thin, root: str) -> None:
    """Write the patched files, followed by the metadata of the full wheel."""
    gone = []
    for name in thin.patched:
        if name.endswith(".py"):
            gone += _remove_caches(root, name)
        _write(os.path.join(root, *name.split("/")), _base.own_file(f"files/{name}"))
    _write_info(thin, root, set(gone))


def _remove_caches(root: str, name: str) -> list[str]:
    """Remove the bytecode caches of a module; return their paths as in RECORD."""
    folder, base = os.path.split(name)
    stem = base[: -len(".py")] + "."
    caches = os.path.join(root, *folder.split("/"), "__pycache__")
    removed = []
    for entry in os.listdir(caches) if os.path.isdir(caches) else ():
        if entry.startswith(stem) and entry.endswith(".pyc"):
            os.unlink(os.path.join(caches, entry))
            removed.append(f"{folder}/__pycache__/{entry}")
    return removed


def _write(path: str, data: bytes) -> None:
    """Replace a file atomically. Its permissions are kept."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    mode = 0o644
    if os.path.exists(path):
        mode = os.stat(path).st_mode & 0o7777
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _write_info(thin: _base.Thin, root: str, gone: set[str]) -> None:
    """Write the metadata folder of the full wheel, and remove the release's metadata folder."""
    old, new = (os.path.join(root, thin.about[key]) for key in ("dist_info", "patched_info"))
    with open(os.path.join(old, "RECORD"), encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    temporary = tempfile.mkdtemp(dir=root, prefix=".patchq-")
    try:
        os.chmod(temporary, 0o755)
        for entry in sorted(set(os.listdir(old)) - _DROPPED - {"RECORD"}):
            source = os.path.join(old, entry)
            copy: Any
            if os.path.isdir(source):
                copy = shutil.copytree
            else:
                copy = shutil.copyfile
            copy(source, os.path.join(temporary, entry))
        for name in thin.about["info"]:
            _write(os.path.join(temporary, *name.split("/")), _base.own_file(f"info/{name}"))
        record = _record(thin, rows, gone, temporary)
        _write(os.path.join(temporary, "RECORD"), record)
        if os.path.isdir(new):
            shutil.rmtree(new)
        os.rename(temporary, new)
        # Renamed first: a half removed folder would look like a damaged release.
        os.rename(old, temporary)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _record(thin: _base.Thin, rows: list[list[str]], gone: set[str], info: str) -> bytes:
    """Return the installed RECORD, updated for the patched files and the new metadata."""
    old = thin.about["dist_info"] + "/"
    kept = []
    for row in rows:
        if not row[0].startswith(old) and row[0] not in thin.patched and row[0] not in gone:
            kept.append(row)
    for name, digest in thin.patched.items():
        kept.append([name, digest, str(len(_base.own_file(f"files/{name}")))])
    new = thin.about["patched_info"]
    for folder, _, names in os.walk(info):
        for name in sorted(names):
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                data = file.read()
            inner = os.path.relpath(path, info).replace(os.sep, "/")
            if inner != "RECORD":
                kept.append([f"{new}/{inner}", _base.record_hash(data), str(len(data))])
    kept.append([f"{new}/RECORD", "", ""])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(kept)
    return out.getvalue().encode()


if __name__ == "__main__":
    sys.exit(main())
