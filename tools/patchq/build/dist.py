"""``dist/`` and what is known of it: which wheels are there already, which are of an older stack, what lies beside."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchq.build.job import Job, Made
from patchq.build.sbom import render
from patchq.errors import StateError
from patchq.formats.lock import BuildConfig
from patchq.stacks.applied import Applied
from patchq.system import fsio


@dataclass(frozen=True, slots=True)
class Built:
    """A wheel in ``dist/``. ``fresh`` is False when it was there already."""

    upstream: str
    distribution: str
    version: str
    profile: str
    path: Path
    sha256: str
    stack_id: str
    fresh: bool
    notes: tuple[str, ...] = ()


def find(job: Job, item: Applied, profile: str) -> Built | None:
    """The wheel that such a build would make, if it is there already."""
    config = item.build
    assert config
    record = _record(job, item, profile)
    data = fsio.read_or_none(record)
    if data is None:
        return None
    known = _known(data, record)
    path = job.project.layout.dist / str(known["file"])
    if not path.exists():
        return None
    if list(fsio.stat_key(path)) != known["stat"] and fsio.sha256_file(path) != known["sha256"]:
        return None
    return Built(
        item.stack.pin.upstream, config.distribution, known["wheel"], profile, path, known["sha256"], job.stack_id,
        False, tuple(known["notes"]),
    )  # fmt: skip


def _known(data: bytes, record: Path) -> dict[str, Any]:
    """What a record says of a wheel in ``dist/``.

    :raises StateError: if it names a file of another folder.
    """
    known = fsio.load_state(data, record, 1)
    if Path(str(known.get("file"))).name != known.get("file"):
        raise StateError(f"{record} is no record of a wheel in dist/", hint=f"remove {record}")
    return known


def keep(job: Job, item: Applied, profile: str, version: str, made: Made) -> Built:
    """Write down what a build made; those of earlier stacks go."""
    config, path = item.build, made.path
    assert config
    record = _record(job, item, profile)
    _drop_older(job, record, config, profile, path)
    digest = fsio.sha256_file(path)
    body = {
        "version": 1, "file": path.name, "stat": fsio.stat_key(path), "sha256": digest, "wheel": version,
        "distribution": config.distribution, "profile": profile, "notes": made.notes, "left_out": made.left_out,
    }  # fmt: skip
    fsio.write_atomic(record, fsio.dump_json(body))
    return Built(
        item.stack.pin.upstream, config.distribution, version, profile, path, digest, job.stack_id, True, made.notes
    )


def _record(job: Job, item: Applied, profile: str) -> Path:
    """The file that says what was built of these inputs."""
    config = item.build
    assert config
    requires = config.empty_requires if profile == "empty" else config.requires
    body = [
        job.stack_id, item.stack.pin.upstream, profile, job.wheel_tag or sys.platform + os.uname().machine,
        [a.state.tip for a in job.applied], requires, config.version_file, job.set_name,
        dict(item.stack.pin.wheels), sorted(config.ignore),
    ]  # fmt: skip
    key = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:32]
    return job.project.layout.private / "wheels" / f"{key}.json"


def _drop_older(job: Job, record: Path, config: BuildConfig, profile: str, path: Path) -> None:
    """Wheels that patchq itself put into dist/ for an earlier stack; the new one is complete."""
    for other in record.parent.glob("*.json") if record.parent.is_dir() else ():
        known = _known(other.read_bytes(), other)
        if known["distribution"] == config.distribution and known["profile"] == profile and other != record:
            same_tags = known["file"].split("-")[2:] == path.name.split("-")[2:]
            if same_tags and known["file"] != path.name:
                fsio.remove(job.project.layout.dist / known["file"])
            if same_tags:
                fsio.remove(other)


def write_beside(job: Job) -> None:
    """``constraints.txt`` and the CycloneDX document of what is in ``dist/`` now."""
    folder = job.project.layout.dist
    known = []
    for record in sorted((job.project.layout.private / "wheels").glob("*.json")):
        entry = _known(record.read_bytes(), record)
        path = folder / entry["file"]
        if path.exists() and f"+patchq.{job.stack_id[:8]}" in entry["wheel"] and entry["profile"] != "empty":
            known.append((entry["distribution"], entry["wheel"], path.name, entry["sha256"], entry.get("left_out", ())))
    lines = sorted({f"{name}=={version}" for name, version, *_ in known})
    text = f"# patchq set {job.set_name}, stack {job.stack_id}\n" + "".join(f"{line}\n" for line in lines)
    documents = {
        "constraints.txt": text.encode(),
        "patchq.cdx.json": render(job.project, [a.stack for a in job.applied], known, job.stack_id),
    }
    for name, data in documents.items():
        if fsio.read_or_none(folder / name) != data:
            fsio.write_atomic(folder / name, data)
