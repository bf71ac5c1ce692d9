"""The bounds of the project's targets are those of the script."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import bounds  # noqa: E402


def test_the_bound_is_the_models_own_bytes() -> None:
    # Written out: 36 layers of 4 experts of 3 matrices of 2880 x 2880, a router, qkv and o; the head once.
    experts = 36 * 4 * 3 * 2880 * 2880 * bounds.MXFP4 / 8
    rest = (36 * (2880 * 128 + 2880 * 5120 + 4096 * 2880) + 201088 * 2880) * bounds.BF16 / 8
    first = bounds.CONFIGS["MXFP4 experts"]
    assert bounds.bytes_per_token(bounds.GPT_OSS_120B, first) == pytest.approx(experts + rest)
    # At depth 1000, 18 layers see all of it and 18 see 128: keys and values of 8 heads of 64, 2 bytes each.
    more = bounds.bytes_per_token(bounds.GPT_OSS_120B, first, 1000) - experts - rest
    assert more == pytest.approx(18 * (1000 + 128) * 2 * 8 * 64 * 2)
    speeds = [bounds.bound(bounds.GPT_OSS_120B, precision, 273e9) for precision in bounds.CONFIGS.values()]
    assert speeds[0] == pytest.approx(273e9 / (experts + rest))
    assert speeds == sorted(speeds)


def test_the_projects_targets_are_the_scripts() -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        bounds.main()
    targets = tomllib.loads((ROOT / "measurements" / "targets.toml").read_text())
    assert targets["bound"] == tomllib.loads(printed.getvalue())["bound"]
