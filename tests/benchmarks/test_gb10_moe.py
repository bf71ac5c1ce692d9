"""What of the GB10 benchmark can be run without one: its plan, its refusal, and how it reads MXFP4."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, BENCHMARKS / "gb10_moe.py", *args], capture_output=True, text=True)


def test_the_plan_names_both_launchers() -> None:
    done = run("--plan", "--tokens", "1,7")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "FLASHINFER_SM120_MOE_LAUNCHER=generic",
        "FLASHINFER_SM120_MOE_LAUNCHER=namespace",
    ]
    assert "tokens [1, 7]" in lines[0]


def test_without_such_a_gpu_it_says_so() -> None:
    done = run()
    assert done.returncode == 3
    assert "needs an SM12x GPU" in done.stderr


def test_fp4_is_read_low_nibble_first_and_scaled_by_block() -> None:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from gb10_moe import decode_fp4
    finally:
        sys.path.pop(0)
    packed = torch.zeros(1, 32, dtype=torch.uint8)
    packed[0, 0], packed[0, 16], packed[0, 31] = 0x21, 0xF7, 0x80
    values = decode_fp4(packed, torch.tensor([[127, 129]], dtype=torch.uint8))
    assert values.shape == (1, 64)
    assert values[0, :2].tolist() == [0.5, 1.0]
    assert values[0, 32:34].tolist() == [24.0, -24.0]
    assert values[0, 62:].tolist() == [0.0, 0.0]


def test_every_pair_of_tactics_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second GEMM's are counted after the first's, as the autotuner counts them."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from gb10_moe import pairs

    assert pairs(2, 3) == [(-1, -1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)]


def test_the_activation_is_gpt_osss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clamped SwiGLU: both parts cut off at 7, the gate on one side only, one added to the linear part."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from gb10_moe import activate

    both = torch.tensor([[0.5, 9.0, -9.0, 1.0, 9.0, -9.0]])
    gates, linears = torch.tensor([1.0, 7.0, -9.0]), torch.tensor([0.5, 7.0, -7.0])
    want = gates / (1 + torch.exp(-1.702 * gates)) * (linears + 1)
    assert torch.allclose(activate(both)[0], want)


def test_values_between_the_gemms_are_quantised_as_the_kernels_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 32; the scale is the power of two that takes the largest value to 448 or less."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from gb10_moe import quantised

    row = torch.zeros(1, 96)
    row[0, 0], row[0, 1] = 450.0, 1.03125
    row[0, 32], row[0, 33] = 448.0, 1.03125
    found = quantised(row.bfloat16())
    # 450 needs a scale of 2: 225 is 224, and 0.515625 is 0.5.
    assert found[0, :2].tolist() == [448.0, 1.0]
    assert found[0, 32:34].tolist() == [448.0, 1.0]
    assert found[0, 64:].abs().max() == 0


def test_a_row_is_wrong_where_either_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from gb10_moe import MOST_ERROR, MOST_ERROR_OF_A_PART, wrong

    good = {"relative_error": MOST_ERROR, "worst_part": MOST_ERROR_OF_A_PART}
    good |= {f"{name}_replayed": value for name, value in good.items()}
    assert not wrong(good)
    assert wrong({**good, "error": "illegal instruction"})
    assert all(wrong({**good, name: value}) for name in good for value in (2 * good[name], float("nan")))


def test_one_tokens_wrong_tile_is_seen_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The norm of all of 2048 tokens doesn't tell it from BF16's roundings."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from gb10_moe import HIDDEN, MOST_ERROR, MOST_ERROR_OF_A_PART, Case

    want = torch.randn(2048, HIDDEN, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    case = Case(None, None, None, None, want, want.bfloat16())
    assert case.worst_part() < MOST_ERROR_OF_A_PART / 10
    case.out[1000, 256:384] = 0
    assert case.relative_error() < MOST_ERROR
    assert case.worst_part() > MOST_ERROR_OF_A_PART
