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

import flashinfer_setup as setup
import pytest
import torch


def plan_signature(wrapper: Any) -> inspect.Signature:
    """Return the signature of plan(); since 0.7 that of the method to which plan() gives its keywords."""
    return inspect.signature(getattr(wrapper, "_plan_impl", wrapper.plan))


def stand_in(real: Any, graph: bool, signature: inspect.Signature | None = None) -> Any:
    """Return a decode wrapper whose plan() binds its arguments as the real one's, or as ``signature`` does."""
    shown = signature or inspect.signature(real.plan)
    signature = signature or plan_signature(real)

    class Wrapper:
        is_cuda_graph_enabled = graph
        calls = 0

        def plan(self, *args: Any, **kwargs: Any) -> None:
            self.calls += 1
            try:
                bound = signature.bind(self, *args, **kwargs)
            except TypeError as error:
                pytest.fail(f"plan() is given what it doesn't take: {error}")
            bound.apply_defaults()
            self.got = bound.arguments

    Wrapper.plan.__signature__ = shown  # type: ignore[attr-defined]
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
    got = plan_on(stand_in(wrapper, graph), module)
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
    got = plan_on(stand_in(wrapper, True), module, o_data_type=torch.bfloat16)
    assert got["o_data_type"] is torch.bfloat16


def test_the_builder_says_the_models_dtype(backend: Any) -> None:
    """Of an FP8 cache, whose dtype is another."""
    layers = setup.make_layers(backend.module, [setup.Spec("model.layers.0.attn")], 8, 2, 64, "fp8")
    builder = setup.make_builder(backend.module, layers, 8, 2, 64, kv_cache_dtype="fp8")
    builder.build(0, setup.batch([1, 1], [5, 40], torch.arange(64, dtype=torch.int32).view(4, 16)))
    (plan,) = backend.made[0].plans
    assert plan["kv_data_type"] is torch.float8_e4m3fn
    assert plan["o_data_type"] is torch.bfloat16


def test_each_keyword_is_its_own(upstream_import: Callable[[str], ModuleType]) -> None:
    """All arguments at once, each with a value that no other has."""
    module = upstream_import("vllm.v1.attention.backends.flashinfer")
    real = upstream_import("flashinfer").BatchDecodeWithPagedKVCacheWrapper
    taken = inspect.signature(module.fast_plan_decode).parameters
    assert "o_data_type" in taken
    since_0_7 = {"window_right", "q_len_per_req", "is_causal"}
    skip = {"self", "block_tables", "seq_lens", *since_0_7}
    values = {name: f"the {name}" for name in plan_signature(real).parameters if name not in skip}
    renamed = {"indptr_cpu": "indptr", "last_page_len_cpu": "last_page_len"}
    given = {n: values.get(renamed.get(n, n), f"the {n}") for n in taken if n != "self"}
    for graph, calls in ((False, 2), (True, 1)):
        wrapper = stand_in(real, graph)
        module.fast_plan_decode(wrapper, **given)
        assert {name: wrapper.got[name] for name in values} == values
        assert wrapper.vllm_first_call is False, "with graphs the next is the fast one"
        assert wrapper.calls == 1
        if calls == 2:  # without graphs each one is a plan()
            module.fast_plan_decode(wrapper, **given)
            assert wrapper.calls == 2


def test_left_out_it_is_left_to_flashinfer(upstream_import: Callable[[str], ModuleType]) -> None:
    module = upstream_import("vllm.v1.attention.backends.flashinfer")
    assert "o_data_type" in inspect.signature(module.fast_plan_decode).parameters
    wrapper = upstream_import("flashinfer").BatchDecodeWithPagedKVCacheWrapper
    assert plan_on(stand_in(wrapper, True), module)["o_data_type"] is None


def test_a_plan_that_takes_its_options_as_keywords_gets_the_dtype(
    upstream_import: Callable[[str], ModuleType],
) -> None:
    """FlashInfer 0.7.0's plan(): what it needs, and **kwargs."""
    module = upstream_import("vllm.v1.attention.backends.flashinfer")
    assert "o_data_type" in inspect.signature(module.fast_plan_decode).parameters
    wrapper = upstream_import("flashinfer").BatchDecodeWithPagedKVCacheWrapper
    needed = [p for p in plan_signature(wrapper).parameters.values() if p.default is p.empty]
    newer = inspect.Signature([*needed, inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)])
    got = plan_on(stand_in(wrapper, True, newer), module, o_data_type=torch.bfloat16)
    assert got["kwargs"]["o_data_type"] is torch.bfloat16


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
    signature = plan_signature(wrapper)
    older = signature.replace(parameters=[p for n, p in signature.parameters.items() if n != "o_data_type"])
    extra = (
        {"o_data_type": torch.bfloat16}
        if "o_data_type" in inspect.signature(module.fast_plan_decode).parameters
        else {}
    )
    got = plan_on(stand_in(wrapper, True, older), module, **extra)
    assert got["sm_scale"] == 0.125
    assert "o_data_type" not in got
