"""The compile-time half of the report on "Error Internal": what the reproducer says, built in four ways.

Not a proof: `patchq issue array-smem-capacity` runs it, and shows what it notes.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.nvcc
SOURCE = Path(__file__).resolve().parents[3] / "docs" / "upstream" / "cutlass-error-internal.cu"
CASES = {
    "two stages, sm_121f": ("-DSTAGES=2", "121f", 82944),
    "four stages, sm_121f": ("-DSTAGES=4", "121f", 150528),
    "the builder's own count, MXFP4 x MXFP4, sm_121f": ("", "121f", 0),
    "two stages, a bare sm_121": ("-DSTAGES=2", "121", 82944),
}


@pytest.mark.parametrize("case", CASES)
def test_build(
    case: str,
    nvcc: Callable[..., subprocess.CompletedProcess[str]],
    cutlass_includes: list[str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    define, arch, needs = CASES[case]
    code = f"-gencode=arch=compute_{arch},code=sm_{arch}"
    program = tmp_path / "report"
    done = nvcc(*cutlass_includes, "-DNDEBUG", *filter(None, [define]), code, "-o", str(program), str(SOURCE))
    record_property("compiles", "yes" if done.returncode == 0 else "no")
    assert done.returncode == 0, done.stderr[-2000:]
    said = subprocess.run([str(program)], capture_output=True, text=True, check=False).stdout
    stages, found = re.search(r"(\d+) stages: the kernel needs (\d+) bytes", said).groups()  # type: ignore[union-attr]
    record_property("stages", stages)
    record_property("needs (bytes of 101376)", found)
    assert not needs or int(found) == needs
    stub = b"Arch conditional MMA" in program.read_bytes()
    record_property("MMA", "none: the kernel prints that it can't, and ends" if stub else "yes")
    assert stub == (arch == "121")
    for name in ("can_implement()", "initialize()"):
        record_property(name, re.search(rf"{re.escape(name)}: (.*)", said)[1])  # type: ignore[index]
