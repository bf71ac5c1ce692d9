"""Target machines of wheels, named as by ``uname -m``.

The architecture of this machine may be one that patchq doesn't know.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from patchq.build.job import Job
from patchq.errors import BuildError, UserError
from patchq.formats.lock import BuildConfig, Pin
from patchq.names import sh
from patchq.sources import index

#: Linux machines that upstreams build wheels for.
KNOWN = ("aarch64", "x86_64")
#: Platform of wheels for any machine.
ANY = "any"
#: Minor version of the newest glibc to assume on another machine, whose glibc is unknown.
_GLIBC = 39


def here() -> str:
    """Return the architecture of this machine, such as ``x86_64``."""
    return os.uname().machine


def parse(text: str) -> tuple[str, ...]:
    """Return the platforms that ``--platform`` names, without duplicates; an empty tuple for an empty string.

    :raises UserError: if no wheels are built for a platform.
    """
    names: dict[str, None] = {}
    for name in map(str.strip, text.split(",")):
        if name and name not in KNOWN:
            raise UserError(f"no wheels are made for the platform {name!r}", hint=f"--platform {','.join(KNOWN)}")
        if name:
            names[name] = None
    return tuple(names)


def of_wheel(name: str) -> str:
    """Return the platform in a wheel's file name.

    The platform is ``any``, ``aarch64`` or ``x86_64``. For other platforms, it is the whole tag.

    >>> of_wheel("x-1-cp38-abi3-manylinux_2_31_aarch64.whl"), of_wheel("x-1-py3-none-any.whl")
    ('aarch64', 'any')
    """
    tag = name.removesuffix(".whl").rpartition("-")[2]
    return next((known for known in KNOWN if tag.endswith(f"_{known}")), tag)


def choose_wheel(names: Sequence[str], tag: str, platform: str) -> str:
    """Return the file name of the release wheel for a platform (default: this machine and its Python).

    :param tag: part of a file name; if given, choose the wheel whose name contains it.
    :raises UserError: if no wheel matches, or several contain ``tag``.
    """
    from packaging.tags import Tag, compatible_tags, cpython_tags, sys_tags
    from packaging.utils import parse_wheel_filename

    if tag:
        found = [n for n in names if tag in n]
        if len(found) != 1:
            raise UserError(
                f"{len(found)} release wheels have {tag!r} in their name",
                hint=f"the release wheels are {', '.join(names)}",
            )
        return found[0]
    tags: list[Tag] = list(sys_tags())
    if platform and platform != here():
        version = sys.version_info[:2]
        linux = [f"manylinux_2_{minor}_{platform}" for minor in range(_GLIBC, 4, -1)]
        linux += [f"manylinux2014_{platform}", f"linux_{platform}"]
        tags = [*cpython_tags(version, platforms=linux), *compatible_tags(version, platforms=linux)]
    order = {t: i for i, t in enumerate(tags)}
    fitting = []
    for name in names:
        if ranks := [order[t] for t in parse_wheel_filename(name)[3] if t in order]:
            fitting.append((min(ranks), name))
    if not fitting:
        raise UserError(
            f"no release wheel is for {platform or 'this machine'}",
            hint=f"choose a wheel with --wheel ({', '.join(names)}), or build with --profile source",
        )
    return min(fitting)[1]


def release_wheel(job: Job, pin: Pin, config: BuildConfig) -> tuple[Path, str]:
    """Return the path and the hash of the release wheel for the target machine, from the cache or the index.

    :raises BuildError: if the lock or the index has no such wheel.
    """
    if not pin.wheels:
        raise BuildError(
            f"{pin.upstream} {pin.ref} has no release wheels in the lock",
            hint=f"`patchq pin {pin.upstream} --ref {sh(pin.ref)} --archive RELEASE` records the wheels of RELEASE, "
            "such as httpx==0.28.1; or build with --profile source",
        )
    name = choose_wheel(list(pin.wheels), job.wheel_tag, job.platform)
    sha256 = pin.wheels[name]
    if have := index.cached(sha256):
        return have, sha256
    if job.offline:
        raise BuildError(f"{name} is not in the cache, and --offline forbids fetching it", hint="run without --offline")
    job.project.say(f"{pin.upstream}: downloading {name}")
    release = pin.archive.partition("==")[2]
    for file in index.find_wheels(config.distribution, release):
        if file.name == name:
            return index.download(file, sha256, job.project.progress), sha256
    raise BuildError(
        f"the package index no longer has {name}",
        hint="run `patchq pin` again to record the wheels that the index has now",
    )
