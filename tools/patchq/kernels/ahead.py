"""``build UPSTREAM --kernels ARCH``: what upstream would compile when it is first used, compiled here and now."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from patchq.build import platforms
from patchq.build.build import build, job_of
from patchq.build.dist import Built, keep, write_beside
from patchq.build.job import Made
from patchq.errors import BuildError, FormatError, UserError
from patchq.extras import install_command
from patchq.formats.lock import BuildConfig
from patchq.kernels import _compiling, _linking, _packing
from patchq.kernels._cache import Cache
from patchq.kernels._toolchain import Toolchain, find_toolchain
from patchq.kernels.wanted import Wanted, arch_list, read_wanted
from patchq.project.project import Project
from patchq.sources.index import cache_folder
from patchq.system import fsio, runner


@dataclass(frozen=True, slots=True)
class Ahead:
    """A kernels wheel, and what it took: units compiled and found, seconds, the largest compiler in GiB."""

    built: Built
    modules: int
    compiled: int
    found: int
    seconds: float
    largest: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A module as upstream's generator describes it; sources relative to the root."""

    name: str
    sources: tuple[str, ...]
    flags: dict[str, tuple[str, ...]]
    libraries: tuple[str, ...]
    gib: float

    @property
    def units(self) -> list[_compiling.Unit]:
        """Its sources, each with the flags of its compiler."""
        return [
            _compiling.Unit(self.name, s, self.flags["nvcc" if s.endswith(".cu") else "cxx"], self.gib)
            for s in self.sources
        ]


def build_kernels(
    project: Project, upstream: str, arch: str, *, set_name: str = "", platform: str = "", jobs: int = 0,
    gib: float = 0.0, only: Sequence[str] = (), isolation: bool = True, offline: bool = False,
) -> Ahead:  # fmt: skip
    """Compile an upstream's kernels ahead, into a wheel in ``dist/SET``.

    :param arch: ``sm_121f``; ``platform`` is the host's, this one's where it is empty.
    :param jobs: compilers at once; 0 for one a core. ``gib``: memory for all of them; 0 for what is free.
    :param only: modules whose names hold one of these, instead of all; what is left out compiles at first use.
    :raises BuildError: if a compiler is missing or fails. Units that were done are kept, and not compiled again.
    """
    arch_list(arch)
    wanted, tools = read_wanted(project, upstream), find_toolchain(platform or platforms.here())
    wheels = build(project, [upstream], set_name=set_name, isolation=isolation, offline=offline).wheels
    if not wheels:
        raise UserError(
            f"no applied patch changes {upstream}, so its kernels are upstream's own",
            hint="install the kernels that upstream publishes",
        )
    (parent,) = wheels
    root = _root(project, parent)
    ref = project.lock.sets[parent.path.parent.name][upstream]
    every = _plan(wanted, arch, ref, root, tools)
    plans = [p for p in every if not only or any(text in p.name for text in only)]
    if not plans:
        raise UserError(f"no module of {upstream} has {' or '.join(only)} in its name", hint="--only TEXT")
    folder = cache_folder() / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    cache = Cache(folder, root, tools.places)
    units = [unit for plan in plans for unit in plan.units]
    project.say(f"{upstream}: {len(plans)} modules of {len(units)} units for {arch} on {tools.platform}")
    tally = _compiling.compile_units(
        units, root, tools, cache, jobs=jobs, gib=gib, say=project.say,
        count=lambda done, total: project.count(f"kernels of {upstream}", done, total, "units"),
    )  # fmt: skip
    modules = _link(plans, tally, root / "ops" / f"{arch}-{tools.platform}", tools)
    contents = _packing.Contents(
        modules, arch, tools.platform, tools.identity, {p.name: len(p.sources) for p in plans}, [p.name for p in every]
    )
    built = _pack(project, upstream, parent, wanted, contents)
    return Ahead(built, len(plans), tally.compiled, tally.found, tally.seconds, tally.largest)


def _root(project: Project, parent: Built) -> Path:
    """The wheel's files, where they are compiled; unpacked each time, since what lies there is run, too."""
    place = project.layout.private / "kernels"
    root = place / parent.sha256[:16]
    shutil.rmtree(place, ignore_errors=True)
    root.mkdir(parents=True)
    with zipfile.ZipFile(parent.path) as zf:  # patchq's own, by its hash
        zf.extractall(root)
    return root


def _plan(wanted: Wanted, arch: str, ref: str, root: Path, tools: Toolchain) -> list[Plan]:
    """Ask upstream's generators.

    :raises BuildError: if it can't be imported, or a generator isn't there or fails.
    """
    chosen = wanted.on(arch, ref)
    question = {"root": str(root), "modules": [{"call": m.call, "args": m.args} for m in chosen]}
    env = {
        **wanted.env, "PYTHONPATH": str(root), "FLASHINFER_CUDA_ARCH_LIST": arch_list(arch),
        "FLASHINFER_WORKSPACE_BASE": str(root / "work"), "FLASHINFER_DISABLE_VERSION_CHECK": "1",
        "CUDA_HOME": str(tools.cuda), "PYTHONDONTWRITEBYTECODE": "1", "CC": "", "CXX": "",
    }  # fmt: skip
    clean = ["env", *(f"-u{name}" for name in ("CC", "CXX"))]
    try:
        done = runner.run(
            [*clean, sys.executable, str(Path(__file__).with_name("_planner.py"))],
            data=json.dumps(question).encode(), cwd=root, env=env,
        )  # fmt: skip
        told = json.loads(done.stdout)
        headers = root / "tvm_ffi"
        headers.unlink(missing_ok=True)
        headers.symlink_to(told["headers"])
        return [_read(raw, module.gib) for raw, module in zip(told["plans"], chosen, strict=True)]
    except runner.CommandError as error:
        last = (error.said.splitlines() or ["it said nothing"])[-1]
        missing = "torch" in last or "tvm_ffi" in last
        raise BuildError(
            f"upstream's generators can't be asked: {last}",
            hint=install_command("kernels") if missing else "is it in kernels/*.toml as upstream has it?",
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"upstream's generators gave no plan: {error}", hint="report it") from None


def _read(raw: Any, gib: float) -> Plan:
    if raw["device_linking"]:
        raise BuildError(f"{raw['name']} needs device linking, which isn't done here", hint="leave it out")
    flags = {kind: tuple(word for flag in found for word in flag.split(" ", 1)) for kind, found in raw["flags"].items()}
    return Plan(raw["name"], tuple(raw["sources"]), flags, tuple(raw["libraries"]), gib)


def _link(plans: Sequence[Plan], tally: _compiling.Tally, folder: Path, tools: Toolchain) -> dict[str, bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    modules = {}
    for plan in plans:
        target = folder / f"{plan.name}.so"
        _linking.link([tally.objects[plan.name, s] for s in plan.sources], plan.libraries, target, tools)
        modules[plan.name] = target.read_bytes()
    return modules


def _pack(project: Project, upstream: str, parent: Built, wanted: Wanted, contents: _packing.Contents) -> Built:
    """Put the wheel beside its parent, if that is still of the stack that is applied."""
    set_name = parent.path.parent.name
    with project.locked("build"):
        job = job_of(project, set_name)
        if job.stack_id != parent.stack_id:
            raise UserError("the stack was changed while its kernels were compiled", hint="the same command again")
        item = next(a for a in job.applied if a.stack.pin.upstream == upstream)
        profile = f"kernels-{contents.arch}"
        config = BuildConfig(wanted.distribution, wanted.package, profile)
        job = replace(job, platform="" if contents.platform == platforms.here() else contents.platform)
        before = {p: fsio.sha256_file(p) for p in job.dist.glob(f"{wanted.package}-*.whl")}
        path = _packing.pack(job, item, config, contents)
        version = path.name.split("-")[1]
        built = keep(job, replace(item, build=config), profile, version, Made(path))
        # The tag says what the modules in it need of the C library, so others of the same stack have another name.
        for old in set(before) - {path}:
            if old.name.split("-")[1] == version and old.stem.endswith(contents.platform):
                old.unlink(missing_ok=True)
        write_beside(job)
        return replace(built, fresh=before.get(path) != built.sha256)
