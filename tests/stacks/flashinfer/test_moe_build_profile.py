"""SM120's MoE module for MXFP4 alone: a few units, under a name of its own; a call takes the module of its dtypes.

The real JIT specifications and generated sources. What it takes to compile them: benchmarks/moe_build.py.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

Load = Callable[[str], ModuleType]
Make = Callable[..., Any]
EQUIVALENT_MUTANTS = {
    "6487f16552": "asked for its truth only: None is as False",
    "7af3834808": "the generator asks for the profile itself, and makes the same module",
    "f4a28ef083": "all of SM120's grouped kernels with FP8 activations have FP4 weights",
}
PROFILE = "FUSED_MOE_BUILD_PROFILE"
#: Generated sources of the full module, and kernels for MXFP4: v0.6.1's and v0.7.2.post1's.
COUNTS = [(62, 8), (68, 24)]


def names(spec: Any) -> list[str]:
    return sorted(path.name for path in spec.sources)


def instantiations(spec: Any) -> list[str]:
    """The kernels of its generated sources."""
    text = "".join(path.read_text() for path in spec.sources if path.name.endswith(".generated.cu"))
    found = re.findall(r"INSTANTIATE_TMA_WARP_SPECIALIZED_MOE_GEMM\([^;]*;", text)
    return sorted(" ".join(kernel.split()) for kernel in found)


def capability(monkeypatch: pytest.MonkeyPatch, core: ModuleType, found: tuple[int, int]) -> None:
    """The GPU that FlashInfer sees."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: found)
    if hasattr(core, "get_compute_capability"):  # it and what comes after want a tensor on a GPU
        monkeypatch.setattr(core, "get_compute_capability", lambda *_: found)
        monkeypatch.setattr(torch.cuda, "device", lambda *_: nullcontext())
        monkeypatch.setattr(core, "device_support_pdl", lambda *_: False)


def test_the_minimal_module_holds_mxfp4_alone(moe_module: Make) -> None:
    full, minimal = moe_module(), moe_module(**{PROFILE: "mxfp4_minimal"})
    assert full.name != minimal.name, "two modules that differ share a name, and with it a folder"
    files = [{path for path in spec.sources if path.name.endswith(".generated.cu")} for spec in (full, minimal)]
    assert not files[0] & files[1], "the two modules share sources"
    # All of the full module's that are for these dtypes, and no others.
    mxfp4, every = instantiations(minimal), instantiations(full)
    assert mxfp4 == [kernel for kernel in every if "__nv_fp8_e4m3, SafeFP4" in kernel] != []
    made = len([n for n in names(full) if n.endswith(".generated.cu")])
    assert (made, len(mxfp4)) in COUNTS
    runners = [n for n in names(minimal) if n.startswith("moe_gemm_kernels_")]
    assert runners == ["moe_gemm_kernels_fp8_fp4.cu"]
    assert len(minimal.sources) < len(full.sources) / 4
    # The guards in the sources that both have.
    assert "-DFLASHINFER_MOE_MXFP4_ONLY" in minimal.extra_cuda_cflags
    assert "-DFLASHINFER_MOE_MXFP4_ONLY" not in full.extra_cuda_cflags


def test_the_full_module_is_the_default_and_as_it_was(moe_module: Make, trees: Path) -> None:
    spec = moe_module(**{PROFILE: "full"})
    assert spec.name == moe_module().name == "fused_moe_120"
    there = {path.name for path in (trees / "flashinfer" / "csrc").rglob("moe_gemm_kernels_*.cu")}
    assert {n for n in names(spec) if n.startswith("moe_gemm_kernels_")} == there
    assert len(there) == 14
    made = len([n for n in names(spec) if n.endswith(".generated.cu")])
    assert made in [full for full, _ in COUNTS]


@pytest.fixture
def call(
    moe_module: Make, upstream_import: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[SimpleNamespace]:
    """Call the real cutlass_fused_moe with some dtypes on some GPU, as far as the module that it takes.

    ``loaded`` are the modules that were compiled or loaded, in order; ``there(spec)`` is where a compiled one lies.
    """
    moe_module()
    core, jit = upstream_import("flashinfer.fused_moe.core"), upstream_import("flashinfer.jit.fused_moe")
    env, specs = upstream_import("flashinfer.jit.env"), upstream_import("flashinfer.jit.core")
    monkeypatch.setattr(env, "FLASHINFER_JIT_DIR", tmp_path / "jit")
    monkeypatch.setattr(env, "FLASHINFER_AOT_DIR", tmp_path / "aot")
    monkeypatch.setattr(jit, "is_cuda_version_at_least", lambda _: True)
    loaded: list[str] = []

    class Taken(Exception):
        """The call came to the module of this name."""

    class Module:
        def __init__(self, name: str) -> None:
            self.name = name

        def init(self, *_: object) -> None:
            raise Taken(self.name)

        def __getattr__(self, _: str) -> Any:
            return lambda *_: None

    def build_and_load(spec: Any) -> Module:
        loaded.append(spec.name)
        return Module(spec.name)

    monkeypatch.setattr(specs.JitSpec, "build_and_load", build_and_load)

    def forget() -> None:
        for value in (*vars(core).values(), *vars(jit).values()):
            if isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()

    def takes(x: torch.dtype, weight: torch.dtype, gpu: tuple[int, int] = (12, 1)) -> str:
        capability(monkeypatch, core, gpu)
        rows = torch.zeros(1, 128, dtype=x)
        experts = torch.zeros(1, 256, 8, dtype=weight)
        index, scales = torch.zeros(1, 1, dtype=torch.int32), torch.zeros(1, 1)
        try:
            core.cutlass_fused_moe(rows, index, scales, experts, experts, torch.bfloat16, [], enable_pdl=False)
        except (Taken, NotImplementedError, ValueError) as error:
            return str(error)
        return ""

    def ahead(folder: str, name: str) -> None:
        library = tmp_path / folder / name / f"{name}.so"
        library.parent.mkdir(parents=True)
        library.touch()

    forget()
    yield SimpleNamespace(taken=Taken, takes=takes, loaded=loaded, ahead=ahead, core=core)
    forget()


MXFP4 = (torch.float8_e4m3fn, torch.long)
#: Dtypes that the module for MXFP4 alone leaves out; the last ones have one of MXFP4's two.
OTHERS = [
    (torch.bfloat16, torch.bfloat16),
    (torch.uint8, torch.uint8),
    (torch.float8_e4m3fn, torch.float8_e4m3fn),
    (torch.bfloat16, torch.long),
    (torch.float16, torch.long),
    (torch.float8_e5m2, torch.long),
    (torch.uint8, torch.long),
    (torch.float8_e4m3fn, torch.uint8),
    (torch.float8_e4m3fn, torch.int32),
    (torch.float8_e4m3fn, torch.bfloat16),
]
FULL, MINIMAL = "fused_moe_120", "fused_moe_120_mxfp4min"


@pytest.mark.parametrize("gpu", [(12, 0), (12, 1)])
@pytest.mark.parametrize("profile", [None, "auto"])
def test_a_call_takes_the_module_of_its_dtypes(
    call: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, profile: str | None, gpu: tuple[int, int]
) -> None:
    if profile:
        monkeypatch.setenv(f"FLASHINFER_{PROFILE}", profile)
    assert call.takes(*MXFP4, gpu) == MINIMAL
    assert [call.takes(*dtypes, gpu) for dtypes in OTHERS] == [FULL] * len(OTHERS)
    assert call.takes(*MXFP4, gpu) == MINIMAL, "the full module was needed once, and is taken since"
    assert call.loaded == [MINIMAL, FULL], "each is loaded once, and none that isn't needed"


def test_v0_7_2s_other_entries_take_the_same(call: SimpleNamespace, upstream_import: Load) -> None:
    """The size of a workspace, and the runners of its MoE layers."""
    assert call.takes(*MXFP4) == MINIMAL
    if not hasattr(call.core, "cutlass_fused_moe_workspace_size"):
        return

    def workspace(x: torch.dtype, weight: torch.dtype) -> str:
        with pytest.raises(call.taken) as taken:
            call.core.cutlass_fused_moe_workspace_size(
                1, 128, 128, 1, 1, x_dtype=x, weight_dtype=weight, device=torch.device("cuda", 0)
            )
        return str(taken.value)

    runners = upstream_import("flashinfer.fused_moe.runners")
    base = runners._CutlassRunnerBase

    def runner(x: torch.dtype, weight: torch.dtype) -> set[str]:
        names = set()
        for kind in vars(runners).values():
            if not (isinstance(kind, type) and issubclass(kind, base) and hasattr(kind, "_weight_dtype")):
                continue
            if (kind._x_dtype, kind._weight_dtype) != (x, weight):
                continue
            made = object.__new__(kind)
            made.device, made._device_arch, made._enable_pdl = torch.device("cuda", 0), 121, False
            made._use_fused_finalize = True
            made.config = SimpleNamespace(routing=SimpleNamespace(top_k=1), activation=SimpleNamespace(type=3))
            with pytest.raises(call.taken) as taken:
                made._build()
            names.add(str(taken.value))
        return names

    assert workspace(*MXFP4) == MINIMAL
    assert runner(*MXFP4) == {MINIMAL}
    bf16 = (torch.bfloat16, torch.bfloat16)
    assert workspace(*bf16) == FULL
    assert runner(*bf16) == {FULL}
    assert call.loaded == [MINIMAL, FULL]


@pytest.mark.parametrize("folder", ["aot", "jit"])
def test_a_full_module_that_is_there_is_taken(call: SimpleNamespace, folder: str) -> None:
    """From a package that was compiled ahead, or compiled by another process."""
    call.ahead(folder, FULL)
    assert call.takes(*MXFP4) == FULL
    assert call.takes(torch.bfloat16, torch.bfloat16) == FULL
    assert call.loaded == [FULL]


def test_a_process_keeps_the_module_that_it_took(call: SimpleNamespace) -> None:
    """Its tactics were tuned, and its graphs captured, with that one."""
    call.ahead("jit", FULL)
    assert call.takes(*MXFP4) == FULL
    call.ahead("jit", MINIMAL)
    assert call.takes(*MXFP4) == FULL
    assert call.loaded == [FULL]


@pytest.mark.parametrize("mxfp4_only", [None, False, True])
def test_a_fast_build_is_asked_for_apart(moe_module: Make, upstream_import: Load, mxfp4_only: bool | None) -> None:
    moe_module()
    generate = upstream_import("flashinfer.jit.fused_moe").gen_cutlass_fused_moe_sm120_module
    given = {} if mxfp4_only is None else {"mxfp4_only": mxfp4_only}
    try:
        fast = [generate(use_fast_build=fast, **given) for fast in (False, True)]
    except TypeError:
        pytest.fail("nobody can ask for one of the modules")
    assert ["-DFAST_BUILD" in spec.extra_cflags for spec in fast] == [False, True]
    assert {spec.name for spec in fast} == {MINIMAL if mxfp4_only else FULL}


def test_the_full_module_can_be_had_whatever_the_profile(moe_module: Make, upstream_import: Load) -> None:
    assert moe_module(**{PROFILE: "mxfp4_minimal"}).name == MINIMAL
    generate = upstream_import("flashinfer.jit.fused_moe").gen_cutlass_fused_moe_sm120_module
    assert generate(mxfp4_only=False).name == FULL


@pytest.mark.parametrize("folder", ["aot", "jit"])
def test_but_not_where_both_are(call: SimpleNamespace, folder: str) -> None:
    call.ahead("aot", FULL)
    call.ahead(folder, MINIMAL)
    assert call.takes(*MXFP4) == MINIMAL
    assert call.takes(torch.bfloat16, torch.bfloat16) == FULL


@pytest.mark.parametrize("there", [None, MINIMAL])
def test_full_is_full_for_all(call: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, there: str | None) -> None:
    if there:
        call.ahead("jit", there)
    monkeypatch.setenv(f"FLASHINFER_{PROFILE}", "full")
    assert [call.takes(*dtypes) for dtypes in (MXFP4, *OTHERS)] == [FULL] * (1 + len(OTHERS))
    assert call.loaded == [FULL]


@pytest.mark.parametrize("there", [None, FULL])
def test_what_the_minimal_one_leaves_out_is_refused_before_anything_is_built(
    call: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, there: str | None
) -> None:
    if there:
        call.ahead("jit", there)
    monkeypatch.setenv(f"FLASHINFER_{PROFILE}", "mxfp4_minimal")
    for dtypes in OTHERS:
        assert "mxfp4_minimal leaves out" in call.takes(*dtypes)
    assert call.loaded == []
    assert call.takes(*MXFP4) == MINIMAL
    assert call.loaded == [MINIMAL]


@pytest.mark.parametrize(
    ("gpu", "name"), [((9, 0), "fused_moe_90"), ((10, 0), "fused_moe_100"), ((10, 3), "fused_moe_103")]
)
@pytest.mark.parametrize("profile", [None, "mxfp4_minimal", "tiny"])
def test_other_architectures_dont_look_at_it(
    call: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, profile: str | None, gpu: tuple[int, int], name: str
) -> None:
    if profile:
        monkeypatch.setenv(f"FLASHINFER_{PROFILE}", profile)
    assert [call.takes(*dtypes, gpu) for dtypes in (MXFP4, *OTHERS)] == [name] * (1 + len(OTHERS))
    assert call.loaded == [name]


def test_a_module_that_has_a_name_of_its_own_keeps_it(
    moe_module: Make, upstream_import: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """v0.7.2's for an H20, which is the full one, whatever the profile."""
    assert moe_module(**{PROFILE: "mxfp4_minimal"}).name == MINIMAL
    module = upstream_import("flashinfer.jit.fused_moe")
    monkeypatch.setattr(module, "is_cuda_version_at_least", lambda _: True)
    if hasattr(module, "_should_enable_sm90_moe_prebuilt_d_descriptor"):
        monkeypatch.setattr(module, "_should_enable_sm90_moe_prebuilt_d_descriptor", lambda: True)
        spec = module.gen_cutlass_fused_moe_sm90_module()
        assert spec.name == "fused_moe_90_h20_prebuilt_d"
        assert "-DFLASHINFER_MOE_MXFP4_ONLY" not in spec.extra_cuda_cflags


def test_a_profile_that_isnt_one_is_an_error(moe_module: Make) -> None:
    try:
        moe_module(**{PROFILE: "tiny"})
    except ValueError as error:
        assert "tiny" in str(error)
        assert "mxfp4_minimal" in str(error)
    else:
        pytest.fail("a misspelt profile built the full module")


INSTANTIATIONS = "csrc/fused_moe/cutlass_backend/cutlass_fused_moe_instantiation.cu"
#: What stands for the headers of that source: types with names alone, and a runner that has them in its symbol.
STAND_IN = """
#include <cstdint>
struct __nv_fp8_e4m3; struct __nv_fp4_e2m1; struct __nv_bfloat16; struct half; struct SafeFP4;
namespace cutlass { struct uint4b_t; }
namespace tensorrt_llm::kernels::cutlass_kernels {
using Fp4Type = __nv_fp4_e2m1;
enum class Sm90Wfp4Afp8ScaleMode { kHummingPreMmaE8M0 };  // v0.7.2's
template <class A, class B, class C = void, class D = void, class E = void, auto... REST>
class CutlassMoeFCRunner { public: void made(); };
template <class A, class B, class C, class D, class E, auto... REST>
void CutlassMoeFCRunner<A, B, C, D, E, REST...>::made() {}
}
#define INSTANTIATE_FINALIZE_MOE_ROUTING(...)
"""


def runners(trees: Path, folder: Path, *flags: str) -> set[str]:
    """The dtypes of the runners that the real source instantiates, as its compiled symbols name them."""
    source, made = folder / "instantiation.cpp", folder / "instantiation.o"
    source.write_text((trees / "flashinfer" / INSTANTIATIONS).read_text())
    for header in re.findall(r'#include "(.*)"', source.read_text()):
        (folder / header).write_text("#pragma once\n" + (STAND_IN if header == "moe_kernels.h" else ""))
    enabled = [f"-DENABLE_{name}" for name in ("BF16", "FP8", "FP4")]
    subprocess.run(["g++", "-std=c++17", "-w", "-c", *enabled, *flags, source, "-o", made], check=True)
    symbols = subprocess.run(["nm", "-C", made], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"CutlassMoeFCRunner<(.*?)(?:, void)*(?:, (?:false|true).*)?>::made", symbols))


def test_the_runners_of_mxfp4_alone_are_instantiated(trees: Path, tmp_path: Path) -> None:
    mxfp4 = {f"__nv_fp8_e4m3, __nv_fp4_e2m1, {output}" for output in ("half", "__nv_bfloat16")}
    full = runners(trees, tmp_path)
    assert runners(trees, tmp_path, "-DFLASHINFER_MOE_MXFP4_ONLY") == mxfp4
    assert mxfp4 < full


#: Activations, weights and results, and the switches for groupwise scales, MXFP8 scales and packed weights.
DTYPES = [
    f"dtypes {act} {weight} {out} {w4} {mxfp8} {packed}"
    for act in ("fp8", "bf16", "fp16", "fp32")
    for weight in ("mxfp4", "fp8", "uint8", "bf16")
    for out in ("bf16", "fp16")
    for w4, mxfp8, packed in ((0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 0, 1))
]


@pytest.mark.nvcc
def test_the_minimal_binding_does_what_the_full_one_does_and_refuses_the_rest(moe_binding: Make) -> None:
    """The real binding, over a runner that says its type and what intermediate size it is handed."""
    full, minimal = moe_binding(DTYPES), moe_binding(DTYPES, "-DFLASHINFER_MOE_MXFP4_ONLY")
    for case, whole, small in zip(DTYPES, full, minimal, strict=True):
        if case.startswith("dtypes fp8 mxfp4"):
            assert small == whole
            assert small.startswith(f"__nv_fp8_e4m3,___nv_fp4_e2m1,_{TYPES[case.split()[3]]},")
            assert small.endswith(" inter 1024")
        else:
            assert "mxfp4_minimal" in small, case


TYPES = {"bf16": "__nv_bfloat16", "fp16": "__half"}
