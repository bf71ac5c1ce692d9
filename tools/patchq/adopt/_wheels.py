"""Wheels of the pinned release, and the location of their files in the source tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from patchq.build import platforms
from patchq.build.contents import WheelInfo, inspect_wheel
from patchq.errors import SourceError, UserError
from patchq.formats.lock import Pin
from patchq.project.project import Project
from patchq.replay.package import Package, Wheel, find_package
from patchq.sources import index
from patchq.stacks.edit import Loaded

#: Maximum size in bytes of a wheel's member to read. Larger members are compiled files.
_MOST_MEMBER = 16 << 20


def package_of(project: Project, loaded: Loaded, info: WheelInfo | None) -> Package:
    """Return the location of the stack's package in its source tree and in site-packages."""
    pin = loaded.stack.pin
    build = project.lock.upstreams[pin.upstream].build
    if build:
        name = build.package
        distribution = build.distribution
    else:
        name = pin.upstream.replace("-", "_")
        distribution = pin.upstream
    if info:
        version = info.version
    else:
        version = pin.archive.partition("==")[2] or pin.ref.removeprefix("v")
    return find_package(
        project.store.list_tree(loaded.state.base),
        name=name.replace(".", "/").split("/")[-1],
        distribution=canonicalize_name(distribution),
        version=version,
        wheel=_files_of(info) if info else None,
    )


def _files_of(info: WheelInfo) -> Wheel:
    folder = info.dist_info.removesuffix(".dist-info")
    names = []
    large = {}
    for name, item in info.items.items():
        if item.is_dir() or name.startswith((f"{folder}.dist-info/", f"{folder}.data/")):
            continue
        if item.file_size > _MOST_MEMBER:
            large[name] = b""
        else:
            names.append(name)
    return Wheel(files={**large, **info.read(names)})


def release_wheel(
    project: Project,
    pin: Pin,
    *,
    offline: bool,
    most: int,
    chosen: Callable[[Sequence[str]], str] | None = None,
) -> WheelInfo | None:
    """Return a wheel of the pinned release; None if the release has no wheel, or a download isn't allowed.

    :param most: maximum number of bytes to download.
    :param chosen: function that chooses one of several file names.
    """
    if not pin.wheels:
        return None
    name = (chosen or _for_this_machine)(list(pin.wheels))
    sha256 = pin.wheels[name]
    path = index.cached(sha256)
    if path is None and not offline:
        path = _download(project, pin, name, most)
    if path:
        return inspect_wheel(path)
    return None


def _for_this_machine(names: Sequence[str]) -> str:
    try:
        return platforms.choose_wheel(names, "", "")
    except UserError:
        return sorted(names)[0]


def _download(project: Project, pin: Pin, name: str, most: int) -> Path | None:
    project_name, _, version = pin.archive.partition("==")
    try:
        files = []
        for file in index.find_wheels(project_name, version):
            if file.name == name:
                files.append(file)
        if not files:
            return None
        project.say(f"{pin.upstream}: downloading {name}")
        return index.download(files[0], pin.wheels[name], project.progress, most=most)
    except SourceError as error:
        project.say(f"{pin.upstream}: {name} isn't available: {error.message}")
        return None
