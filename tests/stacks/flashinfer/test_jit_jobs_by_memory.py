"""ninja's jobs are what memory allows where that is less than ninja's own number; else nothing changes.

The real modules' builds with a program in ninja's place that says its usage, notes what it is asked for and builds
nothing.
"""

from __future__ import annotations

import builtins
import inspect
import io
import logging
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

Load = Callable[[str], ModuleType]
Make = Callable[..., Any]
EQUIVALENT_MUTANTS = {
    "67203f0ee9": "the larger of two numbers, whichever comes first",
    "61b2e32a2a": "the larger of two numbers, whichever comes first",
    "bf4fde178a": "one byte allows as many jobs as none does",
    "0335cbd1b8": "one byte allows as many jobs as none does",
    "9f586978fd": "the larger of two numbers, whichever comes first",
    "b4415698ef": "one byte allows as many jobs as none does",
    "8adbbe9e22": "as a number, max is refused, and the older cgroups are asked just so",
}
GIB = 1 << 30
#: How many GiB a compiler of most modules is counted with, and one of the fused MoE's.
EACH, MOE = 3, 9
NINJA = """#!/bin/sh
case "$*" in
-h) echo "  -f FILE  specify input build file [default=build.ninja]" >&2
    {usage}
    echo "  -k N     keep going until N jobs fail (0 means infinity) [default=1]" >&2
    exit 1 ;;
esac
echo "$@" >> {log}
"""
USAGE = 'echo "  -j N     run N jobs in parallel (0 means infinity) [default={jobs} on this system]" >&2'


@pytest.fixture
def machine(upstream_import: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A machine with as much memory as a test says, and with a ninja that runs as many jobs.

    ``build()`` and ``build_all()`` are the -j of a build, "" without one; ``said`` are FlashInfer's lines since the
    last ``start()``, with which nothing was said yet and only what it names is compiled.
    """
    env, core = upstream_import("flashinfer.jit.env"), upstream_import("flashinfer.jit.core")
    monkeypatch.setattr(env, "FLASHINFER_JIT_DIR", tmp_path / "jit")
    monkeypatch.setattr(env, "FLASHINFER_AOT_DIR", tmp_path / "aot")
    monkeypatch.setattr(core, "check_cuda_arch", lambda: None)
    monkeypatch.setattr(getattr(core, "JitSpecNvcc", core.JitSpec), "write_ninja", lambda _: None)
    for name in ("MAX_JOBS", "FLASHINFER_JIT_PREBUILD_MAX_JOBS"):
        monkeypatch.delenv(name, raising=False)
    files: dict[str, str] = {}
    really = io.open

    def opened(path: Any, *args: Any, **kwargs: Any) -> Any:
        name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
        if not name.startswith(("/proc/meminfo", "/sys/fs/cgroup/")):
            return really(path, *args, **kwargs)
        if name not in files:
            raise FileNotFoundError(name)
        return io.StringIO(files[name])

    monkeypatch.setattr(builtins, "open", opened)
    monkeypatch.setattr(io, "open", opened)  # pathlib's
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(f"{record.levelname} {record.getMessage()}")  # type: ignore[method-assign]
    # v0.7.2 also says which module it builds.
    handler.addFilter(lambda record: "Building JIT module" not in record.getMessage())
    core.logger._print_once.cache_clear()
    core.logger.addHandler(handler)
    log = tmp_path / "asked"
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def memory(
        gib: float | None,
        limit: str | None = None,
        used: float = 0,
        jobs: int | None = 22,
        v1: bool = False,
        stat: str | None = None,
    ) -> None:
        files.clear()
        if gib is not None:
            kib = int(gib * GIB) // 1024
            lines = [
                "MemTotal:       999999999 kB",
                "MemFree:              1 kB",
                f"MemAvailable:   {kib} kB",
                "Cached: 7 kB",
            ]
            files["/proc/meminfo"] = "".join(f"{line}\n" for line in lines)
        if limit is not None:
            names = (
                ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")
                if v1
                else ("memory.max", "memory.current")
            )
            for name, value in zip(names, (limit, int(used * GIB)), strict=True):
                files[f"/sys/fs/cgroup/{name}"] = f"{value}\n"
        if stat is not None:
            files[f"/sys/fs/cgroup/{'memory/' * v1}memory.stat"] = stat
        usage = USAGE.format(jobs=jobs) if jobs is not None else ":"
        (programs / "ninja").write_text(NINJA.format(usage=usage, log=log))
        (programs / "ninja").chmod(0o755)

    def asked(folder: str, file: str) -> str:
        """What the one build was asked to run at a time."""
        (line,) = log.read_text().splitlines()
        words = line.split()
        assert words[:3] == ["-v", "-C", str(tmp_path / "jit" / folder)]
        assert words[3:5] == ["-f", str(tmp_path / "jit" / file)]
        assert words[5:] == [] or (words[5] == "-j" and len(words) == 7), line
        return words[6] if words[5:] else ""

    norm = core.gen_jit_spec("norm", [tmp_path / "norm.cu"])

    def build(spec: Any = norm) -> str:
        """Build a module, most of them where none is named."""
        log.unlink(missing_ok=True)
        spec.build(verbose=False, need_lock=False)
        return asked(spec.name, f"{spec.name}/build.ninja")

    def build_all(*specs: Any) -> str:
        """Build several at once, as ahead of time."""
        log.unlink(missing_ok=True)
        core.build_jit_specs([norm, *specs])
        return asked("", "tmp/flashinfer_jit.ninja")

    def start(*compiled: Any) -> None:
        said.clear()
        core.logger._print_once.cache_clear()
        for library in (tmp_path / "jit").rglob("*.so"):
            library.unlink()
        for spec in compiled:
            spec.jit_library_path.parent.mkdir(parents=True, exist_ok=True)
            spec.jit_library_path.touch()

    yield SimpleNamespace(memory=memory, build=build, build_all=build_all, said=said, start=start, norm=norm)
    core.logger.removeHandler(handler)


@pytest.mark.parametrize(
    ("gib", "jobs"), [(65.9, 21), (55, 18), (33, 11), (EACH * 2, 2), (EACH * 2 - 0.1, 1), (EACH, 1), (2, 1), (0.5, 1)]
)
def test_jobs_are_what_memory_allows_and_never_none(machine: SimpleNamespace, gib: float, jobs: int) -> None:
    """A GB10 has 20 cores, for which ninja runs 22 jobs."""
    machine.memory(gib)
    assert machine.build() == str(jobs)
    (line,) = machine.said
    assert line.startswith("INFO ")
    assert f"{jobs} jobs" in line
    assert "instead of 22" in line
    assert "MAX_JOBS" in line
    machine.build()
    assert machine.said == [line], "said with each module"


@pytest.mark.parametrize(
    ("gib", "jobs", "less"),
    [(EACH * 22, 22, "21"), (EACH * 22 + 1, 22, ""), (999, 22, ""), (EACH * 3, 3, "2"), (EACH, 1, "")],
)
def test_with_enough_ninja_chooses_as_it_did(machine: SimpleNamespace, gib: float, jobs: int, less: str) -> None:
    machine.memory(gib, jobs=jobs)
    assert machine.build() == ""
    assert machine.said == []
    machine.memory(gib - 0.1, jobs=jobs)
    assert machine.build() == less


@pytest.mark.parametrize("profile", ["full", "mxfp4_minimal"])
def test_the_fused_moes_compilers_take_more(moe_module: Make, machine: SimpleNamespace, profile: str) -> None:
    """SM120's, of a GB10's 119 GiB without the weights, and with them."""
    moe = moe_module(FUSED_MOE_BUILD_PROFILE=profile)
    for gib, jobs in ((MOE * 22, ""), (MOE * 22 - 0.1, "21"), (115, "12"), (50, "5"), (MOE, "1"), (8, "1")):
        machine.memory(gib)
        assert machine.build(moe) == jobs
    machine.memory(50)
    assert machine.build() == "16"
    assert machine.build_all() == "16"
    assert machine.build_all(moe) == "5", "the largest of those that are built at once"
    assert machine.build_all(moe, machine.norm) == "5", "in any order"


def test_what_is_prebuilt_has_no_compilers(moe_module: Make, machine: SimpleNamespace) -> None:
    """Of those that are built at once, a module of flashinfer-jit-cache counts neither for the jobs nor for the line."""
    moe = moe_module(FUSED_MOE_BUILD_PROFILE="full")
    machine.memory(50)
    assert machine.build_all(moe) == "5"
    moe.aot_path.parent.mkdir(parents=True)
    moe.aot_path.touch()
    for compiled, said in (((), 1), ((machine.norm,), 0)):
        machine.start(*compiled)
        assert machine.build_all(moe) == "16"
        assert len(machine.said) == said


@pytest.mark.parametrize(
    ("gib", "limit", "used", "jobs"),
    [
        (999, str(64 * GIB), 52, "4"),  # what the container may have, less what it has
        (7, str(64 * GIB), 52, "2"),  # the system has less
        (None, str(64 * GIB), 52, "4"),
        (999, str(64 * GIB), 80, "1"),
        (999, "max", 80, ""),
        (7, "max", 80, "2"),
        (None, None, 0, ""),  # no such files: another system
        (None, "max", 0, ""),
    ],
)
def test_a_containers_limit_counts_too(
    machine: SimpleNamespace, gib: float | None, limit: str | None, used: float, jobs: str
) -> None:
    machine.memory(gib, limit, used)
    assert machine.build() == jobs
    assert bool(machine.said) is bool(jobs)


def test_there_is_never_less_than_nothing(machine: SimpleNamespace, upstream_import: Load) -> None:
    """Nor more than a group's own use gives way."""
    for v1 in (False, *([True] if hasattr(upstream_import("flashinfer.jit.core"), "JitSpecNvcc") else [])):
        machine.memory(999, str(64 * GIB), 80, v1=v1)
        assert machine.build() == "1"
        assert upstream_import("flashinfer.jit.utils").available_host_memory_bytes() == 0


def test_v0_7_2s_workers_of_mm_fp4_go_by_it(machine: SimpleNamespace, upstream_import: Load) -> None:
    """Each is counted with a GiB, of what the container has left without its page cache."""
    machine.memory(2)
    assert machine.build() == "1"
    if not hasattr(upstream_import("flashinfer.jit.core"), "JitSpecNvcc"):
        return
    workers = upstream_import("flashinfer.gemm.gemm_mm_fp4_cute_dsl")._get_mm_fp4_cute_dsl_compile_workers
    machine.memory(999)
    assert workers() == 4
    machine.memory(2.5)
    assert workers() == 2
    machine.memory(999, str(64 * GIB), 63, stat=statistics(1, 1))
    assert workers() == 3


def statistics(active: float, inactive: float, v1: bool = False) -> str:
    """A cgroup's memory.stat with so many GiB of page cache; in v1 the files of its children are in the totals alone."""
    values = {"anon": 9, "file": 9, "inactive_anon": 9, "active_anon": 9}
    values |= {"inactive_file": int(inactive * GIB), "active_file": int(active * GIB), "unevictable": 9}
    lines = [f"{name} {9 if v1 else value}\n" for name, value in values.items()]
    return "".join([*lines, *(f"total_{name} {value}\n" for name, value in values.items() if v1)])


#: A byte more than 52 GiB: of 64 GiB, a byte less is left than four compilers take.
USED = 52 + 1 / GIB
CACHES = [
    (10, 20 + 1 / GIB, "14"),  # 42 GiB: what a checkpoint was read into gives way
    (30, 0, "13"),
    (0, 30, "13"),
    (30, 40, "21"),  # no more than the container has in use
    (0, 1 / GIB, "4"),
    (0, 0, "3"),
]


@pytest.mark.parametrize(("active", "inactive", "jobs"), CACHES)
def test_a_containers_page_cache_gives_way(machine: SimpleNamespace, active: float, inactive: float, jobs: str) -> None:
    machine.memory(999, str(64 * GIB), USED, stat=statistics(active, inactive))
    assert machine.build() == jobs
    machine.memory(7, str(64 * GIB), USED, stat=statistics(active, inactive))
    assert machine.build() == "2", "the system has less"


@pytest.mark.parametrize(
    "stat",
    [
        None,
        "",
        "active_file 7\n",
        "inactive_file 7\n",
        "active_file 7\ninactive_file many\n",
        "active_file 7\ninactive_file\n",
        "total_active_file 7\ntotal_inactive_file 7\n",
    ],
)
def test_where_it_isnt_told_all_thats_used_counts(machine: SimpleNamespace, stat: str | None) -> None:
    machine.memory(999, str(64 * GIB), USED, stat=stat)
    assert machine.build() == "3"


@pytest.mark.parametrize(
    ("limit", "used", "jobs"),
    [
        (64 * GIB, 52, "4"),
        (64 * GIB, 80, "1"),
        (999 * GIB, 52, ""),
        (2**63 - 4096, 52, "11"),
        (2**60, 2**30 - 12, "11"),
        (2**60 - 1, 2**30 - 12, "3"),
    ],
)
def test_so_does_that_of_the_older_cgroups_in_v0_7_2(
    machine: SimpleNamespace, upstream_import: Load, limit: int, used: float, jobs: str
) -> None:
    """Its own measure of memory knows them; a number near the largest is no limit."""
    machine.memory(7)
    assert machine.build() == "2"
    if hasattr(upstream_import("flashinfer.jit.core"), "JitSpecNvcc"):
        machine.memory(33 if limit >= 2**60 else None, str(limit), used, v1=True)
        assert machine.build() == jobs


@pytest.mark.parametrize(("active", "inactive", "jobs"), CACHES)
def test_so_does_their_page_cache(
    machine: SimpleNamespace, upstream_import: Load, active: float, inactive: float, jobs: str
) -> None:
    machine.memory(7)
    assert machine.build() == "2"
    if hasattr(upstream_import("flashinfer.jit.core"), "JitSpecNvcc"):
        for stat, those in ((statistics(active, inactive, v1=True), jobs), (statistics(active, inactive), "3")):
            machine.memory(999, str(64 * GIB), USED, v1=True, stat=stat)
            assert machine.build() == those


def test_nothing_is_said_where_all_is_compiled(machine: SimpleNamespace, moe_module: Make) -> None:
    """A start with modules that earlier ones compiled; ninja still gets the number, for what was edited."""
    norm, moe = machine.norm, moe_module(FUSED_MOE_BUILD_PROFILE="full")
    machine.memory(20)
    for compiled, said in (((), 1), ((moe,), 1), ((norm,), 0), ((norm, moe), 0)):
        machine.start(*compiled)
        assert machine.build() == "6"
        assert len(machine.said) == said
    for compiled, said in (((), 1), ((moe,), 1), ((norm,), 1), ((norm, moe), 0)):
        machine.start(*compiled)
        assert machine.build_all(moe) == "2"
        assert len(machine.said) == said


def test_max_jobs_holds_whatever_memory_there_is(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.memory(7)
    assert machine.build() == "2"
    machine.said.clear()
    monkeypatch.setenv("MAX_JOBS", "16")
    for gib in (2, 7, 999):
        machine.memory(gib)
        assert machine.build() == machine.build_all() == "16"
    assert machine.said == []
    monkeypatch.setenv("MAX_JOBS", "many")
    machine.memory(10)
    assert machine.build() == "3", "what is no number isn't one"


def test_so_does_a_callers_number(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, upstream_import: Load
) -> None:
    """Ahead of time v0.7.2 has a variable of its own."""
    machine.memory(7)
    assert machine.build_all() == "2"
    monkeypatch.setenv("FLASHINFER_JIT_PREBUILD_MAX_JOBS", "16")
    if "max_jobs" in inspect.signature(upstream_import("flashinfer.jit.cpp_ext").run_ninja).parameters:
        assert machine.build_all() == "16"
        machine.memory(999)
        assert machine.build_all() == "16"


def test_a_ninja_that_doesnt_say_its_number_chooses(machine: SimpleNamespace) -> None:
    machine.memory(7)
    assert machine.build() == "2"
    machine.memory(7, jobs=None)
    assert machine.build() == ""


def test_the_real_ninja_says_its_number(upstream_import: Load) -> None:
    cpp_ext = upstream_import("flashinfer.jit.cpp_ext")
    default = getattr(cpp_ext, "_get_ninja_default_jobs", None)
    assert default, "ninja isn't asked"
    cores = len(os.sched_getaffinity(0))
    assert 2 <= default() <= cores + 2
    assert subprocess.run(["ninja", "-j", str(default()), "--version"], check=False).returncode == 0


def test_this_systems_memory(upstream_import: Load) -> None:
    utils = upstream_import("flashinfer.jit.utils")
    available = getattr(utils, "available_host_memory_bytes", None)
    assert available, "nothing says what memory there is"
    meminfo = dict(line.split(":") for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    assert 0 < available() <= int(meminfo["MemTotal"].split()[0]) * 1024
