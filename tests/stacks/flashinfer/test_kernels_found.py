"""FlashInfer itself, of the set's ref, finds what a kernels wheel holds, and nothing in one for another GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from patchq.kernels.packing import package_init

#: Says of two modules whether FlashInfer would load them as they are.
ASK = """
from flashinfer.jit.norm import gen_norm_module
from flashinfer.jit.page import gen_page_module
print("norm", gen_norm_module().is_aot, "page", gen_page_module().is_aot)
"""


def asked(trees: Path, folder: Path, arch: str, target: str, version: str = "") -> str:
    """What FlashInfer says with a wheel for ``arch``, of which only ``norm`` is there, on a GPU of ``target``."""
    env = {**os.environ, "PYTHONPATH": f"{folder}:{trees / 'flashinfer'}", "FLASHINFER_CUDA_ARCH_LIST": target,
           "FLASHINFER_WORKSPACE_BASE": str(folder), "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip
    env.pop("FLASHINFER_DISABLE_VERSION_CHECK", None)

    def run(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)

    own = run("from flashinfer.version import __version__; print(__version__)")
    assert own.returncode == 0, own.stderr
    package = folder / "flashinfer_jit_cache"
    module = package / "jit_cache/norm/norm.so"
    module.parent.mkdir(parents=True)
    module.touch()
    said = version or own.stdout.splitlines()[-1]
    (package / "__init__.py").write_bytes(package_init("flashinfer-python", said, "flashinfer-jit-cache", arch))
    done = run(ASK)
    return done.stdout.splitlines()[-1] if done.returncode == 0 else done.stderr.splitlines()[-1]


@pytest.mark.parametrize(("arch", "target"), [("sm_121f", "12.1f"), ("sm_121f", "12.1"), ("sm_90a", "9.0")])
def test_what_the_wheel_holds_is_found_without_a_compiler(trees: Path, tmp_path: Path, arch: str, target: str) -> None:
    assert asked(trees, tmp_path, arch, target) == "norm True page False"


def test_a_wheel_of_another_stack_is_not_used(trees: Path, tmp_path: Path) -> None:
    told = asked(trees, tmp_path, "sm_121f", "12.1f", version="0.0.1+patchq.00000000")
    assert "does not match flashinfer version" in told or told == "norm False page False"
