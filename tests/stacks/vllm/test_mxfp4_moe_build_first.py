"""FlashInfer's MXFP4 MoE is compiled on SM12x when a layer's method is made, so before there are weights."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from flashinfer_moe import FULL
from moe_build_first import BuiltFirst, again
from vllm_kit import MXFP4

Load = Callable[[str], ModuleType]
LAYER = "vllm.model_executor.layers.fused_moe.layer"


@pytest.fixture
def method(upstream_import: Load, device: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The method that vLLM's quantization makes for a layer of experts, on a GPU, where a backend is chosen."""
    module, layer = upstream_import(MXFP4), upstream_import(LAYER)
    config = SimpleNamespace(
        compilation_config=SimpleNamespace(max_cudagraph_capture_size=512),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=8192),
    )
    monkeypatch.setattr(module, "get_current_vllm_config", lambda: config)
    monkeypatch.setattr(module, "get_marlin_input_dtype", lambda _: None)
    last: list[tuple[int, int]] = []

    def make(capability: tuple[int, int] = (12, 1), backend: str = "SM100_FI_MXFP4_MXFP8_CUTLASS") -> Any:
        if last != [capability]:  # it forgets what was asked for the last one
            device(*capability, MXFP4, "vllm.utils.flashinfer")
            last[:] = [capability]
        monkeypatch.setattr(module, "get_mxfp4_backend", lambda _: module.Mxfp4Backend[backend])
        experts = object.__new__(layer.FusedMoE)
        experts.__dict__["moe_config"] = SimpleNamespace(
            is_lora_enabled=False, tp_size=1, tp_rank=0, ep_size=1, ep_rank=0, dp_size=1
        )
        return module.Mxfp4Config().get_quant_method(experts, "model.layers.0.mlp.experts")

    return make


class TestMxfp4MoEBuiltFirst(BuiltFirst):
    @pytest.mark.parametrize("capability", [(12, 0), (12, 1)])
    def test_it_is_compiled_and_loaded_once_before_there_are_weights(
        self, method: Callable[..., Any], flashinfer: SimpleNamespace, log: list[str], capability: tuple[int, int]
    ) -> None:
        made = method(capability)
        name, asked = flashinfer.mxfp4, len(flashinfer.asked)
        assert name != FULL
        assert flashinfer.events == [("compile", name), ("load", name)]
        (line,) = [said for said in log if "ompil" in said]
        assert line.startswith("INFO ")
        assert f"({name})" in line
        assert "first start only" in line
        assert str(flashinfer.jit_dir / name) in line
        assert type(method(capability)) is type(made)
        if capability == (12, 1):
            flashinfer.called()
        assert len(flashinfer.asked) == asked, "a second layer asks for it again"
        assert flashinfer.events == [("compile", name), ("load", name)], (
            "a second layer, or the forward, loads it again"
        )

    @pytest.mark.parametrize(
        ("capability", "backend"),
        [
            ((12, 1), "MARLIN"),
            ((12, 1), "TRITON"),
            ((10, 0), "SM100_FI_MXFP4_MXFP8_CUTLASS"),
            ((10, 3), "SM100_FI_MXFP4_BF16"),
            ((11, 0), "SM100_FI_MXFP4_MXFP8_CUTLASS"),
            ((9, 0), "SM90_FI_MXFP4_BF16"),
        ],
    )
    def test_other_gpus_and_backends_compile_nothing(
        self, upstream_import: Load, method: Callable[..., Any], flashinfer: SimpleNamespace,
        capability: tuple[int, int], backend: str,
    ) -> None:  # fmt: skip
        method()
        assert flashinfer.events != []
        flashinfer.events.clear()
        flashinfer.asked.clear()
        again(upstream_import)  # or it would be done already
        method(capability, backend)
        assert flashinfer.events == []
        assert flashinfer.asked == [], "what is loaded already isn't loaded again, but it is asked for"
