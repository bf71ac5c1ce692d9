"""``verify-installed``: is a Python environment really running the patched build."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchq.errors import UserError
from patchq.system import runner

_PROBE = Path(__file__).with_name("probe.py")


@dataclass(frozen=True, slots=True)
class Package:
    """What an import of one package gives.

    ``state`` is ``patched``, ``upstream`` (no manifest: somebody else's build), ``other stack``,
    ``altered`` (patched files were changed after the build), or ``missing``.
    """

    distribution: str
    state: str
    version: str
    origin: str
    stack_id: str
    patches: tuple[str, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found in the environment of ``python``; ``ok`` only if nothing is wrong."""

    python: str
    packages: tuple[Package, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return bool(self.packages) and not any(p.problems for p in self.packages)


def verify(python: str, packages: Mapping[str, str], expected: str = "") -> Verdict:
    """Look at the environment of the interpreter ``python``, as its imports would find things.

    :param packages: distribution to import name; empty for every one that carries a manifest.
    :param expected: the stack id, or its beginning, that each package must be of; empty to take
        any, as long as all are of the same.
    :raises UserError: if the interpreter can't be run.
    """
    try:
        done = runner.run(
            [python, "-c", _PROBE.read_text()], data=json.dumps({"packages": dict(packages)}).encode(), cwd=Path("/")
        )
    except runner.CommandError as error:
        raise UserError(f"{python} can't be asked: {error.said}", hint="--python PATH names an interpreter") from None
    found = json.loads(done.stdout)
    seen = [_package(p, expected) for p in found["packages"]]
    ids = {p.stack_id for p in seen if p.stack_id}
    if len(ids) > 1:
        seen = [
            _with(p, f"the packages are of different stacks: {', '.join(sorted(i[:8] for i in ids))}") for p in seen
        ]
    return Verdict(found["python"], tuple(seen), tuple(_notes(found, seen)))


def _with(package: Package, problem: str) -> Package:
    from dataclasses import replace

    return replace(package, problems=(*package.problems, problem))


def _package(raw: Mapping[str, Any], expected: str) -> Package:
    name, origin, manifest = raw["distribution"], raw["origin"] or "", raw.get("manifest")
    versions = [i["version"] for i in raw["installed"]]
    problems: list[str] = []
    others = [c for c in raw["copies"] if c != origin]
    if not origin:
        return Package(name, "missing", "", "", "", (), (f"{name} is not installed there",))
    if others:
        problems.append(f"{len(others)} more cop{'y' if len(others) == 1 else 'ies'} on the path: {', '.join(others)}")
    if manifest is None:
        hidden = [i for i in raw["installed"] if "+patchq." in i["version"]]
        why = f", in front of the patched {hidden[0]['version']}" if hidden else ""
        problems.append(f"imports come from {origin}, which patchq did not build{why}")
        return Package(name, "upstream", ", ".join(versions), origin, "", (), tuple(problems))
    stack_id, version = manifest["stack_id"], manifest["version"]
    state = "patched"
    if raw["altered"]:
        state = "altered"
        problems.append(f"changed since the build: {', '.join(raw['altered'])}")
    if expected and not stack_id.startswith(expected):
        state = "other stack"
        problems.append(f"is of stack {stack_id[:8]}, not of {expected[:8]}")
    if version not in versions:
        problems.append(
            f"the metadata says {', '.join(versions) or 'nothing'}, the package is {version}: two installs are mixed"
        )
    elif len(versions) > 1:
        problems.append(f"is installed {len(versions)} times: {', '.join(versions)}")
    inside = [u for u in manifest["upstreams"] if u["name"] in manifest["contains"]]
    patches = tuple(f"{u['name']}/{p['name']}" for u in inside for p in u["patches"])
    left_out = tuple(manifest.get("left_out", ()))
    return Package(name, state, version, origin, stack_id, patches, tuple(problems), left_out=left_out)


def _notes(found: Mapping[str, Any], seen: Sequence[Package]) -> list[str]:
    notes = []
    flashinfer = next((p for p in seen if p.distribution == "flashinfer-python"), None)
    for name, version in found["extras"].items():
        what = "kernels compiled from unpatched sources" if name.endswith("jit-cache") else "prebuilt cubins"
        notes.append(
            f"{name} {version} is installed: {what}; FlashInfer refuses it beside a patched version by its own check"
        )
    kernels = found["jit_cache"]["kernels"]
    folder = found["jit_cache"]["folder"]
    for version, count in kernels.items():
        if flashinfer and version == flashinfer.version:
            notes.append(f"{folder}/{version}: {count} kernels of this stack")
        elif flashinfer and flashinfer.state == "upstream" and "+patchq." not in version:
            notes.append(
                f"{folder}/{version}: {count} kernels, maybe of another stack: this FlashInfer would load them"
            )
        else:
            notes.append(f"{folder}/{version}: {count} kernels of another stack, not used by this one")
    return notes
