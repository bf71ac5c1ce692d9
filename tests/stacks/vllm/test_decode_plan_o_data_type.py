"""vLLM's fast_plan_decode gives FlashInfer's plan() each argument where it belongs.

The real fast_plan_decode and the real signature of the pinned FlashInfer; only the wrapper, which
needs a GPU, is a stand-in that binds what it is called with.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch


def stand_in(signature: inspect.Signature, graph: bool) -> Any:
    """A decode wrapper whose plan() binds its arguments as ``signature`` does."""

    class Wrapper:
        is_cuda_graph_enabled = graph

        def plan(self, *args: Any, **kwargs: Any) -> None:
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            self.got = bound.arguments

    Wrapper.plan.__signature__ = signature  # type: ignore[attr-defined]
    return Wrapper()


def plan_on(wrapper: Any, module: ModuleType, **extra: Any) -> dict[str, Any]:
    """Plan one request of one page; returns what plan() got."""
    one = torch.tensor([1], dtype=torch.int32)
    lens = [one] if "seq_lens_cpu" in inspect.signature(module.fast_plan_decode).parameters else []  # until vLLM 0.14
    module.fast_plan_decode(
        wrapper, torch.tensor([0, 1], dtype=torch.int32), torch.tensor([0], dtype=torch.int32), one, *lens,
        64, 8, 64, 16, pos_encoding_mode="NONE", sm_scale=0.125, window_left=127, logits_soft_cap=None,
        q_data_type=torch.float8_e4m3fn, kv_data_type=torch.float8_e4m3fn, fixed_split_size=-1, disable_split_kv=True,
        **extra,
    )  # fmt: skip
    got: dict[str, Any] = wrapper.got
    return got


@pytest.mark.parametrize("graph", [False, True])
def test_each_argument_arrives_where_it_belongs(upstream_import: Callable[[str], ModuleType], graph: bool) -> None:
    module = upstream_import("vllm.v1.attention.backends.flashinfer")
    wrapper = upstream_import("flashinfer").BatchDecodeWithPagedKVCacheWrapper
    got = plan_on(stand_in(inspect.signature(wrapper.plan), graph), module)
    assert got["sm_scale"] == 0.125
    assert got["data_type"] is None
    assert got["rope_scale"] is None
    assert got["rope_theta"] is None
    assert got["non_blocking"] is True, "torch takes no None for non_blocking"
    assert got["block_tables"] is None
    assert got["seq_lens"] is None
    assert got["fixed_split_size"] == -1
    assert got["disable_split_kv"] is True
    assert got["window_left"] == 127
    assert (got["num_qo_heads"], got["num_kv_heads"], got["head_dim"], got["page_size"]) == (64, 8, 64, 16)


def test_the_output_dtype_is_the_models(upstream_import: Callable[[str], ModuleType]) -> None:
    module = upstream_import("vllm.v1.attention.backends.flashinfer")
    wrapper = upstream_import("flashinfer").BatchDecodeWithPagedKVCacheWrapper
    assert "o_data_type" in inspect.signature(module.fast_plan_decode).parameters
    got = plan_on(stand_in(inspect.signature(wrapper.plan), True), module, o_data_type=torch.bfloat16)
    assert got["o_data_type"] is torch.bfloat16
    call = inspect.getsource(module.FlashInferMetadataBuilder)
    assert "o_data_type=self.model_config.dtype" in call


def test_a_plan_without_o_data_type_is_called_without_it(upstream_import: Callable[[str], ModuleType]) -> None:
    """FlashInfer 0.5.3's plan(): the same parameters without the one that 0.6.0 inserted.

    Where vLLM itself requires a newer one, there is no such call.
    """
    requires = (Path(os.environ["PATCHQ_TREES"]) / "vllm" / "requirements" / "cuda.txt").read_text()
    pinned = re.search(r"^flashinfer-python==(\d+)\.(\d+)", requires, re.MULTILINE)
    assert pinned, "vLLM's requirements name no FlashInfer"
    if (int(pinned[1]), int(pinned[2])) >= (0, 6):
        return
    module = upstream_import("vllm.v1.attention.backends.flashinfer")
    wrapper = upstream_import("flashinfer").BatchDecodeWithPagedKVCacheWrapper
    signature = inspect.signature(wrapper.plan)
    older = signature.replace(parameters=[p for n, p in signature.parameters.items() if n != "o_data_type"])
    extra = (
        {"o_data_type": torch.bfloat16}
        if "o_data_type" in inspect.signature(module.fast_plan_decode).parameters
        else {}
    )
    got = plan_on(stand_in(older, True), module, **extra)
    assert got["sm_scale"] == 0.125
    assert "o_data_type" not in got
