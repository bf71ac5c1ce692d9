"""Check that a set's wheels can be installed together, by resolving their requirements against the package index.

uv resolves placeholder wheels, which contain only the metadata that ``patchq build`` would write. uv reads
only the metadata of other packages, and installs nothing. A requirement that the index can't satisfy doesn't
count as a contradiction: it is removed, and the other requirements are resolved without it.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from patchq.build.wheel import rewrite_metadata
from patchq.errors import BuildError, UserError
from patchq.names import CommitId
from patchq.project.project import Project
from patchq.project.stack import load_state
from patchq.sources.index import pip_settings
from patchq.stacks import siblings
from patchq.stacks.applied import version_at
from patchq.stacks.apply import bases_of
from patchq.system import runner

#: Time limit of one resolution in seconds. uv reads the metadata of about 200 packages.
SECONDS = 600
#: Local version for placeholder wheels. No index can offer a version with a local part.
_LOCAL = "+patchq"
_DEPENDS = re.compile(r"depends? on\s+([A-Za-z0-9][\w.-]*(?:\[[\w,-]+\])?(?:[<>=!~]=?[\w.*+!-]+,?)*)")
_PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[\w,-]+\])?==(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Lacked:
    """Requirement that the index can't satisfy.

    :ivar there: newest version in the index for this platform and Python; empty if the index has none.
    """

    requirement: str
    there: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Result of resolving the wheels of a set.

    :ivar set_name: name of the set.
    :ivar platform: target machine.
    :ivar packages: chosen versions by package; empty if there is no solution.
    :ivar lacked: requirements removed because the index can't satisfy them.
    :ivar contradiction: message of the resolver if there is no solution.
    """

    set_name: str
    platform: str
    packages: Mapping[str, str]
    lacked: tuple[Lacked, ...] = ()
    contradiction: str = ""


def resolve_set(project: Project, set_name: str, platform: str, *, offline: bool = False) -> Resolved:
    """Resolve a set's wheels together with the requirements of its environment.

    :param platform: ``x86_64`` or ``aarch64``, on Linux.
    :param offline: don't fetch upstreams; the index is still used.
    :raises UserError: if no upstream of the set has build settings, or uv is not installed.
    """
    if not shutil.which("uv"):
        raise UserError("uv, which resolves the requirements, is not on PATH", hint="pip install uv")
    set_name = project.choose_set(set_name)
    with project.locked("check"):
        stacks = project.stacks(set_name)
        states = {}
        for stack in stacks:
            states[stack.pin.upstream] = load_state(project.layout, stack.pin.upstream)
        bases, required = {}, {}
        for base in bases_of(project, stacks, states, offline):
            bases[base.pin.upstream] = base.commit
            required[base.pin.upstream] = siblings.declared(project, base.commit)
    with tempfile.TemporaryDirectory(prefix="patchq-installs-") as folder:
        wanted = list(_stand_ins(project, set_name, bases, required, Path(folder)))
        if not wanted:
            raise UserError(
                f"no upstream of the set {set_name} has build settings",
                hint="`patchq build` adds build settings to upstream.lock",
            )
        environment = project.lock.environments.get(set_name)
        if environment:
            rest = environment.requires
        else:
            rest = ()
        own = {name.partition("==")[0] for name in wanted}
        direct = []
        for each in required.values():
            for r in each:
                if canonicalize_name(r.name) not in own:
                    direct.append(str(r))
        return _resolve(_Asking(Path(folder), platform), set_name, [*wanted, *rest], direct)


def metadata_of(name: str, version: str, requirements: Iterable[Requirement], pins: Mapping[str, str]) -> str:
    """Return the METADATA of an upstream's wheel: its own requirements, with its siblings pinned."""
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 0", *(f"Requires-Dist: {r}" for r in requirements)]
    return rewrite_metadata("\n".join(lines) + "\n\n", version, pins)


def _stand_ins(
    project: Project,
    set_name: str,
    bases: Mapping[str, CommitId],
    required: Mapping[str, Sequence[Requirement]],
    folder: Path,
) -> Iterator[str]:
    """Write a placeholder wheel for each upstream with build settings, and yield ``NAME==VERSION`` for each wheel."""
    built: dict[str, tuple[str, str]] = {}
    patched = set()
    for stack in project.stacks(set_name):
        if stack.names:
            patched.add(stack.pin.upstream)
            if into := project.lock.upstreams[stack.pin.upstream].into:
                patched.add(into[0])
    for pin in project.lock.pins_of(set_name):
        if build := project.lock.upstreams[pin.upstream].build:
            local = ""
            if pin.upstream in patched:
                local = _LOCAL
            version = version_at(project, pin, bases[pin.upstream])
            built[pin.upstream] = (str(canonicalize_name(build.distribution)), version + local)
    for upstream, (name, version) in built.items():
        pins = dict(built.values())
        del pins[name]
        text = metadata_of(name, version, required[upstream], pins)
        stem = f"{name.replace('-', '_')}-{version}"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{stem}.dist-info/METADATA", text)
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
        yield f"{name}=={version}"


@dataclass(frozen=True, slots=True)
class _Asking:
    """Resolver that runs uv with pip's configuration."""

    folder: Path
    platform: str

    def ask(self, wanted: Sequence[str], without: Iterable[str] = (), *, alone: bool = False) -> tuple[bool, str]:
        """Resolve requirements.

        :param without: packages to remove from the resolution.
        :param alone: ignore dependencies.
        :returns: True and the pinned versions, or False and uv's message.
        """
        asked, over = self.folder / "asked.in", self.folder / "over.in"
        asked.write_text("\n".join(wanted) + "\n")
        over.write_text("".join(f"{name} ; python_version < '0'\n" for name in without))
        command = [
            "uv",
            "pip",
            "compile",
            "--quiet",
            "--no-header",
            "--no-annotate",
            "--no-config",
            "--only-binary",
            ":all:",
            # `patchq build` chooses release wheels for this Python, too.
            "--python",
            sys.executable,
            "--no-python-downloads",
            "--python-platform",
            f"{self.platform}-manylinux_2_39",
            "--index-strategy",
            "unsafe-best-match",
            "--find-links",
            str(self.folder),
            "--override",
            str(over),
            *_indexes(),
            *(["--no-deps"] if alone else []),
            str(asked),
        ]
        done = runner.run(command, cwd=self.folder, env=_certificates(), timeout=SECONDS, ok_codes=(0, 1, 2))
        message = (done.stdout if done.returncode == 0 else done.stderr).decode("utf-8", "replace")
        if done.returncode and "No solution found" not in message:
            raise BuildError(f"uv can't resolve: {message.strip()}", hint="can the package index be reached?")
        return done.returncode == 0, message


def _indexes() -> Iterator[str]:
    """Yield pip's index settings as options of uv, because uv doesn't read pip's settings."""
    settings = pip_settings()
    for name in ("index-url", "extra-index-url", "find-links"):
        for value in settings.get(name, []):
            yield from (f"--{name}", value)
    if settings.get("no-index"):
        yield "--no-index"


def _certificates() -> dict[str, str]:
    """Return environment variables that make uv use the certificates of pip's configuration."""
    cert = pip_settings().get("cert")
    if cert:
        return {"SSL_CERT_FILE": cert[0]}
    return {}


def _resolve(asking: _Asking, set_name: str, wanted: Sequence[str], direct: Sequence[str]) -> Resolved:
    lacked: dict[str, Lacked] = {}
    while True:
        good, message = asking.ask(wanted, lacked)
        found = tuple(lacked.values())
        if good:
            return Resolved(
                set_name=set_name,
                platform=asking.platform,
                packages={str(canonicalize_name(n)): v for n, v in _PINNED.findall(message)},
                lacked=found,
            )
        more = dict(_lacks(asking, _named(message, direct), lacked))
        if not more:
            return Resolved(
                set_name=set_name, platform=asking.platform, packages={}, lacked=found, contradiction=message.strip()
            )
        lacked.update(more)


def _named(message: str, direct: Iterable[str]) -> Iterator[Requirement]:
    """Yield the requirements that may have caused a failed resolution.

    These are the direct requirements and the dependencies that the resolver's message names.
    """
    plain = re.sub(r"[<>=!~\[;]", " ", message)
    words = set(map(canonicalize_name, re.findall(r"[A-Za-z0-9][\w.-]*", plain)))
    seen = set()
    candidates = list(direct)
    for text in _DEPENDS.findall(message):
        candidates.append(text.rstrip(",."))
    for text in candidates:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if canonicalize_name(requirement.name) in words and text not in seen:
            seen.add(text)
            yield requirement


def _lacks(
    asking: _Asking, requirements: Iterable[Requirement], known: Mapping[str, Lacked]
) -> Iterator[tuple[str, Lacked]]:
    """Yield the requirements that the index can't satisfy, found by resolving each requirement alone."""
    for requirement in requirements:
        name = str(canonicalize_name(requirement.name))
        if name in known or asking.ask([str(requirement)], alone=True)[0]:
            continue
        good, message = asking.ask([requirement.name], alone=True)
        there = []
        if good:
            there = _PINNED.findall(message)
        yield name, Lacked(f"{requirement.name}{requirement.specifier}", there[0][1] if there else "")
