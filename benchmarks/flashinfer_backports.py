"""Measure two backports in FlashInfer on a GPU with SM90. Prints JSON.

    python benchmarks/flashinfer_backports.py build .patchq/trees FOLDER     needs nvcc and the applied set `gb10`; no GPU
    python benchmarks/flashinfer_backports.py run FOLDER                     needs torch and a GPU with SM90; one minute

Compiles v0.6.1's kernels and launchers for sm_90a twice: from the patched tree, and from that tree without one patch.
In both, the guards of two functions of quantization.cuh are lowered to 900.

- `padding rows`: `expandInputRows` and `doActivation` with and without `moe-padding-rows`, at gpt-oss-120b's sizes:
  median microseconds of CUDA graph replays, whether the bytes of the rows are equal, and bytes written outside the rows.
- `top-k`: with and without `topk-group-reset`, each in its own process, which may hang. "late": half of the blocks look
  100 us after they have arrived, which a GPU may do.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from ctypes import c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch
from lowered import lowered

HERE = Path(__file__).resolve().parent
EXPERTS, TOP_K, WIDTH = 128, 4, 2944  # gpt-oss-120b, padded as FlashInfer's callers do
SCALES = WIDTH // 32
UNWRITTEN = 0xEE
ROWS, VOCABULARY = 8, 201088  # FP32: four blocks a row on an H100, nine on a GB10
CUTLASS_BACKEND = "csrc/fused_moe/cutlass_backend"
QUANTIZATION = "tensorrt_llm/kernels/quantization.cuh"
#: What rounds to MXFP8, and where a scale lies.
LOWERED = ("cvt_warp_fp16_to_mxfp8", "cvt_quant_get_sf_out_offset")
#: Where a block waits for its group, and what makes half of the blocks look late.
WAIT = re.compile(r"(void wait_ge\([^{]*\{\s*if \([^{]*\{)")
LATE = r"\1 if (blockIdx.x & 1) for (int i = 0; i < 100; ++i) __nanosleep(1000);"
CURAND = """#pragma once
struct curandState_t {};
typedef curandState_t curandStatePhilox4_32_10_t;
template <class... A> __device__ inline void curand_init(A...) {}
template <class S> __device__ inline float curand_uniform(S*) { return 0.5f; }
template <class S> __device__ inline uint4 curand4(S*) { return uint4{}; }
"""


def build(trees: Path, out: Path) -> None:
    """Compile the libraries that `run` loads: with a patch, without it, and their common part."""
    sys.path.insert(0, str(HERE.parent / "tests/stacks/flashinfer"))
    from moe_unit import COMMON_SOURCES, CPP_SOURCES, compiler_options

    flashinfer = trees / "flashinfer"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="backports-") as text:
        folder = Path(text)
        options = compiler_options(trees, folder)
        for name in ("curand.h", "curand_philox4x32_x.h"):
            (folder / name).touch()
        (folder / "curand_kernel.h").write_text(CURAND)
        (folder / QUANTIZATION).parent.mkdir(parents=True)
        source = flashinfer / "csrc/nv_internal" / QUANTIZATION
        (folder / QUANTIZATION).write_text(lowered(source.read_text(), LOWERED))
        moe = [*options, f"-I{flashinfer / CUTLASS_BACKEND}", f"-I{flashinfer / 'include/flashinfer'}",
               "-DUSING_OSS_CUTLASS_MOE_GEMM"]  # fmt: skip
        common = [flashinfer / source for source in COMMON_SOURCES]
        compiled([*moe, "-O2"], common, out / "moe_rest.so")
        for build, patched in (("patched", True), ("bare", False)):
            kernels = folder / build
            of_tree(flashinfer, f"{CUTLASS_BACKEND}/cutlass_fused_moe_kernels.cuh", kernels / "kernels.cuh",
                    None if patched else "moe-padding-rows")  # fmt: skip
            sources = [HERE / "flashinfer_backports/padding_rows.cu", *(flashinfer / source for source in CPP_SOURCES),
                       flashinfer / "csrc/nv_internal/cpp/common/envUtils.cpp"]  # fmt: skip
            compiled([*moe, "-O3", f"-I{kernels}"], sources, out / f"moe_{build}.so")
            header = kernels / "topk.cuh"
            of_tree(flashinfer, "include/flashinfer/topk.cuh", header, None if patched else "topk-group-reset")
            top_k_of = ["-std=c++17", "--expt-relaxed-constexpr", "-O3", f"-I{flashinfer / 'include/flashinfer'}"]
            compiled([f"-I{kernels}", *top_k_of], [HERE / "flashinfer_backports/topk.cu"], out / f"topk_{build}.so")
            text, count = WAIT.subn(LATE, header.read_text())
            assert count == 1, "the place where blocks wait has moved"
            header.write_text(text)
            compiled(
                [f"-I{kernels}", *top_k_of], [HERE / "flashinfer_backports/topk.cu"], out / f"topk_{build}_late.so"
            )


def of_tree(flashinfer: Path, source: str, to: Path, without: str | None) -> None:
    """Return a file of the tree, with or without a patch of the stack."""
    with tempfile.TemporaryDirectory(prefix="backports-") as text:
        work = Path(text) / source
        work.parent.mkdir(parents=True)
        shutil.copy(flashinfer / source, work)
        if without:
            patch = HERE.parent / f"patches/flashinfer/v0.6.1/{without}.patch"
            subprocess.run(["git", "apply", "-R", f"--include={source}", str(patch)], cwd=text, check=True)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(work, to)


def compiled(options: list[str], sources: list[Path], to: Path) -> None:
    command = ["nvcc", *options, "-gencode=arch=compute_90a,code=sm_90a", "-Xcompiler", "-fPIC", "-shared",
               "-cudart", "shared", "-w", *map(str, sources), "-o", str(to)]  # fmt: skip
    subprocess.run(command, check=True)


def load(folder: Path, name: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(folder / f"{name}.so"))


def pointer(t: torch.Tensor | None) -> c_void_p:
    return c_void_p(t.data_ptr() if t is not None else 0)


def stream() -> c_void_p:
    return c_void_p(torch.cuda.current_stream().cuda_stream)


def routing(tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(tokens)
    chosen = torch.stack([torch.randperm(EXPERTS, generator=g)[:TOP_K] for _ in range(tokens)])  # [tokens, k]
    rows = [(int(chosen[t, k]), k * tokens + t) for t in range(tokens) for k in range(TOP_K)]
    rows.sort()
    first = [sum(e < i for e, _ in rows) for i in range(EXPERTS + 1)]
    return torch.tensor([r for _, r in rows], dtype=torch.int32, device="cuda"), torch.tensor(first, device="cuda")


def places(first: torch.Tensor) -> torch.Tensor:
    """Return the positions of the rows' scales: [rows, SCALES]."""
    out = []
    k = torch.arange(SCALES)
    for expert in range(EXPERTS):
        a, b = int(first[expert]), int(first[expert + 1])
        start = (a + expert * 127 + 127) // 128 * 128 * SCALES
        for row in range(b - a):
            out.append(
                start + row // 128 * (SCALES // 4) * 512 + k // 4 * 512 + row % 32 * 16 + row % 128 // 32 * 4 + k % 4
            )
    return torch.stack(out).cuda()


def microseconds(call: Callable[[], object], launches: int = 40, replays: int = 60) -> float:
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            call()
    times = []
    for i in range(replays + 10):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        graph.replay()
        b.record()
        torch.cuda.synchronize()
        if i >= 10:
            times.append(a.elapsed_time(b) * 1000 / launches)
    return round(statistics.median(times), 3)


class Inputs:
    """Of some tokens, each with TOP_K experts of its own: MXFP8 activations, FC1's result, and what SwiGLU takes."""

    def __init__(self, tokens: int) -> None:
        generator = torch.Generator(device="cuda").manual_seed(1)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device="cuda", generator=generator).bfloat16()

        self.tokens, self.rows = tokens, tokens * TOP_K
        self.source, self.first = routing(tokens)
        self.places = places(self.first)
        self.x = torch.randint(0, 120, (tokens, WIDTH), dtype=torch.uint8, device="cuda", generator=generator)
        self.x_sf = torch.randint(110, 140, (tokens, SCALES), dtype=torch.uint8, device="cuda", generator=generator)
        self.result, self.bias = random(self.rows, 2 * WIDTH), random(EXPERTS, 2 * WIDTH)
        self.swiglu = [torch.full((EXPERTS,), value, device="cuda") for value in (1.702, 1.0, 7.0)]

    def call(self, kernel: str, library: ctypes.CDLL, out: torch.Tensor, sf: torch.Tensor) -> None:
        if kernel == "expand":
            library.expand(
                pointer(self.x), pointer(out), pointer(self.source), c_int64(self.tokens), c_int64(WIDTH),
                c_int(TOP_K), c_int(EXPERTS), pointer(self.first), pointer(sf), pointer(self.x_sf), c_int(0), stream(),
            )  # fmt: skip
        else:
            library.activate(
                pointer(out), pointer(self.result), pointer(self.bias), pointer(self.first), c_int(EXPERTS),
                c_int64(WIDTH), c_int64(self.rows), *map(pointer, self.swiglu), pointer(sf), c_int(0), stream(),
            )  # fmt: skip


def padding_rows(folder: Path) -> list[dict[str, Any]]:
    """Return a row for each number of tokens: both kernels, both builds."""
    ctypes.CDLL(str(folder / "moe_rest.so"), mode=ctypes.RTLD_GLOBAL)  # what the others refer to
    libraries = {name: load(folder, f"moe_{name}") for name in ("bare", "patched")}
    found = []
    for tokens in (1, 2, 4, 8, 32, 128, 512, 2048):
        given = Inputs(tokens)
        line: dict[str, Any] = {"tokens": tokens, "scales in rows": given.places.numel()}
        for kernel in ("expand", "activate"):
            line |= {f"{kernel} {key}": value for key, value in beside(kernel, libraries, given).items()}
        found.append(line)
    return found


def beside(kernel: str, libraries: dict[str, ctypes.CDLL], given: Inputs) -> dict[str, Any]:
    """Compare a kernel in both builds: times, bytes written outside the rows, equal bytes inside."""
    found: dict[str, Any] = {}
    outs, scales = {}, {}
    for name, library in libraries.items():
        size = (given.rows + EXPERTS * 128 + 128) * SCALES
        sf = torch.full((size,), UNWRITTEN, dtype=torch.uint8, device="cuda")
        out = torch.zeros(given.rows, WIDTH, dtype=torch.uint8, device="cuda")
        call = functools.partial(given.call, kernel, library, out, sf)
        call()
        torch.cuda.synchronize()
        outs[name], scales[name] = out.clone(), sf[given.places].clone()
        found[f"{name} beside"] = int((sf != UNWRITTEN).sum()) - int((scales[name] != UNWRITTEN).sum())
        found[f"{name} us"] = microseconds(call)
    found["equal"] = torch.equal(outs["bare"], outs["patched"]) and torch.equal(scales["bare"], scales["patched"])
    found["scales written"] = bool((scales["patched"] != UNWRITTEN).all())
    found["times as fast"] = round(found["bare us"] / found["patched us"], 2)
    return found


def top_k(folder: Path, name: str, calls: int) -> dict[str, Any]:
    """Run top-k in this process, which may hang."""
    rows, vocabulary, dll = ROWS, VOCABULARY, load(folder, f"topk_{name}")
    x = torch.randn(rows, vocabulary, device="cuda", generator=torch.Generator(device="cuda").manual_seed(3))
    out, states = torch.empty_like(x), torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    ids, values = torch.empty(rows, 50, dtype=torch.int32, device="cuda"), torch.empty(rows, 50, device="cuda")
    torch.cuda.synchronize()
    print("ready", file=sys.stderr, flush=True)
    started = time.time()
    for done in range(calls):
        said = dll.mask_logits(pointer(x), pointer(out), 50, rows, vocabulary, pointer(states), stream())
        said = said or dll.top_k(
            pointer(x), pointer(ids), pointer(values), 50, rows, vocabulary, pointer(states), stream()
        )
        if said:
            return {"error": said}
        if done % 50 == 0:
            torch.cuda.synchronize()
            print(done + 1, file=sys.stderr, flush=True)
    torch.cuda.synchronize()
    seconds = time.time() - started
    want = x.topk(50)
    same = torch.equal(values.sort(descending=True).values, want.values)
    same_ids = torch.equal(ids.long().sort().values, want.indices.sort().values)
    kept = torch.equal((out > float("-inf")).sum(1), torch.full((rows,), 50, device="cuda"))
    answer = {
        "calls": calls,
        "seconds": round(seconds, 2),
        "equal to torch": same and same_ids and kept,
        "state is zero": not bool(states.any()),
    }
    if "late" not in name:
        answer["mask us"] = microseconds(
            lambda: dll.mask_logits(pointer(x), pointer(out), 50, rows, vocabulary, pointer(states), stream()), 20, 20
        )
    return answer


def apart(folder: Path, name: str, calls: int, limit: float) -> dict[str, Any]:
    """Return the calls that a process reports, or that it had to be killed."""
    command = [sys.executable, __file__, "top-k", str(folder), name, str(calls)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said, ready = "", ""
    while ready != "ready" and (line := child.stderr.readline()):  # its imports are no wait of a kernel
        said, ready = said + line, line.strip()
    try:
        out, err = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        child.kill()
        out, err = child.communicate()
        counts = [int(w) for w in err.split() if w.isdigit()]
        return {
            "waits forever": ready == "ready",
            "killed after s": limit,
            "calls that came back": max(counts, default=0),
        }
    if child.returncode:
        return {"error": (said + err)[-600:]}
    return json.loads(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("build")
    step.add_argument("trees", type=Path)
    step.add_argument("folder", type=Path)
    for name in ("run", "top-k"):
        step = steps.add_parser(name)
        step.add_argument("folder", type=Path)
    step.add_argument("library")
    step.add_argument("calls", type=int)
    given = parser.parse_args()
    if given.step == "build":
        build(given.trees.resolve(), given.folder)
        return
    if given.step == "top-k":
        print(json.dumps(top_k(given.folder, given.library, given.calls)))
        return
    answer: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "experts": EXPERTS, "top_k": TOP_K,
        "width": WIDTH, "padding rows": padding_rows(given.folder),
    }  # fmt: skip
    torch.cuda.synchronize()
    tried = (("patched", 2000, 8.0), ("bare", 2000, 8.0), ("patched_late", 20, 8.0), ("bare_late", 20, 5.0))
    answer["top-k"] = {name: apart(given.folder, name, calls, limit) for name, calls, limit in tried}
    print(json.dumps(answer, indent=1))


if __name__ == "__main__":
    main()
