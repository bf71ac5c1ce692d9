"""Small packages in three layouts: source tree, installed files and wheels, all written by hand."""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from kit import git, new_repository

#: Folder of the package in the stand-in for an image.
SITE = f"/opt/venv/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"

_CODE = {
    # The dependency is missing, as when a package is edited before its dependencies are installed.
    "widget/__init__.py": b"import no_such_dependency\n\nfrom widget import settings\n",
    "widget/settings.py": b"TIMEOUT = 10\nWORKERS = 4\n\n\nPROXY = None\n\n\nLEVEL = 'INFO'\n",
    "widget/client.py": b"from widget import settings\n\n\ndef fetch(url):\n    return url, settings.TIMEOUT\n",
    "widget/sub/__init__.py": b"",
    "widget/sub/deep.py": b"VALUE = 1\nNAME = 'deep'\n",
    "widget/data.json": b'{"a": 1}\n',
}
_SPEED = f"widget/_speed.cpython-{sys.version_info[0]}{sys.version_info[1]}-x86_64-linux-gnu.so"


@dataclass(frozen=True)
class Layout:
    """A layout: the source tree, and the files that its wheel installs."""

    name: str
    tree: dict[str, bytes]
    wheel: dict[str, bytes]


def layouts() -> list[Layout]:
    other = {"README.md": b"# widget\n", "tests/test_it.py": b"TIMEOUT = 10\n", "setup.py": b"import setuptools\n"}
    compiled = {**_CODE, "widget/_speed.c": b"/* TIMEOUT = 10 */\n", "csrc/kernel.cu": b"// TIMEOUT\n"}
    built = {_SPEED: b"\x7fELF\x00compiled", "widget/_version.py": b"version = '1.0'\n"}
    return [
        Layout("flat", {**_CODE, **other}, _CODE),
        Layout("src", {**{f"src/{name}": data for name, data in _CODE.items()}, **other}, _CODE),
        Layout("compiled", {**compiled, **other}, {**_CODE, **built}),
    ]


def write_repository(layout: Layout, folder: Path) -> str:
    """Make a repository of a source tree, and return its commit."""
    write(folder, layout.tree)
    new_repository(folder)
    return git(folder, "rev-parse", "HEAD")


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def installed(layout: Layout, version: str = "1.0") -> dict[str, bytes]:
    """Return what pip leaves in site-packages."""
    return _with_metadata("widget", version, layout.wheel, {"INSTALLER": b"pip\n"})


def write_wheels(layout: Layout, folder: Path) -> None:
    """Write the wheels that pip can find: this release, the next one, and packages that need it or don't."""
    folder.mkdir(parents=True)
    newer = {**layout.wheel, "widget/settings.py": b"TIMEOUT = 20\n", "widget/new.py": b"NEW = 1\n"}
    _write_wheel(folder, "widget", "1.0", layout.wheel)
    _write_wheel(folder, "widget", "1.1", newer)
    _write_wheel(folder, "needy", "1.0", {"needy.py": b""}, requires="widget==1.1")
    _write_wheel(folder, "modest", "1.0", {"modest.py": b""})


def _write_wheel(folder: Path, name: str, version: str, files: dict[str, bytes], requires: str = "") -> None:
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, data in _with_metadata(name, version, files, {}, requires).items():
            wheel.writestr(path, data)


def _with_metadata(
    name: str, version: str, files: dict[str, bytes], more: dict[str, bytes], requires: str = ""
) -> dict[str, bytes]:
    info = f"{name}-{version}.dist-info"
    need = f"Requires-Dist: {requires}\n" if requires else ""
    found = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{need}".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **{f"{info}/{key}": data for key, data in more.items()},
    }
    rows = []
    for path, data in found.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}\n")
    return {**found, f"{info}/RECORD": ("".join(rows) + f"{info}/RECORD,,\n").encode()}
