"""`doctor --arch`: what ptxas says to each instruction, with the real nvcc."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.nvcc
SCALED = "mma mxf8f6f4 e4m3 x e2m1, 1X ue8m0"


def doctor(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["patchq", "doctor", *args], capture_output=True, text=True)


@pytest.mark.parametrize("arch", ["sm_120f", "sm_121a", "sm_121f"])
def test_a_suffix_has_all_that_the_kernels_need(arch: str) -> None:
    done = doctor("--arch", arch)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{arch}: has all" in done.stdout


def test_the_bare_target_lacks_fp4_in_ptxas_own_words() -> None:
    done = doctor("--arch", "sm_121")
    assert done.returncode == 1
    assert SCALED in done.stdout.splitlines()[-1]
    assert "Instruction 'mma with block scale' not supported on .target 'sm_121'" in done.stdout


def test_json_has_a_cell_for_each_instruction_suffix_and_toolkit() -> None:
    told = json.loads(doctor("--arch", "sm_121f", "--json").stdout)
    cells = {(c["toolkit"], c["target"], c["instruction"]): c["said"] for c in told["cells"]}
    assert len(cells) == len(told["cells"])
    targets = {target for _, target, _ in cells}
    assert targets == {"sm_121", "sm_121a", "sm_121f"}
    release = told["toolkits"][0]["release"]
    assert cells[release, "sm_121f", SCALED] == ""
    assert cells[release, "sm_121", SCALED].startswith("Instruction")
    assert told["lacking"] == {"sm_121f": []}
    # What SM12x has not, whatever the suffix: not an error, but said.
    assert all(cells[release, t, "tcgen05.alloc"] for t in targets)


def test_what_is_no_architecture_or_nvcc_is_an_error(tmp_path: Path) -> None:
    done = doctor("--arch", "121f")
    assert done.returncode == 2 or "no architecture" in done.stderr
    fake = tmp_path / "nvcc"
    fake.write_text("#!/bin/sh\necho 'release 9.9, V9.9.9'\n")
    fake.chmod(0o755)
    done = doctor("--arch", "sm_121f", "--nvcc", str(fake))
    assert done.returncode != 0
    assert "is no nvcc with a ptxas" in done.stderr
