"""``kernels/UPSTREAM.toml``: which modules a stack's model needs. Data alone: what it may name is checked here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from patchq.errors import FormatError, UserError
from patchq.formats import toml
from patchq.project.project import Project
from patchq.system import project_files
from patchq.system.paths import KERNELS

#: Generators of FlashInfer's own, by their place below its package.
_CALL = re.compile(r"jit(\.[a-z][a-z0-9_]*)+\.gen_[a-z0-9_]+")
_ENV = re.compile(r"FLASHINFER_[A-Z0-9_]+")
#: Of those, what says which compiler runs, and with what.
_TOOL = re.compile(r"FLAGS|NVCC|CXX|COMPILER|_(CC|LD)$")
_ARCH = re.compile(r"sm_(\d{1,2})(\d)([af]?)")
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Module:
    """A generator and what it is called with.

    :ivar on: beginnings of the architectures that it is for (``sm_12``); none for all.
    :ivar refs: of upstream's, that have it or need it; none for all.
    :ivar gib: memory that one compiler process of it takes.
    """

    call: str
    args: tuple[Any, ...]
    on: tuple[str, ...]
    refs: tuple[str, ...]
    gib: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a kernels wheel holds: ``distribution`` and ``package`` are those that upstream looks for.

    :ivar minutes: of one processor, that compiling all of them took; 0 where nobody measured.
    """

    distribution: str
    package: str
    env: Mapping[str, str]
    modules: tuple[Module, ...]
    minutes: float = 0

    def on(self, arch: str, ref: str) -> tuple[Module, ...]:
        """The modules for an architecture, at a ref of upstream's."""
        return tuple(m for m in self.modules if (not m.on or arch.startswith(m.on)) and (not m.refs or ref in m.refs))


def read_wanted(project: Project, upstream: str) -> Wanted:
    """Read ``kernels/UPSTREAM.toml`` of a project.

    :raises UserError: if there is none.
    :raises FormatError: if it isn't what docs/reference/formats.md says, or names a ref that the lock hasn't.
    """
    path = project.layout.root / KERNELS / f"{upstream}.toml"
    data = project_files.read(project.layout.root, path, _MOST_BYTES)
    if data is None:
        raise UserError(
            f"nothing says which kernels of {upstream} are to be built ahead",
            hint=f"write {path.relative_to(project.layout.root)}; docs/how-to/build-kernels-ahead.md has one",
        )
    name = f"{KERNELS}/{upstream}.toml"
    wanted = parse_wanted(data, name)
    pins = project.lock.upstreams[upstream].pins if upstream in project.lock.upstreams else {}
    if strange := sorted({ref for module in wanted.modules for ref in module.refs} - set(pins)):
        raise FormatError(f"{name}: {upstream} has no ref {strange[0]}", hint="refs are those of upstream.lock")
    return wanted


def parse_wanted(data: bytes, name: str) -> Wanted:
    """Parse such a file.

    :raises FormatError: naming what is wrong with it.
    """
    try:
        raw = toml.loads(data)
        if type(version := raw.get("version")) is not int or version != 1:
            raise ValueError("version is not 1")
        _only(raw, {"version", "distribution", "package", "env", "minutes", "modules"})
        for key, pattern in (("distribution", r"[a-z0-9][a-z0-9-]*"), ("package", r"[a-z_][a-z0-9_]*")):
            if not isinstance(raw.get(key), str) or not re.fullmatch(pattern, raw[key]):
                raise ValueError(f"{key} is no name")
        env = raw.get("env", {})
        if not all(_ENV.fullmatch(k) and isinstance(v, str) and v.isprintable() for k, v in env.items()):
            raise ValueError("env holds more than FLASHINFER_… texts")
        if tools := sorted(filter(_TOOL.search, env)):
            raise ValueError(f"env's {tools[0]} is for a compiler: it could name a program")
        minutes = raw.get("minutes", 0)
        if isinstance(minutes, bool) or not isinstance(minutes, (int, float)) or not 0 <= minutes <= 100_000:
            raise ValueError(f"minutes = {minutes!r} is no time")
        modules = tuple(_module(m) for m in raw.get("modules", ()))
        if not modules:
            raise ValueError("it names no modules")
        return Wanted(raw["distribution"], raw["package"], env, modules, float(minutes))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise FormatError(f"{name}: {error}", hint="docs/reference/formats.md says what it holds") from None


def _module(raw: Any) -> Module:
    _only(raw, {"call", "args", "on", "refs", "gib"})
    call, args, on, gib = raw["call"], raw.get("args", []), raw.get("on", []), raw.get("gib", 3.0)
    refs = raw.get("refs", [])
    if not isinstance(call, str) or not _CALL.fullmatch(call):
        raise ValueError(f"call = {call!r} is no generator (jit.….gen_…)")
    for value in args:
        texts = isinstance(value, str) and re.fullmatch(r"(torch\.)?[a-z0-9_]+", value)
        if not texts and not isinstance(value, (bool, int)):
            raise ValueError(f"{call}: {value!r} is no argument for it")
    if not all(isinstance(text, str) and re.fullmatch(r"sm_\d+[af]?", text) for text in on):
        raise ValueError(f"{call}: on = {on!r} are no architectures")
    if not isinstance(refs, list) or not all(isinstance(text, str) and text for text in refs):
        raise ValueError(f"{call}: refs = {refs!r} are no refs")
    if isinstance(gib, bool) or not isinstance(gib, (int, float)) or not 0 < gib <= 1024:
        raise ValueError(f"{call}: gib = {gib!r} is no size")
    return Module(call, tuple(args), tuple(on), tuple(refs), float(gib))


def _only(raw: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(raw) - known)
    if unknown:
        raise ValueError(f"{unknown[0]} means nothing here")


def arch_list(arch: str) -> str:
    """An architecture as FlashInfer's variable has it.

    >>> arch_list("sm_121f"), arch_list("sm_90a")
    ('12.1f', '9.0a')

    :raises UserError: for a text that is none.
    """
    found = _ARCH.fullmatch(arch)
    if not found:
        raise UserError(f"{arch!r} is not an architecture", hint="--kernels sm_121f")
    return f"{found[1]}.{found[2]}{found[3]}"


def every_wanted(project: Project) -> dict[str, Wanted]:
    """What each upstream's file in ``kernels/`` says."""
    folder = project.layout.root / KERNELS
    return {path.stem: read_wanted(project, path.stem) for path in sorted(folder.glob("*.toml"))}
