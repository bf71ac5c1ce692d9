"""Contents of ``dist/SET``: current wheels, wheels of older stacks, and the files next to them."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchq.build import _attest, platforms
from patchq.build._sbom import Wheel, render
from patchq.build.job import Job, Made
from patchq.environment import signatures
from patchq.errors import StateError
from patchq.stacks.applied import Applied
from patchq.system import fsio


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """Wheel in ``dist/SET``.

    :ivar fresh: True if this build made the wheel; False if the wheel existed before.
    :ivar platform: machines that can use the wheel: ``any``, ``aarch64``, ``x86_64``, or the
        wheel's own tag.
    """

    upstream: str
    distribution: str
    version: str
    profile: str
    path: Path
    sha256: str
    stack_id: str
    fresh: bool
    notes: tuple[str, ...] = ()

    @property
    def platform(self) -> str:
        return platforms.of_wheel(self.path.name)


def find(job: Job, item: Applied, profile: str) -> Built | None:
    """Return the existing wheel that was built from the same inputs; None if there is none."""
    config = item.build
    assert config
    record = _record(job, item, profile)
    data = fsio.read_or_none(record)
    if data is None:
        return None
    known = _known(data, record)
    path = job.dist / str(known["file"])
    if not path.exists():
        return None
    if list(fsio.stat_key(path)) != known["stat"] and fsio.sha256_file(path) != known["sha256"]:
        return None
    return Built(
        upstream=item.stack.pin.upstream,
        distribution=config.distribution,
        version=known["wheel"],
        profile=profile,
        path=path,
        sha256=known["sha256"],
        stack_id=job.stack_id,
        fresh=False,
        notes=tuple(known["notes"]),
    )


def _known(data: bytes, record: Path) -> dict[str, Any]:
    """Parse the record (JSON) of a wheel in ``dist/``.

    :raises StateError: if the record names a file in another folder.
    """
    known = fsio.load_state(data, record, 1)
    if Path(str(known.get("file"))).name != known.get("file"):
        raise StateError(f"{record} is not the record of a wheel in dist/SET", hint=f"remove {record}")
    return known


def keep(job: Job, item: Applied, profile: str, version: str, made: Made) -> Built:
    """Record a built wheel, and remove the wheels that were built for earlier stacks."""
    config, path = item.build, made.path
    assert config
    record = _record(job, item, profile)
    _drop_older(job, item, record, profile, path)
    digest = fsio.sha256_file(path)
    body = {
        "version": 1,
        "file": path.name,
        "stat": fsio.stat_key(path),
        "sha256": digest,
        "wheel": version,
        "upstream": item.stack.pin.upstream,
        "distribution": config.distribution,
        "profile": profile,
        "notes": made.notes,
        "left_out": made.left_out,
        "set": job.set_name,
    }
    fsio.write_atomic(record, fsio.dump_json(body))
    return Built(
        upstream=item.stack.pin.upstream,
        distribution=config.distribution,
        version=version,
        profile=profile,
        path=path,
        sha256=digest,
        stack_id=job.stack_id,
        fresh=True,
        notes=made.notes,
    )


def _record(job: Job, item: Applied, profile: str) -> Path:
    """Return the path of the file that records a build with these inputs.

    If an input of the wheel is missing here, :func:`find` returns an old wheel after only that input has changed.
    """
    config = item.build
    assert config
    requires, env = config.requires, {}
    if profile == "empty":
        requires, env = config.empty_requires, dict(config.empty_env)
    body = [
        job.stack_id,
        item.stack.pin.upstream,
        config.distribution,
        config.package,
        profile,
        # The release wheel of an overlay, and compiled modules, may be for the running Python only.
        sys.version_info[:2],
        job.wheel_tag or sys.platform + (job.platform or platforms.here()),
        [a.state.tip for a in job.applied],
        requires,
        env,
        # An overlay builds nothing, so isolation makes no difference to it.
        job.isolation and profile != "overlay",
        config.version_file,
        job.set_name,
        dict(item.stack.pin.wheels),
        sorted(config.ignore),
        sorted(job.siblings(item).items()),
    ]
    key = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:32]
    return job.project.layout.private / "wheels" / f"{key}.json"


def _drop_older(job: Job, item: Applied, record: Path, profile: str, path: Path) -> None:
    """Remove the wheels that patchq built for an earlier stack or other settings: the new wheel replaces them."""
    assert item.build
    for other, known in _records(job):
        is_renamed = known["distribution"] != item.build.distribution
        if other == record or known["profile"] != profile:
            continue
        if is_renamed and known.get("upstream") != item.stack.pin.upstream:
            continue
        # A wheel for another machine stays, unless an environment would have to install both distributions.
        same_tags = known["file"].split("-")[2:] == path.name.split("-")[2:]
        # Older versions of patchq wrote the wheels of all sets to dist/.
        if not known.get("set"):
            fsio.remove(job.project.layout.dist / known["file"])
            fsio.remove(other)
        elif (same_tags or is_renamed) and known["set"] == job.set_name:
            if known["file"] != path.name:
                fsio.remove(job.dist / known["file"])
            fsio.remove(other)


def drop(job: Job, distribution: str) -> None:
    """Remove the wheels of a distribution that patchq built for the set."""
    for record, known in _records(job):
        if known["distribution"] == distribution and known.get("set") == job.set_name:
            fsio.remove(job.dist / known["file"])
            fsio.remove(record)


def _records(job: Job) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the records of all wheels built in this project, for any set."""
    for path in sorted((job.project.layout.private / "wheels").glob("*.json")):
        yield path, _known(path.read_bytes(), path)


def write_beside(job: Job) -> None:
    """Write the files that accompany the current wheels in ``dist/SET``.

    These are ``requirements.txt``, ``constraints.txt``, the CycloneDX document and the provenance.
    ``requirements.txt`` installs only the set's wheels, each by its hash, on any machine. If the set has
    kernel wheels, write a requirements file for each architecture, too.
    """
    folder = job.dist
    known: list[Wheel] = []
    kernels: list[Wheel] = []
    for _, entry in _records(job):
        path = folder / entry["file"]
        its_own = entry.get("set") == job.set_name and f"+patchq.{job.stack_id[:8]}" in entry["wheel"]
        if path.exists() and its_own and entry["profile"] != "empty":
            wheel = entry["distribution"], entry["wheel"], path.name, entry["sha256"], entry.get("left_out", ())
            (kernels if entry["profile"].startswith("kernels-") else known).append(wheel)
    documents = _lists(job, known, kernels)
    documents["patchq.cdx.json"] = render(job.project, [a.stack for a in job.applied], known, job.stack_id)
    wheels = {w[2]: w[3] for w in [*known, *kernels]}
    statement = _attest.statement(job, wheels)
    documents[_attest.NAME] = statement
    if signing := job.project.lock.signing:
        name, root = signatures.name_of(signing), job.project.layout.root
        old = fsio.read_or_none(folder / name)
        # Some kinds of key give a different signature each time, so an existing valid signature is kept.
        if old is None or signatures.fault(signing, root, statement, old):
            fsio.remove(folder / name)
            if signed := signatures.sign(signing, root, statement):
                documents[name] = signed
    for name, data in documents.items():
        if fsio.read_or_none(folder / name) != data:
            fsio.write_atomic(folder / name, data)


def _lists(job: Job, known: Sequence[Wheel], kernels: Sequence[Wheel]) -> dict[str, bytes]:
    """Return the constraints and requirements files by name.

    Each architecture that has kernel wheels gets its own requirements file.
    """
    head = f"# patchq set {job.set_name}, stack {job.stack_id}\n"
    constraints = set()
    for u in job.unpatched:
        if u.version:
            constraints.add(f"{u.distribution}=={u.version}\n")
    for distribution, version, *_ in known:
        constraints.add(f"{distribution}=={version}\n")
    files = {
        "constraints.txt": (head + "".join(sorted(constraints))).encode(),
        "requirements.txt": _requirements(head, known),
    }
    # Kernels are for one architecture, and must not be installed on another architecture.
    by_arch: dict[str, list[Wheel]] = {}
    for wheel in kernels:
        by_arch.setdefault(wheel[1].rpartition(".")[2], []).append(wheel)
    for arch, own in by_arch.items():
        files[f"requirements-{arch}.txt"] = _requirements(head, [*known, *own])
    return files


def _requirements(head: str, wheels: Sequence[Wheel]) -> bytes:
    """Return a requirements file that installs only these wheels, by hash, from the file's own folder."""
    hashes: dict[str, set[str]] = {}
    for distribution, version, _, sha256, _ in wheels:
        hashes.setdefault(f"{distribution}=={version}", set()).add(f"--hash=sha256:{sha256}")
    entries = []
    for line in sorted(hashes):
        entries.append(" \\\n    ".join([line, *sorted(hashes[line])]) + "\n")
    return (head + "--no-index\n--find-links .\n" + "".join(entries)).encode()
