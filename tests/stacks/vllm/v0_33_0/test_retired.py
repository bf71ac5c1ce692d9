"""What vLLM 0.33.0 does by itself, so that patches of earlier releases aren't carried to it: each by its name.

It passes on the bare release: `PATCHQ_SET=gb10-newest pytest tests/stacks/vllm/v0_33_0/test_retired.py` asks the
patched one, where it must pass too.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

Load = Callable[[str], ModuleType]
BACKEND = "vllm.v1.attention.backends.flashinfer"
ATTENTION = {"re:.*self_attn.qkv_proj": "mxfp4", "re:.*self_attn.o_proj": "mxfp4"}


def test_mxfp4_sm12x_cutlass(quant_config: Callable[..., Any], moe_backend: Callable[..., str], config: Any) -> None:
    """--moe-backend and the activation choose CUTLASS on SM12x; Marlin is what is chosen unasked."""
    quant_config()
    assert moe_backend("auto") == "MARLIN"
    assert moe_backend("marlin") == "MARLIN"
    quant_config(moe={"activation": "mxfp8"})
    assert moe_backend("flashinfer_cutlass") == "FLASHINFER_CUTLASS_MXFP4_MXFP8"
    assert moe_backend("flashinfer_cutlass", (12, 0)) == "FLASHINFER_CUTLASS_MXFP4_MXFP8"


def test_mxfp4_backend_option(quant_config: Callable[..., Any], moe_backend: Callable[..., str]) -> None:
    """What can't run is an error and no silent fallback."""
    quant_config(moe={"activation": "mxfp8"})
    assert moe_backend("flashinfer_cutlass", (8, 9)).startswith("refused")
    assert moe_backend("flashinfer_trtllm").startswith("refused")
    assert moe_backend("aiter").startswith("refused")


def test_mxfp4_legacy_variables(upstream_import: Load) -> None:
    """The four variables are gone, and nothing reads them."""
    known = upstream_import("vllm.envs").environment_variables
    assert not [n for n in known if "MXFP4" in n and n.startswith(("VLLM_USE_FLASHINFER_MOE", "VLLM_MXFP4_USE"))]


def test_mxfp4_dispatch_line(
    upstream_import: Load, quant_config: Callable[..., Any], moe_backend: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One line says which backend it is."""
    said: list[str] = []
    logger = upstream_import("vllm.model_executor.layers.fused_moe.oracle.mxfp4").logger
    monkeypatch.setattr(logger, "info_once", lambda message, *args, **given: said.append(message))
    quant_config()
    moe_backend("auto")
    assert "Using 'MARLIN' Mxfp4 MoE backend." in said


@pytest.mark.parametrize(("backend", "kernel"), [("marlin", "Marlin"), ("auto", "FlashInfer")])
def test_mxfp4_qkv_o(
    upstream_import: Load, quant_config: Callable[..., Any], marlin: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch, backend: str, kernel: str,
) -> None:  # fmt: skip
    """Targets quantize a checkpoint's BF16 attention; --linear-backend marlin keeps its activations in BF16."""
    groups = upstream_import("vllm.distributed.parallel_state")
    monkeypatch.setattr(groups, "_TP", SimpleNamespace(rank_in_group=0, world_size=1))
    monkeypatch.setattr(
        upstream_import("vllm.model_executor.kernels.linear.mxfp4.flashinfer"), "has_flashinfer_cutedsl", lambda: True
    )
    linear = upstream_import("vllm.model_executor.layers.linear")
    online = quant_config(backend, targets=ATTENTION)
    online.packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}
    targets = {f"re:.*{n}_proj": "mxfp4" for n in "qkvo"}
    online = quant_config(backend, targets=targets)
    online.packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}
    name = "model.layers.0.attn.qkv_proj"
    layer = linear.QKVParallelLinear(
        2880, 64, 64, 8, bias=True, params_dtype=torch.bfloat16, quant_config=online, prefix=name
    )
    assert type(layer.quant_method).__name__ == "Mxfp4OnlineLinearMethod"
    assert type(layer.quant_method.kernel).__name__.startswith(kernel)
    other = linear.ReplicatedLinear(2880, 128, quant_config=online, prefix="model.layers.0.mlp.router")
    assert type(other.quant_method).__name__ == "UnquantizedLinearMethod"


@pytest.mark.parametrize(("capability", "sinks"), [((12, 1), True), ((12, 0), True), ((9, 0), True), ((8, 9), False)])
def test_flashinfer_fa2_sinks(
    upstream_import: Load, device: Callable[..., Any], config: Any, monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int], sinks: bool,
) -> None:  # fmt: skip
    """FlashInfer's sink wrapper does the prefill on SM12x, XQA the decode."""
    module, utils = upstream_import(BACKEND), upstream_import("vllm.utils.flashinfer")
    monkeypatch.setattr(utils, "has_nvidia_artifactory", lambda: True)
    device(*capability, BACKEND, utils.__name__)
    assert module.FlashInferBackend.supports_sink() is sinks
    made: list[str] = []
    for name in ("BatchAttentionWithAttentionSinkWrapper", "BatchPrefillWithPagedKVCacheWrapper"):
        monkeypatch.setattr(module, name, lambda *args, name=name, **given: made.append(name) or name)
    monkeypatch.setattr(module, "get_flashinfer_layout_string", lambda layout: "NHD")
    builder = SimpleNamespace(
        _prefill_wrappers={}, use_dcp=False, is_kvcache_nvfp4=False, nvfp4_trtllm=False, head_dim=64,
        q_data_type_prefill=torch.bfloat16, kv_cache_dtype=torch.bfloat16, kv_cache_layout=None,
        _get_workspace_buffer=lambda: None,
    )  # fmt: skip
    key = module.PlanKey(window_left=-1, logits_soft_cap=0.0, sm_scale=0.125, has_sinks=True)
    module.FlashInferMetadataBuilder._get_prefill_wrapper(builder, key)
    assert made == ["BatchAttentionWithAttentionSinkWrapper" if sinks else "BatchPrefillWithPagedKVCacheWrapper"]
    if capability[0] == 12:
        kernel = module.FlashInferMetadataBuilder._get_flashinfer_trtllm_api_decode_kernel()
        assert kernel == module.FlashInferDecodeKernel.XQA


def calls(trees: Path, keyword: str) -> list[str]:
    """Where vLLM's experts for FlashInfer pass a keyword to something."""
    found = []
    for path in sorted((trees / "vllm/vllm/model_executor/layers").rglob("*.py")):
        text = path.read_text()
        if keyword in text:
            nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)]
            found += [f"{path.name}:{n.lineno}" for n in nodes if keyword in {k.arg for k in n.keywords}]
    return found


def test_trtllm_moe_tile_tokens_dim(trees: Path) -> None:
    """Nothing passes what FlashInfer 0.6.0 took away."""
    assert calls(trees, "tune_max_num_tokens")
    assert calls(trees, "tile_tokens_dim") == []


def test_mxfp4_tune_bucket(trees: Path, upstream_import: Load) -> None:
    """The CUTLASS experts leave FlashInfer its own bound, which holds a prefill's tokens, not a graph's."""
    assert not [c for c in calls(trees, "tune_max_num_tokens") if "cutlass" in c]
    fused = upstream_import("flashinfer.fused_moe").cutlass_fused_moe
    assert inspect.signature(inspect.unwrap(fused)).parameters["tune_max_num_tokens"].default == 8192


def test_eagle_greedy_drafts(upstream_import: Load) -> None:
    """Drafts are greedy unless asked otherwise."""
    fields = upstream_import("vllm.config.speculative").SpeculativeConfig.__dataclass_fields__
    assert fields["draft_sample_method"].default == "greedy"


def test_eagle_tree_top_k(trees: Path) -> None:
    """There are no trees of drafts any more."""
    assert not (trees / "vllm/vllm/v1/attention/backends/tree_attn.py").exists()
    assert "speculative_token_tree" not in (trees / "vllm/vllm/config/speculative.py").read_text()


def test_eagle_cudagraph_counters(trees: Path, upstream_import: Load) -> None:
    """The drafter's file is gone; --cudagraph-metrics counts what the target does."""
    assert not (trees / "vllm/vllm/v1/worker/gpu/spec_decode/eagle_cudagraph.py").exists()
    assert "cudagraph_metrics" in upstream_import("vllm.config.observability").ObservabilityConfig.__dataclass_fields__


def test_build_sm121(trees: Path) -> None:
    """12.1 is built as the family 12.0, whose guard takes it."""
    text = (trees / "vllm/CMakeLists.txt").read_text()
    newest = text[text.index("set(CUDA_SUPPORTED_ARCHS") :].splitlines()[0]
    assert "12.0" in newest
    assert "12.1" not in newest
    guard = (trees / "vllm/csrc/cutlass_extensions/common.hpp").read_text()
    assert "__CUDA_ARCH__ >= 1200 && __CUDA_ARCH__ < 1300" in guard


def test_inductor_config_probe(trees: Path) -> None:
    """The release asks for one torch, which has the option: no vendor's earlier build fits it."""
    metadata = (trees / "vllm/PKG-INFO").read_text()
    assert "Requires-Dist: torch==2.14.0\n" in metadata


def test_mxfp4_quantize_linear_scales(upstream_import: Load) -> None:
    """Upstream's quantizer for weights, which online quantization calls, leaves the scales in row order."""
    source = inspect.getsource(upstream_import("vllm.model_executor.layers.quantization.online.mxfp4"))
    assert "weight_fp4, weight_scale = mxfp4_quantize(weight.contiguous())" in source


@pytest.mark.parametrize("capability", [(12, 0), (12, 1)])
def test_shared_memory_of_sm12x(
    upstream_import: Load, device: Callable[..., Any], trees: Path, capability: tuple[int, int]
) -> None:
    """No patch: the top-k of sparse attention asks what a block may have, and what can't be launched is not chosen."""
    name = "vllm.model_executor.layers.indexer_topk"
    module = upstream_import(name)
    device(*capability, name)
    chooser = next(c for c in vars(module).values() if inspect.isclass(c) and hasattr(c, "_resolve_auto"))
    logits = torch.zeros(8, 4096)
    for rows in (1, 64, 65):
        assert chooser("auto").resolve_backend(logits, 2048, rows) == "persistent"
    with pytest.raises(RuntimeError, match="not supported on the SM12x family"):
        chooser("cooperative").resolve_backend(logits, 2048, 1)
    text = (trees / "vllm/csrc/topk.cu").read_text()
    assert "max_smem_per_block = device_prop->sharedMemPerBlockOptin" in text
