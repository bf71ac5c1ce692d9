"""ninja's jobs are what memory allows where that is less than ninja's own number; else nothing changes.

The real `run_ninja` with a program in ninja's place that says its usage, notes what it is asked for and builds nothing.
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
EQUIVALENT_MUTANTS = {
    "67203f0ee9": "the larger of two numbers, whichever comes first",
    "61b2e32a2a": "the larger of two numbers, whichever comes first",
    "bf4fde178a": "one byte allows as many jobs as none does",
}
GIB = 1 << 30
#: How many GiB a compiler is counted with.
EACH = 9
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

    ``asked()`` is the -j of each build, "" without one; ``said`` are FlashInfer's lines.
    """
    cpp_ext, core = upstream_import("flashinfer.jit.cpp_ext"), upstream_import("flashinfer.jit.core")
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
    core.logger._print_once.cache_clear()
    core.logger.addHandler(handler)
    log = tmp_path / "asked"
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def memory(gib: float | None, limit: str | None = None, used: float = 0, jobs: int | None = 22) -> None:
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
            files["/sys/fs/cgroup/memory.max"] = f"{limit}\n"
            files["/sys/fs/cgroup/memory.current"] = f"{int(used * GIB)}\n"
        usage = USAGE.format(jobs=jobs) if jobs is not None else ":"
        (programs / "ninja").write_text(NINJA.format(usage=usage, log=log))
        (programs / "ninja").chmod(0o755)

    def build(**kwargs: Any) -> str:
        """What the build is asked to run at a time."""
        log.unlink(missing_ok=True)
        cpp_ext.run_ninja(tmp_path / "work", tmp_path / "build.ninja", False, **kwargs)
        (line,) = log.read_text().splitlines()
        words = line.split()
        assert words[:3] == ["-v", "-C", str(tmp_path / "work")]
        assert words[3:5] == ["-f", str(tmp_path / "build.ninja")]
        assert words[5:] == [] or (words[5] == "-j" and len(words) == 7), line
        return words[6] if words[5:] else ""

    yield SimpleNamespace(memory=memory, build=build, said=said)
    core.logger.removeHandler(handler)


@pytest.mark.parametrize(
    ("gib", "jobs"),
    [(100, 11), (99, 11), (98.9, 10), (55, 6), (EACH * 2, 2), (EACH * 2 - 0.1, 1), (EACH, 1), (8, 1), (0.5, 1)],
)
def test_jobs_are_what_memory_allows_and_never_none(machine: SimpleNamespace, gib: float, jobs: int) -> None:
    """A GB10 has 20 cores, for which ninja runs 22 jobs: 198 GiB of compilers at the worst, of 119."""
    machine.memory(gib)
    assert machine.build() == str(jobs)
    (line,) = machine.said
    assert line.startswith("INFO ")
    assert f"{jobs} jobs" in line
    assert "instead of 22" in line
    assert "MAX_JOBS" in line
    machine.build()
    assert machine.said == [line], "said with each module"


@pytest.mark.parametrize(("gib", "jobs"), [(EACH * 22, 22), (EACH * 23, 22), (999, 22), (EACH * 3, 3), (EACH, 1)])
def test_with_enough_ninja_chooses_as_it_did(machine: SimpleNamespace, gib: float, jobs: int) -> None:
    machine.memory(gib, jobs=jobs)
    assert machine.build() == ""
    machine.memory(gib - 0.1, jobs=jobs)
    assert machine.build() == ({22: "21", 3: "2", 1: ""}[jobs] if gib <= EACH * 22 else "")


@pytest.mark.parametrize(
    ("gib", "limit", "used", "jobs"),
    [
        (999, str(64 * GIB), 28, "4"),  # what the container may have, less what it has
        (20, str(64 * GIB), 28, "2"),  # the system has less
        (None, str(64 * GIB), 28, "4"),
        (999, str(64 * GIB), 80, "1"),
        (999, "max", 80, ""),
        (20, "max", 80, "2"),
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


def test_max_jobs_holds_whatever_memory_there_is(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    for gib in (8, 999):
        machine.memory(gib)
        monkeypatch.setenv("MAX_JOBS", "16")
        assert machine.build() == "16"
    assert machine.said == []
    machine.memory(20)
    assert machine.build() == "16"
    monkeypatch.setenv("MAX_JOBS", "many")
    assert machine.build() == "2", "what is no number isn't one"


def test_so_does_a_callers_number(machine: SimpleNamespace, upstream_import: Load) -> None:
    machine.memory(20)
    assert machine.build() == "2"
    run_ninja = upstream_import("flashinfer.jit.cpp_ext").run_ninja
    if "max_jobs" in inspect.signature(run_ninja).parameters:  # not in v0.6.1
        assert machine.build(max_jobs=16) == "16"


def test_a_ninja_that_doesnt_say_its_number_chooses(machine: SimpleNamespace) -> None:
    machine.memory(20)
    assert machine.build() == "2"
    machine.memory(20, jobs=None)
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
