"""Claims of the optimization notes that nobody should carry a patch for, and what is so instead. See docs/claims.md.

Run against the pinned sources: a claim that comes true with another pin fails here.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

Load = Callable[[str], ModuleType]
Nvcc = Callable[..., subprocess.CompletedProcess[str]]

INSTRUCTIONS = {
    "FP4 ldmatrix": """
        uint32_t a; asm volatile("ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b4x16_p64 {%0}, [%1];"
                                 : "=r"(a) : "r"(0)); o[0] = a;""",
    "FP8 x FP4 block-scaled MMA": """
        float d = 0; uint32_t r = o[0];
        asm volatile("mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e2m1.f32.ue8m0 "
                     "{%0, %0, %0, %0}, {%1, %1, %1, %1}, {%1, %1}, {%0, %0, %0, %0}, {%1}, {%2, %2}, {%1}, {%2, %2};"
                     : "+f"(d) : "r"(r), "h"((uint16_t)0)); o[0] = __float_as_uint(d);""",
    "FP4 x FP4 block-scaled MMA": """
        float d = 0; uint32_t r = o[0];
        asm volatile("mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0 "
                     "{%0, %0, %0, %0}, {%1, %1, %1, %1}, {%1, %1}, {%0, %0, %0, %0}, {%1}, {%2, %2}, {%1}, {%2, %2};"
                     : "+f"(d) : "r"(r), "h"((uint16_t)0)); o[0] = __float_as_uint(d);""",
    "tcgen05": """asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" :: "r"(0));""",
    "wgmma": """asm volatile("wgmma.fence.sync.aligned;");""",
}


def assembles(nvcc: Nvcc, folder: Path, instruction: str, arch: str) -> bool:
    source = folder / "probe.cu"
    source.write_text(f"#include <cstdint>\n__global__ void probe(uint32_t *o) {{ {INSTRUCTIONS[instruction]} }}\n")
    done = nvcc("-cubin", f"-arch={arch}", "-o", str(folder / "probe.cubin"), str(source))
    assert done.returncode == 0 or "ptxas" in done.stderr, done.stderr
    return done.returncode == 0


@pytest.mark.parametrize("instruction", ["FP4 ldmatrix", "FP8 x FP4 block-scaled MMA", "FP4 x FP4 block-scaled MMA"])
def test_the_a_suffix_has_them_and_the_bare_target_has_not(nvcc: Nvcc, tmp_path: Path, instruction: str) -> None:
    """Claimed: sm_121a rejects block-scaled MMA and FP4 ldmatrix; CUTLASS enables them for SM121 by mistake."""
    found = {arch: assembles(nvcc, tmp_path, instruction, arch) for arch in ("sm_121a", "sm_121f", "sm_120a", "sm_121")}
    assert found == {"sm_121a": True, "sm_121f": True, "sm_120a": True, "sm_121": False}


@pytest.mark.parametrize("instruction", ["tcgen05", "wgmma"])
def test_what_sm121_does_lack(nvcc: Nvcc, tmp_path: Path, instruction: str) -> None:
    """Holds: no tcgen05, no wgmma."""
    assert not assembles(nvcc, tmp_path, instruction, "sm_121a")


def test_padded_scale_layouts_are_the_same(nvcc: Nvcc, cutlass_includes: list[str], tmp_path: Path) -> None:
    """Claimed: scale layouts of unpadded shapes disagree with the padded buffers."""
    program = tmp_path / "scale_layout"
    source = Path(__file__).parent / "scale_layout.cpp"
    done = nvcc("-O2", *cutlass_includes, "-include", "cuda_runtime.h", "-o", str(program), str(source))
    assert done.returncode == 0, done.stderr
    shapes, offsets, different = map(int, subprocess.run([program], capture_output=True, text=True).stdout.split())
    assert (shapes, different) == (2424, 0)
    assert offsets > 10_000_000


def test_activation_scales_are_the_quantizers(upstream_import: Load) -> None:
    """Claimed: activations are multiplied with scales of one. The quantizer's scales are handed to the kernel.

    That the kernel applies scales of a wide range: tests/stacks/flashinfer/sm120_on_sm90.
    """
    source = inspect.getsource(upstream_import("vllm.model_executor.layers.quantization.mxfp4").Mxfp4MoEMethod.apply)
    (quantized, scales) = re.findall(r"(\w+), (\w+) = mxfp8_quantize\(x, True, 32\)", source)[0]
    assert f"input_sf={scales}" in source
    assert quantized != scales


@pytest.mark.nvcc
def test_finalize_is_generated_compiles_and_has_its_workspace(
    trees: Path, nvcc: Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claimed: the fused finalize step doesn't compile on SM120, and its workspace is too small.

    The query asks the kernel without the step; with it, and swapped, the kernel needs no more.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "flashinfer"))
    from moe_unit import compiler_options, cpp_objects_of, host_options, host_program, write_unit

    finalize = ((128, 128), "FINALIZE", True)
    kernel = write_unit(trees, tmp_path, "generic", [finalize])
    target = "-gencode=arch=compute_121f,code=sm_121f"
    options = [target, "-DNDEBUG", *compiler_options(trees, tmp_path), "--keep", "--keep-dir", str(tmp_path)]
    done = nvcc(*options, "-c", str(kernel), "-o", str(tmp_path / "kernel.o"))
    assert done.returncode == 0, done.stderr[-3000:]
    (binary,) = tmp_path.glob("*.cubin")
    assert re.search(r"\bQMMA\.SF\.", disassemble(binary)), "the kernel was compiled to a stub"

    both = write_unit(trees, tmp_path, "generic", [((128, 128), "NONE", False), finalize]).read_text()
    checks = Path(__file__).parent / "flashinfer" / "launcher_checks.cu"
    main, program = host_program(tmp_path, both, f'#include "{checks}"'), tmp_path / "checks"
    objects = cpp_objects_of(trees, nvcc, tmp_path)
    done = nvcc("-DNDEBUG", *host_options(trees, tmp_path), str(main), *objects, "-o", str(program))
    assert done.returncode == 0, done.stderr[-3000:]
    said = subprocess.run([program, "workspace"], capture_output=True, text=True, check=True, timeout=300).stdout
    sizes = {name: int(size) for name, size in re.findall(r"^(workspace[^:]*): (\d+)$", said, re.M)}
    assert 0 < sizes["workspace, finalize, asked swapped"] <= sizes["workspace"]


@pytest.mark.nvcc
def test_fp4_times_fp4_is_one_instruction(nvcc: Nvcc, cutlass_includes: list[str], tmp_path: Path) -> None:
    """Research: MXFP4 x MXFP4, off by default and not built. CuTe's atom for it is one block-scaled OMMA in SASS."""
    binary = tmp_path / "fp4.cubin"
    source = Path(__file__).parent / "fp4_fp4.cu"
    options = ["-std=c++17", "--expt-relaxed-constexpr", "-gencode=arch=compute_121f,code=sm_121f"]
    done = nvcc(*options, *cutlass_includes, "-cubin", "-o", str(binary), str(source))
    assert done.returncode == 0, done.stderr
    sass = disassemble(binary)
    assert len(re.findall(r"\bOMMA\.SF\.16864\.F32\.E2M1\.E2M1\.E8\b", sass)) == 1
    assert "QMMA" not in sass


def disassemble(binary: Path) -> str:
    """SASS, by the nvdisasm of the extra `proofs`."""
    tool = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin" / "nvdisasm"
    return subprocess.run([tool, binary], check=True, capture_output=True, text=True).stdout


def test_non_blocking_none_is_an_error() -> None:
    """Holds, and what the shifted argument of plan() became: torch takes no None."""
    with pytest.raises(TypeError, match="bool"):
        torch.zeros(1).copy_(torch.zeros(1), non_blocking=None)


@pytest.mark.parametrize("wrapper", ["BatchPrefillWithPagedKVCacheWrapper", "BatchDecodeWithPagedKVCacheWrapper"])
def test_plan_takes_no_use_sinks(upstream_import: Load, wrapper: str) -> None:
    """Claimed: wrapper.plan(use_sinks=True) enables sinks."""
    plan = getattr(upstream_import("flashinfer"), wrapper).plan
    assert "use_sinks" not in inspect.signature(plan).parameters


def test_run_takes_sinks_and_fa2_leaves_them_out(upstream_import: Load) -> None:
    """Claimed: run(sinks=...) applies them with FA2. The parameter is there; the FA2 call doesn't pass it on."""
    prefill = upstream_import("flashinfer.prefill")
    assert "sinks" in inspect.signature(prefill.BatchPrefillWithPagedKVCacheWrapper.run).parameters
    source = inspect.getsource(prefill.get_batch_prefill_module)
    (fa2,) = re.findall(
        r'elif backend == "fa2":\s*assert not is_float8\(q\)\n(\s*paged_run_func\(.*?\n\s*\)\n)', source, re.S
    )
    assert "logits_soft_cap" in fa2
    assert "sinks" not in fa2


def test_draft_tokens_are_argmax_in_the_default_runner(upstream_import: Load) -> None:
    """Claimed: vLLM's Eagle samples drafts stochastically."""
    module = upstream_import("vllm.v1.spec_decode.eagle")
    source = inspect.getsource(module.EagleProposer.propose)
    assert source.count("logits.argmax(dim=-1)") >= 2
    assert "gumbel" not in inspect.getsource(module)


def test_verification_has_no_python_loop(upstream_import: Load) -> None:
    """Claimed: tree verification loops in Python and waits for the GPU. It is a chain, in a Triton kernel."""
    for name, kernel in (
        ("vllm.v1.sample.rejection_sampler", "rejection_greedy_sample_kernel"),
        ("vllm.v1.worker.gpu.spec_decode.rejection_sample", "_rejection_sample_kernel"),
    ):
        source = inspect.getsource(upstream_import(name))
        assert re.search(rf"@triton\.jit[^@]*\ndef {kernel}\(", source)
        assert f"{kernel}[" in source


def test_tree_masks_are_one_small_constant(upstream_import: Load) -> None:
    """Claimed: tree attention reads bool masks that bits would make eight times smaller."""
    tree = upstream_import("vllm.v1.attention.backends.tree_attn")
    chain_of_trees = [(), *[(0,) * i for i in range(1, 64)]]
    bias = tree._prepare_tree_attn_bias(chain_of_trees[1:], [1] * 63, dtype=torch.float32, device="cpu")
    assert bias.dtype is torch.float32
    assert bias.numel() * bias.element_size() <= 16 * 1024


def test_tree_attention_has_no_sinks(upstream_import: Load) -> None:
    """Holds against the plan: gpt-oss can't run on TREE_ATTN."""
    assert not upstream_import("vllm.v1.attention.backends.tree_attn").TreeAttentionBackend.supports_sink()


def test_routing_is_fused_already(trees: Path) -> None:
    """Claimed: softmax and top-k are separate in vLLM; 128 experts need a port."""
    source = (trees / "vllm" / "csrc" / "moe" / "topk_softmax_kernels.cu").read_text()
    assert "void topkGatingSoftmax(" in source
    assert re.search(r"case 128:\s*LAUNCH_SOFTMAX\(128,", source)
    assert "const bool renormalize" in source


@pytest.mark.parametrize("capability", [(9, 0), (12, 0), (12, 1)])
def test_trtllm_attention_was_never_on_sm12x(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]
) -> None:
    """Claimed: SM121 must be excluded from TRT-LLM attention."""
    interface, module = upstream_import("vllm.platforms.interface"), upstream_import("vllm.utils.flashinfer")

    class Faked(interface.Platform):  # type: ignore[name-defined, misc]
        _enum = interface.PlatformEnum.CUDA
        device_type = "cuda"

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return interface.DeviceCapability(*capability)

    assert not Faked().is_device_capability_family(100)
    monkeypatch.setattr(module, "current_platform", Faked())
    monkeypatch.setattr(module, "has_nvidia_artifactory", lambda: True)
    module.supports_trtllm_attention.cache_clear()
    assert not module.supports_trtllm_attention()
    module.supports_trtllm_attention.cache_clear()


def test_larger_batches_than_the_tuning_bucket_are_clamped(upstream_import: Load) -> None:
    """Claimed: batches above tune_max_num_tokens fail to initialize. They take the top bucket's tactic."""
    core = upstream_import("flashinfer.fused_moe.core")
    source = inspect.getsource(core.get_cutlass_fused_moe_module)
    assert "lambda x: min(last_positive_power_of_2(x), tune_max_num_tokens)" in source


@pytest.mark.parametrize("version", ["12.8", "12.9", "13.0"])
def test_stock_builds_for_121_what_it_builds_for_120(trees: Path, tmp_path: Path, version: str) -> None:
    """Claimed: CMake's list must have 12.1. Stock maps it to 12.0; with 12.1 in the list SM120's kernels are lost."""
    wanted_120, stock = kernels(trees, tmp_path, version, "12.0"), kernels(trees, tmp_path, version, "12.1")
    assert stock == wanted_120
    assert stock["all"] == "12.0"
    on_sm120 = {source for source, found in wanted_120.items() if found and source != "all"}
    assert {"12.0f", "12.0a", "8.9;12.0"} <= on_sm120
    with_121 = kernels(trees, tmp_path, version, "12.1", also="12.1")
    lost = {source for source in on_sm120 if not with_121[source]}
    assert with_121["all"] == "12.1"
    assert {"12.0f", "12.0a", "10.0f;11.0f;12.0f"} <= lost


def kernels(trees: Path, tmp_path: Path, version: str, wish: str, also: str = "") -> dict[str, str]:
    """By each list of architectures that kernels name in vLLM's CMakeLists: for what they are compiled, wishing one.

    CMake evaluates the project's own list and its own functions. ``also`` is put into the project's list.
    """
    text = (trees / "vllm" / "CMakeLists.txt").read_text()
    (block,) = re.findall(r"^if\(DEFINED CMAKE_CUDA_COMPILER_VERSION AND\n.*?^endif\(\)", text, re.M | re.S)
    named = sorted(set(re.findall(r'cuda_archs_loose_intersection\(\w+\s+"([^$"]+)"\s+"\$\{CUDA_ARCHS\}"\)', text)))
    lines = [
        f"set(CMAKE_CUDA_COMPILER_VERSION {version})", block, f"list(APPEND CUDA_SUPPORTED_ARCHS {also})",
        f"include({trees / 'vllm' / 'cmake' / 'utils.cmake'})",
        f'cuda_archs_loose_intersection(CUDA_ARCHS "${{CUDA_SUPPORTED_ARCHS}}" "{wish}")',
        'message("all=${CUDA_ARCHS}")',
    ]  # fmt: skip
    for source in named:
        lines += [
            f'cuda_archs_loose_intersection(FOUND "{source}" "${{CUDA_ARCHS}}")',
            f'message("{source}=${{FOUND}}")',
        ]
    script = tmp_path / "script.cmake"
    script.write_text("\n".join(lines))
    done = subprocess.run(["cmake", "-P", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = dict(line.split("=", 1) for line in done.stderr.splitlines() if "=" in line)
    assert set(named) <= set(found)
    return found


def test_the_cutlass_commit_of_the_notes_is_not_upstreams() -> None:
    """The pins of the lock are upstream's; 0b40bb7 is not among them."""
    lock = (Path(__file__).parents[2] / "upstream.lock").read_text()
    assert "0b40bb7" not in lock
    assert "f3fde58372d33e9a5650ba7b80fc48b3b49d40c8" in lock


def test_the_encoding_is_made_from_the_checkpoints_tokenizer(tmp_path: Path) -> None:
    from transformers.models.gpt2.tokenization_gpt2 import bytes_to_unicode

    page = (Path(__file__).parents[2] / "docs" / "how-to" / "on-a-gb10.md").read_text()
    script = page.split("```python\n", 1)[1].split("```", 1)[0]
    tokens = [bytes([b]) for b in range(256)] + [b"\xc3\xa9", b" the", b"\n\n", b"\x00\xff"]
    wanted = b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens))
    to_text = bytes_to_unicode()
    vocab = {"".join(to_text[b] for b in token): rank for rank, token in enumerate(tokens)}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}}))
    (known,) = re.findall(r'"([0-9a-f]{64})"', script)
    command = [sys.executable, "-c", script.replace(known, hashlib.sha256(wanted).hexdigest()), tmp_path, tmp_path]
    subprocess.run(command, check=True)
    assert (tmp_path / "o200k_base.tiktoken").read_bytes() == wanted
    done = subprocess.run([sys.executable, "-c", script, tmp_path, tmp_path], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "this tokenizer isn't o200k's\n")
