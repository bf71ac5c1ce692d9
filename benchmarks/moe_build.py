"""Measure the compilation of SM120's fused MoE module: the full profile and the one for MXFP4 alone.

    python benchmarks/moe_build.py --package SITE [--profile mxfp4_minimal --profile full] [--jobs N]

SITE is a folder with the patched flashinfer package. Make one with
`pip install --target SITE --no-deps dist/flashinfer_python-*.whl`. Needs nvcc, and libcuda.so to link with, but no GPU.
Each build starts from nothing. Prints a JSON line for each: units, seconds, peak memory of the largest compiler process
and of all together in GiB, and whether all symbols of the library resolve.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BUILD = """
import ctypes, json, sys
from flashinfer.jit.fused_moe import gen_cutlass_fused_moe_sm120_module
spec = gen_cutlass_fused_moe_sm120_module()
print(json.dumps({"module": spec.name, "units": len(spec.sources)}), flush=True)
spec.build(verbose=False)
import tvm_ffi
ctypes.CDLL(str(spec.get_library_path()), mode=2)  # RTLD_NOW: all symbols, at once
"""


class Memory(threading.Thread):
    """Samples the resident memory of the compilers that run, in KiB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.largest = self.together = 0
        self.done = threading.Event()

    def run(self) -> None:
        """Sample until done."""
        while not self.done.wait(0.5):
            out = subprocess.run(["ps", "-eo", "rss=,comm="], capture_output=True, text=True, check=True).stdout
            sizes = [int(line.split()[0]) for line in out.splitlines() if line.split()[-1] in COMPILERS]
            self.largest = max(self.largest, *sizes, 0)
            self.together = max(self.together, sum(sizes))


COMPILERS = ("cicc", "ptxas", "cudafe++", "cc1plus", "nvcc", "fatbinary", "nvlink")


def measure(package: Path, profile: str, jobs: int) -> dict[str, object]:
    """Build the module of a profile from nothing."""
    with tempfile.TemporaryDirectory(prefix="moe-build-") as folder:
        env = {
            **os.environ,
            "PYTHONPATH": str(package),
            "FLASHINFER_WORKSPACE_BASE": folder,
            "FLASHINFER_CUDA_ARCH_LIST": "12.1f",
            "FLASHINFER_FUSED_MOE_BUILD_PROFILE": profile,
            "MAX_JOBS": str(jobs),
        }
        memory = Memory()
        memory.start()
        start = time.monotonic()
        done = subprocess.run([sys.executable, "-c", BUILD], env=env, capture_output=True, text=True)
        seconds = time.monotonic() - start
        memory.done.set()
        memory.join()
        row: dict[str, object] = {"profile": profile, "jobs": jobs, "seconds": round(seconds, 1)}
        row |= json.loads(done.stdout.splitlines()[0]) if done.stdout else {}
        row |= {"largest_process_gib": round(memory.largest / 2**20, 2)}
        row |= {"all_at_once_gib": round(memory.together / 2**20, 2), "complete": done.returncode == 0}
        if done.returncode:
            wrong = [line[:300] for line in done.stderr.splitlines() if re.search(r"error|FAILED|Killed|signal", line)]
            row["error"] = [line for line in wrong if " -c " not in line][:20] or done.stderr[-2000:]
        return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, required=True)
    parser.add_argument("--profile", action="append", choices=("full", "mxfp4_minimal"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    rows = [measure(given.package.resolve(), p, given.jobs) for p in given.profile or ("mxfp4_minimal", "full")]
    for row in rows:
        print(json.dumps(row), flush=True)
    return 0 if all(row["complete"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
