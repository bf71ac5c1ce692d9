"""A module over a CUTLASS whose grouped kernels can wait for the grid ahead is compiled so that they do; no other is.

The real JIT specification, and the launcher's own answer to whether such a kernel may be launched to overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from waits_for_grid import asked

Load = Callable[[str], ModuleType]
Make = Callable[..., Any]


def waiting(spec: Any) -> set[str]:
    return {flag for flag in spec.extra_cuda_cflags if "GDC" in flag}


@pytest.mark.parametrize(("cutlass", "waits"), [("4.3", "1 1 1 1"), ("4.5", "1 1 1 1"), ("5.0", "1 1 1 1")])
def test_where_cutlass_can_wait_the_kernels_do_and_may_be_overlapped(
    moe_module: Make, trees: Path, tmp_path: Path, cutlass: str, waits: str
) -> None:
    flags = waiting(moe_module(cutlass=cutlass))
    major, minor = map(int, cutlass.split("."))
    assert asked(trees, tmp_path, sorted(flags), major * 100 + minor * 10) == waits


@pytest.mark.parametrize("cutlass", ["4.0", "4.2"])
def test_with_an_older_one_the_module_is_as_it_was(moe_module: Make, trees: Path, tmp_path: Path, cutlass: str) -> None:
    assert not waiting(moe_module(cutlass=cutlass))


@pytest.mark.parametrize("arch", ["90", "100", "103", "120"])
def test_so_are_the_modules_of_each_architecture(moe_module: Make, upstream_import: Load, arch: str) -> None:
    """CUTLASS's switch for SM100 is that of SM120, too."""
    module = upstream_import("flashinfer.jit.fused_moe")

    def flags(cutlass: str) -> set[str]:
        moe_module(cutlass=cutlass)
        return set(getattr(module, f"gen_cutlass_fused_moe_sm{arch}_module")().extra_cuda_cflags)

    older, newer = flags("4.2"), flags("4.5")
    switches = {f"-DCUTLASS_ENABLE_GDC_FOR_SM{family}=1" for family in (90, 100)}
    assert {flag for flag in newer - older if "MOE_TILE" not in flag} == switches
    assert older <= newer, "other flags are lost"


def test_the_minimal_module_too(moe_module: Make) -> None:
    minimal, full = moe_module(cutlass="4.5", FUSED_MOE_BUILD_PROFILE="mxfp4_minimal"), moe_module(cutlass="4.5")
    assert waiting(minimal) == waiting(full) != set()
