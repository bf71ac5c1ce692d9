"""FlashInfer's MoE module for SM120 as its JIT would build it, without building it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from moe_binding import ask, build
from moe_choice import choose
from moe_unit import Nvcc, cpp_objects_of

Load = Callable[[str], ModuleType]


@pytest.fixture
def moe_module(
    upstream_import: Load, trees: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Make the module's JIT specification under some environment, over a CUTLASS of some version.

    Its generated sources go to a folder of the test's.
    """
    monkeypatch.syspath_prepend(str(trees / "cutlass" / "python"))
    for name in ("LAUNCHER", "TILES"):
        monkeypatch.delenv(f"FLASHINFER_SM120_MOE_{name}", raising=False)
    monkeypatch.delenv("FLASHINFER_FUSED_MOE_BUILD_PROFILE", raising=False)
    module = upstream_import("flashinfer.jit.fused_moe")
    env = upstream_import("flashinfer.jit.env")
    monkeypatch.setattr(env, "FLASHINFER_CSRC_DIR", tmp_path / "csrc")
    if hasattr(env, "FLASHINFER_GEN_SRC_DIR"):  # where v0.7.2 puts them, below the user's home
        monkeypatch.setattr(env, "FLASHINFER_GEN_SRC_DIR", tmp_path / "generated")
    context = SimpleNamespace(
        get_nvcc_flags_list=lambda supported_major_versions, **_: ["-gencode=arch=compute_121f,code=sm_121f"]
    )
    monkeypatch.setattr(module, "current_compilation_context", context)
    monkeypatch.setattr(upstream_import("flashinfer.jit.core"), "check_cuda_arch", lambda: None)

    def make(*, cutlass: str = "4.2", **variables: str) -> Any:
        major, minor = cutlass.split(".")
        version = tmp_path / "cutlass" / "cutlass" / "version.h"
        version.parent.mkdir(parents=True, exist_ok=True)
        version.write_text(f"#define CUTLASS_MAJOR {major}\n#define CUTLASS_MINOR {minor}\n#define CUTLASS_PATCH 0\n")
        monkeypatch.setattr(env, "CUTLASS_INCLUDE_DIRS", [tmp_path / "cutlass"])
        for name, value in variables.items():
            monkeypatch.setenv(f"FLASHINFER_{name}", value)
        return module.gen_cutlass_fused_moe_sm120_module()

    return make


@pytest.fixture(scope="session")
def cpp_objects(trees: Path, nvcc: Nvcc, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What any of FlashInfer's C++ links with; compiled once."""
    return cpp_objects_of(trees, nvcc, tmp_path_factory.mktemp("objects"))


@pytest.fixture(scope="session")
def moe_binding(
    trees: Path, nvcc: Nvcc, cpp_objects: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., list[str]]:
    """What the module's binding makes of cases; see moe_binding.cpp. Compiled once for each choice of flags."""
    made: dict[tuple[str, ...], Path] = {}

    def say(cases: Sequence[str], *flags: str) -> list[str]:
        if flags not in made:
            made[flags] = build(trees, nvcc, tmp_path_factory.mktemp("binding"), cpp_objects, flags)
        return ask(made[flags], cases)

    return say


@pytest.fixture
def moe_choice(trees: Path, tmp_path: Path) -> Callable[[Sequence[str]], list[str]]:
    """Which tactics the module's binding sets; see moe_choice.cpp."""
    return lambda cases: choose(trees, tmp_path, cases)
