"""Reference data to compare installations with: the path and hash of each file that a wheel installs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from patchq.build.contents import inspect_wheel
from patchq.environment.installed import Reference
from patchq.errors import PatchqError
from patchq.project.project import Project
from patchq.system import fsio

_DATA = re.compile(r"[^/]+\.data/(?:purelib|platlib)/(.+)")


def wheels_of(project: Project, set_name: str = "") -> tuple[list[Reference], list[str]]:
    """Return the wheels in ``dist/SET``, and a list of problems.

    The hash of each wheel is compared with the recorded hash.
    """
    built = {}
    set_name = project.choose_set(set_name)
    for record in sorted((project.layout.private / "wheels").glob("*.json")):
        try:
            known = fsio.load_state(record.read_bytes(), record, 1)
            if known["set"] != set_name:
                continue
            built[str(known["file"])] = tuple(known["stat"]), str(known["sha256"])
        except (PatchqError, KeyError, TypeError, OSError):
            continue
    folder = project.layout.dist / set_name
    found, wrong = wheels_in(folder, built)
    # Thin wheels have no records, because each build writes them again.
    thin, wrong_thin = wheels_in(folder / "thin")
    return found + thin, wrong + wrong_thin


def is_built(project: Project, set_name: str, stack_id: str) -> bool:
    """Return whether ``dist/SET`` contains a ``requirements.txt`` for this stack id. An empty id stands for any id."""
    data = fsio.read_or_none(project.layout.dist / set_name / "requirements.txt")
    return data is not None and stack_id.encode() in data.partition(b"\n")[0]


def wheels_in(
    folder: Path, built: Mapping[str, tuple[tuple[int, ...], str]] | None = None
) -> tuple[list[Reference], list[str]]:
    """Return the wheels in a folder, and a list of problems with wheels that can't be read.

    :param built: :func:`patchq.system.fsio.stat_key` and SHA-256 of each wheel when it was built,
        by file name.
    """
    found, wrong = [], []
    if built is not None:
        shown = f"{folder.parent.name}/{folder.name}"
    else:
        shown = folder.name
    for path in sorted(folder.glob("*.whl")):
        try:
            info = inspect_wheel(path)
            stat, sha256 = (built or {}).get(path.name, ((), ""))
            changed = bool(sha256) and fsio.stat_key(path) != stat and fsio.sha256_file(path) != sha256
            other = []
            for name, (kind, _) in info.record.items():
                if kind not in ("sha256", ""):
                    other.append(name)
            sums = {name: hashlib.sha256(data).hexdigest() for name, data in info.read(other).items()}
            files = {}
            for n, (kind, digest) in info.record.items():
                if kind:
                    files[_installed_at(n)] = sums.get(n, digest)
            files.pop("", None)
            found.append(
                Reference(
                    name=f"{shown}/{path.name}",
                    distribution=info.name,
                    version=info.version,
                    files=files,
                    changed=changed,
                )
            )
        except (PatchqError, OSError) as error:
            wrong.append(f"{shown}/{path.name} can't be compared with: {getattr(error, 'message', error)}")
    return found, wrong


def _installed_at(member: str) -> str:
    """Return the path below site-packages where an installer writes a wheel's member.

    Return an empty string for a member that an installer changes or writes elsewhere.
    """
    moved = _DATA.fullmatch(member)
    if moved:
        return moved[1]
    if re.match(r"[^/]+\.data/", member) or member.endswith((".dist-info/RECORD", "/")):
        return ""
    return member
