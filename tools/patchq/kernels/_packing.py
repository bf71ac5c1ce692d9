"""Modules to the wheel that upstream looks for: it finds each by its name, and then compiles nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.build import wheel, zipped
from patchq.build.job import Job
from patchq.build.provenance import manifest
from patchq.errors import BuildError
from patchq.formats.lock import BuildConfig
from patchq.kernels import _linking
from patchq.stacks.applied import Applied
from patchq.system import fsio

_INIT = '''"""Kernels of {parent} {version}, compiled ahead for {arch}."""

import pathlib
from typing import NamedTuple

#: {parent} takes these kernels if it has this version.
__version__ = "{version}"


class Provider(NamedTuple):
    """Modules for some architectures, and where they are."""

    provider_id: str
    distribution: str
    version: str
    jit_cache_dir: str
    cuda_architectures: frozenset[str]
    modules: frozenset[str]


def get_jit_cache_dir() -> str:
    """Where {parent} 0.6 looks for its modules."""
    return str(pathlib.Path(__file__).parent / "jit_cache")


def get_jit_cache_providers() -> tuple[Provider, ...]:
    """What {parent} 0.7 asks for its modules, by the architecture of the device."""
    folder = get_jit_cache_dir()
    modules = frozenset(path.name for path in pathlib.Path(folder).iterdir())
    return (Provider("{arch}", "{distribution}", __version__, folder, frozenset({{"{arch}"}}), modules),)
'''


def package_init(parent: str, version: str, distribution: str, arch: str) -> bytes:
    """``__init__.py`` of the package in which FlashInfer looks for compiled modules, in its older and its newer way.

    :param version: of ``parent``, with which its own has to agree.
    """
    said = {"parent": parent, "version": version, "distribution": distribution, "arch": arch.replace("_", "")}
    return _INIT.format(**said).encode()


@dataclass(frozen=True, slots=True)
class Contents:
    """What goes into a kernels wheel: modules by name, and for which architecture and machine they are."""

    modules: Mapping[str, bytes]
    arch: str
    platform: str
    tools: str
    units: Mapping[str, int]
    wanted: Sequence[str]


def check_modules(contents: Contents) -> None:
    """Each module is for that machine, and has device code for that architecture alone.

    :raises BuildError: naming one that isn't.
    """
    right = {"sm_" + contents.arch[3:].rstrip("af")}
    for name, data in contents.modules.items():
        machine, targets = _linking.machine(data), _linking.targets(data)
        if machine != contents.platform or not targets <= right:
            raise BuildError(
                f"{name} came out for {machine} and {', '.join(sorted(targets)) or 'no GPU'}, "
                f"not for {contents.platform} and {contents.arch}",
                hint="report it, with the compiler's version",
            )


def pack(job: Job, item: Applied, config: BuildConfig, contents: Contents) -> Path:
    """Write the wheel into the set's folder; ``item`` is the upstream whose kernels they are.

    :raises BuildError: if a module isn't for that machine and architecture.
    """
    check_modules(contents)
    assert item.build
    parent = job.versions[item.stack.pin.upstream]
    version = f"{parent}.{contents.arch.replace('_', '')}"
    files = {f"{config.package}/jit_cache/{name}/{name}.so": data for name, data in sorted(contents.modules.items())}
    libraries = dict(files)
    init = package_init(item.build.distribution, parent, config.distribution, contents.arch)
    about = {
        "version": 1, "arch": contents.arch, "platform": contents.platform, "tools": contents.tools,
        "wanted": list(contents.wanted),
        "modules": [
            {"name": name, "units": contents.units[name], "targets": sorted(_linking.targets(data))}
            for name, data in sorted(contents.modules.items())
        ],
    }  # fmt: skip
    files |= {f"{config.package}/__init__.py": init, f"{config.package}/kernels.json": fsio.dump_json(about)}
    siblings = {item.build.distribution: parent}
    files |= manifest(job, item, config, version, f"kernels-{contents.arch}", libraries, siblings=siblings)
    tag = f"py3-none-manylinux_2_{_linking.glibc(contents.modules)}_{contents.platform}"
    escaped = config.distribution.replace("-", "_")
    info = f"{escaped}-{version}.dist-info"
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {config.distribution}\nVersion: {version}\n"
        f"Summary: Kernels of {item.build.distribution} for {contents.arch}, compiled ahead\n"
        f"Requires-Dist: {item.build.distribution}=={parent}\n\n"
    ).encode()
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: patchq\nRoot-Is-Purelib: false\nTag: {tag}\n\n").encode()
    record = f"{info}/RECORD"
    files[record] = wheel.rewrite_record("", (), files, record)
    target = job.dist / f"{escaped}-{version}-{tag}.whl"
    zipped.write(target, files)
    return target
