"""Parallel compilation of units within the limits of cores and memory, with a cache."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shlex
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from patchq.errors import BuildError
from patchq.kernels._cache import UnitCache, headers_in
from patchq.kernels._toolchain import Toolchain
from patchq.names import counted
from patchq.system import runner

#: Compiler message for a missing header of CUDA's libraries.
_LACKING = re.compile(r"fatal error: ((cublas|curand|nvrtc)\w*\.h): No such file")
_PACKAGES = {
    "cublas": "'nvidia-cublas=={}.*'",
    "curand": "nvidia-curand",
    "nvrtc": "'nvidia-cuda-nvrtc=={}.*'",
}
_HEADERS = (".h", ".cuh", ".hpp", ".inc", ".inl")
#: Folders with files that are generated for one module.
_GENERATED = ("gen", "work", "ops", "cutlass_instantiations")
#: Lines of a compiler's output in an error message.
_SHOWN_LINES = 25
#: Variables that change the output of compilers.
_COMPILER_VARIABLES = (
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Source file of a module (path relative to the root), with its flags and the memory that its compiler needs."""

    module: str
    source: str
    flags: tuple[str, ...]
    gib: float


@dataclass(slots=True, kw_only=True)
class Compiled:
    """Compiled objects, keyed by module and source, and the cost of compiling them.

    :ivar found: Number of units taken from the cache.
    :ivar largest: Peak memory of the largest compiler process, in GiB.
    """

    compiled: int = 0
    found: int = 0
    seconds: float = 0.0
    largest: float = 0.0
    objects: dict[tuple[str, str], Path] = field(default_factory=dict)


class MemoryBudget:
    """Memory shared by compilers. A compiler waits until enough memory is free, or until no other compiler runs."""

    def __init__(self, gib: float) -> None:
        self.left = gib
        self.whole = gib
        self._running = 0
        self._changed = threading.Condition()

    def take(self, gib: float) -> float:
        """Wait until memory is free, and return the amount that was reserved."""
        gib = min(gib, self.whole)
        with self._changed:
            self._changed.wait_for(lambda: self.left >= gib or not self._running)
            self.left -= gib
            self._running += 1
        return gib

    def give(self, gib: float) -> None:
        """Return reserved memory to the budget."""
        with self._changed:
            self.left += gib
            self._running -= 1
            self._changed.notify_all()


def memory_gib() -> float:
    """Return the memory in GiB that this machine and its control group leave for compilers.

    The result is 90 % of the free memory, and at least 1 GiB.
    """
    left = 4.0
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            left = int(value.split()[0]) / 2**20
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        used = (group / "memory.current").read_text().strip()
        if limit != "max":
            left = min(left, (int(limit) - int(used)) / 2**30)
    except (OSError, ValueError):
        pass
    return max(left * 0.9, 1.0)


def compile_units(
    units: Sequence[Unit],
    root: Path,
    tools: Toolchain,
    cache: UnitCache,
    *,
    jobs: int = 0,
    gib: float = 0.0,
    say: Callable[[str], None],
    count: Callable[[int, int], None] = lambda done, total: None,
) -> Compiled:
    """Compile the units that are not in the cache. Each unit is added to the cache as soon as it is compiled.

    :param jobs: Number of parallel compilers; 0 for one per core.
    :param gib: Memory for all compilers; 0 for the free memory.
    :param count: Callback that gets the number of units compiled so far and the number of units to compile.
    :raises BuildError: with the output of the compiler.
    """
    result = Compiled()
    start = time.monotonic()
    keys = _keys(units, root, tools, cache)
    todo = []
    for unit, key in keys.items():
        found = cache.find(key)
        if found:
            result.objects[unit.module, unit.source] = found
            result.found += 1
        else:
            todo.append(unit)
    if result.found:
        say(f"from the cache: {result.found} of {counted(len(units), 'unit')}")
    budget = MemoryBudget(gib or memory_gib())
    failed = threading.Event()
    number = iter(range(1, len(todo) + 1))

    def work(unit: Unit) -> None:
        taken = budget.take(unit.gib)
        try:
            if failed.is_set():
                return
            began = time.monotonic()
            made = _compile(unit, keys[unit], root, tools=tools, cache=cache)
            result.objects[unit.module, unit.source] = made
            done = next(number)
            seconds = time.monotonic() - began
            say(f"{done} of {len(todo)}: {Path(unit.source).name}, {seconds:.0f} s")
            count(done, len(todo))
        except BaseException:
            failed.set()
            raise
        finally:
            budget.give(taken)

    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        # Start with the large units, so that none of them runs last.
        jobs_ = []
        for unit in sorted(todo, key=lambda unit: (-unit.gib, unit.module, unit.source)):
            jobs_.append(pool.submit(work, unit))
        for job in jobs_:
            job.result()
    result.compiled = len(todo)
    result.seconds = time.monotonic() - start
    result.largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return result


def _keys(units: Sequence[Unit], root: Path, tools: Toolchain, cache: UnitCache) -> dict[Unit, str]:
    """Return the cache key of each unit."""
    headers = _header_names(root)
    keys = {}
    for unit in units:
        source = cache.hashes.of(root / unit.source)
        parts = (tools.identity, unit.source, _kind(unit), unit.flags, headers, source)
        keys[unit] = cache.key(*parts)
    return keys


def _kind(unit: Unit) -> str:
    if unit.source.endswith(".cu"):
        return "nvcc"
    return "c++"


def _header_names(root: Path) -> str:
    """Return a hash of the names of all headers, because a new header may shadow another one."""
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(set(folders) - set(_GENERATED))
        relative = Path(folder).relative_to(root).as_posix()
        for file in files:
            if file.endswith(_HEADERS):
                found.append(f"{relative}/{file}")
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()


def _compile(unit: Unit, key: str, root: Path, *, tools: Toolchain, cache: UnitCache) -> Path:
    """Compile one unit with paths relative to the root, so that the object is the same on every machine."""
    includes: list[str] = []
    for place in tools.includes:
        includes += ["-isystem", place]
    with tempfile.TemporaryDirectory(prefix="unit-", dir=cache.folder) as folder:
        made, depends = Path(folder, "unit.o"), Path(folder, "unit.d")
        if _kind(unit) == "nvcc":
            argv = [tools.nvcc, "-ccbin", tools.cxx]
            argv += ["--generate-dependencies-with-compile", "--dependency-output"]
        else:
            argv = [tools.cxx, "-MD", "-MF"]
        argv += [str(depends), *unit.flags, *includes, "-c", unit.source, "-o", str(made)]
        env = dict.fromkeys(_COMPILER_VARIABLES, "")
        env["CUDA_HOME"] = str(tools.cuda)
        try:
            runner.run(argv, cwd=root, env=env)
        except runner.CommandError as error:
            lines = (error.stdout + error.stderr).decode("utf-8", "replace").splitlines()
            output = "\n".join(lines[-_SHOWN_LINES:])
            hint = f"by hand: cd {root} && {shlex.join(argv[:2])} …; use --jobs 1 if memory is short"
            lacking = _LACKING.search(output)
            if lacking:
                package = _PACKAGES[lacking[2]].format(tools.release)
                hint = f"`python -m pip install {package}`, or name the folder of {lacking[1]} "
                hint += "in PATCHQ_CUDA_INCLUDE"
            raise BuildError(
                f"{unit.module}: {unit.source} doesn't compile ({error.code}):\n{output}",
                hint=hint,
            ) from None
        return cache.keep(key, headers_in(depends.read_text()), made)
