"""vLLM's FlashInfer builder and layers, made without a model: on a CPU with recording wrappers, or on a GPU.

Nothing here is a copy of vLLM's: builder, implementations and metadata are the patched tree's.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

PAGE = 16


@dataclass(frozen=True)
class Spec:
    """One attention layer. ``window`` counts the tokens seen, None is all of them."""

    name: str
    window: int | None = None
    scale: float = 0.125
    sinks: torch.Tensor | None = None
    soft_cap: float | None = None
    is_draft: bool = False


def make_layers(
    backend: ModuleType, specs: list[Spec], heads: int, kv_heads: int, dim: int, kv_cache_dtype: str = "auto"
) -> dict[str, Any]:
    """vLLM's FlashInferImpl for each spec, on the least of a layer that the builder and forward read."""
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

    class Layer(AttentionLayerBase):
        def __init__(self, spec: Spec) -> None:
            self.layer_name, self.is_draft = spec.name, spec.is_draft
            self._q_scale_float = self._k_scale_float = self._v_scale_float = 1.0
            # Sharing a KV cache: forward then leaves the cache, which is written beforehand, alone.
            self.impl = backend.FlashInferImpl(
                heads, dim, spec.scale, kv_heads, None, spec.window, kv_cache_dtype, spec.soft_cap,
                kv_sharing_target_layer_name="written beforehand", sinks=spec.sinks,
            )  # fmt: skip

        def get_attn_backend(self) -> Any:
            return backend.FlashInferBackend

        def get_kv_cache_spec(self, vllm_config: Any) -> Any:
            return None

    return {spec.name: Layer(spec) for spec in specs}


def make_builder(
    backend: ModuleType, layers: dict[str, Any], heads: int, kv_heads: int, dim: int,
    dtype: torch.dtype = torch.bfloat16, kv_cache_dtype: str = "auto", device: str = "cpu", graphs: bool = False,
    max_reqs: int = 8, names: list[str] | None = None, drafts: int = 0,
) -> Any:  # fmt: skip
    """vLLM's FlashInferMetadataBuilder for the layers, as one KV cache group.

    :param drafts: tokens that are speculated for each request.
    """
    vllm_config = make_config(layers, heads, dtype, kv_cache_dtype, graphs, max_reqs, drafts)
    return backend.FlashInferMetadataBuilder(
        make_spec(kv_heads, dim, dtype, kv_cache_dtype), list(layers) if names is None else names, vllm_config,
        torch.device(device),
    )  # fmt: skip


def make_config(
    layers: dict[str, Any], heads: int, dtype: torch.dtype = torch.bfloat16, kv_cache_dtype: str = "auto",
    graphs: bool = False, max_reqs: int = 8, drafts: int = 0,
) -> Any:  # fmt: skip
    """What the builder reads of a VllmConfig."""
    from vllm.config import CUDAGraphMode
    from vllm.v1 import kv_cache_interface

    one = SimpleNamespace
    return one(
        cache_config=one(
            cache_dtype=kv_cache_dtype,
            # From v0.33.0.
            get_resolved_kv_cache_layout=lambda: kv_cache_interface.KVCacheLayout.LBHNC,
        ),
        model_config=one(dtype=dtype, max_model_len=4096, get_num_attention_heads=lambda parallel: heads),
        attention_config=one(use_trtllm_attention=None, disable_flashinfer_q_quantization=False),
        compilation_config=one(
            cudagraph_mode=CUDAGraphMode.FULL_DECODE_ONLY if graphs else CUDAGraphMode.NONE,
            max_cudagraph_capture_size=max_reqs * (1 + drafts), static_forward_context=layers,
        ),
        scheduler_config=one(max_num_seqs=max_reqs, max_num_batched_tokens=8192),
        speculative_config=one(num_speculative_tokens=drafts) if drafts else None, num_speculative_tokens=drafts,
        parallel_config=one(
            dcp_kv_cache_interleave_size=1, cp_kv_cache_interleave_size=1, decode_context_parallel_size=1,
            dcp_comm_backend="ag_rs",
        ),
    )  # fmt: skip


def make_spec(kv_heads: int, dim: int, dtype: torch.dtype = torch.bfloat16, kv_cache_dtype: str = "auto") -> Any:
    """vLLM's specification of the KV cache."""
    from vllm.v1 import kv_cache_interface

    kv_dtype = dtype if kv_cache_dtype == "auto" else torch.float8_e4m3fn
    quantized: dict[str, Any] = {}
    if hasattr(kv_cache_interface, "get_kv_quant_mode"):  # from v0.20.0
        quantized["kv_quant_mode"] = kv_cache_interface.get_kv_quant_mode(kv_cache_dtype)
    return kv_cache_interface.FullAttentionSpec(
        block_size=PAGE, num_kv_heads=kv_heads, head_size=dim, dtype=kv_dtype, **quantized
    )


def batch(query_lens: list[int], seq_lens: list[int], block_table: torch.Tensor, device: str = "cpu") -> Any:
    """vLLM's CommonAttentionMetadata: requests with so many new tokens, of so many in all."""
    from vllm.v1.attention.backends.utils import CommonAttentionMetadata

    start = torch.tensor(np.concatenate([[0], np.cumsum(query_lens)]), dtype=torch.int32)
    lens = torch.tensor(seq_lens, dtype=torch.int32)
    return CommonAttentionMetadata(
        query_start_loc=start.to(device), query_start_loc_cpu=start, seq_lens=lens.to(device), num_reqs=len(seq_lens),
        num_actual_tokens=int(start[-1]), max_query_len=max(query_lens), max_seq_len=max(seq_lens),
        block_table_tensor=block_table.to(device), slot_mapping=torch.zeros(int(start[-1]), dtype=torch.int64),
    )  # fmt: skip


class PagesOnCpu:
    """Does on a CPU what the Triton kernel of that name does: the requests' pages, one after the other."""

    def __getitem__(self, grid: tuple[int]) -> Any:
        def copy(
            page_indices: torch.Tensor, block_table: torch.Tensor, stride: int, indptr: torch.Tensor, BLOCK_SIZE: int
        ) -> None:
            for request in range(grid[0]):
                start, end = int(indptr[request]), int(indptr[request + 1])
                page_indices[start:end] = block_table[request, : end - start]

        return copy


def without_gpu(backend: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the backend asks of a GPU when its parts are made, answered; the releases ask for different things."""
    answers = {
        "is_pin_memory_available": lambda: False,
        # From v0.33.0.
        "PIN_MEMORY": False,
        "get_device_sm_count": lambda device: 48,
        "_get_multi_ctas_kv_counter_buffer": lambda *size: None,
        "pin_host_range_buf": lambda size: None,
    }
    for module in (backend, importlib.import_module("vllm.v1.utils")):
        for name in answers.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, answers[name])


def plain(plan: dict[str, Any]) -> dict[str, Any]:
    """What a plan() got, to be compared: tensors as lists; what is None, or the wrapper itself, left out."""
    return {
        name: value.tolist() if isinstance(value, torch.Tensor) else value
        for name, value in plan.items()
        if value is not None and name != "self"
    }


def recorders(backend: ModuleType, made: list[Any], without: str = "") -> dict[str, type]:
    """Stand-ins for FlashInfer's wrappers, by name: they bind as the real ones and note what they got.

    ``plan`` takes no argument by position, and a parameter that FlashInfer inserted in its middle
    would move none of them. ``run`` fills the output with the wrapper's number in ``made``.

    :param without: a parameter that an older FlashInfer's ``plan`` doesn't have.
    """

    def stand_in(real: type, *bases: type) -> type:
        init, plan, run = (inspect.signature(getattr(real, n)) for n in ("__init__", "plan", "run"))
        if without:
            # From FlashInfer 0.7 plan() takes its options as **kwargs; an older one names them.
            named = inspect.signature(getattr(real, "_plan_impl", real.plan))  # type: ignore[attr-defined]
            plan = named.replace(parameters=[p for n, p in named.parameters.items() if n != without])

        def bind(signature: inspect.Signature, self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            # From FlashInfer 0.7 the options of a decode's plan are **kwargs.
            rest = [n for n, p in signature.parameters.items() if p.kind is p.VAR_KEYWORD]
            return {**bound.arguments, **{k: v for n in rest for k, v in bound.arguments[n].items()}}

        def on_init(self: Any, *args: Any, **kwargs: Any) -> None:
            self.init = bind(init, self, *args, **kwargs)
            self.is_cuda_graph_enabled = self.init.get("use_cuda_graph", False)
            self.plans: list[dict[str, Any]] = []
            self.runs: list[dict[str, Any]] = []
            self.number = len(made)
            made.append(self)

        def on_plan(self: Any, *args: Any, **kwargs: Any) -> None:
            assert not args, f"{real.__name__}.plan() got {len(args)} arguments by position"
            got = bind(plan, self, **kwargs)
            self.plans.append(got)
            self._window_left, self._sm_scale = got["window_left"], got["sm_scale"]
            self._logits_soft_cap = got["logits_soft_cap"] or 0.0
            self._causal = got.get("causal")

        def on_run(self: Any, *args: Any, **kwargs: Any) -> None:
            got = bind(run, self, *args, **kwargs)
            self.runs.append(got)
            if got.get("out") is not None:
                got["out"].fill_(self.number)

        on_plan.__signature__ = plan  # type: ignore[attr-defined]
        return type(real.__name__, bases or (object,), {"__init__": on_init, "plan": on_plan, "run": on_run})

    import flashinfer

    names = (
        "BatchDecodeWithPagedKVCacheWrapper",
        "BatchPrefillWithPagedKVCacheWrapper",
        "BatchPrefillWithRaggedKVCacheWrapper",
        "MultiLevelCascadeAttentionWrapper",
    )
    fakes = {name: stand_in(getattr(flashinfer, name)) for name in names}
    sink = "BatchAttentionWithAttentionSinkWrapper"
    fakes[sink] = stand_in(getattr(flashinfer, sink), fakes["BatchPrefillWithPagedKVCacheWrapper"])
    return {name: fake for name, fake in fakes.items() if hasattr(backend, name)}
