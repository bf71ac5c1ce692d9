"""Kernel wheels: packages in which upstream finds compiled modules by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

#: {parent} loads these kernels if it has this version.
__version__ = "{version}"


class Provider(NamedTuple):
    """Modules for some architectures, and their folder."""

    provider_id: str
    distribution: str
    version: str
    jit_cache_dir: str
    cuda_architectures: frozenset[str]
    modules: frozenset[str]


def get_jit_cache_dir() -> str:
    """Return the folder in which {parent} 0.6 looks for modules."""
    return str(pathlib.Path(__file__).parent / "jit_cache")


def get_jit_cache_providers() -> tuple[Provider, ...]:
    """Return the modules for {parent} 0.7, by architecture of the device."""
    folder = get_jit_cache_dir()
    modules = frozenset(path.name for path in pathlib.Path(folder).iterdir())
    archs = frozenset({{"{arch}"}})
    return (Provider("{arch}", "{distribution}", __version__, folder, archs, modules),)
'''


def package_init(parent: str, version: str, distribution: str, arch: str) -> bytes:
    """Return ``__init__.py`` of the package in which FlashInfer 0.6 and 0.7 look for modules.

    :param version: Version of ``parent``. The package must have the same version.
    """
    text = _INIT.format(
        parent=parent,
        version=version,
        distribution=distribution,
        arch=arch.replace("_", ""),
    )
    return text.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Contents of a kernel wheel.

    :ivar modules: Modules by name.
    :ivar tools: Versions of the compilers.
    :ivar units: Number of units (source files) of each module.
    :ivar wanted: Names of all modules, including those that were left out.
    """

    modules: Mapping[str, bytes]
    arch: str
    platform: str
    tools: str
    units: Mapping[str, int]
    wanted: Sequence[str]


def check_modules(contents: Contents) -> None:
    """Check that each module was compiled for the wheel's platform, and only for the wheel's architecture.

    :raises BuildError: for a module of another platform or architecture.
    """
    right = {"sm_" + contents.arch[3:].rstrip("af")}
    for name, data in contents.modules.items():
        machine, targets = _linking.machine(data), _linking.targets(data)
        if machine != contents.platform or not targets <= right:
            gpus = ", ".join(sorted(targets)) or "no GPU"
            raise BuildError(
                f"{name} was compiled for {machine} and {gpus}, not for {contents.platform} and {contents.arch}",
                hint="report this error, with the compiler's version",
            )


def pack(job: Job, item: Applied, config: BuildConfig, contents: Contents) -> Path:
    """Write the kernel wheel into the set's folder.

    :param item: Applied upstream to which the kernels belong.
    :raises BuildError: for a module of another platform or architecture.
    """
    check_modules(contents)
    assert item.build
    parent = job.versions[item.stack.pin.upstream]
    version = f"{parent}.{contents.arch.replace('_', '')}"
    files = {}
    for name, data in sorted(contents.modules.items()):
        files[f"{config.package}/jit_cache/{name}/{name}.so"] = data
    libraries = dict(files)
    init = package_init(item.build.distribution, parent, config.distribution, contents.arch)
    files[f"{config.package}/__init__.py"] = init
    files[f"{config.package}/kernels.json"] = fsio.dump_json(_description(contents))
    files |= manifest(
        job,
        item,
        config,
        version,
        f"kernels-{contents.arch}",
        libraries,
        siblings={item.build.distribution: parent},
    )
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


def _description(contents: Contents) -> dict[str, Any]:
    """Return the content of ``kernels.json``."""
    modules = []
    for name, data in sorted(contents.modules.items()):
        targets = sorted(_linking.targets(data))
        modules.append({"name": name, "units": contents.units[name], "targets": targets})
    return {
        "version": 1,
        "arch": contents.arch,
        "platform": contents.platform,
        "tools": contents.tools,
        "wanted": list(contents.wanted),
        "modules": modules,
    }
