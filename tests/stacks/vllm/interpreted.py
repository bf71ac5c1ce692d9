"""Triton kernels of the patched vLLM in Triton's interpreter, in a process of its own.

vLLM turns Triton off where no GPU is active, for the whole process; here one is taken for active.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HEAD = """
import importlib, json, sys
import torch
import triton.language as tl
from triton.backends import backends
from triton.runtime.interpreter import GridExecutor, ReduceOps
for name, backend in backends.items():
    backend.driver.is_active = staticmethod(lambda name=name: name == "nvidia")
# Where a kernel leaves open which of equal values it takes, a GPU takes any; Triton's interpreter always takes the first.
FAST = tl.standard._argmax_combine_tie_break_fast, tl.standard._argmin_combine_tie_break_fast
reduce = ReduceOps.apply_impl
def apply_impl(self, input):
    return self.generic_reduce(input) if self.combine_fn in FAST else reduce(self, input)
ReduceOps.apply_impl = apply_impl
# On a CPU this copies each tensor's memory onto itself, and with it what was never written.
GridExecutor._restore_args_dev = lambda *given: None
def far_apart(rows):
    # The same rows, so far apart that 32 bits don't hold the last one's offset. What is between takes no memory.
    stride = 2**31 // (len(rows) - 1) + 64
    far = torch.empty(stride * (len(rows) - 1) + rows.shape[1], dtype=rows.dtype)
    return far.as_strided(rows.shape, (stride, 1)).copy_(rows)
try:
    module = importlib.import_module(sys.argv[1])
except ModuleNotFoundError as error:
    print(json.dumps({"absent": error.name}))
    sys.exit()
"""


def run(module: str, script: str) -> dict[str, Any]:
    """Run a script that has ``module`` and prints JSON last; a module that isn't there fails an assertion."""
    path = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-c", HEAD + script, module],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    assert "absent" not in result, f"no module {module}"
    return result
