"""Whether a set's wheels install together: their own metadata with pinned siblings, resolved against the index.

Wheels that hold nothing but the metadata that ``patchq build`` would give them are resolved by uv, which reads other
packages' metadata alone: nothing is downloaded or installed. A requirement that the index has nothing for is told
apart from one that contradicts another: it is taken away, and the rest resolved without it.
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
from patchq.project.project import Project
from patchq.project.stack import load_state
from patchq.sources.index import pip_settings
from patchq.stacks import siblings
from patchq.stacks.applied import release_version
from patchq.stacks.apply import bases_of
from patchq.system import runner

#: Seconds for one resolution; it reads the metadata of some two hundred packages.
SECONDS = 600
#: A local version: what a built wheel has, so that no index can offer it.
_LOCAL = "+patchq"
_DEPENDS = re.compile(r"depends? on\s+([A-Za-z0-9][\w.-]*(?:\[[\w,-]+\])?(?:[<>=!~]=?[\w.*+!-]+,?)*)")
_PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[\w,-]+\])?==(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Lacked:
    """A requirement that the index has nothing for.

    :ivar there: the newest version that it has for this platform and Python; empty if none.
    """

    requirement: str
    there: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What the wheels of a set come to.

    :ivar set_name: the set's; ``platform``, the machine's.
    :ivar packages: by name, the versions that a resolver chose; empty where it found none.
    :ivar lacked: what was taken away for that.
    :ivar contradiction: why nothing was found, in the resolver's words.
    """

    set_name: str
    platform: str
    packages: Mapping[str, str]
    lacked: tuple[Lacked, ...] = ()
    contradiction: str = ""


def resolve_set(
    project: Project, set_name: str, platform: str, *, python: str = "3.12", offline: bool = False
) -> Resolved:
    """Resolve a set's wheels together, with what its environment asks for.

    :param platform: ``x86_64`` or ``aarch64``; Linux.
    :param offline: upstreams aren't fetched; the index is asked all the same.
    :raises UserError: if none of the set's upstreams is built, or there is no uv.
    """
    if not shutil.which("uv"):
        raise UserError("there is no uv on PATH, which resolves", hint="pip install uv")
    set_name = project.choose_set(set_name)
    with project.locked("check"):
        stacks = project.stacks(set_name)
        states = {stack.pin.upstream: load_state(project.layout, stack.pin.upstream) for stack in stacks}
        bases = {base.pin.upstream: base.commit for base in bases_of(project, stacks, states, offline)}
        required = {upstream: siblings.declared(project, commit) for upstream, commit in bases.items()}
    with tempfile.TemporaryDirectory(prefix="patchq-installs-") as folder:
        wanted = list(_stand_ins(project, set_name, required, Path(folder)))
        if not wanted:
            raise UserError(f"set {set_name} has no upstream that is built", hint="[upstreams.NAME.build] says how")
        environment = project.lock.environments.get(set_name)
        rest = environment.requires if environment else ()
        own = {name.partition("==")[0] for name in wanted}
        direct = [str(r) for each in required.values() for r in each if canonicalize_name(r.name) not in own]
        return _resolve(_Asking(Path(folder), platform, python), set_name, [*wanted, *rest], direct)


def metadata_of(name: str, version: str, requirements: Iterable[Requirement], pins: Mapping[str, str]) -> str:
    """METADATA as the wheel of an upstream has them: its own requirements, its siblings pinned."""
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 0", *(f"Requires-Dist: {r}" for r in requirements)]
    return rewrite_metadata("\n".join(lines) + "\n\n", version, pins)


def _stand_ins(
    project: Project, set_name: str, required: Mapping[str, Sequence[Requirement]], folder: Path
) -> Iterator[str]:
    """Write a wheel of metadata for each upstream that is built; gives what asks for each."""
    built: dict[str, tuple[str, str]] = {}
    patched = {s.pin.upstream for s in project.stacks(set_name) if s.names}
    patched |= {into[0] for name in patched if (into := project.lock.upstreams[name].into)}
    for pin in project.lock.pins_of(set_name):
        if build := project.lock.upstreams[pin.upstream].build:
            local = _LOCAL if pin.upstream in patched else ""
            built[pin.upstream] = (str(canonicalize_name(build.distribution)), release_version(pin) + local)
    for upstream, (name, version) in built.items():
        pins = {other: v for u, (other, v) in built.items() if u != upstream}
        text = metadata_of(name, version, required[upstream], pins)
        stem = f"{name.replace('-', '_')}-{version}"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{stem}.dist-info/METADATA", text)
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
        yield f"{name}=={version}"


@dataclass(frozen=True, slots=True)
class _Asking:
    """uv, with what pip is configured with."""

    folder: Path
    platform: str
    python: str

    def ask(self, wanted: Sequence[str], without: Iterable[str] = (), *, alone: bool = False) -> tuple[bool, str]:
        """Whether requirements resolve, and what uv says: pins, or why not.

        :param without: packages of which any version will do, or none.
        :param alone: without what these require.
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
            "--python",
            sys.executable,
            "--no-python-downloads",
            "--python-platform",
            f"{self.platform}-manylinux_2_39",
            "--python-version",
            self.python,
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
        said = (done.stdout if done.returncode == 0 else done.stderr).decode("utf-8", "replace")
        if done.returncode and "No solution found" not in said:
            raise BuildError(f"uv can't resolve: {said.strip()}", hint="can the package index be reached?")
        return done.returncode == 0, said


def _indexes() -> Iterator[str]:
    """Where pip looks, for uv, which doesn't read pip's settings."""
    settings = pip_settings()
    for name in ("index-url", "extra-index-url", "find-links"):
        for value in settings.get(name, []):
            yield from (f"--{name}", value)
    if settings.get("no-index"):
        yield "--no-index"


def _certificates() -> dict[str, str]:
    """The certificates that pip is told to believe, for uv."""
    cert = pip_settings().get("cert")
    return {"SSL_CERT_FILE": cert[0]} if cert else {}


def _resolve(asking: _Asking, set_name: str, wanted: Sequence[str], direct: Sequence[str]) -> Resolved:
    lacked: dict[str, Lacked] = {}
    while True:
        good, said = asking.ask(wanted, lacked)
        found = tuple(lacked.values())
        if good:
            return Resolved(
                set_name=set_name,
                platform=asking.platform,
                packages={str(canonicalize_name(n)): v for n, v in _PINNED.findall(said)},
                lacked=found,
            )
        more = dict(_lacks(asking, _named(said, direct), lacked))
        if not more:
            return Resolved(
                set_name=set_name, platform=asking.platform, packages={}, lacked=found, contradiction=said.strip()
            )
        lacked.update(more)


def _named(said: str, direct: Iterable[str]) -> Iterator[Requirement]:
    """The requirements that may have stopped a resolver: direct ones that it names, and what it says others ask for."""
    words = {str(canonicalize_name(w)) for w in re.findall(r"[A-Za-z0-9][\w.-]*", re.sub(r"[<>=!~\[;]", " ", said))}
    seen = set()
    for text in [*direct, *(t.rstrip(",.") for t in _DEPENDS.findall(said))]:
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
    """Of requirements, those that the index has nothing for, each asked for alone."""
    for requirement in requirements:
        name = str(canonicalize_name(requirement.name))
        if name in known or asking.ask([str(requirement)], alone=True)[0]:
            continue
        good, said = asking.ask([requirement.name], alone=True)
        there = _PINNED.findall(said) if good else []
        yield name, Lacked(f"{requirement.name}{requirement.specifier}", there[0][1] if there else "")
