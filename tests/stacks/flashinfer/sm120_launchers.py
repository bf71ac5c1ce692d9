"""A launcher's SM120 kernels, built for sm_90a with what it lacks emulated, run on an SM90 GPU."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

EMULATION = Path(__file__).parent / "sm120_on_sm90"
#: Of a tile in one orientation, with the finalize step and without.
SHAPES = 6


def need_sm90() -> None:
    """Leave the test out where there is no such GPU."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("not run: needs sm90")


def wrong_cases(
    trees: Path, folder: Path, launcher: str, swap_ab: bool, tile: tuple[int, int] = (128, 128), **more: Any
) -> list[Any]:
    """Cases of a tile that couldn't be run, or in which a value is further from float64's than BF16 explains.

    :param more: what else :func:`emulate.build` takes: ``nvfp4``, ``fusions``.
    :raises CalledProcessError: if a kernel isn't compiled.
    :raises RuntimeError: if the program doesn't come to its end.
    """
    spec = importlib.util.spec_from_file_location("emulate", EMULATION / "emulate.py")
    assert spec
    assert spec.loader
    emulate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(emulate)
    program = emulate.build(trees, folder, launcher, tile, swap_ab, **more)
    done = subprocess.run([program], capture_output=True, text=True)
    cases = [json.loads(line) for line in done.stdout.splitlines()]
    if len(cases) != SHAPES * len(more.get("fusions", (0, 0))) or any("case" not in case for case in cases):
        raise RuntimeError(f"{len(cases)} cases; the last words: {(done.stdout + done.stderr)[-500:]}")
    return [case for case in cases if case.get("wrong", 1)]
