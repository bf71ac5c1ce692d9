"""The variables that --mxfp4-backend replaces say what to write instead, and when they are ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

REPLACED = {
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS": "cutlass",
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8": "trtllm_mxfp8",
    "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16": "trtllm",
    "VLLM_MXFP4_USE_MARLIN": "marlin",
}


def warnings(log: list[str]) -> list[str]:
    return [line for line in log if "deprecated" in line]


@pytest.mark.parametrize("variable", REPLACED)
def test_the_replacement_is_named(select: Callable[..., Any], log: list[str], variable: str) -> None:
    select((10, 0), **{variable: "1"})
    assert len(warnings(log)) == 1, "no word of the deprecation"
    (said,) = warnings(log)
    assert said.startswith(f"WARNING {variable} is deprecated")
    assert f"--mxfp4-backend={REPLACED[variable]} or VLLM_MXFP4_BACKEND={REPLACED[variable]}." in said


def test_the_replacement_is_the_platforms(select: Callable[..., Any], log: list[str]) -> None:
    select((9, 0), VLLM_USE_FLASHINFER_MOE_MXFP4_BF16="1")
    assert len(warnings(log)) == 1, "no word of the deprecation"
    assert "--mxfp4-backend=cutlass " in warnings(log)[0]


def test_one_that_is_ignored_says_so(select: Callable[..., Any], log: list[str]) -> None:
    select((9, 0), VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8="1")
    assert len(warnings(log)) == 1, "ignored without a word"
    assert "it is ignored" in warnings(log)[0]
    assert "one of: auto, marlin, cutlass" in warnings(log)[0]


@pytest.mark.parametrize("options", [{}, {"cli": "marlin"}, {"VLLM_MXFP4_BACKEND": "marlin"}])
def test_nothing_is_said_without_them(select: Callable[..., Any], log: list[str], options: dict[str, str]) -> None:
    select((10, 0), **options)
    assert warnings(log) == []
