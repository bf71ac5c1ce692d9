"""Import of measurements.

Each measurement names its result file, and the measured build or the source of the figures.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from patchq.environment.differences import Level
from patchq.environment.verify import verify
from patchq.errors import UserError
from patchq.formats.jsonlines import Problem
from patchq.formats.measurements import (
    MAX_FILE,
    Goals,
    Measurement,
    add,
    check,
    parse,
    parse_goals,
    read_file,
)
from patchq.names import sh
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.system import fsio, project_files

FOLDER = "measurements"


def ledger_file(project: Project) -> Path:
    """Return the path of the ledger of measurements."""
    return project.layout.root / FOLDER / "ledger.jsonl"


def read_measurements(project: Project) -> tuple[list[Measurement], list[Problem]]:
    """Return all measurements, and the damaged lines of the ledger."""
    return parse(project_files.read(project.layout.root, ledger_file(project)) or b"")


def read_goals(project: Project) -> Goals:
    """Read ``measurements/targets.toml``. Return empty goals if the file doesn't exist."""
    path = project.layout.root / FOLDER / "targets.toml"
    data = project_files.read(project.layout.root, path)
    if data is not None:
        return parse_goals(data, str(path))
    return Goals()


def import_files(
    project: Project,
    paths: Sequence[Path],
    *,
    machine: str,
    python: str = "",
    expected: str = "",
    reported: str = "",
    engine: str = "",
    config: str = "",
) -> list[Measurement]:
    """Add the readings of result files to the ledger, and copy the files into the ledger's folder.

    A measurement belongs to a patched build, so the environment of ``python`` is verified first. Figures that others
    have reported name their source instead.

    :param expected: stack id of the measured build; empty for the stack id of the environment.
    :param reported: source of figures that others have reported. If it is given, no environment is verified.
    :param engine: engine of measurements whose file doesn't give one.
    :param config: configuration of measurements whose file doesn't give one.
    :raises UserError: if the environment is not the expected patched build, or unless exactly one of ``python`` and
        ``reported`` is given.
    :raises FormatError: for a file of an unknown format.
    """
    if bool(python) == bool(reported):
        raise UserError(
            "give either the environment that was measured or the source of the figures",
            hint="--python takes the Python of the environment, --reported the source",
        )
    if python:
        stack_id, patches = _build(python, expected)
    else:
        stack_id, patches = ("", ())
    now = fsio.utc_now()
    with project.locked("bench"):
        change = Change(verb="bench", summary=f"bench import {' '.join(path.name for path in paths)}")
        known = {replace(measurement, time="") for measurement in read_measurements(project)[0]}
        new: list[Measurement] = []
        for path in paths:
            data = _read(path)
            digest = hashlib.sha256(data).hexdigest()
            copy = f"{FOLDER}/files/{digest[:12]}-{_safe_name(path)}"
            fresh = []
            for reading in read_file(data, str(path)):
                measurement = Measurement(
                    machine=machine,
                    engine=reading.engine or engine,
                    model=reading.model,
                    test=reading.test,
                    depth=reading.depth,
                    value=reading.value,
                    spread=reading.spread,
                    samples=reading.samples,
                    config=reading.config or config,
                    file=copy,
                    sha256=digest,
                    place=reading.place,
                    time=now,
                    stack_id=stack_id,
                    patches=patches,
                    reported=reported,
                )
                check(measurement, str(path))
                if replace(measurement, time="") not in known:
                    fresh.append(measurement)
            if fresh:
                change.files[copy] = data
            new += fresh
        if new:
            ledger = project_files.read(project.layout.root, ledger_file(project)) or b""
            change.files[f"{FOLDER}/ledger.jsonl"] = add(ledger, new)
            project.journal.perform(change)
    return new


def _safe_name(path: Path) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", path.name).strip("-.")[-80:] or "file"


def _read(path: Path) -> bytes:
    """Read a result file. Refuse pipes, which may block, and files that are too large."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"{path} is not a regular file", hint="name the file that the tool wrote")
        return fsio.read_limited(path, MAX_FILE) or b""
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {getattr(error, 'strerror', None) or error}", hint="check the path") from None


def _build(python: str, expected: str) -> tuple[str, tuple[str, ...]]:
    """Return the stack id and the patches that an environment runs."""
    found = verify(python, {}, expected)
    if not found.ok:
        every = list(found.differences)
        for package in found.packages:
            every += package.differences
        codes = set()
        for one in every:
            if one.level is Level.PROBLEM:
                codes.add(one.code.value)
        why = ", ".join(sorted(codes)) or "it has no patched package"
        raise UserError(
            f"{found.python} does not run the patched build: {why}",
            hint=f"`patchq verify-installed --python {sh(python)}` prints the details",
        )
    patches = set()
    for package in found.packages:
        for patch in package.patches:
            patches.add(patch)
    return found.packages[0].stack_id, tuple(sorted(patches))
