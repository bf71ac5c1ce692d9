"""FlashInfer's binding of the fused MoE, compiled for the host over a runner that says what it is handed."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import tvm_ffi
from moe_unit import KERNELS, Nvcc, compiler_options, host_options

HERE = Path(__file__).parent
BINDING = "csrc/fused_moe/cutlass_backend"


def build(trees: Path, nvcc: Nvcc, folder: Path, objects: Sequence[str], flags: Sequence[str] = ()) -> Path:
    """The program of moe_binding.cpp, with these flags of the module's, linked with FlashInfer's C++ objects."""
    package = Path(tvm_ffi.__file__).parent
    tree = trees / "flashinfer"
    includes = [tree / BINDING, tree / "csrc", package / "include", package / "3rdparty/dlpack/include"]
    options = ["-DUSING_OSS_CUTLASS_MOE_GEMM", *(f"-I{path}" for path in includes)]
    # What a later release's binding calls besides the runner: kernels, and what asks CUDA for a device.
    mixed = tree / KERNELS / "moe_gemm/moe_gemm_mixed_utils.cu"
    beside = [str(HERE / "no_device.cpp"), *([str(mixed)] if mixed.exists() else [])]
    done = nvcc("-arch=sm_90a", *compiler_options(trees, folder), "-odir", str(folder), "-c", *beside)
    assert done.returncode == 0, done.stderr[-4000:]
    linked = [str(folder / f"{Path(source).stem}.o") for source in beside]
    program = folder / "binding"
    done = nvcc(
        *flags, *host_options(trees, folder), *options, str(HERE / "moe_binding.cpp"), *linked, *objects,
        "-o", str(program), "-cudart", "shared", f"-L{package / 'lib'}", "-ltvm_ffi", f"-Xlinker=-rpath={package / 'lib'}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return program


def ask(program: Path, cases: Sequence[str]) -> list[str]:
    """What the program says to each case; see the head of moe_binding.cpp."""
    done = subprocess.run(
        [program], input=("\n".join(cases) + "\n").encode(), capture_output=True, timeout=120, check=False
    )
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(lines) == len(cases), lines
    return [line.strip() for line in lines]
