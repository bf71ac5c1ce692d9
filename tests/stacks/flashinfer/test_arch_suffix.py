"""FlashInfer never hands nvcc a bare SM12x target."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from packaging.version import Version


@pytest.fixture
def context(upstream_import: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """flashinfer.compilation_context, with an nvcc 13.0 unless the test says otherwise."""
    module = upstream_import("flashinfer.compilation_context")
    with_nvcc(upstream_import, monkeypatch, "13.0")
    yield module
    forget(module)


def forget(module: ModuleType) -> None:
    if hasattr(module, "_nvcc_version"):
        module._nvcc_version.cache_clear()


def with_nvcc(upstream_import: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(upstream_import("flashinfer.jit.cpp_ext"), "get_cuda_version", lambda: Version(version))
    forget(upstream_import("flashinfer.compilation_context"))


def without_nvcc(upstream_import: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no CUDA at all: neither an nvcc nor torch's."""

    def fail() -> None:
        raise RuntimeError("no CUDA")

    monkeypatch.setattr(upstream_import("flashinfer.jit.cpp_ext"), "get_cuda_version", fail)
    forget(upstream_import("flashinfer.compilation_context"))


def targets(context: ModuleType, monkeypatch: pytest.MonkeyPatch, archs: str) -> list[str]:
    """The -gencode flags for FLASHINFER_CUDA_ARCH_LIST, sorted."""
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", archs)
    flags = context.CompilationContext().get_nvcc_flags_list()
    return sorted(f for f in flags if f.startswith("-gencode"))


def flag(arch: str) -> str:
    return f"-gencode=arch=compute_{arch},code=sm_{arch}"


@pytest.mark.parametrize("version", ["12.9", "13.0"])
@pytest.mark.parametrize("minor", ["0", "1"])
def test_a_bare_target_gets_the_family(
    context: ModuleType,
    upstream_import: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    minor: str,
) -> None:
    with_nvcc(upstream_import, monkeypatch, version)
    assert targets(context, monkeypatch, f"12.{minor}") == [flag(f"12{minor}f")]


def test_an_nvcc_without_families_gets_the_arch(
    context: ModuleType, upstream_import: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_nvcc(upstream_import, monkeypatch, "12.8")
    assert targets(context, monkeypatch, "12.0") == [flag("120a")]


@pytest.mark.parametrize(("version", "suffix"), [("12.8", "a"), ("12.9", "f"), ("13.0", "f"), ("", "a")])
def test_a_detected_device_gets_it_too(
    context: ModuleType,
    upstream_import: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    suffix: str,
) -> None:
    """Other architectures are as they were."""
    if version:
        with_nvcc(upstream_import, monkeypatch, version)
    else:
        without_nvcc(upstream_import, monkeypatch)
    found = [(12, 0), (12, 1), (11, 0), (10, 0), (10, 3), (9, 0), (8, 9)]
    monkeypatch.delenv("FLASHINFER_CUDA_ARCH_LIST", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(found))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: found[device])
    others = {(11, "0a"), (10, "0a"), (10, "3a"), (9, "0a"), (8, "9")}
    made = {(major, str(minor)) for major, minor in context.CompilationContext().TARGET_CUDA_ARCHS}
    assert made == {(12, f"0{suffix}"), (12, f"1{suffix}"), *others}


def test_without_an_nvcc_nothing_is_refused(
    context: ModuleType, upstream_import: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_nvcc(upstream_import, monkeypatch)
    assert targets(context, monkeypatch, "12.0 12.1 12.1f 9.0a") == [
        flag(arch) for arch in ("120a", "121a", "121f", "90a")
    ]


@pytest.mark.parametrize("arch", ["12.0a", "12.1a", "12.1f", "9.0", "9.0a", "10.0", "10.0a", "11.0", "8.0"])
def test_what_was_written_otherwise_is_kept(context: ModuleType, monkeypatch: pytest.MonkeyPatch, arch: str) -> None:
    assert targets(context, monkeypatch, arch) == [flag(arch.replace(".", ""))]


@pytest.mark.parametrize(
    ("arch", "have", "need"),
    [
        ("12.1", "12.8", "12.9"),
        ("12.1a", "12.8", "12.9"),
        ("12.1f", "12.8", "12.9"),
        ("12.0f", "12.8", "12.9"),
        ("12.0", "12.7", "12.8"),
        ("12.0a", "12.6", "12.8"),
        ("12.0a", "12.7", "12.8"),
        *((f"{other} 12.1a", "12.8", "12.9") for other in ("7.5", "8.0", "8.9", "9.0a", "10.0a", "10.3a")),
    ],
)
def test_a_target_that_nvcc_lacks_names_the_nvcc_needed(
    context: ModuleType, upstream_import: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch,
    arch: str, have: str, need: str,
) -> None:  # fmt: skip
    with_nvcc(upstream_import, monkeypatch, have)
    target = arch.split()[-1].replace(".", "")
    target += "a" if target.isdigit() else ""
    with pytest.raises(RuntimeError, match=f"sm_{target} needs nvcc >= {need}, but nvcc is {have}"):
        targets(context, monkeypatch, arch)


@pytest.mark.parametrize(("archs", "have"), [("12.0a", "12.8"), ("12.0f 12.1a", "12.9"), ("8.0 9.0a 10.0a", "12.0")])
def test_an_nvcc_that_has_the_target_is_enough(
    context: ModuleType, upstream_import: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, archs: str, have: str
) -> None:  # fmt: skip
    with_nvcc(upstream_import, monkeypatch, have)
    assert targets(context, monkeypatch, archs) == sorted(flag(arch.replace(".", "")) for arch in archs.split())


def test_nvcc_is_asked_once_for_its_version(
    context: ModuleType, upstream_import: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time is a process, and each module asks."""
    asked: list[str] = []
    version = Version("13.0")
    monkeypatch.setattr(
        upstream_import("flashinfer.jit.cpp_ext"), "get_cuda_version", lambda: asked.append("nvcc") or version
    )
    forget(context)
    for _ in range(2):
        assert targets(context, monkeypatch, "12.0 12.1") == [flag("120f"), flag("121f")]
    assert asked == ["nvcc"]


def test_a_target_that_a_module_isnt_compiled_for_is_not_asked_of_nvcc(
    context: ModuleType, upstream_import: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_nvcc(upstream_import, monkeypatch, "12.8")
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "9.0a 12.1a")
    flags = context.CompilationContext().get_nvcc_flags_list(supported_major_versions=[9])
    assert [f for f in flags if f.startswith("-gencode")] == [flag("90a")]


KERNEL = """
#include <cutlass/arch/mma.h>
#include <cute/arch/mma_sm120.hpp>
__global__ void k(float* d, uint32_t* a, uint32_t* b, uint8_t* s) {
  using Mma = cute::SM120::BLOCKSCALED::SM120_16x8x32_TN_VS<
      cutlass::float_e4m3_t, cutlass::float_e2m1_t, float, cutlass::float_ue8m0_t, 32>;
  float r0, r1, r2, r3;
  Mma::fma(r0, r1, r2, r3, a[0], a[1], a[2], a[3], b[0], b[1], d[0], d[1], d[2], d[3], s[0], s[1]);
  d[0] = r0 + r1 + r2 + r3;
}
"""


@pytest.mark.nvcc
def test_nvcc_makes_the_block_scaled_mma_of_it(
    context: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    nvcc: Callable[..., subprocess.CompletedProcess[str]],
    cutlass_includes: list[str],
    tmp_path: Path,
) -> None:
    """Compiled for what "12.1" becomes, the PTX holds the MMA, and the cubin no aborting stub."""
    source = tmp_path / "k.cu"
    source.write_text(KERNEL)
    flags = targets(context, monkeypatch, "12.1")
    for kind in ("ptx", "cubin"):
        done = nvcc(*cutlass_includes, *flags, f"-{kind}", "-o", str(tmp_path / f"k.{kind}"), str(source))
        assert done.returncode == 0, done.stderr
    assert "kind::mxf8f6f4.block_scale" in (tmp_path / "k.ptx").read_text()
    assert b"Aborting" not in (tmp_path / "k.cubin").read_bytes()
