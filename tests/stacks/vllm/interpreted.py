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
from triton.backends import backends
for name, backend in backends.items():
    backend.driver.is_active = staticmethod(lambda name=name: name == "nvidia")
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
