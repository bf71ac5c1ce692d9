"""FlashInfer itself, of the set's ref, finds what a kernels wheel holds, and has no compiler asked for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels_found import asked


@pytest.mark.parametrize(("arch", "target"), [("sm_121f", "12.1f"), ("sm_121f", "12.1"), ("sm_90a", "9.0")])
def test_what_the_wheel_holds_is_found_without_a_compiler(trees: Path, tmp_path: Path, arch: str, target: str) -> None:
    assert asked(trees, tmp_path, arch, target) == "norm True page False"
