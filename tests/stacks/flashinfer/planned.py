"""FlashInfer's wrappers as plan() leaves them, without a GPU: what their kernels would be given is recorded."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

WRAPPERS = {
    "BatchPrefillWithPagedKVCacheWrapper": "flashinfer.prefill",
    "BatchPrefillWithRaggedKVCacheWrapper": "flashinfer.prefill",
    "BatchDecodeWithPagedKVCacheWrapper": "flashinfer.decode",
    "BatchAttentionWithAttentionSinkWrapper": "flashinfer.attention",
}


class Planned:
    """A wrapper planned for one token of 8 heads; `calls` is what its kernels were given, call by call."""

    def __init__(self, upstream_import: Callable[[str], ModuleType], wrapper: str, **state: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        kernels = dict.fromkeys(("paged_run", "ragged_run", "run"), lambda *args: self.calls.append(args))
        original = getattr(upstream_import(WRAPPERS[wrapper]), wrapper)
        # What a release knows more of than the last is nothing here.
        self.wrapper: Any = object.__new__(type("Planned", (original,), {"__getattr__": lambda *_: None}))
        self.wrapper.__dict__.update(
            _backend="fa2", _kv_layout="HND", _window_left=-1, _pos_encoding_mode="NONE", _sm_scale=0.125,
            _cudnn_auto=False, _causal=True, _plan_info=[], _qo_indptr_last=1, _q_len_per_req=1,
            _paged_kv_last_page_len_buf=torch.ones(1, dtype=torch.int32), _kv_lens_buffer=torch.ones(8),
            _cached_module=SimpleNamespace(**kernels),
        )  # fmt: skip
        self.wrapper.__dict__.update(state)
        self.ragged = "Ragged" in wrapper

    def run(self, *args: Any, query: torch.dtype = torch.bfloat16, cache: torch.dtype = torch.float8_e4m3fn, **options: Any) -> None:  # fmt: skip
        """Its run(), over an FP8 cache unless told otherwise."""
        self.wrapper.__dict__.update(
            _cached_q_data_type=query, _cached_kv_data_type=cache, _cached_o_data_type=torch.bfloat16
        )
        kv = [torch.zeros(1, 2, 2, 16, 64).to(cache)]
        if self.ragged:
            kv = [torch.zeros(16, 2, 64).to(cache)] * 2
        self.wrapper.run(torch.zeros(1, 8, 64).to(query), *kv, *args, enable_pdl=False, **options)
