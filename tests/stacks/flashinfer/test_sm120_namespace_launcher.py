"""The SM120 launcher with its types at namespace scope: selected, compiled, and what it says on the host.

Two of its kernels, standard and with A and B swapped and the finalize step fused, are compiled for sm_121f;
the PTX is looked at, and the launcher's host code is run, up to where it takes a GPU. That its kernels
compute, on an SM90 GPU where what SM90 lacks is emulated: sm120_on_sm90/.
"""

from __future__ import annotations

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


def test_it_is_selected_and_generic_is_the_default(moe_module: Make) -> None:
    generic, chosen = moe_module(), moe_module(**{LAUNCHER: "namespace"})
    assert generic.name == "fused_moe_120"
    assert chosen.name == "fused_moe_120_ns"

    def sources(spec: Any) -> str:
        return "".join(p.read_text() for p in spec.sources if p.name.endswith(".generated.cu"))

    assert sources(generic).count("__nv_fp8_e4m3, SafeFP4") == 8
    assert "sm120_mixed_input" not in sources(generic)
    # Each of the eight kernels by one launcher, not by both; NVFP4 stays with the generic one.
    assert "__nv_fp8_e4m3, SafeFP4" not in sources(chosen)
    assert sources(chosen).count("moe_gemm_sm120_mixed_input_kernel.inl") == 8
    assert len(set(re.findall(r"SM120_MIXED_NAMESPACE (\w+)", sources(chosen)))) == 8
    assert sources(chosen).count("SafeFP4, SafeFP4") == sources(generic).count("SafeFP4, SafeFP4") > 0


def test_a_launcher_that_isnt_one_is_an_error(moe_module: Make) -> None:
    try:
        spec = moe_module(**{LAUNCHER: "fast"})
    except ValueError as error:
        assert "fast" in str(error)
        assert "namespace" in str(error)
    else:
        pytest.fail(f"a misspelt launcher gave {spec.name}")


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
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("other orientation", "swap_ab=0, no fusion was given swap_ab=1"),
        ("other fusion", "was given fusion 3"),
        ("small workspace", "only 16 were allocated"),
        ("with C", "adds no C"),
        ("no scales", "needs the scales of both operands"),
        ("no final output", "needs the final output, router scales and token indices"),
    ],
)
def test_what_the_kernel_isnt_for_is_refused(built: SimpleNamespace, case: str, words: str) -> None:
    assert not built.error, built.error
    assert words in built.said[case]
    assert "tile 128x128x128" in built.said[case]


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


@pytest.mark.nvcc
@pytest.mark.parametrize("launcher", ["namespace", "generic"])
def test_each_operand_comes_with_its_own_strides_scales_and_layout(
    trees: Path, nvcc: Nvcc, cpp_objects: list[str], tmp_path: Path, launcher: str
) -> None:
    """Both launchers' host code, over an adapter that notes what a kernel would be given."""
    unit = write_unit(trees, tmp_path, launcher, KERNELS).read_text()
    main = host_program(tmp_path, unit, f'#include "{HERE / "launcher_operands.cu"}"')
    program = tmp_path / "operands"
    options = [*host_options(trees, tmp_path), "-include", str(HERE / "recording_adapter.h")]
    done = nvcc(*options, str(main), *cpp_objects, "-o", str(program))
    assert done.returncode == 0, done.stderr[-3000:]
    said = subprocess.run([program], capture_output=True, check=True, timeout=300).stdout.decode("utf-8", "replace")
    standard, swapped = (line.split() for line in said.splitlines()[-2:])
    kinds = ["", "_stride", "_scales", "_layout"]
    assert standard[:8] == [f"{operand}{kind}" for kind in kinds for operand in ("act", "weight")]
    assert swapped[:8] == [f"{operand}{kind}" for kind in kinds for operand in ("weight", "act")]
    assert standard[8] == swapped[8] == "0", "launched to overlap a grid that it doesn't wait for"
