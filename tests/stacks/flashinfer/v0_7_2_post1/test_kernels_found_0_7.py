"""v0.7.2 asks providers by the GPU's architecture: what is another GPU's or another version's, it doesn't find."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels_found import asked


@pytest.mark.parametrize(("arch", "target"), [("sm_121f", "9.0a"), ("sm_90a", "12.1f"), ("sm_121f", "12.0f")])
def test_a_wheel_for_another_gpu_is_not_used(trees: Path, tmp_path: Path, arch: str, target: str) -> None:
    assert asked(trees, tmp_path, arch, target) == "norm False page False"


def test_a_wheel_of_another_stack_is_not_used(trees: Path, tmp_path: Path) -> None:
    told = asked(trees, tmp_path, "sm_121f", "12.1f", version="0.0.1+patchq.00000000")
    assert told == "norm False page False"
