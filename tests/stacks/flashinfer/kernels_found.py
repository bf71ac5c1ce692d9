"""Ask FlashInfer itself, of the set's ref, what it finds of a kernels wheel."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from patchq.kernels._packing import package_init

#: Says of two modules whether FlashInfer would load them as they are.
ASK = """
from flashinfer.jit.norm import gen_norm_module
from flashinfer.jit.page import gen_page_module
print("norm", gen_norm_module().is_aot, "page", gen_page_module().is_aot)
"""


def run(code: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True)


@functools.cache
def own_version(flashinfer: Path) -> str:
    """What FlashInfer calls itself, on which a tree that isn't installed has its own idea."""
    own = run("from flashinfer.version import __version__; print(__version__)", {"PYTHONPATH": str(flashinfer)})
    assert own.returncode == 0, own.stderr
    return own.stdout.splitlines()[-1]


def asked(trees: Path, folder: Path, arch: str, target: str, version: str = "") -> str:
    """What FlashInfer says with a wheel for ``arch``, of which only ``norm`` is there, on a GPU of ``target``."""
    env = {"PYTHONPATH": f"{folder}:{trees / 'flashinfer'}", "FLASHINFER_CUDA_ARCH_LIST": target,
           "FLASHINFER_WORKSPACE_BASE": str(folder), "CUDA_VISIBLE_DEVICES": "",
           "FLASHINFER_DISABLE_VERSION_CHECK": ""}  # fmt: skip
    package = folder / "flashinfer_jit_cache"
    module = package / "jit_cache/norm/norm.so"
    module.parent.mkdir(parents=True)
    module.touch()
    said = version or own_version(trees / "flashinfer")
    (package / "__init__.py").write_bytes(package_init("flashinfer-python", said, "flashinfer-jit-cache", arch))
    done = run(ASK, env)
    return done.stdout.splitlines()[-1] if done.returncode == 0 else done.stderr.splitlines()[-1]
