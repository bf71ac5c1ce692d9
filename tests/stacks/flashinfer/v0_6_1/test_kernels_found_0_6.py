"""v0.6.1 looks into one folder, whatever the GPU, and refuses to be imported beside another version's."""

from __future__ import annotations

from pathlib import Path

from kernels_found import asked


def test_a_wheel_of_another_stack_is_refused(trees: Path, tmp_path: Path) -> None:
    told = asked(trees, tmp_path, "sm_121f", "12.1f", version="0.0.1+patchq.00000000")
    assert "does not match flashinfer version" in told
