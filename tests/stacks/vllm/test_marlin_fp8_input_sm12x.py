"""Marlin's FP8 activations are taken on all of SM12x, by Python, by both kernels and by their generators.

Python is run with the capability faked, the generators are run; of the kernels, whose launch needs a GPU,
the condition is read from the source and evaluated. Their run on a GPU of that kind is not shown.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

Load = Callable[[str], ModuleType]
TAKEN = [(8, 9), (12, 0), (12, 1)]
REFUSED = [(7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (10, 3), (11, 0), (13, 0)]
#: Where each kernel's sources are, the newest place first.
SOURCES = {
    "dense": ("csrc/quantization/marlin/marlin.cu", "csrc/quantization/gptq_marlin/gptq_marlin.cu"),
    "moe": ("csrc/moe/marlin_moe_wna16/ops.cu",),
}


def source(trees: Path, kind: str) -> Path:
    """The file of a kernel's checks; its generator lies beside it."""
    places = [trees / "vllm" / path for path in SOURCES[kind]]
    return next(path for path in places if path.is_file())


@pytest.mark.parametrize("capability", TAKEN + REFUSED)
def test_python(
    upstream_import: Load, device: Callable[..., Any], config: Any, monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
) -> None:  # fmt: skip
    module = upstream_import("vllm.model_executor.layers.quantization.utils.marlin_utils")
    device(*capability, module.__name__)
    monkeypatch.setenv("VLLM_MARLIN_INPUT_DTYPE", "fp8")
    monkeypatch.setattr(module, "get__quant_fp8_method", lambda: None)
    try:
        found = module.get_marlin_input_dtype("a")
    except ValueError as error:
        found = error
    assert (found is torch.float8_e4m3fn) is (capability in TAKEN)
    if capability in REFUSED:
        assert "FP8" in str(found)
    # What was no matter of the GPU is none now.
    monkeypatch.setenv("VLLM_MARLIN_INPUT_DTYPE", "int8")
    assert module.get_marlin_input_dtype("a") is torch.int8
    monkeypatch.delenv("VLLM_MARLIN_INPUT_DTYPE")
    assert module.get_marlin_input_dtype("a") is None


@pytest.mark.parametrize("capability", TAKEN + REFUSED)
@pytest.mark.parametrize("kind", SOURCES)
def test_the_kernels_condition(trees: Path, kind: str, capability: tuple[int, int]) -> None:
    text = source(trees, kind).read_text()
    (condition,) = re.findall(r'TORCH_CHECK\(\s*([^"]*?),\s*"Marlin W4A8-FP8 only', text)
    major, minor = capability
    expression = " ".join(condition.split()).replace("||", "or")
    assert set(re.findall(r"[a-z_]+", expression)) <= {"major_capability", "minor_capability", "or"}
    taken = eval(expression, {"major_capability": major, "minor_capability": minor})
    assert bool(taken) is (capability in TAKEN)


@pytest.mark.parametrize(
    ("arch", "fp8"),
    [
        ("8.9", True), ("12.0a", True), ("12.1", True), ("12.1a", True), ("8.0", False), ("9.0a", False),
        ("10.0a", False), ("11.0a", False), ("8.0,9.0a,12.1", True), ("12.1,9.0a", True), ("8.0,10.0", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", SOURCES)
def test_the_generators(trees: Path, tmp_path: Path, kind: str, arch: str, fp8: bool) -> None:
    scripts = [source(trees, k).with_name("generate_kernels.py") for k in (kind, "dense")]
    # v0.33.0 has one generator for both.
    script = shutil.copy(next(path for path in scripts if path.is_file()), tmp_path)
    subprocess.run([sys.executable, script, arch], check=True, cwd=tmp_path)
    made = sorted(path.name for path in tmp_path.glob("sm*_kernel_*.cu"))
    assert [name for name in made if name.startswith("sm80_")]
    assert bool([name for name in made if name.startswith("sm89_kernel_fe4m3fn")]) is fp8
