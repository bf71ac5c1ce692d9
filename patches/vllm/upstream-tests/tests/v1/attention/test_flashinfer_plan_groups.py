# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""FlashInfer builder: layers that differ in what plan() fixes each have a plan."""

from unittest.mock import MagicMock

import pytest
import torch

from vllm.config import CUDAGraphMode
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.utils import PerLayerParameters
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheLayout

pytest.importorskip("flashinfer")

from vllm.v1.attention.backends import flashinfer as flashinfer_backend
from vllm.v1.attention.backends.flashinfer import (
    FIDecode,
    FIPrefill,
    FlashInferImpl,
    FlashInferMetadataBuilder,
)

pytestmark = pytest.mark.skip_global_cleanup

FULL = PerLayerParameters(window_left=-1, logits_soft_cap=None, sm_scale=0.125)
PREFILL, DECODE = [5, 20], [1, 1]


class Wrapper:
    """A FlashInfer wrapper that notes what it is made and planned with."""

    def __init__(self, float_workspace_buffer, kv_layout, **kwargs):
        self.workspace = float_workspace_buffer
        self.is_cuda_graph_enabled = False

    def plan(self, **kwargs):
        self.planned = kwargs


class SinkWrapper(Wrapper):
    pass


@pytest.fixture
def platform(monkeypatch):
    """FlashInfer without a GPU; trtllm-gen and XQA are not available."""
    platform = MagicMock()
    platform.is_device_capability.side_effect = lambda capability: capability == 90
    platform.is_device_capability_family.return_value = False
    platform.get_device_capability.return_value = None
    monkeypatch.setattr(flashinfer_backend, "current_platform", platform)
    for name in (
        "BatchPrefillWithPagedKVCacheWrapper",
        "BatchDecodeWithPagedKVCacheWrapper",
    ):
        monkeypatch.setattr(flashinfer_backend, name, Wrapper)
    monkeypatch.setattr(
        flashinfer_backend, "BatchAttentionWithAttentionSinkWrapper", SinkWrapper
    )
    for name in ("can_use_trtllm_attention", "use_trtllm_attention"):
        monkeypatch.setattr(flashinfer_backend, name, lambda *args, **kwargs: False)
    monkeypatch.setattr(
        flashinfer_backend.FlashInferBackend, "supports_sink", lambda: True
    )
    monkeypatch.setattr(flashinfer_backend, "_copy_page_indices_kernel", MagicMock())
    monkeypatch.setattr(flashinfer_backend, "pin_host_range_buf", lambda size: None)
    monkeypatch.setattr(flashinfer_backend, "PIN_MEMORY", False)
    monkeypatch.setattr("vllm.v1.utils.PIN_MEMORY", False)


def _builder(layers, monkeypatch):
    """A builder of the named layers. The dict may grow afterwards, as the groups
    of drafters do."""
    monkeypatch.setattr(
        flashinfer_backend,
        "get_per_layer_parameters",
        lambda config, names, impl_cls: {name: layers[name] for name in names},
    )
    monkeypatch.setattr(
        flashinfer_backend, "get_num_attention_heads_from_layers", lambda *args: 8
    )
    config = MagicMock()
    config.num_speculative_tokens = 0
    config.speculative_config = None
    config.model_config.dtype = torch.bfloat16
    config.model_config.max_model_len = 256
    config.scheduler_config.max_num_seqs = 4
    config.scheduler_config.max_num_batched_tokens = 64
    config.compilation_config.cudagraph_mode = CUDAGraphMode.NONE
    config.cache_config.get_resolved_kv_cache_layout.return_value = KVCacheLayout.LBHNC
    config.parallel_config.decode_context_parallel_size = 1
    spec = FullAttentionSpec(
        block_size=16, num_kv_heads=2, head_size=64, dtype=torch.bfloat16
    )
    return FlashInferMetadataBuilder(spec, list(layers), config, torch.device("cpu"))


def _build(builder, query_lens):
    start = torch.tensor([0, *query_lens], dtype=torch.int32).cumsum(0).int()
    return builder.build(
        0,
        CommonAttentionMetadata(
            query_start_loc=start,
            query_start_loc_cpu=start,
            seq_lens=torch.tensor([8, 40], dtype=torch.int32),
            num_reqs=2,
            num_actual_tokens=sum(query_lens),
            max_query_len=max(query_lens),
            max_seq_len=40,
            block_table_tensor=torch.zeros(2, 16, dtype=torch.int32),
            slot_mapping=torch.zeros(sum(query_lens), dtype=torch.int64),
        ),
    )


def _wrapper(metadata, params):
    """The wrapper that a layer with these hyperparameters runs."""
    impl = object.__new__(FlashInferImpl)
    impl.window_left = params.window_left
    impl.logits_soft_cap = params.logits_soft_cap
    impl.scale = params.sm_scale
    impl.sinks = object() if params.has_sinks else None
    native = metadata.prefill or metadata.decode
    assert isinstance(native, FIPrefill | FIDecode)
    return native.wrappers[impl.plan_key]


@pytest.mark.parametrize("query_lens", [PREFILL, DECODE], ids=["prefill", "decode"])
@pytest.mark.parametrize(
    "other",
    [
        PerLayerParameters(window_left=127, logits_soft_cap=None, sm_scale=0.125),
        PerLayerParameters(window_left=-1, logits_soft_cap=30.0, sm_scale=0.125),
        PerLayerParameters(window_left=-1, logits_soft_cap=None, sm_scale=0.25),
        PerLayerParameters(-1, None, 0.125, has_sinks=True),
    ],
    ids=["window", "soft_cap", "scale", "sinks"],
)
def test_layers_that_differ_have_plans_of_their_own(
    platform, monkeypatch, other, query_lens
):
    """E.g. a target with sinks and its draft without, which share a builder."""
    builder = _builder({"target": other, "draft": FULL}, monkeypatch)
    metadata = _build(builder, query_lens)

    wrappers = [_wrapper(metadata, params) for params in (other, FULL)]
    assert wrappers[0] is not wrappers[1]
    for wrapper, params in zip(wrappers, (other, FULL)):
        assert wrapper.planned["window_left"] == params.window_left
        assert wrapper.planned["sm_scale"] == params.sm_scale
        assert wrapper.planned["logits_soft_cap"] == (params.logits_soft_cap or 0.0)
    if query_lens is PREFILL:
        assert isinstance(wrappers[0], SinkWrapper) == other.has_sinks
        assert not isinstance(wrappers[1], SinkWrapper)


def test_layers_that_agree_share_a_plan(platform, monkeypatch):
    same = PerLayerParameters(window_left=-1, logits_soft_cap=0.0, sm_scale=0.125)
    builder = _builder({"a": FULL, "b": same}, monkeypatch)
    metadata = _build(builder, PREFILL)

    assert len(metadata.prefill.wrappers) == 1
    assert _wrapper(metadata, FULL) is _wrapper(metadata, same)


def test_plans_share_the_workspace(platform, monkeypatch):
    other = PerLayerParameters(window_left=127, logits_soft_cap=None, sm_scale=0.125)
    builder = _builder({"a": FULL, "b": other}, monkeypatch)
    wrappers = [
        _wrapper(_build(builder, query_lens), params)
        for query_lens in (PREFILL, DECODE)
        for params in (FULL, other)
    ]

    assert len({id(wrapper) for wrapper in wrappers}) == 4
    assert len({wrapper.workspace.data_ptr() for wrapper in wrappers}) == 1


def test_layers_added_after_the_builder_was_made(platform, monkeypatch):
    """Drafters make a group's builder with its first layer."""
    other = PerLayerParameters(window_left=127, logits_soft_cap=None, sm_scale=0.125)
    layers = {"draft.0": FULL}
    builder = _builder(layers, monkeypatch)
    _build(builder, PREFILL)
    layers["draft.1"] = other
    builder.layer_names.append("draft.1")

    assert _wrapper(_build(builder, PREFILL), other).planned["window_left"] == 127


def test_nothing_is_planned_with_trtllm(platform, monkeypatch):
    """trtllm-gen takes the hyperparameters of each layer at its call."""
    other = PerLayerParameters(window_left=127, logits_soft_cap=None, sm_scale=0.125)
    builder = _builder({"a": FULL, "b": other}, monkeypatch)
    monkeypatch.setattr(
        flashinfer_backend, "use_trtllm_attention", lambda *a, **k: True
    )
    monkeypatch.setattr(builder, "_get_prefill_wrapper", MagicMock())

    assert isinstance(
        _build(builder, PREFILL).prefill, flashinfer_backend.TRTLLMPrefill
    )
    builder._get_prefill_wrapper.assert_not_called()
