"""SM12x runs MXFP4 experts on FlashInfer's CUTLASS MoE if it has the functions and a toolchain for it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm_kit import need

Load = Callable[[str], ModuleType]
SM12X = [(12, 0), (12, 1)]
EQUIVALENT_MUTANTS = {
    "3617b8ee1d": "asked for its truth only, beside another: None is as False",
    "3617b8ee1d-2": "as the one above it",
    "3617b8ee1d-3": "as the one above it",
    "3617b8ee1d-4": "as the one above it",
}


@pytest.fixture
def toolchain(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., None]:  # fmt: skip
    """The nvcc that FlashInfer would compile with, by CUDA's version, or none; and no precompiled kernels."""
    cpp_ext = upstream_import("flashinfer.jit.cpp_ext")
    version = upstream_import("packaging.version").Version
    monkeypatch.delenv("FLASHINFER_DISABLE_JIT", raising=False)

    def fake(cuda: str, nvcc: bool = True, mode: int = 0o755) -> None:
        home = tmp_path / f"cuda-{cuda}-{nvcc}"
        (home / "bin").mkdir(parents=True)
        if nvcc:
            (home / "bin" / "nvcc").write_text("")
            (home / "bin" / "nvcc").chmod(mode)
        monkeypatch.setattr(cpp_ext, "get_cuda_path", lambda: str(home))
        monkeypatch.setattr(cpp_ext, "get_cuda_version", lambda: version(cuda))

    return fake


@pytest.fixture
def cache(upstream_import: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """A flashinfer-jit-cache of a version, with or without SM120's MoE module."""
    utils, environment = upstream_import("vllm.utils.flashinfer"), upstream_import("flashinfer.jit.env")
    found = importlib.util.find_spec

    def fake(version: str, *modules: str) -> None:
        made = ModuleType("flashinfer_jit_cache")
        made.__version__ = version  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "flashinfer_jit_cache", made)
        spec = importlib.machinery.ModuleSpec("flashinfer_jit_cache", None)
        monkeypatch.setattr(
            utils.importlib.util, "find_spec", lambda n, *a: spec if n == "flashinfer_jit_cache" else found(n, *a)
        )
        folder = tmp_path / f"cache{version}"
        for name in modules:
            (folder / name).mkdir(parents=True)
            (folder / name / f"{name}.so").write_bytes(b"")
        monkeypatch.setattr(environment, "FLASHINFER_AOT_DIR", folder)

    return fake


@pytest.mark.parametrize("capability", SM12X)
def test_auto(
    select: Callable[..., Any], mxfp4_backend: Any, toolchain: Callable[..., None], capability: tuple[int, int]
) -> None:
    toolchain("13.0")
    assert select(capability).name == "CUTLASS_BLACKWELL_MXFP4_MXFP8"
    assert select(capability, triton=True).name == "CUTLASS_BLACKWELL_MXFP4_MXFP8"


@pytest.mark.parametrize("capability", SM12X)
def test_asked_for(
    select: Callable[..., Any], mxfp4_backend: Any, toolchain: Callable[..., None], capability: tuple[int, int]
) -> None:
    toolchain("12.9")
    backend = mxfp4_backend["SM100_FI_MXFP4_MXFP8_CUTLASS"]
    assert select(capability, "cutlass") is backend
    assert select(capability, VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS="1") is backend
    assert select(capability, "marlin") is mxfp4_backend.MARLIN


@pytest.mark.parametrize("capability", SM12X)
def test_an_older_toolchain_keeps_marlin(
    select: Callable[..., Any], mxfp4_backend: Any, toolchain: Callable[..., None], capability: tuple[int, int],
    log: list[str],
) -> None:  # fmt: skip
    toolchain("12.8")
    assert select(capability) is mxfp4_backend.MARLIN
    assert [line for line in log if "CUDA 12.9" in line], "Marlin without a word of what is missing"
    said = select(capability, "cutlass")
    assert isinstance(said, str)
    assert "Available: auto, marlin." in said


@pytest.mark.parametrize("name", ["mxfp8_quantize", "block_scale_interleave"])
def test_a_flashinfer_without_the_functions_keeps_marlin(
    upstream_import: Load, select: Callable[..., Any], mxfp4_backend: Any, toolchain: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch, name: str,
) -> None:  # fmt: skip
    toolchain("13.0")
    need(upstream_import("vllm.utils.flashinfer"), "has_flashinfer_sm12x_cutlass_moe")
    assert select((12, 1)) is not mxfp4_backend.MARLIN
    monkeypatch.delattr(upstream_import("flashinfer"), name)
    assert select((12, 1)) is mxfp4_backend.MARLIN


@pytest.mark.parametrize("capability", SM12X)
def test_without_nvcc_torchs_cuda_compiles_nothing(
    select: Callable[..., Any], mxfp4_backend: Any, toolchain: Callable[..., None], capability: tuple[int, int],
    log: list[str],
) -> None:  # fmt: skip
    """FlashInfer with its cubins counts as there; the version that it takes for nvcc's is torch's."""
    toolchain("13.0", nvcc=False)
    assert select(capability) is mxfp4_backend.MARLIN
    assert [line for line in log if "needs nvcc" in line]


def test_nor_does_an_nvcc_that_does_not_run(
    select: Callable[..., Any], mxfp4_backend: Any, toolchain: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain("12.9")
    assert select((12, 1)) is not mxfp4_backend.MARLIN
    toolchain("13.0", mode=0o644)
    assert select((12, 1)) is mxfp4_backend.MARLIN


def test_nor_does_a_missing_toolkit(
    upstream_import: Load, select: Callable[..., Any], mxfp4_backend: Any, toolchain: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    toolchain("13.0")
    assert select((12, 1)) is not mxfp4_backend.MARLIN

    def none() -> str:
        raise RuntimeError("Could not find nvcc")

    monkeypatch.setattr(upstream_import("flashinfer.jit.cpp_ext"), "get_cuda_path", none)
    assert select((12, 1)) is mxfp4_backend.MARLIN


def test_nor_where_flashinfer_may_not_compile(
    select: Callable[..., Any], mxfp4_backend: Any, toolchain: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain("13.0")
    assert select((12, 1)) is not mxfp4_backend.MARLIN
    monkeypatch.setenv("FLASHINFER_DISABLE_JIT", "1")
    assert select((12, 1)) is mxfp4_backend.MARLIN


@pytest.mark.parametrize(
    ("version", "modules", "capability", "chosen"),
    [
        ("0.6.1+cu130", ["fused_moe_120"], (12, 1), True),
        ("0.6.1+cu129", ["fused_moe_120"], (12, 1), True),
        ("0.6.1+cu128", ["fused_moe_120"], (12, 1), False),
        ("0.6.1", ["fused_moe_120"], (12, 1), False),
        ("0.6.1+cu128", ["fused_moe_120"], (12, 0), True),
        ("0.6.1+cu130", ["fused_moe_100"], (12, 1), False),
        ("0.6.1+cu130", ["fused_moe_100"], (12, 0), False),
    ],
)
def test_a_cache_serves_if_its_module_loads_here(
    select: Callable[..., Any], mxfp4_backend: Any, toolchain: Callable[..., None], cache: Callable[..., None],
    version: str, modules: list[str], capability: tuple[int, int], chosen: bool,
) -> None:  # fmt: skip
    """Made with CUDA 12.8 it is sm_120a's, which SM121 can't load; the family's since 12.9."""
    toolchain("13.0", nvcc=False)
    cache(version, *modules)
    assert (select(capability) is not mxfp4_backend.MARLIN) is chosen
    toolchain("13.0")
    assert select(capability) is not mxfp4_backend.MARLIN, "what it lacks is compiled"


@pytest.mark.parametrize(
    ("capability", "options", "member"),
    [
        ((8, 9), {}, "MARLIN"),
        ((9, 0), {}, "MARLIN"),
        ((9, 0), {"triton": True}, "TRITON"),
        ((10, 0), {}, "SM100_FI_MXFP4_BF16"),
        ((10, 3), {"triton": True}, "SM100_FI_MXFP4_BF16"),
        ((11, 0), {"triton": True}, "MARLIN"),
        ((12, 1), {"flashinfer": False}, "MARLIN"),
    ],
)
def test_other_gpus_keep_their_default(
    select: Callable[..., Any], mxfp4_backend: Any, toolchain: Callable[..., None], cache: Callable[..., None],
    capability: tuple[int, int], options: dict[str, bool], member: str,
) -> None:  # fmt: skip
    """Also with a toolchain and kernels that are there."""
    toolchain("13.0")
    cache("0.6.1+cu130", "fused_moe_120")
    assert select((12, 1)).name == "CUTLASS_BLACKWELL_MXFP4_MXFP8"
    assert select(capability, **options) is mxfp4_backend[member]


@pytest.mark.parametrize(
    ("capability", "member"),
    [((9, 0), "CUTLASS_SM90_MXFP4_BF16"), ((10, 0), "CUTLASS_BLACKWELL_MXFP4_MXFP8"), ((11, 0), None)],
)
def test_cutlass_is_each_gpus_own(
    select: Callable[..., Any], toolchain: Callable[..., None], capability: tuple[int, int], member: str | None
) -> None:
    toolchain("13.0")
    names = [getattr(select(on, "cutlass"), "name", None) for on in ((12, 1), capability)]
    assert names == ["CUTLASS_BLACKWELL_MXFP4_MXFP8", member]


def test_lora_keeps_marlin(select: Callable[..., Any], mxfp4_backend: Any, toolchain: Callable[..., None]) -> None:
    toolchain("13.0")
    assert select((12, 1), lora=True) is mxfp4_backend.MARLIN


@pytest.mark.parametrize("capability", [(9, 0), (10, 0), (11, 0)])
def test_other_gpus_are_not_asked(
    upstream_import: Load, device: Callable[..., Any], toolchain: Callable[..., None], capability: tuple[int, int]
) -> None:
    toolchain("13.0")
    module = upstream_import("vllm.utils.flashinfer")
    device(*capability, module.__name__)
    assert need(module, "has_flashinfer_sm12x_cutlass_moe")() is False


def test_nor_is_a_flashinfer_without_the_moe(
    upstream_import: Load, device: Callable[..., Any], toolchain: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain("13.0")
    module = upstream_import("vllm.utils.flashinfer")
    device(12, 1, module.__name__)
    has = need(module, "has_flashinfer_sm12x_cutlass_moe")
    assert has() is True
    has.cache_clear()
    monkeypatch.setattr(module, "has_flashinfer_cutlass_fused_moe", lambda: False)
    assert has() is False


def test_the_names(mxfp4_backend: Any) -> None:
    """Engine, architecture, weights, activations; the older names still work."""
    assert [b.name for b in mxfp4_backend] == [
        "NONE",
        "TRTLLM_SM100_MXFP4_MXFP8",
        "CUTLASS_BLACKWELL_MXFP4_MXFP8",
        "TRTLLM_SM100_MXFP4_BF16",
        "CUTLASS_SM90_MXFP4_BF16",
        "MARLIN",
        "TRITON",
    ]
    older = {
        "SM100_FI_MXFP4_MXFP8_TRTLLM": "TRTLLM_SM100_MXFP4_MXFP8",
        "SM100_FI_MXFP4_MXFP8_CUTLASS": "CUTLASS_BLACKWELL_MXFP4_MXFP8",
        "SM100_FI_MXFP4_BF16": "TRTLLM_SM100_MXFP4_BF16",
        "SM90_FI_MXFP4_BF16": "CUTLASS_SM90_MXFP4_BF16",
    }
    assert {name: mxfp4_backend[name].name for name in older} == older


def test_hidden_sizes_are_rounded_as_for_sm100(
    upstream_import: Load, select: Callable[..., Any], toolchain: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain("13.0")
    layer = upstream_import("vllm.model_executor.layers.fused_moe.layer")
    select((12, 1))
    config = SimpleNamespace(get_name=lambda: "mxfp4")
    parallel = SimpleNamespace(use_deepep_ht_kernels=False, use_deepep_ll_kernels=False)
    assert layer.maybe_roundup_hidden_size(2880, torch.bfloat16, config, parallel, False) == 2944
