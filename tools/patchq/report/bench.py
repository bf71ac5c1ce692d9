"""``bench``: measurements, each tied to the file that it came from and to the build that was measured."""

from __future__ import annotations

import hashlib
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from patchq.environment.differences import Level
from patchq.environment.verify import verify
from patchq.errors import UserError
from patchq.formats.jsonlines import Problem
from patchq.formats.measurements import (
    MAX_FILE,
    Measurement,
    Target,
    add,
    check,
    parse,
    parse_targets,
    read_file,
)
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.system import fsio, project_files

FOLDER = "measurements"


def ledger_file(project: Project) -> Path:
    """The ledger of measurements."""
    return project.layout.root / FOLDER / "ledger.jsonl"


def read_measurements(project: Project) -> tuple[list[Measurement], list[Problem]]:
    """All measurements, and the ledger's damaged lines."""
    return parse(project_files.read(project.layout.root, ledger_file(project)) or b"")


def read_targets(project: Project) -> list[Target]:
    """What is to be reached, from ``measurements/targets.toml`` where there is one."""
    path = project.layout.root / FOLDER / "targets.toml"
    data = project_files.read(project.layout.root, path)
    return parse_targets(data, str(path)) if data is not None else []


def import_files(
    project: Project, paths: Sequence[Path], *, machine: str, python: str = "", expected: str = "",
    reported: str = "", engine: str = "", config: str = "",
) -> list[Measurement]:  # fmt: skip
    """Take files' readings into the ledger, and the files beside it.

    A measurement is of a patched build: the environment of ``python`` is looked at now, as by ``verify-installed``.
    What somebody else reports is told as that.

    :param expected: the stack id that the measurement claims; empty for the environment's.
    :param reported: who says so; then no environment is looked at.
    :param engine: where the files don't say it.
    :raises UserError: if the environment is not the patched build that it should be, or neither is given.
    :raises FormatError: for a file that isn't known.
    """
    if bool(python) == bool(reported):
        raise UserError(
            "a measurement is of a build, or reported by somebody",
            hint="--python PATH of the environment that was measured, or --reported WHO",
        )
    stack_id, patches = _build(python, expected) if python else ("", ())
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with project.locked("bench"):
        change = Change("bench", f"bench import {' '.join(p.name for p in paths)}")
        known = {replace(m, time="") for m in read_measurements(project)[0]}
        new: list[Measurement] = []
        for path in paths:
            data = _read(path)
            digest = hashlib.sha256(data).hexdigest()
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name).strip("-.")[-80:] or "file"
            place = f"{FOLDER}/files/{digest[:12]}-{name}"
            found = [
                Measurement(
                    machine, r.engine or engine, r.model, r.test, r.depth, r.value, r.spread, r.samples,
                    r.config or config, place, digest, r.place, now, stack_id, patches, reported,
                )
                for r in read_file(data, str(path))
            ]  # fmt: skip
            for measurement in found:
                check(measurement, str(path))
            fresh = [m for m in found if replace(m, time="") not in known]
            if fresh:
                change.files[place] = data
            new += fresh
        if new:
            path = ledger_file(project)
            change.files[f"{FOLDER}/ledger.jsonl"] = add(project_files.read(project.layout.root, path) or b"", new)
            project.journal.perform(change)
    return new


def _read(path: Path) -> bytes:
    """A results file: what is no file, a pipe say, is not waited for, and what is too large is not read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"{path} is no plain file", hint="name the file that the tool wrote")
        return fsio.read_limited(path, MAX_FILE) or b""
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {getattr(error, 'strerror', None) or error}", hint="check the path") from None


def _build(python: str, expected: str) -> tuple[str, tuple[str, ...]]:
    """The stack that an environment runs, and its patches."""
    found = verify(python, {}, expected)
    if not found.ok:
        every = [*(one for package in found.packages for one in package.differences), *found.differences]
        codes = sorted({one.code.value for one in every if one.level is Level.PROBLEM})
        said = ", ".join(codes)
        raise UserError(
            f"{found.python} does not run the patched build: {said or 'it has no patched package'}",
            hint="`patchq verify-installed --python PATH` says more; figures of another build are not taken",
        )
    patches = sorted({patch for package in found.packages for patch in package.patches})
    return found.packages[0].stack_id, tuple(patches)
