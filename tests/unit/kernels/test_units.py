"""Units: compiled once for the same inputs, again for others, within the memory that there is, and kept when one fails."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from patchq.environment.installed import InstalledPackage
from patchq.errors import BuildError, FormatError, UserError
from patchq.formats import toml
from patchq.kernels import _linking
from patchq.kernels._cache import UnitCache, headers_in
from patchq.kernels._compiling import Compiled, MemoryBudget, Unit, compile_units
from patchq.kernels._toolchain import Toolchain
from patchq.kernels.left import judge_left
from patchq.kernels.wanted import arch_list, parse_wanted

#: Takes its arguments as nvcc does; the object is the source and its header, the log one line a call.
COMPILER = """#!/bin/sh
set -e
while [ $# -gt 0 ]; do
  case $1 in
    --dependency-output) depends=$2; shift;;
    -o) out=$2; shift;;
    -c) source=$2; shift;;
  esac
  shift
done
echo "$source" >> "$LOG"
grep -q BROKEN "$source" && { echo "$source: error: broken" >&2; exit 1; }
cat "$source" include/a.h > "$out"
printf '%s: %s \\\\\\n include/a.h\\n' "$out" "$source" > "$depends"
"""


class Bench:
    """A root with two sources, a compiler, a cache, and what was compiled."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.root, self.log = folder / "root", folder / "log"
        (self.root / "include").mkdir(parents=True)
        (self.root / "include" / "a.h").write_text("int h;\n")
        for name in ("one", "two"):
            (self.root / f"{name}.cu").write_text(f"int {name};\n")
        nvcc = folder / "cuda" / "bin" / "nvcc"
        nvcc.parent.mkdir(parents=True)
        nvcc.write_text(COMPILER)
        nvcc.chmod(0o755)
        cache.mkdir(exist_ok=True)
        self.tools = Toolchain(
            platform="aarch64",
            nvcc=str(nvcc),
            cxx="g++",
            cuda=folder / "cuda",
            release="13.0",
            identity="nvcc V13; g++ 12",
        )
        self.cache_folder = cache

    def compile(self, flags: tuple[str, ...] = ("-O3",), tools: Toolchain | None = None) -> Compiled:
        units = [Unit(module="m", source=f"{name}.cu", flags=flags, gib=1.0) for name in ("one", "two")]
        tools = tools or self.tools
        cache = UnitCache(self.cache_folder, self.root, tools.places)
        return compile_units(units, self.root, tools, cache, jobs=1, gib=4.0, say=lambda _: None)

    @property
    def compiled(self) -> list[str]:
        found = self.log.read_text().split() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return sorted(found)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    return Bench(tmp_path, tmp_path / "cache")


def test_the_same_inputs_are_compiled_once(bench: Bench) -> None:
    first = bench.compile()
    assert (first.compiled, first.found) == (2, 0)
    assert bench.compiled == ["one.cu", "two.cu"]
    again = bench.compile()
    assert (again.compiled, again.found) == (0, 2)
    assert bench.compiled == []
    assert again.objects == first.objects
    assert again.objects["m", "one.cu"].read_text() == "int one;\nint h;\n"


def test_what_an_input_is(bench: Bench) -> None:
    from dataclasses import replace

    bench.compile()
    assert bench.compiled == ["one.cu", "two.cu"]
    (bench.root / "one.cu").write_text("int uno;\n")
    bench.compile()
    assert bench.compiled == ["one.cu"], "its source"
    bench.compile(("-O2",))
    assert bench.compiled == ["one.cu", "two.cu"], "its flags"
    bench.compile(tools=replace(bench.tools, identity="nvcc V14"))
    assert bench.compiled == ["one.cu", "two.cu"], "the compiler"
    (bench.root / "include" / "a.h").write_text("long h;\n")
    assert bench.compile().objects["m", "two.cu"].read_text() == "int two;\nlong h;\n"
    assert bench.compiled == ["one.cu", "two.cu"], "a header that it reads"
    (bench.root / "include" / "a.h").write_text("int h;\n")
    assert bench.compile().objects["m", "two.cu"].read_text() == "int two;\nint h;\n"
    assert bench.compiled == [], "and back"
    (bench.root / "include" / "b.h").write_text("")
    bench.compile()
    assert bench.compiled == ["one.cu", "two.cu"], "a header that could stand in front of another"


def test_a_header_of_a_folder_of_system_headers_is_an_input(bench: Bench) -> None:
    """Upstream names folders of its own as such; a C++ compiler leaves them out of what it says it has read."""
    (bench.root / "three.cpp").write_text("#include <a.h>\nint three = A;\n")
    unit = Unit(module="m", source="three.cpp", flags=("-isystem", "include"), gib=1.0)

    def compiled(value: int) -> int:
        (bench.root / "include" / "a.h").write_text(f"#define A {value}\n")
        cache = UnitCache(bench.cache_folder, bench.root, bench.tools.places)
        return compile_units([unit], bench.root, bench.tools, cache, jobs=1, gib=4.0, say=lambda _: None).compiled

    assert [compiled(value) for value in (1, 1, 2, 1)] == [1, 0, 1, 0]


def test_another_folder_is_no_other_input(bench: Bench, tmp_path: Path) -> None:
    bench.compile()
    assert bench.compiled
    other = Bench(tmp_path / "elsewhere", bench.cache_folder)
    assert other.compile().found == 2
    assert bench.compiled == []


def test_a_damaged_object_is_compiled_again(bench: Bench) -> None:
    path = bench.compile().objects["m", "one.cu"]
    assert bench.compiled
    path.write_bytes(b"no object")
    assert bench.compile().objects["m", "one.cu"].read_text() == "int one;\nint h;\n"
    assert bench.compiled == ["one.cu"]
    for entry in (bench.cache_folder / "units").rglob("*.json"):
        entry.write_text("[")
    assert bench.compile().compiled == 2


def test_what_was_done_before_one_failed_is_kept(bench: Bench) -> None:
    (bench.root / "two.cu").write_text("BROKEN\n")
    with pytest.raises(BuildError, match=r"two\.cu: error: broken"):
        bench.compile()
    assert bench.compiled == ["one.cu", "two.cu"]
    (bench.root / "two.cu").write_text("int two;\n")
    bench.compile()
    assert bench.compiled == ["two.cu"], "the first isn't compiled again"
    assert not list(bench.cache_folder.glob("unit-*")), "nothing half done lies there"


def test_compilers_wait_for_memory() -> None:
    budget = MemoryBudget(10)
    assert budget.take(6) == 6
    second = threading.Event()

    def want() -> None:
        budget.take(6)
        second.set()

    thread = threading.Thread(target=want, daemon=True)
    thread.start()
    assert not second.wait(0.05), "there is no room for two of six"
    budget.give(6)
    assert second.wait(10)
    budget.give(6)
    assert budget.take(99) == 10, "one alone runs whatever it takes"
    thread.join()


def test_depfiles() -> None:
    assert headers_in("x.o: a.cu \\\n b.h /c/d\\ e.h\n") == ["a.cu", "b.h", "/c/d e.h"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("version = 2", "version is not 1"),
        ("version = 1\ndistribution = '../x'\npackage = 'x'", "distribution is not a name"),
        ("version = 1\ndistribution = 'x'\npackage = 'x'", "lists no modules"),
        ("version = 1\ndistribution = 'x'\npackage = 'x'\n[[modules]]\ncall = 'os.system'", "is not a generator"),
        ("version = 1\ndistribution = 'x'\npackage = 'x'\n[[modules]]\ncall = 'jit.os.system'", "is not a generator"),
        (
            "version = 1\ndistribution = 'x'\npackage = 'x'\n[[modules]]\ncall = 'jit.a.gen_a'\nargs = ['$(id)']",
            "is not an allowed argument",
        ),
        ("version = 1\ndistribution = 'x'\npackage = 'x'\nenv = {LD_PRELOAD = 'x'}", "env may only have FLASHINFER_"),
        (
            "version = 1\ndistribution = 'x'\npackage = 'x'\nenv = {FLASHINFER_EXTRA_CFLAGS = '-fplugin=x.so'}",
            "compiler",
        ),
        (
            "version = 1\ndistribution = 'x'\npackage = 'x'\nenv = {FLASHINFER_NVCC = './x'}",
            "make a compiler run another program",
        ),
        (
            "version = 1\ndistribution = 'x'\npackage = 'x'\n[[modules]]\ncall = 'jit.a.gen_a'\nrefs = 'v1'",
            "are not refs",
        ),
        ("version = 1\ndistribution = 'x'\npackage = 'x'\nminutes = -1", "is not a time"),
        ("version = 1\ndistribution = 'x'\npackage = 'x'\nminutes = true", "is not a time"),
        ("version = 1\nmore = 1", "more is not a known key"),
        ("[", "kernels/x.toml"),
    ],
)
def test_what_says_which_kernels_is_data_alone(text: str, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        parse_wanted(text.encode(), "kernels/x.toml")


def test_this_projects_own() -> None:
    root = Path(__file__).parents[3]
    path = root / "kernels" / "flashinfer.toml"
    wanted = parse_wanted(path.read_bytes(), path.name)
    refs = set(toml.loads((root / "upstream.lock").read_bytes())["upstreams"]["flashinfer"]["pins"])
    assert {ref for module in wanted.modules for ref in module.refs} < refs
    names = {ref: {m.call.rpartition(".")[2] for m in wanted.on("sm_121f", ref)} for ref in refs}
    assert all("gen_cutlass_fused_moe_sm120_module" in found for found in names.values())
    assert not any("gen_cutlass_fused_moe_sm90_module" in found for found in names.values())
    assert {ref for ref in refs if "gen_xqa_module" in names[ref]} == {"v0.7.2.post1"}
    assert arch_list("sm_121f") == "12.1f"
    with pytest.raises(UserError, match="is not an architecture"):
        arch_list("gb10")


def kernels_wheel(folder: Path, *names: str) -> InstalledPackage:
    """An installed wheel with some of the two modules of a project."""
    about = {"arch": "sm_121f", "wanted": ["norm", "moe"], "modules": [{"name": name} for name in names]}
    (folder / "kernels.json").write_text(json.dumps(about))
    return InstalledPackage(distribution="flashinfer-jit-cache", state="patched", version="1", origin=str(folder))


@pytest.mark.parametrize("minutes", [0, 42])
def test_what_still_compiles_what_it_takes_and_where_it_is_kept(tmp_path: Path, minutes: int) -> None:
    text = f"""version = 1
distribution = "flashinfer-jit-cache"
package = "flashinfer_jit_cache"
minutes = {minutes}
[[modules]]
call = "jit.norm.gen_norm_module"
[[modules]]
call = "jit.moe.gen_moe_module"
gib = 9
"""
    wanted = parse_wanted(text.encode(), "kernels/flashinfer.toml")
    cost = "; one compiler takes up to 9 GiB"
    cost += ", all of them took 42 minutes of one processor" if minutes else ""
    cost += "; kept in /home/me/.cache/flashinfer"

    def said(*packages: InstalledPackage) -> tuple[str, str]:
        found = judge_left("flashinfer", wanted, packages, "/home/me/.cache/flashinfer")
        return found.level, found.message

    first = "no wheel of them is installed: the modules of 2 generators compile when they are first used"
    assert said() == ("note", first + cost)
    some = kernels_wheel(tmp_path, "norm")
    assert said(some) == ("note", "1 of 2 modules for sm_121f still compile: moe" + cost)
    every = kernels_wheel(tmp_path, "norm", "moe")
    assert said(every) == ("ok", "2 modules for sm_121f: all are installed, and none compiles at first use")


def test_a_module_needs_the_libraries_by_name_and_none_here(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("int cudaFree(void *); int f(void) { return cudaFree(0); }\n")
    os.system(f"gcc -fPIC -c {tmp_path}/x.c -o {tmp_path}/x.o")
    from patchq.build import platforms

    tools = Toolchain(platform=platforms.here(), nvcc="nvcc", cxx="g++", cuda=tmp_path, release="13.0", identity="")
    target = tmp_path / "m.so"
    _linking.link([tmp_path / "x.o"], ["-lnvrtc"], target, tools)
    data = target.read_bytes()
    assert _linking.machine(data) == platforms.here()
    assert _linking.targets(data) == set()
    for name in (b"libcudart.so.13\0", b"libcuda.so.1\0", b"libnvrtc.so.13\0", b"cudaFree\0"):
        assert name in data
    with pytest.raises(BuildError, match="isn't supported"):
        _linking.link([tmp_path / "x.o"], ["-lstrange"], target, tools)
    assert _linking.machine(b"PK") == "no machine"
