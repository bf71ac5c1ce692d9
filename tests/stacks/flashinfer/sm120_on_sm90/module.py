"""Build FlashInfer's SM120 MoE module, whole, for sm_90a, so that its own Python entry runs it on an SM90 GPU.

    python module.py --site SITE --out DIR [--launcher namespace]

SITE is a folder with the patched flashinfer package in it, `pip install --target SITE --no-deps
dist/gb10/flashinfer_python-*.whl` for one. Takes nvcc, and no GPU. The specifications are FlashInfer's own, of the
MoE module for MXFP4 and of the quantizers that come before it; what is changed of them is the target, what SM90
lacks (emulation.h, `emulate.collective`, `quantization`), and that each launch goes through launchers.cu, and what is asked of the device
through device.cu.
DIR then has NAME/NAME.so of each, which FlashInfer takes from `flashinfer/data/aot` instead of compiling.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from emulate import collective, quantization  # noqa: E402

LAUNCHER = "tma_warp_specialized_generic_moe_gemm_kernelLauncher"
WRAPPED = ("cudaDeviceGetAttribute", "cudaFuncSetAttribute")
SONAMES = {"cudart": "libcudart.so.13", "cuda": "libcuda.so.1", "nvrtc": "libnvrtc.so.13"}


def specifications() -> list[Any]:
    """What `cutlass_fused_moe`, `mxfp8_quantize` and `block_scale_interleave` load on an SM121."""
    from flashinfer.jit import fp4_quantization, fp8_quantization, fused_moe

    # Since 0.7 one module is for all of SM12x.
    family = getattr(fp4_quantization, "gen_fp4_quantization_sm120f_module", None)
    return [
        fused_moe.gen_cutlass_fused_moe_sm120_module(),
        fp8_quantization.gen_mxfp8_quantization_sm100_module(),
        (family or fp4_quantization.gen_fp4_quantization_sm121_module)(),
    ]


def for_sm90(command: str, overlay: Path) -> list[str]:
    """A compiler's command without its output, with another target, and with the overlay's headers in front."""
    words = shlex.split(command)
    del words[words.index("-o") : words.index("-o") + 2]
    first = next(i for i, word in enumerate(words) if word.startswith(("-I", "-isystem")))
    more = [f"-I{overlay}", *(f"-I{place}" for place in os.environ.get("PATCHQ_CUDA_INCLUDE", "").split(":") if place)]
    words[first:first] = more
    if not words[0].endswith("nvcc"):
        return words
    target = [word for word in words if word.startswith("-gencode=")]
    if not target or any("arch=compute_12" not in word for word in target):
        raise ValueError(f"the targets aren't SM12x: {target}")
    words = [word for word in words if word not in target]
    return [*words, "-gencode=arch=compute_90a,code=sm_90a", "-include", str(HERE / "emulation.h")]


def digest_of(*paths: Path) -> str:
    """What a unit is compiled from: files, and all of folders but what is generated or built there."""
    found = hashlib.sha256()
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            below = file.relative_to(path)
            if file.is_file() and not {"aot", "cutlass_instantiations"} & set(below.parts):
                found.update(str(below).encode() + file.read_bytes())
    return found.hexdigest()[:12]


def compile_unit(command: list[str], folder: Path) -> Path:
    """The object of a command and the source that it names, made once."""
    source = Path(command[command.index("-c") + 1])
    name, made_of = source.name, shlex.join(command).encode() + source.read_bytes()
    found = folder / f"{name}.{hashlib.sha256(made_of).hexdigest()[:12]}.o"
    if not found.exists():
        made = found.with_suffix(".part.o")
        subprocess.run([*command, "-o", str(made)], check=True)
        made.rename(found)
        print(f"compiled {name}", flush=True)
    return found


def launchers_of(objects: list[Path]) -> list[str]:
    """The symbols of the SM120 launchers that these objects define."""
    said = subprocess.run(["nm", "--defined-only", *map(str, objects)], check=True, capture_output=True, text=True)
    return sorted(set(re.findall(rf" [TW] (_ZN\w*{LAUNCHER}I\w+)$", said.stdout, re.MULTILINE)))


def link(objects: list[Path], libraries: list[str], wrapped: list[str], target: Path) -> None:
    """Link to a module whose references to the wrapped symbols go to what stands for them."""
    stubs = target.parent.parent / "stubs"
    for folder in (stubs, target.parent):
        folder.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(["cudart", "cuda", *(flag.removeprefix("-l") for flag in libraries)]))
    for name in names:
        soname = ["-shared", "-nostdlib", f"-Wl,-soname,{SONAMES[name]}", "-x", "c", "/dev/null"]
        subprocess.run(["g++", *soname, "-o", str(stubs / f"lib{name}.so")], check=True)
    flags = [f"-Wl,--wrap={symbol}" for symbol in wrapped]
    needed = ["-Wl,--no-as-needed", f"-L{stubs}", *(f"-l{name}" for name in names)]
    subprocess.run(["g++", "-shared", "-s", *map(str, objects), *flags, *needed, "-o", str(target)], check=True)


def build(spec: Any, overlay: Path, objects: Path, out: Path, jobs: int) -> Path:
    """A module for sm_90a, in ``out``."""
    entries = spec.get_compile_commands()
    commands = [for_sm90(entry["command"], overlay) for entry in entries]
    # The largest first: kernels, then the runner and the binding.
    order = sorted(commands, key=lambda c: "generated" not in shlex.join(c[:3]))
    with ThreadPoolExecutor(jobs) as pool:
        made = dict(zip(map(shlex.join, order), pool.map(lambda c: compile_unit(c, objects), order), strict=True))
    linked = [made[shlex.join(command)] for command in commands]
    symbols = launchers_of(linked)
    wrapped = list(WRAPPED) if symbols else []
    if symbols:
        listed = " ".join(f'LAUNCHER({number}, "{symbol}")' for number, symbol in enumerate(symbols))
        header = out / f"{spec.name}.launchers.h"
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(f"#define LAUNCHERS {listed}\n")
        unit = next(c for c in commands if "generated" in shlex.join(c[:3]))
        for source in ("launchers.cu", "device.cu"):
            own = objects / digest_of(HERE / source, header)
            own.mkdir(exist_ok=True)
            command = [str(HERE / source) if word == unit[2] else word for word in unit]
            linked.append(compile_unit([*command, "-include", str(header)], own))
        wrapped += symbols
    target = out / spec.name / f"{spec.name}.so"
    link(linked, list(spec.extra_ldflags or ()), wrapped, target)
    print(f"{target}: {len(commands)} units, {len(symbols)} launchers", flush=True)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--launcher", choices=("generic", "namespace"), default="namespace")
    parser.add_argument("--work", type=Path, help="keeps what was compiled; default: beside DIR")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    site, out = given.site.resolve(), given.out.resolve()
    work = (given.work or out.with_name(f"{out.name}-work")).resolve()
    os.environ |= {
        "FLASHINFER_CUDA_ARCH_LIST": "12.1f",
        "FLASHINFER_DISABLE_VERSION_CHECK": "1",
        "FLASHINFER_FUSED_MOE_BUILD_PROFILE": "mxfp4_minimal",
        "FLASHINFER_SM120_MOE_LAUNCHER": given.launcher,
        "FLASHINFER_WORKSPACE_BASE": str(work),
    }
    sys.path.insert(0, str(site))
    overlay = work / "overlay"
    data = site / "flashinfer" / "data"
    collective(data / "cutlass", overlay)
    quantization(data / "csrc", overlay)
    objects = work / "objects" / digest_of(overlay, HERE / "emulation.h", data)
    objects.mkdir(parents=True, exist_ok=True)
    for spec in specifications():
        build(spec, overlay / "include", objects, out, given.jobs)


if __name__ == "__main__":
    main()
