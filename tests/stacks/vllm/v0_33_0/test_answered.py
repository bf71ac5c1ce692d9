"""Items of the optimization notes that today's releases answer by themselves; docs/claims.md names each test."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

Load = Callable[[str], ModuleType]
MODELS = "vllm/vllm/model_executor"
HEURISTIC = "flashinfer/csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels/cutlass_heuristic.cpp"


def part(text: str, start: str, end: str) -> str:
    """What stands between two words; an assertion where the first isn't there."""
    assert start in text, start
    return text[text.index(start) :].partition(end)[0]


def test_async_scheduling_is_on_unless_refused(upstream_import: Load) -> None:
    fields = upstream_import("vllm.config.scheduler").SchedulerConfig.__dataclass_fields__
    assert fields["async_scheduling"].default is None, "None: on, where the model and the method allow it"


def test_weights_load_past_the_page_cache(upstream_import: Load, trees: Path) -> None:
    formats = upstream_import("vllm.model_executor.model_loader")._LOAD_FORMAT_TO_MODEL_LOADER
    assert {"fastsafetensors", "instanttensor"} <= set(formats)
    assert "nogds" in (trees / MODELS / "model_loader/weight_utils.py").read_text()


def test_draft_methods(trees: Path) -> None:
    methods = part((trees / "vllm/vllm/config/speculative.py").read_text(), "SpeculativeMethod = Literal[", "]")
    assert {'"ngram"', '"draft_model"', '"suffix"'} <= set(methods.replace(",", "").split())


def test_nvfp4_weights_have_kernels_on_sm12x(upstream_import: Load, device: Callable[..., Any]) -> None:
    name = "vllm.model_executor.kernels.linear.nvfp4.marlin"
    module = upstream_import(name)
    utils = "vllm.model_executor.layers.quantization.utils.marlin_utils_fp4"
    device(12, 1, utils)
    kernel = next(c for n, c in vars(module).items() if n.startswith("Marlin"))
    assert kernel.is_supported()[0] is True


def test_hidden_size_2880_is_padded_by_who_needs_it(upstream_import: Load) -> None:
    oracle = upstream_import("vllm.model_executor.layers.fused_moe.oracle.mxfp4")
    sizes = {
        name: oracle.mxfp4_round_up_hidden_size_and_intermediate_size(oracle.Mxfp4MoeBackend[name], 2880, 2880)
        for name in ("MARLIN", "FLASHINFER_CUTLASS_MXFP4_MXFP8")
    }
    assert all(h % 32 == 0 and i % 32 == 0 and h >= 2880 and i >= 2880 for h, i in sizes.values())
    assert sizes["FLASHINFER_CUTLASS_MXFP4_MXFP8"] == (2944, 2944)


def test_tiles_of_mxfp8_by_mxfp4_on_sm120(trees: Path) -> None:
    text = part(
        (trees / HEURISTIC).read_text(),
        "get_candidate_configs_sm120(",
        "std::vector<CutlassGemmConfig> get_candidate_configs(",
    )
    tried = part(text, "all_tiles[] = {", "};")
    for tile in ("128x128x128B", "128x64x128B", "128x32x128B"):
        assert tile in tried, tile
    for tile in ("192", "x16x", "x8x"):
        assert tile not in tried, f"{tile}: not to be had from CUTLASS's builder for SM120"
    assert "split_k" not in text


def test_min_latency_mode_is_nobodys(trees: Path) -> None:
    found = [p for p in (trees / MODELS).rglob("*.py") if "min_latency_mode" in p.read_text()]
    assert found == []


def test_the_layout_fix_is_in_the_launcher(trees: Path) -> None:
    launchers = trees / "flashinfer/csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels/moe_gemm/launchers"
    text = (launchers / "moe_gemm_tma_ws_launcher.inl").read_text()
    assert "construct_if_true" in text or "deduce_layout_sf" in text


def test_dense_mxfp4_layers_have_no_kernel_for_mxfp8_activations(upstream_import: Load) -> None:
    """The native kernels for SM12x take MXFP4 activations; Marlin quantizes none."""
    keys = upstream_import("vllm.model_executor.layers.quantization.utils.quant_utils")
    folder = "vllm.model_executor.kernels.linear.mxfp4"
    config = upstream_import(f"{folder}.base").MxFp4LinearLayerConfig
    taken = {
        (name, kind)
        for name, kernel in (("b12x", "B12xMxFp4LinearKernel"), ("flashinfer", "FlashInferMxFp4LinearKernel"))
        for kind in ("kMxfp4Dynamic", "kMxfp8Dynamic")
        if getattr(upstream_import(f"{folder}.{name}"), kernel).can_implement(
            config(activation_quant_key=getattr(keys, kind))
        )[0]
    }
    assert taken == {("b12x", "kMxfp4Dynamic"), ("flashinfer", "kMxfp4Dynamic")}


def test_drafting_loop_is_one_graph(upstream_import: Load) -> None:
    module = upstream_import("vllm.v1.worker.gpu.spec_decode.target_dependent_ar.speculator")
    drafter = next(c for n, c in vars(module).items() if isinstance(c, type) and hasattr(c, "_generate_fused_drafts"))
    assert "run_fullgraph" in inspect.getsource(drafter._fused_multi_step_decode)
    assert "for step in range" in inspect.getsource(drafter._generate_fused_drafts)
    assert "prefill_cudagraph_manager" in inspect.getsource(drafter.init_cudagraph_manager)


def test_kv_cache_layout_is_free_on_sm12x(upstream_import: Load, device: Callable[..., Any]) -> None:
    name = "vllm.v1.attention.backends.flashinfer"
    module = upstream_import(name)
    utils = upstream_import("vllm.v1.attention.backends.utils")
    layout = utils.get_flashinfer_layout_string
    device(10, 0, name)
    assert {layout(kind) for kind in module.FlashInferBackend.supported_kv_cache_layouts()} == {"HND"}
    device(12, 1, name)
    free = module.FlashInferBackend.supported_kv_cache_layouts() or utils._DEFAULT_LAYOUT_PREFERENCE
    names = [layout(kind) for kind in free if kind.name in utils._FLASHINFER_LAYOUT_NAMES]
    assert names[0] == "NHD"
    assert "HND" in names


def test_scale_granularity_has_no_such_name(trees: Path) -> None:
    found = [
        path
        for folder in ("flashinfer/csrc", "flashinfer/include", "cutlass/include")
        for path in (trees / folder).rglob("*")
        if path.suffix in (".h", ".hpp", ".cuh", ".cu", ".inl") and b"kSm12xBlockScaleGranularity" in path.read_bytes()
    ]
    assert found == []


def test_b12x_refuses_expert_biases(upstream_import: Load) -> None:
    experts = upstream_import("vllm.model_executor.layers.fused_moe.b12x").B12xExperts
    ok, why = experts.is_supported_config(experts, SimpleNamespace(has_bias=True), None, None, None)
    assert (ok, why) == (False, "kernel does not support expert biases")


def test_b12x_takes_gpt_oss_activation_with_bf16_inputs_alone(upstream_import: Load) -> None:
    """Only Marlin's arithmetic would remain if biases were added from outside."""
    experts = upstream_import("vllm.model_executor.layers.fused_moe.b12x").B12xExperts
    activation = upstream_import("vllm.model_executor.layers.fused_moe.activation").MoEActivation
    keys = upstream_import("vllm.model_executor.layers.quantization.utils.quant_utils")
    assert not experts._supports_activation(activation.SWIGLUOAI)
    assert experts._supports_activation(activation.SWIGLUOAI_UNINTERLEAVE)
    assert experts._supports_quant_scheme(keys.kMxfp4Static, None)
    config = SimpleNamespace(has_bias=False, in_dtype=torch.bfloat16, activation=activation.SWIGLUOAI_UNINTERLEAVE)
    answer = experts.is_supported_config(experts, config, keys.kMxfp4Static, keys.kMxfp8Dynamic, None)
    assert answer == (False, "kernel does not support swigluoai_uninterleave with W4A8")
