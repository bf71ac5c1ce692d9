"""Parser of ``kernels/UPSTREAM.toml``, the list of the kernel modules to compile."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from patchq.errors import FormatError, UserError
from patchq.formats import toml
from patchq.project.project import Project
from patchq.system import project_files
from patchq.system.paths import KERNELS

#: Generators of FlashInfer, relative to its package.
_CALL = re.compile(r"jit(\.[a-z][a-z0-9_]*)+\.gen_[a-z0-9_]+")
_ENV = re.compile(r"FLASHINFER_[A-Z0-9_]+")
#: Variables that choose a compiler or its flags.
_TOOL = re.compile(r"FLAGS|NVCC|CXX|COMPILER|_(CC|LD)$")
_ARCH = re.compile(r"sm_(\d{1,2})(\d)([af]?)")
_MOST_BYTES = 1 << 20
#: Default memory of a compiler process, in GiB.
_GIB = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedModule:
    """Generator function of a kernel module, with its arguments.

    :ivar on: Prefixes of the architectures that need the module (``sm_12``); empty for all.
    :ivar refs: Upstream refs that need the module; empty for all.
    :ivar gib: Memory that one compiler process needs, in GiB.
    """

    call: str
    args: tuple[Any, ...]
    on: tuple[str, ...]
    refs: tuple[str, ...]
    gib: float

    def is_for(self, arch: str, ref: str) -> bool:
        """Return whether an architecture needs the module at an upstream ref."""
        if self.on and not arch.startswith(self.on):
            return False
        return not self.refs or ref in self.refs


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Kernel modules to compile into a wheel. Upstream finds the wheel by the names ``distribution`` and ``package``.

    :ivar minutes: Minutes that one processor needs to compile all modules; 0 if not measured.
    """

    distribution: str
    package: str
    env: Mapping[str, str]
    modules: tuple[WantedModule, ...]
    minutes: float = 0

    def on(self, arch: str, ref: str) -> tuple[WantedModule, ...]:
        """Return the modules that an architecture needs at an upstream ref."""
        found: list[WantedModule] = []
        for module in self.modules:
            if module.is_for(arch, ref):
                found.append(module)
        return tuple(found)


def read_wanted(project: Project, upstream: str) -> Wanted:
    """Read ``kernels/UPSTREAM.toml`` of a project.

    :raises UserError: if the file doesn't exist.
    :raises FormatError: if it is malformed (docs/reference/formats.md), or names a ref that isn't in the
        lock.
    """
    name = f"{KERNELS}/{upstream}.toml"
    data = project_files.read(project.layout.root, project.layout.root / name, _MOST_BYTES)
    if data is None:
        raise UserError(
            f"no file lists the kernels of {upstream}",
            hint=f"write {name}; docs/how-to/build-kernels-ahead.md has an example",
        )
    wanted = parse_wanted(data, name)
    known: Collection[str] = ()
    if upstream in project.lock.upstreams:
        known = project.lock.upstreams[upstream].pins
    for module in wanted.modules:
        for ref in module.refs:
            if ref not in known:
                reason = f"{name}: {upstream} has no ref {ref}"
                raise FormatError(reason, hint="name a ref that upstream.lock pins")
    return wanted


def parse_wanted(data: bytes, name: str) -> Wanted:
    """Parse the contents of a ``kernels/UPSTREAM.toml``.

    :raises FormatError: if the contents are malformed.
    """
    try:
        return _wanted(toml.loads(data))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        hint = "docs/reference/formats.md describes the format"
        raise FormatError(f"{name}: {error}", hint=hint) from None


def _wanted(raw: Mapping[str, Any]) -> Wanted:
    version = raw.get("version")
    if type(version) is not int or version != 1:
        raise ValueError("version is not 1")
    _refuse_unknown(raw, {"version", "distribution", "package", "env", "minutes", "modules"})
    if not _is_match(r"[a-z0-9][a-z0-9-]*", raw.get("distribution")):
        raise ValueError("distribution is not a name")
    if not _is_match(r"[a-z_][a-z0-9_]*", raw.get("package")):
        raise ValueError("package is not a name")
    env = raw.get("env", {})
    for variable, value in env.items():
        if not (_ENV.fullmatch(variable) and isinstance(value, str) and value.isprintable()):
            raise ValueError("env may only have FLASHINFER_… variables with printable texts")
        if _TOOL.search(variable):
            raise ValueError(f"env can't have {variable}, which could make a compiler run another program")
    minutes = raw.get("minutes", 0)
    if not _is_number(minutes) or not 0 <= minutes <= 100_000:
        raise ValueError(f"minutes = {minutes!r} is not a time")
    modules = tuple(map(_module, raw.get("modules", ())))
    if not modules:
        raise ValueError("it lists no modules")
    return Wanted(
        distribution=raw["distribution"],
        package=raw["package"],
        env=env,
        modules=modules,
        minutes=float(minutes),
    )


def _module(raw: Any) -> WantedModule:
    _refuse_unknown(raw, {"call", "args", "on", "refs", "gib"})
    call, args = raw["call"], raw.get("args", [])
    on, refs, gib = raw.get("on", []), raw.get("refs", []), raw.get("gib", _GIB)
    if not isinstance(call, str) or not _CALL.fullmatch(call):
        raise ValueError(f"call = {call!r} is not a generator (jit.….gen_…)")
    for value in args:
        if not isinstance(value, (bool, int)) and not _is_match(r"(torch\.)?[a-z0-9_]+", value):
            raise ValueError(f"{call}: {value!r} is not an allowed argument")
    if not all(_is_match(r"sm_\d+[af]?", arch) for arch in on):
        raise ValueError(f"{call}: on = {on!r} are not architectures")
    if not isinstance(refs, list) or not all(isinstance(ref, str) and ref for ref in refs):
        raise ValueError(f"{call}: refs = {refs!r} are not refs")
    if not _is_number(gib) or not 0 < gib <= 1024:
        raise ValueError(f"{call}: gib = {gib!r} is not a size")
    return WantedModule(call=call, args=tuple(args), on=tuple(on), refs=tuple(refs), gib=float(gib))


def _is_match(pattern: str, value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _refuse_unknown(raw: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(raw) - known)
    if unknown:
        raise ValueError(f"{unknown[0]} is not a known key")


def arch_list(arch: str) -> str:
    """Return an architecture in the form of FlashInfer's variable ``FLASHINFER_CUDA_ARCH_LIST``.

    >>> arch_list("sm_121f"), arch_list("sm_90a")
    ('12.1f', '9.0a')

    :raises UserError: if the architecture is malformed.
    """
    found = _ARCH.fullmatch(arch)
    if not found:
        raise UserError(f"{arch!r} is not an architecture", hint="--kernels sm_121f")
    return f"{found[1]}.{found[2]}{found[3]}"


def every_wanted(project: Project) -> dict[str, Wanted]:
    """Read all files in ``kernels/``, and return their contents, keyed by upstream."""
    folder = project.layout.root / KERNELS
    return {path.stem: read_wanted(project, path.stem) for path in sorted(folder.glob("*.toml"))}
