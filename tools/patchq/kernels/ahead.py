"""Ahead-of-time builds of kernels (``build UPSTREAM --kernels ARCH``)."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from patchq.build import platforms
from patchq.build.build import build, job_of
from patchq.build.dist import Built, keep, write_beside
from patchq.build.job import Made
from patchq.errors import BuildError, FormatError, UserError
from patchq.formats.lock import BuildConfig
from patchq.kernels import _compiling, _linking, _packing
from patchq.kernels._cache import UnitCache
from patchq.kernels._toolchain import Toolchain, find_toolchain
from patchq.kernels.wanted import Wanted, WantedModule, arch_list, read_wanted
from patchq.names import counted
from patchq.project.project import Project
from patchq.system import fsio, runner
from patchq.system.paths import cache_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelBuild:
    """Result of building a kernel wheel: the wheel, and the cost of the build.

    :ivar compiled: Number of units that were compiled.
    :ivar found: Number of units taken from the cache.
    :ivar largest: Peak memory of the largest compiler process, in GiB.
    """

    built: Built
    modules: int
    compiled: int
    found: int
    seconds: float
    largest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulePlan:
    """Kernel module as described by upstream's generator. Paths of sources are relative to the root."""

    name: str
    sources: tuple[str, ...]
    flags: dict[str, tuple[str, ...]]
    libraries: tuple[str, ...]
    gib: float

    @property
    def units(self) -> list[_compiling.Unit]:
        """Units of the module: its sources, with the flags of their compilers."""
        units = []
        for source in self.sources:
            flags = self.flags["nvcc" if source.endswith(".cu") else "cxx"]
            unit = _compiling.Unit(module=self.name, source=source, flags=flags, gib=self.gib)
            units.append(unit)
        return units


def build_kernels(
    project: Project,
    upstream: str,
    arch: str,
    *,
    set_name: str = "",
    platform: str = "",
    jobs: int = 0,
    gib: float = 0.0,
    only: Sequence[str] = (),
    isolation: bool = True,
    offline: bool = False,
) -> KernelBuild:
    """Compile an upstream's kernels into a wheel in ``dist/SET``.

    :param arch: Architecture of the GPU (``sm_121f``).
    :param platform: Platform of the host; empty for this machine's platform.
    :param jobs: Number of parallel compilers; 0 for one per core.
    :param gib: Memory for all compilers; 0 for the free memory.
    :param only: Substrings of the names of modules to compile; empty for all modules. The other modules are
        compiled at first use.
    :raises BuildError: if a compiler is missing or fails. Compiled units are kept and not compiled
        again.
    """
    arch_list(arch)
    wanted = read_wanted(project, upstream)
    tools = find_toolchain(platform or platforms.here())
    job = build(project, [upstream], set_name=set_name, isolation=isolation, offline=offline)
    wheels = job.wheels
    if not wheels:
        raise UserError(
            f"no applied patch changes {upstream}, so its kernels are upstream's own",
            hint="install the kernels that upstream publishes",
        )
    (parent,) = wheels
    root = _root(project, parent)
    ref = project.lock.sets[parent.path.parent.name][upstream]
    every = _plan(wanted.on(arch, ref), arch, wanted.env, root=root, tools=tools)
    plans = []
    for plan in every:
        if _is_selected(plan.name, only):
            plans.append(plan)
    if not plans:
        names = " or ".join(only)
        raise UserError(
            f"no module of {upstream} has {names} in its name",
            hint=f"the modules are {', '.join(plan.name for plan in every[:5])}, …",
        )
    folder = cache_folder() / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    cache = UnitCache(folder, root, tools.places)
    units = []
    for plan in plans:
        units += plan.units
    count = f"{counted(len(plans), 'module')} of {counted(len(units), 'unit')}"
    project.say(f"{upstream}: {count} for {arch} on {tools.platform}")
    compiled = _compiling.compile_units(
        units,
        root,
        tools,
        cache,
        jobs=jobs,
        gib=gib,
        say=project.say,
        count=lambda done, total: project.count(f"kernels of {upstream}", done, total, "units"),
    )
    contents = _packing.Contents(
        modules=_link(plans, compiled, root / "ops" / f"{arch}-{tools.platform}", tools),
        arch=arch,
        platform=tools.platform,
        tools=tools.identity,
        units={plan.name: len(plan.sources) for plan in plans},
        wanted=[plan.name for plan in every],
    )
    return KernelBuild(
        built=_pack(project, upstream, wanted, contents, parent=parent),
        modules=len(plans),
        compiled=compiled.compiled,
        found=compiled.found,
        seconds=compiled.seconds,
        largest=compiled.largest,
    )


def _is_selected(name: str, only: Sequence[str]) -> bool:
    return not only or any(text in name for text in only)


def _root(project: Project, parent: Built) -> Path:
    """Unpack the parent wheel into an empty folder, and return the folder. The wheel's generators run there."""
    folder = project.layout.private / "kernels"
    root = folder / parent.sha256[:16]
    shutil.rmtree(folder, ignore_errors=True)
    root.mkdir(parents=True)
    with zipfile.ZipFile(parent.path) as wheel:  # built by patchq, with a known hash
        wheel.extractall(root)
    return root


def _plan(
    modules: Sequence[WantedModule], arch: str, env: Mapping[str, str], *, root: Path, tools: Toolchain
) -> list[ModulePlan]:
    """Run upstream's generators and return the plans of the modules.

    :raises BuildError: if a generator can't be imported or fails.
    """
    calls = [{"call": module.call, "args": module.args} for module in modules]
    env = {
        **env,
        "PYTHONPATH": str(root),
        "FLASHINFER_CUDA_ARCH_LIST": arch_list(arch),
        "FLASHINFER_WORKSPACE_BASE": str(root / "work"),
        "FLASHINFER_DISABLE_VERSION_CHECK": "1",
        "CUDA_HOME": str(tools.cuda),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CC": "",
        "CXX": "",
    }
    planner = str(Path(__file__).with_name("_planner.py"))
    try:
        done = runner.run(
            ["env", "-uCC", "-uCXX", sys.executable, planner],
            data=json.dumps({"root": str(root), "modules": calls}).encode(),
            cwd=root,
            env=env,
        )
        answer = json.loads(done.stdout)
        headers = root / "tvm_ffi"
        headers.unlink(missing_ok=True)
        headers.symlink_to(answer["headers"])
        plans = []
        for raw, module in zip(answer["plans"], modules, strict=True):
            plans.append(_read_plan(raw, module.gib))
        return plans
    except runner.CommandError as error:
        last = (error.output.splitlines() or ["it printed nothing"])[-1]
        hint = "compare its call in kernels/*.toml with upstream's generator"
        if "torch" in last or "tvm_ffi" in last:
            hint = "python -m pip install 'patchq[proofs]'"
        raise BuildError(f"upstream's generators can't be run: {last}", hint=hint) from None
    except (ValueError, KeyError, TypeError) as error:
        reason = f"upstream's generators printed no plan: {error}"
        raise FormatError(reason, hint="report it") from None


def _read_plan(raw: Any, gib: float) -> ModulePlan:
    if raw["device_linking"]:
        reason = f"{raw['name']} needs device linking, which isn't supported"
        raise BuildError(reason, hint="leave it out")
    flags = {}
    for compiler, found in raw["flags"].items():
        words: list[str] = []
        for flag in found:
            words += flag.split(" ", 1)
        flags[compiler] = tuple(words)
    return ModulePlan(
        name=raw["name"],
        sources=tuple(raw["sources"]),
        flags=flags,
        libraries=tuple(raw["libraries"]),
        gib=gib,
    )


def _link(
    plans: Sequence[ModulePlan], compiled: _compiling.Compiled, folder: Path, tools: Toolchain
) -> dict[str, bytes]:
    """Link each module, and return the contents of the module files, keyed by module name."""
    folder.mkdir(parents=True, exist_ok=True)
    modules = {}
    for plan in plans:
        target = folder / f"{plan.name}.so"
        objects = [compiled.objects[plan.name, source] for source in plan.sources]
        _linking.link(objects, plan.libraries, target, tools)
        modules[plan.name] = target.read_bytes()
    return modules


def _pack(project: Project, upstream: str, wanted: Wanted, contents: _packing.Contents, *, parent: Built) -> Built:
    """Write the kernel wheel next to the wheel of its parent.

    :raises UserError: if the parent wheel wasn't built from the applied stack.
    """
    set_name = parent.path.parent.name
    with project.locked("build"):
        job = job_of(project, set_name)
        if job.stack_id != parent.stack_id:
            reason = "the stack was changed while its kernels were compiled"
            raise UserError(reason, hint="run the same command again")
        item = next(one for one in job.applied if one.stack.pin.upstream == upstream)
        profile = f"kernels-{contents.arch}"
        config = BuildConfig(distribution=wanted.distribution, package=wanted.package, profile=profile)
        is_native = contents.platform == platforms.here()
        job = replace(job, platform="" if is_native else contents.platform)
        before = {}
        for wheel in job.dist.glob(f"{wanted.package}-*.whl"):
            before[wheel] = fsio.sha256_file(wheel)
        path = _packing.pack(job, item, config, contents)
        version = path.name.split("-")[1]
        built = keep(job, replace(item, build=config), profile, version, Made(path))
        # Wheels of the same stack may have another tag, which depends on the modules' C library.
        for old in set(before) - {path}:
            if old.name.split("-")[1] == version and old.stem.endswith(contents.platform):
                old.unlink(missing_ok=True)
        write_beside(job)
        return replace(built, fresh=before.get(path) != built.sha256)
