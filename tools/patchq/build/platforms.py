"""The machines that wheels are for, by the name that `uname -m` gives them; this one needn't be among them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from patchq.errors import UserError

#: Of Linux, those that upstreams make wheels for.
KNOWN = ("aarch64", "x86_64")
#: Wheels that any machine takes.
ANY = "any"
#: The newest C library whose wheels are taken for another machine than this one. What it has, one knows there.
_GLIBC = 39


def here() -> str:
    """This machine."""
    return os.uname().machine


def parse(text: str) -> tuple[str, ...]:
    """The platforms that ``--platform`` names, each once; none for an empty text.

    :raises UserError: for one that there are no wheels for.
    """
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in KNOWN:
            raise UserError(f"no wheels are made for the platform {name!r}", hint=f"--platform {','.join(KNOWN)}")
    return tuple(names)


def of_wheel(name: str) -> str:
    """The platform of a wheel, by its file name: ``any``, ``aarch64``, ``x86_64``, or its whole tag.

    >>> of_wheel("x-1-cp38-abi3-manylinux_2_31_aarch64.whl"), of_wheel("x-1-py3-none-any.whl")
    ('aarch64', 'any')
    """
    tag = name.removesuffix(".whl").rpartition("-")[2]
    return next((known for known in KNOWN if tag.endswith(f"_{known}")), tag)


def choose_wheel(names: Sequence[str], tag: str, platform: str) -> str:
    """The release wheel for a platform; without one, the best for this machine and its Python.

    :param tag: rather the one whose file name holds this.
    :raises UserError: if none or several do.
    """
    from packaging.tags import Tag, compatible_tags, cpython_tags, sys_tags
    from packaging.utils import parse_wheel_filename

    if tag:
        found = [n for n in names if tag in n]
        if len(found) != 1:
            raise UserError(
                f"{len(found)} release wheels have {tag!r} in their name", hint=f"they are {', '.join(names)}"
            )
        return found[0]
    tags: list[Tag] = list(sys_tags())
    if platform and platform != here():
        version = sys.version_info[:2]
        linux = [f"manylinux_2_{minor}_{platform}" for minor in range(_GLIBC, 4, -1)]
        linux += [f"manylinux2014_{platform}", f"linux_{platform}"]
        tags = [*cpython_tags(version, platforms=linux), *compatible_tags(version, platforms=linux)]
    order = {t: i for i, t in enumerate(tags)}
    ranked = sorted((min((order[t] for t in parse_wheel_filename(n)[3] if t in order), default=-1), n) for n in names)
    fitting = [n for rank, n in ranked if rank >= 0]
    if not fitting:
        raise UserError(
            f"no release wheel is for {platform or 'this machine'}",
            hint=f"--wheel one of {', '.join(names)}, or --profile source",
        )
    return fitting[0]
