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


def test_one_that_is_ignored_leaves_the_choice_to_the_next(
    select: Callable[..., Any], mxfp4_backend: Any, log: list[str]
) -> None:
    both = {"VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8": "1", "VLLM_MXFP4_USE_MARLIN": "1"}
    assert select((9, 0), triton=True, **both) is mxfp4_backend.MARLIN
    said = warnings(log)
    assert len(said) == 2, "each has its own word"
    assert "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8 " in said[0]
    assert "it is ignored" in said[0]
    assert said[1].startswith("WARNING VLLM_MXFP4_USE_MARLIN is deprecated, use --mxfp4-backend=marlin or")


def test_one_that_selects_keeps_the_next_quiet(select: Callable[..., Any], mxfp4_backend: Any, log: list[str]) -> None:
    both = {"VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS": "1", "VLLM_MXFP4_USE_MARLIN": "1"}
    assert select((10, 0), **both) is mxfp4_backend.SM100_FI_MXFP4_MXFP8_CUTLASS
    assert len(warnings(log)) == 1, "of the one that selected"
    assert "MXFP8_CUTLASS is deprecated, use" in warnings(log)[0]


def test_one_that_is_off_says_nothing(select: Callable[..., Any], log: list[str]) -> None:
    select((9, 0), **dict.fromkeys(REPLACED, "0"))
    assert warnings(log) == []


@pytest.mark.parametrize("options", [{}, {"cli": "marlin"}, {"VLLM_MXFP4_BACKEND": "marlin"}])
def test_nothing_is_said_without_them(select: Callable[..., Any], log: list[str], options: dict[str, str]) -> None:
    select((10, 0), **options)
    assert warnings(log) == []
