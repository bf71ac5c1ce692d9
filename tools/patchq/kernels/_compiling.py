"""Units to objects: as many at once as cores and memory allow, none twice, and after a stop only what is left."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shlex
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from patchq.errors import BuildError
from patchq.kernels._cache import Cache, headers_in
from patchq.kernels._toolchain import Toolchain
from patchq.system import runner

#: What compilers say of a header of CUDA's libraries that no folder has.
_LACKING = re.compile(r"fatal error: ((cublas|curand|nvrtc)\w*\.h): No such file")
_PACKAGES = {"cublas": "'nvidia-cublas=={}.*'", "curand": "nvidia-curand", "nvrtc": "'nvidia-cuda-nvrtc=={}.*'"}
_HEADERS = (".h", ".cuh", ".hpp", ".inc", ".inl")


@dataclass(frozen=True, slots=True)
class Unit:
    """A source of a module, relative to the root; its flags, and the memory that one compiler takes for it."""

    module: str
    source: str
    flags: tuple[str, ...]
    gib: float


@dataclass(slots=True)
class Tally:
    """What it took. ``largest`` is the most memory of any one process, in GiB."""

    compiled: int = 0
    found: int = 0
    seconds: float = 0.0
    largest: float = 0.0
    objects: dict[tuple[str, str], Path] = field(default_factory=dict)


class Budget:
    """Memory that compilers share: one waits until there is room, and runs in any case when it is alone."""

    def __init__(self, gib: float) -> None:
        self.left = self.whole = gib
        self._running = 0
        self._changed = threading.Condition()

    def take(self, gib: float) -> float:
        """Wait for memory; returns what was taken."""
        gib = min(gib, self.whole)
        with self._changed:
            self._changed.wait_for(lambda: self.left >= gib or not self._running)
            self.left -= gib
            self._running += 1
        return gib

    def give(self, gib: float) -> None:
        """Give it back."""
        with self._changed:
            self.left += gib
            self._running -= 1
            self._changed.notify_all()


def memory_gib() -> float:
    """What this machine, or the control group that it runs in, has left."""
    values = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        values[name] = int(rest.split()[0]) / 2**20
    left = values.get("MemAvailable", 4.0)
    group = Path("/sys/fs/cgroup")
    try:
        most, used = ((group / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        if most != "max":
            left = min(left, (int(most) - int(used)) / 2**30)
    except (OSError, ValueError):
        pass
    return max(left * 0.9, 1.0)


def compile_units(
    units: Sequence[Unit], root: Path, tools: Toolchain, cache: Cache, *, jobs: int = 0, gib: float = 0.0,
    say: Callable[[str], None], count: Callable[[int, int], None] = lambda done, total: None,
) -> Tally:  # fmt: skip
    """Compile what isn't there yet. Each unit is kept as soon as it is done.

    :param count: gets how many are done, of how many.
    :param jobs: compilers at once; 0 for one a core. ``gib``: memory for all of them; 0 for what is free.
    :raises BuildError: with what a compiler said; those that were done are kept.
    """
    tally, start = Tally(), time.monotonic()
    names = _names(root)
    keys = {
        u: cache.key(tools.identity, u.source, _kind(u), u.flags, names, cache.hashes.of(root / u.source))
        for u in units
    }
    todo = []
    for unit, key in keys.items():
        if found := cache.find(key):
            tally.objects[unit.module, unit.source] = found
            tally.found += 1
        else:
            todo.append(unit)
    if tally.found:
        say(f"{tally.found} of {len(units)} units were compiled before")
    budget, failed, number = Budget(gib or memory_gib()), threading.Event(), iter(range(1, len(todo) + 1))

    def work(unit: Unit) -> None:
        taken = budget.take(unit.gib)
        try:
            if failed.is_set():
                return
            began = time.monotonic()
            tally.objects[unit.module, unit.source] = _compile(unit, keys[unit], root, tools, cache)
            done = next(number)
            say(f"{done} of {len(todo)}: {Path(unit.source).name}, {time.monotonic() - began:.0f} s")
            count(done, len(todo))
        except BaseException:
            failed.set()
            raise
        finally:
            budget.give(taken)

    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        # The large ones first: the last to end is then no large one.
        done = [pool.submit(work, unit) for unit in sorted(todo, key=lambda u: (-u.gib, u.module, u.source))]
        for each in done:
            each.result()
    tally.compiled, tally.seconds = len(todo), time.monotonic() - start
    tally.largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return tally


def _kind(unit: Unit) -> str:
    return "nvcc" if unit.source.endswith(".cu") else "c++"


def _names(root: Path) -> str:
    """What headers there are: a new one can stand in front of one that a unit has read."""
    found = sorted(
        f"{Path(folder).relative_to(root).as_posix()}/{file}"
        for folder, folders, files in os.walk(root)
        if not _skip(folders)
        for file in files
        if file.endswith(_HEADERS)
    )
    return hashlib.sha256("\n".join(found).encode()).hexdigest()


def _skip(folders: list[str]) -> bool:
    """Leave out what is generated for one module; walked folders are ordered."""
    folders[:] = sorted(f for f in folders if f not in ("gen", "work", "ops", "cutlass_instantiations"))
    return False


def _compile(unit: Unit, key: str, root: Path, tools: Toolchain, cache: Cache) -> Path:
    """Compile one unit with paths below the root only: what comes out then hangs on no machine's folders."""
    own = [word for place in tools.includes for word in ("-isystem", place)]
    with tempfile.TemporaryDirectory(prefix="unit-", dir=cache.folder) as folder:
        made, depends = Path(folder, "unit.o"), Path(folder, "unit.d")
        if _kind(unit) == "nvcc":
            argv = [tools.nvcc, "-ccbin", tools.cxx, "--generate-dependencies-with-compile", "--dependency-output"]
        else:
            argv = [tools.cxx, "-MD", "-MF"]
        argv += [str(depends), *unit.flags, *own, "-c", unit.source, "-o", str(made)]
        env = {**_SOBER, "CUDA_HOME": str(tools.cuda)}
        try:
            runner.run(argv, cwd=root, env=env)
        except runner.CommandError as error:
            said = (error.stdout + error.stderr).decode("utf-8", "replace").splitlines()[-25:]
            hint = f"by hand: cd {root} && {shlex.join(argv[:2])} …; with --jobs 1 where memory is short"
            if lacking := _LACKING.search("\n".join(said)):
                package = _PACKAGES[lacking[2]].format(tools.release)
                hint = f"`python -m pip install {package}`, or name the folder of {lacking[1]} in PATCHQ_CUDA_INCLUDE"
            raise BuildError(
                f"{unit.module}: {unit.source} doesn't compile ({error.code}):\n" + "\n".join(said),
                hint=hint,
            ) from None
        return cache.keep(key, headers_in(depends.read_text()), made)


#: What changes a compiler's output from outside.
_SOBER: Mapping[str, str] = dict.fromkeys(
    ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"), ""
)
