"""The SM120 launcher with its types at namespace scope: selected, compiled, and what it says on the host.

Two of its kernels, standard and with A and B swapped and the finalize step fused, are compiled for sm_121f;
the PTX is looked at, and the launcher's host code is run, up to where it takes a GPU. That its kernels
compute, on an SM90 GPU where what SM90 lacks is emulated: sm120_on_sm90/.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from moe_unit import Nvcc, compiler_options, host_options, host_program, write_unit

Make = Callable[..., Any]
LAUNCHER = "SM120_MOE_LAUNCHER"
TARGET = "-gencode=arch=compute_121f,code=sm_121f"
HERE = Path(__file__).parent
KERNELS = [((128, 128), "NONE", False), ((128, 128), "FINALIZE", True)]
EQUIVALENT_MUTANTS = {
    "a8abcfae13": "CUTLASS's builder of SM120 epilogues takes the alignment of D and asks nothing of it"
}


GENERIC = re.compile(
    r"#if (.+)\n\s*INSTANTIATE_TMA_WARP_SPECIALIZED_MOE_GEMM\(Sm120, __nv_fp8_e4m3, SafeFP4, (\w+),"
    r"\s*\w+, \w+, (\w+),\s*(\d+), (\d+), (\d+), 1, 1, 1,\s*true, false, false, (\w+)\);"
)
NAMESPACE = re.compile(
    r"#if (.+)\n#define SM120_MIXED_NAMESPACE (\w+)\n#define SM120_MIXED_OUTPUT (\w+)\n#define SM120_MIXED_FUSION (\w+)\n"
    r"#define SM120_MIXED_CTA_M (\d+)\n#define SM120_MIXED_CTA_N (\d+)\n#define SM120_MIXED_CTA_K (\d+)\n"
    r'#define SM120_MIXED_SWAP_AB (\w+)\n#include ".*moe_gemm_sm120_mixed_input_kernel\.inl"\n#endif'
)


def generated(spec: Any) -> dict[Path, str]:
    """Return the generated sources of a module."""
    return {path: path.read_text() for path in spec.sources if path.name.endswith(".generated.cu")}


@pytest.mark.parametrize(("cutlass", "count"), [("4.2", 8), ("4.5", 24)])
def test_it_is_selected_and_generic_is_the_default(moe_module: Make, cutlass: str, count: int) -> None:
    """Each kernel by one launcher: its guard, results, fusion, tile and orientation are those of the generic one's."""
    generic, chosen = moe_module(cutlass=cutlass), moe_module(cutlass=cutlass, **{LAUNCHER: "namespace"})
    assert (cutlass != "4.2") or (generic.name, chosen.name) == ("fused_moe_120", "fused_moe_120_ns")
    assert generic.name.replace("_120", "_120_ns") == chosen.name
    before, after = generated(generic), generated(chosen)
    assert not before.keys() & after.keys(), "the two modules share sources"
    kernels = sorted(GENERIC.findall("".join(before.values())))
    found = NAMESPACE.findall("".join(after.values()))
    assert len(kernels) == len(set(kernels)) == count
    assert sorted((guard, *rest) for guard, _, *rest in found) == kernels
    names = [name for _, name, *_ in found]
    assert len(set(names)) == count
    assert all(name.isidentifier() for name in names)
    assert "sm120_mixed_input" not in "".join(before.values())


def test_nvfp4_stays_with_the_generic_launcher(moe_module: Make) -> None:
    before, after = generated(moe_module()), generated(moe_module(**{LAUNCHER: "namespace"}))
    nvfp4 = [text for text in before.values() if "SafeFP4, SafeFP4" in text]
    assert len(nvfp4) > 0
    assert sorted(text for text in after.values() if "SafeFP4, SafeFP4" in text) == sorted(nvfp4)
    mixed = [text for text in after.values() if "moe_gemm_sm120_mixed_input_kernel.inl" in text]
    assert len(mixed) > 0
    for text in mixed:
        assert "INSTANTIATE_" not in text, "kernels of both launchers in one source"
        assert re.findall(r'#include ".*launchers/(\w+_launcher\.inl)"', text) == [
            "moe_gemm_sm120_mixed_input_launcher.inl"
        ]


def test_a_launcher_that_isnt_one_is_an_error(moe_module: Make) -> None:
    try:
        spec = moe_module(**{LAUNCHER: "fast"})
    except ValueError as error:
        assert "fast" in str(error)
        assert "namespace" in str(error)
    else:
        pytest.fail(f"a misspelt launcher gave {spec.name}")


@pytest.mark.nvcc
def test_a_fusion_that_the_launcher_lacks_isnt_compiled(trees: Path, nvcc: Nvcc, tmp_path: Path) -> None:
    unit = write_unit(trees, tmp_path, "namespace", [((128, 128), "ACTIVATION", False)]).read_text()
    done = nvcc(*host_options(trees, tmp_path), "-Xcompiler=-fsyntax-only", "-c", str(host_program(tmp_path, unit)))
    assert "the SM120 mixed-input launcher fuses nothing or the finalize step" in done.stderr
    assert done.returncode != 0


@pytest.mark.nvcc
def test_a_workspace_is_asked_of_the_orientation_that_runs(
    trees: Path, nvcc: Nvcc, cpp_objects: list[str], tmp_path: Path
) -> None:
    """The real dispatch, over launchers that say which one they are, and where they are told of the other orientation."""
    main, program = host_program(tmp_path, f'#include "{HERE / "sm120_dispatch.cu"}"'), tmp_path / "dispatch"
    done = nvcc(*host_options(trees, tmp_path), str(main), *cpp_objects, "-o", str(program))
    assert done.returncode == 0, done.stderr[-3000:]
    asked = ["128x128x128", "128x128x128s"]
    done = subprocess.run([program, *asked], capture_output=True, check=True, timeout=300)
    assert done.stdout.decode().splitlines() == asked


@pytest.fixture(scope="module")
def built(trees: Path, nvcc: Nvcc, cpp_objects: list[str], tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The compiler's answer, the PTX, and what the host program printed."""
    folder = tmp_path_factory.mktemp("launcher")
    unit = write_unit(trees, folder, "namespace", KERNELS)
    # With the host's half, as nvcc writes it: with such types elsewhere that didn't compile.
    options = [TARGET, "-DNDEBUG", *compiler_options(trees, folder), "--keep", "--keep-dir", str(folder)]
    done = nvcc(*options, "-c", str(unit), "-o", str(folder / "kernels.o"))
    if done.returncode:
        return SimpleNamespace(error=done.stderr[-3000:])
    main, program = host_program(folder, f'#include "{HERE / "launcher_checks.cu"}"'), folder / "checks"
    linked = [str(folder / "kernels.o"), *cpp_objects]
    done = nvcc("-DNDEBUG", *host_options(trees, folder), str(main), *linked, "-o", str(program))
    if done.returncode:
        return SimpleNamespace(error=done.stderr[-3000:])
    # What it throws holds a backtrace, bytes of which are no text.
    done = subprocess.run([program], capture_output=True, check=True, timeout=300)
    said = done.stdout.decode("utf-8", "replace")
    lines = dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)
    (ptx,) = folder.glob("namespace*.ptx")
    return SimpleNamespace(error="", said=lines, ptx=ptx.read_text())


@pytest.mark.nvcc
def test_its_kernels_hold_the_block_scaled_mma(built: SimpleNamespace) -> None:
    assert not built.error, built.error
    mma = "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32"
    assert built.ptx.count(f"{mma}.e4m3.e2m1") == 128
    assert built.ptx.count(f"{mma}.e2m1.e4m3") == 128
    # 32 where the weights are B, 16 where they are A.
    assert built.ptx.count("b8x16.b4x16_p64") == 48
    assert "Aborting" not in built.ptx


@pytest.mark.nvcc
def test_the_workspace_is_asked_before_anything_else_is_known(built: SimpleNamespace) -> None:
    assert not built.error, built.error
    # A descriptor of 128 bytes for each of A, B and their scales, and for each SM, of which the program says 48.
    assert int(built.said["workspace"]) >= 4 * 128 * 48
    assert int(built.said["workspace, finalize, swapped"]) >= 4 * 128 * 48


@pytest.mark.nvcc
def test_a_failure_says_what_failed_where_and_why(built: SimpleNamespace) -> None:
    assert not built.error, built.error
    said = built.said["no device"]
    assert "initialize() returned Error Internal" in said
    for part in (
        "tile 128x128x128, 2 stages, swap_ab=0, no fusion",
        "CUDA: ",
        "Shared memory: 82944 bytes",
        "8 groups",
    ):
        assert part in said, said


#: Where the launcher asks whether the kernel waits for the grid ahead: the program's own answer, in the place of the one
#: that depends on flags and on CUTLASS's version.
WAITS = """
bool waits;
namespace tensorrt_llm::kernels::cutlass_kernels_oss {
template <>
bool grouped_gemm_waits_for_grid<cutlass::arch::Sm120>() { return waits; }
}
"""
#: What a launcher's name() is asked of: a kernel with three sizes.
NAMED = """
struct Named {
  using TileShape = cute::Shape<cute::Int<128>, cute::Int<64>, cute::Int<32>>;
  struct CollectiveMainloop { struct DispatchPolicy { static constexpr int Stages = 5; }; };
  static constexpr bool SwapAB = true, IsFinalize = false;
};
#define NAME tensorrt_llm::kernels::cutlass_kernels_oss::sm120_mixed_input::name<Named>()
"""
FUSIONS = {"standard": ("NONE", False), "swapped": ("NONE", True),
           "finalize": ("FINALIZE", False), "finalize swapped": ("FINALIZE", True)}  # fmt: skip
#: All but those for FP16 have BF16 results.
HALF = "standard of FP16"


@pytest.fixture(scope="module")
def operands(
    trees: Path, nvcc: Nvcc, cpp_objects: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[tuple[str, str], str]]:
    """What a launcher's host code answers to each case of launcher_operands.cu, by case and kernel."""

    @functools.cache
    def answers(launcher: str) -> dict[tuple[str, str], str]:
        folder = tmp_path_factory.mktemp(launcher)
        unit = write_unit(trees, folder, launcher, [((128, 128), *kernel) for kernel in FUSIONS.values()]).read_text()
        half = write_unit(trees, folder, launcher, [((128, 128), "NONE", False)], output="half").read_text()
        header, _, kernels = unit.partition("\n")
        texts = [header, WAITS, kernels, half.replace("kernel0", "of_half"), NAMED if launcher == "namespace" else ""]
        main = host_program(folder, *texts, f'#include "{HERE / "launcher_operands.cu"}"')
        program = folder / "operands"
        options = [*host_options(trees, folder), "-cudart", "shared", "-include", str(HERE / "recording_adapter.h")]
        done = nvcc(*options, str(main), *cpp_objects, "-o", str(program))
        assert done.returncode == 0, done.stderr[-3000:]
        done = subprocess.run([program], capture_output=True, check=True, timeout=300)
        lines = [line.partition(": ") for line in done.stdout.decode("utf-8", "replace").splitlines()]
        return {(case, kernel): said for head, _, said in lines for case, _, kernel in [head.partition(", ")]}

    return answers


def fields(said: str) -> dict[str, str]:
    """Return the arguments that a kernel would be launched with."""
    return dict(word.split("=") for word in said.partition("; ")[2].split())


def arguments(fusion: str, swap_ab: bool) -> dict[str, str]:
    """Return the arguments that a kernel with BF16 results needs for the whole input, fields that types fix with ``_``."""
    e4m3, e2m1, bf16 = "N7cutlass12float_e4m3_tE", "N7cutlass12float_e2m1_tE", "N7cutlass10bfloat16_tE"
    a, b = ("weight", "act") if swap_ab else ("act", "weight")
    per_row, per_column = "_1,_0,0,", "_0,_1,0,"
    same = {
        "grouped": "true", "groups": "8", "shapes": "shapes", "device": "0", "processors": "48", "swizzle": "1",
        "along_n": "true", "A": a, "B": b, "dA": f"{a}_stride", "dB": f"{b}_stride", "SFA": f"{a}_scales",
        "SFB": f"{b}_scales", "layout_SFA": f"{a}_layout", "layout_SFB": f"{b}_layout",
        "type_A": e2m1 if swap_ab else e4m3, "type_B": e4m3 if swap_ab else e2m1, "type_SF": "N7cutlass13float_ue8m0_tE",
        "alpha": "1.000000", "alpha_ptr": "null", "alphas": "alphas", "dAlpha": "_0,_0,1,", "C": "null",
        "workspace": "workspace", "stream": "stream", "workspace_in_run": "null", "pdl": "true",
    }  # fmt: skip
    if fusion == "NONE":
        output = {
            "beta": "0.000000", "beta_ptr": "null", "betas": "null", "D": "output", "dD": "output_stride",
            "type_D": bf16, "step_D": "_1,0,_0," if swap_ab else "0,_1,_0,",
        }  # fmt: skip
    else:
        output = {
            "D": "null", "type_D": "v", "type_out": bf16, "type_bias": bf16, "bias": "bias", "scales": "router_scales",
            "dBias": per_row if swap_ab else per_column, "dScale": per_column if swap_ab else per_row,
            "out": "final_output", "dOut": "_1,20,0," if swap_ab else "19,_1,0,", "index": "token_index",
            "modulo": "17", "shape": "18", "reduction": "false",
        }  # fmt: skip
    return same | output


#: Inputs that lack what needn't be there, and what changes.
OPTIONAL = {
    "whole": {}, "not asked to overlap": {"pdl": "false"}, "the kernel doesn't wait": {"pdl": "false"},
    "without bias": {"bias": "null"}, "reduced": {"reduction": "true"}, "one row": {"modulo": "1"},
    "without alphas": {"alphas": "null", "dAlpha": "_0,_0,0,"}, "workspace that fits": {},
}  # fmt: skip
STEPS = "workspace can_implement initialize run"


@pytest.mark.nvcc
@pytest.mark.parametrize("kernel", FUSIONS)
@pytest.mark.parametrize("launcher", ["namespace", "generic"])
def test_each_kernel_is_launched_with_all_of_its_operands(
    operands: Callable[[str], dict[tuple[str, str], str]], launcher: str, kernel: str
) -> None:
    """Both launchers' host code, over an adapter that notes what a kernel would be given."""
    answers, expected = operands(launcher), arguments(*FUSIONS[kernel])
    for case, changes in OPTIONAL.items():
        said = answers[case, kernel]
        assert said.partition("; ")[0] == STEPS
        changed = {name: value for name, value in changes.items() if name in expected}
        if launcher == "generic" and case == "without alphas" and "out" in expected:
            changed["dAlpha"] = expected["dAlpha"]  # a step between none
        assert fields(said) == expected | changed, case


@pytest.mark.nvcc
def test_a_kernel_of_fp16_has_fp16_results(operands: Callable[[str], dict[tuple[str, str], str]]) -> None:
    expected = arguments(*FUSIONS["standard"]) | {"type_D": "N7cutlass6half_tE"}
    assert fields(operands("namespace")["whole", HALF]) == expected


@pytest.mark.nvcc
@pytest.mark.parametrize("kernel", FUSIONS)
def test_the_workspace_is_that_of_the_experts(
    operands: Callable[[str], dict[tuple[str, str], str]], kernel: str
) -> None:
    """Nothing else is known yet; a kernel's workspace grows with experts and processors."""
    size, said = operands("namespace")["query", kernel].split("; ", 1)
    known = {"groups": "9", "processors": "48", "device": "0", "grouped": "true", "A": "null"}
    assert known.items() <= fields(f"; {said}").items()
    assert size == operands("generic")["query", kernel].split("; ", 1)[0]


#: Inputs that are refused, and the words for it: of any kernel, of those without the finalize step, of those with it.
BOTH_OPERANDS, BOTH_SCALES = (
    "needs both operands and their strides",
    "needs the scales of both operands and their layouts",
)
OUTPUT, FINAL = "needs an output and its strides", "needs the final output, router scales and token indices"
REFUSED = {
    **dict.fromkeys(["no act", "no weight", "no act stride", "no weight stride"], (BOTH_OPERANDS, BOTH_OPERANDS)),
    **dict.fromkeys(["no act scales", "no weight scales", "no act layout", "no weight layout"], (BOTH_SCALES, BOTH_SCALES)),
    **dict.fromkeys(["no output", "no output stride"], (OUTPUT, "")),
    **dict.fromkeys(["no final output", "no router scales", "no token index", "no row"], ("", FINAL)),
    "a C": ("adds no C", "adds no C"),
    "other fusion": ("no fusion was given fusion 3", "finalize fused was given fusion 0"),
}  # fmt: skip


@pytest.mark.nvcc
@pytest.mark.parametrize("kernel", FUSIONS)
def test_what_the_kernel_isnt_for_is_refused(
    operands: Callable[[str], dict[tuple[str, str], str]], kernel: str
) -> None:
    fusion, swap_ab = FUSIONS[kernel]
    answers = operands("namespace")
    name = (
        f"tile 128x128x128, 2 stages, swap_ab={int(swap_ab)}, {'no fusion' if fusion == 'NONE' else 'finalize fused'}"
    )
    for case, words in REFUSED.items():
        word, said = words[fusion == "FINALIZE"], answers[case, kernel]
        if word:
            assert said.startswith("; refused: "), case
            assert name in said, case
            assert word in said, case
        else:
            assert said.startswith(STEPS), case
    assert f"{name} was given swap_ab={int(not swap_ab)};" in answers["other orientation", kernel]
    size = int(answers["query", kernel].split(";")[0])
    small = answers["workspace a byte too small", kernel]
    assert small.startswith("workspace; refused: ")
    assert f"{name}: workspace is size {size} but only {size - 1} were allocated" in small
    assert answers["occupancy", kernel].startswith("; refused: ")
    assert "don't calculate occupancy" in answers["occupancy", kernel]


@pytest.mark.nvcc
@pytest.mark.parametrize("kernel", FUSIONS)
def test_a_failure_says_which_step_where_and_why(
    operands: Callable[[str], dict[tuple[str, str], str]], kernel: str
) -> None:
    """Each step of a launch; what the message holds; and that CUDA's error is taken along."""
    answers = operands("namespace")

    def failure(case: str) -> tuple[str, str]:
        steps, _, rest = answers[case, kernel].partition("; refused: ")
        head, _, tail = rest.partition("; pending ")
        assert tail == "0", "an error of CUDA's is left to the next who asks"
        return steps.split()[-1], head

    memory = r"Shared memory: \d{5,6} bytes, a block of this device may have 101376\."
    step, said = failure("not implemented")
    assert step == "can_implement"
    assert re.search(
        rf": can_implement\(\) returned Error Invalid Problem\. CUDA: no error\. {memory} 8 groups\.$", said
    )
    step, said = failure("not initialized")
    assert step == "initialize"
    assert re.search(rf": initialize\(\) returned Error Internal\. CUDA: invalid argument\. {memory} 8 groups\.$", said)
    step, said = failure("not loaded")
    assert step == "run"
    assert "run() returned Error Internal. " in said
    assert "The kernel can't be loaded: no kernel image is available for execution on the device. 8 groups." in said
    told = ", ".join(f"[{i}]: {100 + i}x{200 + i}x{300 + i}" for i in (0, 3, 4, 5, 6, 7, 8, 9))
    assert failure("eight groups told")[1].endswith(f" 10 groups, {told}.")
    assert failure("nine groups told")[1].endswith(f" 11 groups, {told}, ....")
    assert failure("ten groups told")[1].endswith(f" 12 groups, {told}, ....")
    for unread in ("capturing", "not copied", "not waited for"):
        assert failure(unread)[1].endswith(" 2 groups."), unread
    step, said = failure("failed later")
    assert step == "run"
    assert "an illegal memory access" in said


@pytest.mark.nvcc
def test_a_kernel_is_named_by_its_tile_in_order(operands: Callable[[str], dict[tuple[str, str], str]]) -> None:
    said = operands("namespace")["name", "named"]
    assert said == "SM120 mixed-input grouped GEMM, tile 128x64x32, 5 stages, swap_ab=1, no fusion"
