"""Command ``compose``: write a set's container files from the lock.

One container mounts the trees, for development. The other container has only the built wheels.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from patchq.build import _attest
from patchq.errors import UserError
from patchq.formats.render import render
from patchq.project import own
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.project.scaffold import requirements
from patchq.stacks.applied import applied_stack_id, patched_upstreams, read_applied
from patchq.system import project_files


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedPackage:
    """Package whose files come from a mounted tree.

    :ivar links: paths in the package where links to other folders of the tree are created.
    """

    upstream: str
    distribution: str
    package: str
    links: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MountedCache:
    """Volume that is kept after its container is removed, and the path where it is mounted."""

    volume: str
    path: str


def compose(project: Project, folder: Path, *, set_name: str = "", thin: bool = False) -> list[Path]:
    """Write a set's container files to a folder of the project, and return the files' paths.

    :param thin: install the releases and the thin wheels, instead of the full wheels.
    :raises UserError: if the lock has no environment for the set, or the folder is outside the
        project.
    """
    with project.locked("compose"):
        set_name = project.choose_set(set_name)
        files = _files(project, folder.resolve(), set_name, thin)
        project.journal.perform(Change(verb="compose", summary=f"compose {set_name}", files=dict(files)))
    return [project.layout.root / path for path in files]


def _files(project: Project, folder: Path, set_name: str, thin: bool) -> dict[str, bytes]:
    """Return the content of each container file, by its path in the project."""
    environment = project.lock.environments.get(set_name)
    if environment is None:
        raise UserError(
            f"upstream.lock has no environment for the set {set_name}",
            hint=f'add [environments."{set_name}"] with an image; docs/how-to/containers.md has an example',
        )
    root = project.layout.root
    if root not in (folder, *folder.parents):
        raise UserError(
            f"{folder} is not in the project",
            hint="name a folder of the project, because images are built from its files",
        )
    inside = folder.relative_to(root)
    packages = []
    for pin in project.lock.pins_of(set_name):
        if build := project.lock.upstreams[pin.upstream].build:
            packages.append(
                ComposedPackage(
                    upstream=pin.upstream,
                    distribution=build.distribution,
                    package=build.package,
                    links=tuple(build.links.items()),
                )
            )
    name = re.sub(r"[^a-z0-9_-]+", "-", set_name.lower()).strip("-_") or "patched"
    caches = []
    for path in environment.caches:
        caches.append(MountedCache(_volume(name, path), path))
    dist = f"{project.layout.dist.name}/{set_name}"
    values = {
        "name": name,
        "image": environment.image,
        "requires": environment.requires,
        "index": environment.index,
        "env": sorted(environment.env.items()),
        "serve": environment.serve or ("python3", "-V"),
        "port": environment.port,
        "gpu": environment.gpu,
        "packages": packages,
        "dist": dist,
        "wheels": f"{dist}/thin" if thin else dist,
        "installed": _installed(project, set_name, thin),
        "stack_id": applied_stack_id(project, set_name),
        "set_name": set_name,
        "patchq": own.source(),
        "case": own.CASE,
        # This copies the signature, too, if there is one: `*` also matches an empty string.
        "attestation": "provenance.*json" if project.lock.signing else _attest.NAME,
        "lock_sha256": project_files.hash_file(root, project.layout.lock),
        "caches": caches,
        "folder": inside.as_posix(),
        "root": Path(os.path.relpath(root, folder)).as_posix(),
        "trees": Path(os.path.relpath(project.layout.private / "trees", folder)).as_posix(),
    }
    files = {}
    for file in ("Dockerfile", "Dockerfile.dev", "dev.sh", "compose.yaml"):
        files[(inside / file).as_posix()] = render(f"compose/{file}.j2", **values).encode()
    for file in ("Dockerfile", "Dockerfile.dev"):
        files[(inside / f"{file}.dockerignore").as_posix()] = render("compose/ignore.j2", **values).encode()
    files[(inside / "patchq.txt").as_posix()] = requirements()
    return files


def _installed(project: Project, set_name: str, thin: bool) -> list[str]:
    """Return the names of the distributions to install.

    With ``thin``, the thin wheel of each patched package is installed instead of the package's full wheel.
    """
    applied = read_applied(project, set_name)
    patched = patched_upstreams(project, applied)
    names = []
    for one in applied:
        if one.build:
            is_thin = thin and one.stack.pin.upstream in patched
            names.append(one.build.distribution + ("-patchq-thin" if is_thin else ""))
    return names


def _volume(name: str, path: str) -> str:
    return f"{name}-{re.sub(r'[^a-z0-9]+', '-', path.lower()).strip('-')}"
